"""Puts images into a bundle, as files that ``docker load`` reads."""

from __future__ import annotations

import hashlib
import platform
import re
from typing import TYPE_CHECKING

from agent.component.downloads import Download, run_captured
from agent.core.errors import HostError, LiftedBy
from agent.core.safe_files import make_folder
from agent.facts.bundle import IMAGES
from agent.facts.linux import ARCHITECTURE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.component.downloads import Fetching

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_download(reference: str) -> Download:
    """Return the download of an image."""
    return Download("image", (reference,), lambda fetching: _pull(reference, fetching))


def built_image_download(
    name: str, folder: Path, dockerfile: str, arguments: Mapping[str, str], network: str
) -> Download:
    """Return the download of an image that is built where the bundle is made.

    Args:
        name: its name, or the Dockerfile, as the profile writes it.
        folder: the folder that the Dockerfile may copy from.
        dockerfile: the name of the Dockerfile in the folder.
        arguments: arguments of the build.
        network: the network of the build; empty for Docker's default.
    """
    given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
    options = [*given, *([f"--network={network}"] if network else []), f"--file={folder / dockerfile}"]

    def build(fetching: Fetching) -> None:
        machine = fetching.facts[ARCHITECTURE]
        wanted = [] if machine == platform.machine() else [_platform(machine)]
        fetching.say(f"image {name}, built from {folder / dockerfile}")
        # As on a host: by the engine's own builder.
        command = ["build", "--quiet", *wanted, *options, f"--tag={bundled_tag(name)}", str(folder)]
        _docker(f"the image {name} cannot be built", command, {"DOCKER_BUILDKIT": "0"})
        _save(name, fetching)

    return Download("image", (name,), build)


def bundled_tag(name: str) -> str:
    """Return the name that an image of a bundle has in Docker.

    ``docker save`` keeps no digest, and a Dockerfile's place is not a name: these get one of their own.
    """
    if re.fullmatch(r"[a-z0-9][\w.:/-]*", name) and not name.startswith("/"):
        return name
    return f"vcagent-bundled-{hashlib.sha256(name.encode()).hexdigest()[:12]}:latest"


def image_file(bundle: Path, reference: str) -> Path:
    """Return the file of an image in a bundle."""
    return bundle / IMAGES / (re.sub(r"[^A-Za-z0-9.-]+", "_", reference) + ".tar")


def _pull(reference: str, fetching: Fetching) -> None:
    """Pull an image for the processor of the other host, and save it.

    Raises:
        HostError: if this machine has no Docker, or the image is not available.
    """
    fetching.say(f"image {reference}")
    what = f"the image {reference} cannot be fetched"
    _docker(what, ["pull", "--quiet", _platform(fetching.facts[ARCHITECTURE]), reference])
    if bundled_tag(reference) != reference:
        _docker(what, ["tag", reference, bundled_tag(reference)])
    _save(reference, fetching)


def _save(name: str, fetching: Fetching) -> None:
    file = image_file(fetching.folder, name)
    make_folder(file.parent)
    _docker(f"the image {name} cannot be saved", ["save", f"--output={file}", bundled_tag(name)])


def _platform(machine: str) -> str:
    return f"--platform=linux/{_ARCHITECTURES.get(machine, machine)}"


def _docker(what: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    done = run_captured(["docker", *arguments], environment)
    if done.failed:
        raise HostError(
            what,
            details=tuple(done.errors.strip().splitlines()[-6:]),
            remedy="see whether Docker runs on this machine, and may pull the image (docker login)",
            lifted_by=LiftedBy.NOTHING,
        )
