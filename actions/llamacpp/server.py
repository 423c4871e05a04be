"""Run llama.cpp's server while a workload needs it."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from actions.llamacpp.model_file import locate_model, model_sha256
from actions.llamacpp.programs import (
    GPU_REMEDY,
    computed_on,
    on_the_cpu,
    program_environment,
    remedy_for,
)
from actions.llamacpp.server_binary import ServerBinary, thread_count
from agent.component.component import Relaunch
from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.host.ports import any_free, check_port
from parsers.llamacpp.devices import no_gpu

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from actions.llamacpp.server_parameters import ServerParameters
    from agent.host.processes import ProcessRunner, RunningProcess

PROGRAM = Path(__file__).with_name("in_environment") / "server_process.py"
_POLL_S = 0.05
_REPLY_TIMEOUT_S = 5.0
_LAST_LINES = 12


class LlamaCppServer:
    """A context manager: inside it, a llama.cpp server answers at ``url``; on exit, the server is removed.

    Args:
        parameters: the parameters of the server.
        name: the model's name for clients.
        python: the interpreter of an environment that has xllamacpp; any interpreter if a binary is set and
            the model is a path.
        processes: starts the server.
        log: gets the server's output, and no other output.
        stop: ends the wait for a slow start.
        host: the address to listen on and to connect to.
        contained: True if ``processes`` run in a container that has the program.
        published: the port of ``host`` that leads to the same port of a container with its own network,
            where the server listens on all addresses; 0 for none.

    Attributes:
        url: ``http://host:port`` while the server runs.
        model_path: the GGUF file that it serves.
        facts: facts that the server reports: engine, engine_version, system, threads.
    """

    def __init__(
        self,
        parameters: ServerParameters,
        *,
        name: str,
        python: Path,
        processes: ProcessRunner,
        log: Path,
        stop: threading.Event | None = None,
        host: str = "127.0.0.1",
        contained: bool = False,
        published: int = 0,
    ) -> None:
        self.parameters = parameters
        self.name = name
        self.log = log
        self.host = host
        self.url = ""
        self.model_path = Path()
        self.facts: dict[str, str | int | float] = {}
        self._python = python
        self._processes = processes
        self._stop = stop or threading.Event()
        self._process: RunningProcess | None = None
        self._binary: ServerBinary | None = None
        self._port = published or parameters.port
        self._listen = "0.0.0.0" if published else host  # noqa: S104 - of a container, whose port the host publishes
        self._contained = contained
        self._published = published

    def __enter__(self) -> Self:
        """Start the server and wait until it answers with the right model.

        Raises:
            ActionFailedError: if the port is taken, or the process ends, is too slow, or does not use
                the requested GPUs.
            InterruptedRunError: if the run is asked to stop meanwhile.
        """
        if not self._published:  # the container engine already holds a published port
            check_port(self.host, self._port)
        self.model_path = locate_model(
            self.parameters.model,
            python=self._python,
            processes=self._processes,
            log=self.log,
            contained=self._contained,
        )
        deadline = time.monotonic() + self.parameters.start_timeout
        written = self.log.stat().st_size if self.log.exists() else 0
        if self.parameters.binary is not None:
            self._binary = ServerBinary.read(
                self.parameters.binary, processes=self._processes, log=self.log, contained=self._contained
            )
            self._port = self._port or any_free(self.host)
            self.url = f"http://{self.host}:{self._port}"
            where = computed_on(self.parameters.gpu_layers, self._binary.devices)
            self.facts = {**self._binary.facts, "threads": thread_count(self.parameters), **where}
        self._process = self._processes.start(
            self.command(), log=self.log, env=program_environment(os.environ)
        )
        try:
            if self._binary is None:
                self._wait(deadline, "listened", lambda: self._listening(written))
            self._wait(deadline, "answered at /health", lambda: self._get("/health") is not None)
            self._check_model()
            self._check_gpu(written)
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server and everything it started."""
        self.stop()

    def stop(self) -> None:
        """Stop the server and everything it started."""
        if self._process is not None:
            self._process.stop()

    def command(self) -> list[str]:
        """Return the command line that starts the server."""
        model = str(self.model_path) if self.model_path.name else self.parameters.model
        if self._binary is not None:
            return self._binary.command(
                self.parameters, model=model, alias=self.name, host=self._listen, port=self._port
            )
        return [
            str(self._python), str(PROGRAM),
            "--model", model,
            "--alias", self.name,
            "--host", self._listen,
            "--port", str(self._port),
            "--parallel", str(self.parameters.parallel),
            "--context", str(self.parameters.context),
            "--threads", str(self.parameters.threads),
        ]  # fmt: skip

    def relaunch(self) -> Relaunch | None:
        """Return how to start the server again permanently at the same port; None in a container."""
        if self._contained:
            return None
        self._port = urlsplit(self.url).port or self._port
        command = self.command() if self._binary is not None else [*self.command(), "--stay"]
        return Relaunch(command, program_environment(os.environ))

    def model_sha256(self) -> str:
        """Return the SHA-256 of the model's file."""
        return model_sha256(
            self.model_path, processes=self._processes, log=self.log, contained=self._contained
        )

    def death(self) -> str | None:
        """Describe how the server ended; return None while it is running."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def last_words(self) -> tuple[str, ...]:
        """Return the last lines of its output."""
        return () if self._process is None else self._process.tail(_LAST_LINES)

    def _listening(self, written: int) -> bool:
        """Return True if the server has reported its address."""
        for line in self._said(written).splitlines(keepends=True):
            begin = line.find('{"event": "listening"')
            if begin >= 0 and line.endswith("\n"):
                said = json.loads(line[begin:])
                address = said.pop("address")
                self.url = f"http://{self.host}:{self._published}" if self._published else address
                del said["event"]
                self.facts = said
                return True
        return False

    def _wait(self, deadline: float, what: str, holds: Callable[[], bool]) -> None:
        while not holds():
            if death := self.death():
                words = self.last_words()
                known = remedy_for("\n".join((death, *words)))
                raise ActionFailedError(
                    f"llama.cpp's server {death} before it {what}",
                    remedy="; ".join(filter(None, (known, f"its output is in {self.log}"))),
                    details=words,
                )
            if time.monotonic() > deadline:
                raise ActionFailedError(
                    f"llama.cpp's server has not {what} within {self.parameters.start_timeout:g} s",
                    remedy=f"raise start_timeout if the model is large; its output is in {self.log}",
                    details=self.last_words(),
                )
            if self._stop.wait(_POLL_S):
                raise InterruptedRunError("asked to stop while llama.cpp's server was starting")

    def _check_model(self) -> None:
        models = self._get("/v1/models")
        names = [str(entry.get("id")) for entry in (models or {}).get("data", [])]
        if self.name not in names:
            raise ActionFailedError(
                f"{self.url} serves {', '.join(names) or 'no model'}, not {self.name}",
                remedy="another server answers at that port: choose another port",
            )

    def _check_gpu(self, written: int) -> None:
        if self._binary is None:
            return
        said = no_gpu(self._said(written), self.parameters.gpu_layers, self._binary.devices)
        if said:
            raise ActionFailedError(on_the_cpu(said), remedy=GPU_REMEDY)

    def _said(self, written: int) -> str:
        """Return the server's output; ``written`` is the size of the log before the start."""
        with self.log.open("rb") as file:
            file.seek(written)
            return file.read().decode(errors="replace")

    def properties(self) -> dict[str, Any]:
        """Return the properties at /props; empty if the server does not answer."""
        return self._get("/props") or {}

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the JSON of a reply with status 200, else None; never uses a proxy."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(
            address.hostname or self.host, address.port, timeout=_REPLY_TIMEOUT_S
        )
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            reply = connection.getresponse()
            body = reply.read()
            return cast("dict[str, Any]", json.loads(body)) if reply.status == http.client.OK else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()
