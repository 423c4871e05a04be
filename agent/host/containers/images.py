"""Images: pulled from a registry or built from a folder, with progress, and identified by their digests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import docker.errors
from docker.utils import parse_repository_tag

from agent.host.containers.client import EngineClient, LongAnswer, engine_errors
from agent.host.containers.failures import engine_error
from agent.host.processes.output import OutputLog

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.core.progress import Progress
    from agent.core.secrets import Secrets


@dataclass(frozen=True)
class Image:
    """An image that the engine has.

    Args:
        reference: the requested name.
        identifier: ``sha256:…``, the engine's name for it.
        digests: its names in registries, ``repository@sha256:…``; none for an image that was built here.
        size_bytes: its size on the disk.
        created: its own creation time.
        entrypoint: the program that a container of it runs, with its first arguments.
        command: its default arguments, or the program if it has no entrypoint.
    """

    reference: str
    identifier: str
    digests: tuple[str, ...] = ()
    size_bytes: int | None = None
    created: str = ""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    @property
    def pinned(self) -> str:
        """The name that means this very image: a registry's digest, or the engine's own name for it."""
        return (*self.digests, self.identifier)[0]


class Layers:
    """Progress of an image: adds up the engine's reports on its layers."""

    def __init__(self) -> None:
        self._done: dict[str, int] = {}
        self._total: dict[str, int] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one of the engine's lines."""
        layer, status = str(event.get("id", "")), str(event.get("status", ""))
        detail = event.get("progressDetail") or {}
        if status == "Downloading" and isinstance(detail.get("current"), int):
            self._done[layer] = detail["current"]
            if isinstance(detail.get("total"), int) and detail["total"] > 0:
                self._total[layer] = detail["total"]
        elif status in {"Download complete", "Pull complete"} and layer in self._total:
            self._done[layer] = self._total[layer]

    @property
    def done_bytes(self) -> int:
        """Number of bytes received."""
        return sum(self._done.values())

    @property
    def total_bytes(self) -> int | None:
        """Total number of bytes, as far as known."""
        return sum(self._total.values()) or None


def find_image(client: EngineClient, reference: str) -> Image | None:
    """Return an image of the engine, or None."""
    with engine_errors(f"the image {reference} cannot be looked at"):
        try:
            found = client.inspect_image(reference)
        except docker.errors.NotFound:
            return None
    config = found.get("Config") or {}
    return Image(
        reference,
        str(found["Id"]),
        tuple(found.get("RepoDigests") or ()),
        found.get("Size"),
        str(found.get("Created") or ""),
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
    )


def pull(client: EngineClient, reference: str, *, progress: Progress | None, stop: threading.Event) -> None:
    """Fetch an image from its registry, with the credentials of the user's docker configuration.

    Raises:
        ContainerError: if it is not available.
        InterruptedRunError: if ``stop`` is set meanwhile.
    """
    what = f"the image {reference} cannot be pulled"
    repository, tag = parse_repository_tag(reference)
    layers = Layers()
    with engine_errors(what):
        # Without a tag the engine would fetch every tag that the repository has.
        answer = LongAnswer(
            client, lambda: client.pull(repository, tag or "latest", stream=True, decode=True)
        )
        for event in _events(answer, stop, what):
            layers.take(event)
            if progress:
                progress.update(f"pulling {reference}", done=layers.done_bytes, total=layers.total_bytes)


def build(
    client: EngineClient,
    folder: Path,
    *,
    tag: str,
    dockerfile: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    target: str,
    network: str,
    use_cache: bool,
    log: Path,
    secrets: Secrets,
    progress: Progress | None,
    stop: threading.Event,
) -> None:
    """Build an image with the engine's own builder; see ``ContainerEngine.build_image``."""
    what = f"the image {tag} cannot be built from {folder}"
    output = OutputLog(log, secrets.mask(f"docker build --tag {tag} {folder / dockerfile}"), secrets)
    footer = "not built"
    try:
        with engine_errors(what):
            answer = LongAnswer(
                client,
                lambda: client.build(
                    path=str(folder),
                    dockerfile=dockerfile,
                    tag=tag,
                    buildargs=dict(arguments),
                    labels=dict(labels),
                    target=target or None,
                    network_mode=network or None,
                    nocache=not use_cache,
                    rm=True,
                    forcerm=True,
                    decode=True,
                ),
            )
            for event in _events(answer, stop, what, lambda: output.lines(20)):
                text = str(event.get("stream") or "")
                output.feed("stdout", text.encode())
                if progress:
                    _show(progress, text or str(event.get("status") or ""))
        footer = "built"
    finally:
        output.feed("stdout", b"")
        output.close(footer)


def _show(progress: Progress, text: str) -> None:
    step = re.match(r"Step (\d+)/(\d+) : (.*)", text)
    if step:
        progress.update(step.group(0)[:200], done=int(step.group(1)) - 1, total=int(step.group(2)))


def _events(
    answer: LongAnswer, stop: threading.Event, what: str, lines: Callable[[], Sequence[str]] = tuple
) -> Iterator[Mapping[str, Any]]:
    """Yield the engine's lines; a line with an error ends them."""
    for event in answer.pieces(stop, what):
        if "error" in event:
            error = engine_error(what, str(event["error"]))
            error.details = tuple(lines())
            raise error
        yield event
