"""The connection to the engine: only this module and its neighbours use the Docker SDK."""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import docker.errors
import requests
import urllib3.exceptions
from docker.api import APIClient
from docker.context import ContextAPI
from docker.utils import kwargs_from_env
from docker.utils.config import load_general_config
from docker.utils.proxy import ProxyConfig

from agent.core.errors import InterruptedRunError
from agent.host.containers.failures import engine_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from requests import Response

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"

_TIMEOUT_S = 120
"""Seconds for one short answer; an engine that removes a large container is slow."""

_GLANCE_S = 0.25
"""Seconds between checks for a stop."""

_STREAMS: dict[int, Literal["stdout", "stderr"]] = {1: "stdout", 2: "stderr"}
_FRAME_HEADER = struct.Struct(">BxxxL")


class EngineClient(APIClient):
    """The SDK's client; another thread can cancel a long answer.

    Args:
        docker_config: docker configuration with credentials and proxies; None for this user's.
        settings: settings of the SDK.

    Attributes:
        container_proxies: variables that the docker command gives every container; they may hold a password.
    """

    def __init__(self, docker_config: Path | None = None, **settings: Any) -> None:
        self._local = threading.local()
        super().__init__(version="auto", timeout=_TIMEOUT_S, **settings)
        if docker_config:
            self.reload_config(str(docker_config))  # which leaves out the proxies
        configured = load_general_config(str(docker_config) if docker_config else None).get("proxies", {})
        chosen = configured.get(settings.get("base_url")) or configured.get("default", {})
        proxies = ProxyConfig.from_dict(chosen).get_environment()
        self.container_proxies = {name: str(value) for name, value in proxies.items()}

    def send(self, request: Any, **settings: Any) -> Response:
        """Send a request, and keep the answer for the calling thread."""
        response = super().send(request, **settings)
        self._local.response = response
        return response

    @property
    def last_response(self) -> Response | None:
        """Return the last answer of this thread."""
        return getattr(self._local, "response", None)

    def url_of(self, path: str) -> str:
        """Return the address of a part of the engine's API."""
        return f"{self.base_url}/v{self.api_version}{path}"


def connected(address: str | None = None, docker_config: Path | None = None) -> EngineClient:
    """Connect to an engine.

    Args:
        address: such as ``unix:///var/run/docker.sock``; by default that of the docker command:
            ``DOCKER_HOST``, else the current context's.
        docker_config: the docker configuration with the registries' credentials; by default this user's.

    Raises:
        ContainerError: if no engine answers; with the remedy.
    """
    with engine_errors("the way to the container engine is not known"):
        settings: dict[str, Any] = {"base_url": address} if address else {**kwargs_from_env()}
        if not settings.get("base_url") and (
            context := ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT"))
        ):
            settings = {"base_url": context.Host, "tls": context.TLSConfig}
    address = str(settings.get("base_url") or _DEFAULT_ADDRESS)
    with engine_errors(f"no container engine answers at {address}"):
        _knock(address)
        return EngineClient(docker_config, **settings)


def _knock(address: str) -> None:
    """Check that an engine listens; the SDK's own check would leave its socket open.

    Raises:
        DockerException: if none listens, or this user has no permission.
    """
    scheme, _, path = address.partition("://")
    if scheme not in {"unix", "http+unix"}:
        return
    with socket.socket(socket.AF_UNIX) as knocking:
        try:
            knocking.connect(path)
        except OSError as error:
            raise docker.errors.DockerException(repr(error)) from error


@contextmanager
def engine_errors(what: str) -> Iterator[None]:
    """Turn errors of the SDK into errors with a remedy.

    Args:
        what: the operation that failed.
    """
    try:
        yield
    except docker.errors.APIError as error:
        said = str(error.explanation or error)
        raise engine_error(what, said) from error
    except (docker.errors.DockerException, requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise engine_error(what, str(error)) from error


@dataclass(frozen=True)
class _End:
    """Marks the end of the pieces.

    Args:
        error: the error that ended them.
    """

    error: Exception | None = None


def remove_container(client: EngineClient, identifier: str) -> None:
    """End a container and remove it with its anonymous volumes; nothing if it is gone or being removed.

    Raises:
        APIError: if the engine does not remove it.
    """
    try:
        client.remove_container(identifier, force=True, v=True)
    except docker.errors.NotFound:
        return
    except docker.errors.APIError as error:
        if "already in progress" not in str(error.explanation):
            raise


class LongAnswer:
    """An answer in pieces, read by a thread of its own so that waiting can be stopped.

    Args:
        client: the connection.
        call: makes the request and yields the pieces.

    Attributes:
        ended: True once all received pieces were taken.
    """

    def __init__(self, client: EngineClient, call: Callable[[], Iterator[Any]]) -> None:
        self.ended = False
        self._client = client
        self._call = call
        self._pieces: queue.Queue[Any] = queue.Queue(maxsize=1000)
        self._response: Response | None = None
        self._unwanted = threading.Event()
        threading.Thread(target=self._read, daemon=True, name="engine-answer").start()

    def take(self, limit_s: float = _GLANCE_S) -> Any:
        """Return the next piece, or None if none arrives in time or none is left.

        Raises:
            Exception: the call's own error, after all earlier pieces were taken.
        """
        try:
            piece = self._pieces.get(timeout=limit_s)
        except queue.Empty:
            return None
        if not isinstance(piece, _End):
            return piece
        self.ended = True
        if piece.error:
            raise piece.error
        return None

    def pieces(self, stop: threading.Event, what: str) -> Iterator[Any]:
        """Yield all pieces as they arrive.

        Raises:
            InterruptedRunError: if ``stop`` is set; the engine sees the closed connection.
        """
        while not self.ended:
            if stop.is_set():
                self.cancel()
                raise InterruptedRunError(f"{what} was stopped")
            if (piece := self.take()) is not None:
                yield piece

    def cancel(self) -> None:
        """Close the connection: the rest is not needed."""
        self._unwanted.set()
        if self._response is not None:
            with suppress(OSError, ValueError):  # it is already closed
                self._response.raw.shutdown()

    def _read(self) -> None:
        end = _End()
        try:
            pieces = self._call()
            self._response = self._client.last_response
            if self._unwanted.is_set():  # there was nothing to shut down yet
                return
            for piece in pieces:
                if not self._put(piece):
                    break
        except Exception as error:  # noqa: BLE001 - raised in the thread that takes
            end = _End(error)
        finally:
            if self._response is not None:
                self._response.close()
            self._put(end)

    def _put(self, piece: Any) -> bool:
        while not self._unwanted.is_set():
            with suppress(queue.Full):
                self._pieces.put(piece, timeout=_GLANCE_S)
                return True
        return False


def _frames(response: Response) -> Iterator[tuple[Literal["stdout", "stderr"], bytes]]:
    """Yield standard output and standard error separately (Docker Engine API, "Stream format" of attach)."""
    while len(header := response.raw.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
        stream, length = _FRAME_HEADER.unpack(header)
        while length:
            data = response.raw.read(min(length, 65_536))
            if not data:
                return
            length -= len(data)
            yield _STREAMS.get(stream, "stdout"), data


def exec_output(client: EngineClient, identifier: str) -> Iterator[tuple[Literal["stdout", "stderr"], bytes]]:
    """Start a command created in a container, and yield its output.

    The SDK's own method is not used, because it bypasses the buffer that may contain the first bytes.
    """
    response = client.post(
        client.url_of(f"/exec/{identifier}/start"),
        data=json.dumps({"Detach": False, "Tty": False}),
        headers={"Content-Type": "application/json"},
        stream=True,
        timeout=(_TIMEOUT_S, None),
    )
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        raise docker.errors.create_api_error_from_http_exception(error) from error
    return _frames(response)
