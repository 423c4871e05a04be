"""Puts images into a bundle, as files that ``docker load`` reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.component.downloads import Download, not_carried, run_captured
from agent.core.errors import HostError, LiftedBy
from agent.core.safe_files import make_folder
from agent.facts.bundle import IMAGES
from agent.facts.linux import ARCHITECTURE

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.downloads import Fetching

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_download(reference: str) -> Download:
    """Return the download of an image.

    Raises:
        HostError: if the image is named by its digest, which ``docker save`` does not keep.
    """
    if "@" in reference:
        raise not_carried(
            f"the image {reference}, whose digest docker save does not keep", "name it by a tag"
        )
    return Download("image", (reference,), lambda fetching: _fetch(reference, fetching))


def image_file(bundle: Path, reference: str) -> Path:
    """Return the file of an image in a bundle."""
    return bundle / IMAGES / (re.sub(r"[^A-Za-z0-9.-]+", "_", reference) + ".tar")


def _fetch(reference: str, fetching: Fetching) -> None:
    """Pull an image for the processor of the other host, and save it.

    Raises:
        HostError: if this machine has no Docker, or the image is not available.
    """
    machine = fetching.facts[ARCHITECTURE]
    file = image_file(fetching.folder, reference)
    make_folder(file.parent)
    fetching.say(f"image {reference}")
    _docker(
        reference, "pull", "--quiet", f"--platform=linux/{_ARCHITECTURES.get(machine, machine)}", reference
    )
    _docker(reference, "save", f"--output={file}", reference)


def _docker(reference: str, *arguments: str) -> None:
    done = run_captured(["docker", *arguments])
    if done.failed:
        raise HostError(
            f"the image {reference} cannot be fetched",
            details=tuple(done.errors.strip().splitlines()[-6:]),
            remedy="see whether Docker runs on this machine, and may pull the image (docker login)",
            lifted_by=LiftedBy.NOTHING,
        )
