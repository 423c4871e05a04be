"""A registry of static files: one small image, pulled by the real ``docker pull``.

Source of the layout: OCI Distribution Specification 1.1, and Docker's image manifest V2, schema 2.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["busybox_layer", "write_image"]

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_APPLETS = ("sh", "cat", "echo", "grep", "sed", "tr", "wc", "printf", "true", "sleep", "ls", "env", "head")


def busybox_layer(busybox: Path) -> bytes:
    """Return a root file system with one static program and its links, as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        program = tarfile.TarInfo("bin/busybox")
        program.size = busybox.stat().st_size
        program.mode = 0o755
        with busybox.open("rb") as file:
            archive.addfile(program, file)
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return buffer.getvalue()


def write_image(root: Path, name: str, tags: tuple[str, ...], layer: bytes) -> None:
    """Write an image of one layer below ``root/v2/<name>``.

    Args:
        root: the folder that the registry serves.
        name: such as ``nvidia/cuda``.
        tags: the tags of this image.
        layer: its file system, a tar.
    """
    folder = root / "v2" / name
    (folder / "blobs").mkdir(parents=True)
    (folder / "manifests").mkdir()

    def blob(content: bytes, media_type: str) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        (folder / "blobs" / digest).write_bytes(content)
        return {"mediaType": media_type, "size": len(content), "digest": digest}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/usr/bin:/bin"], "Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [],
    }
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blob(json.dumps(config).encode(), _CONFIG),
            "layers": [blob(gzip.compress(layer, mtime=0), _LAYER)],
        }
    ).encode()
    for tag in (*tags, f"sha256:{hashlib.sha256(manifest).hexdigest()}"):
        (folder / "manifests" / tag).write_bytes(manifest)
