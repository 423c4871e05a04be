"""A bundle made beforehand is accepted if it is valid and has the controller's version of the agent."""

from __future__ import annotations

import io
import json
import tarfile
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import UsageError
from agent.fleet.bundle import Bundles, Platform

if TYPE_CHECKING:
    from pathlib import Path

OWN = metadata.version("vcagent")


def bundle(folder: Path, described: Any) -> Path:
    path, content = folder / "b.tar.gz", json.dumps(described).encode()
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("bundle.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return path


def test_one_of_this_version_is_taken_for_its_platform(tmp_path: Path) -> None:
    path = bundle(tmp_path, {"platform": "py3.11-x86_64-glibc", "version": OWN})
    assert Bundles([path]).bundle(Platform("3.11", "x86_64")).path == path


@pytest.mark.parametrize(
    ("described", "said"),
    [
        (
            {"platform": "py3.11-x86_64-glibc", "version": "0.0.1"},
            f"contains vcagent 0.0.1, but this is vcagent {OWN}\n  → build it again: vcagent bundle",
        ),
        ({"platform": "py3.11-x86_64-glibc"}, "is not a bundle of vcagent"),
        ({"version": OWN}, "is not a bundle of vcagent"),
        ([], "is not a bundle of vcagent"),
    ],
)
def test_others_are_refused(tmp_path: Path, described: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Bundles([bundle(tmp_path, described)])
    assert said in str(caught.value)
