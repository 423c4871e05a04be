"""A bundle that does not fit the host, or is not whole, is refused before anything is changed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError, UsageError
from agent.core.file_hash import sha256_of
from agent.facts import Facts
from agent.facts.linux import Distribution
from agent.facts.python import PythonInterpreter
from agent.run.bundle_opening import MANIFEST, check_bundle, host_platform, open_bundle
from agent.run.bundling import platform_facts

if TYPE_CHECKING:
    from pathlib import Path

HOST = Facts(
    None,
    {
        "distribution": Distribution("ubuntu", "24.04", "noble", ("debian",)),
        "platform": "linux-x64",
        "python": PythonInterpreter("python3", "3.12.3", "linux-x86_64"),
        "package_manager": "dnf",  # without apt, no lists are made
    },
)


def bundle(folder: Path, **changed: Any) -> Path:
    """Write a bundle with one wheel."""
    wheel = folder / "wheels" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.write_bytes(b"a wheel")
    described = {
        "vcagent": "1.0",
        "platform": "ubuntu-24.04-x64",
        "python": "3.12",
        "profiles": ["TINY"],
        "contents": [{"kind": "wheel", "name": "tiny==1.0"}],
        "files": [{"path": f"wheels/{wheel.name}", "size_bytes": 7, "sha256": sha256_of(wheel)}],
    }
    (folder / MANIFEST).write_text(json.dumps({**described, **changed}))
    return folder


def test_a_bundle_that_fits(tmp_path: Path) -> None:
    opened = open_bundle(bundle(tmp_path), HOST)
    assert opened.contents == {("wheel", "tiny==1.0")}
    assert opened.wheels == tmp_path / "wheels"
    check_bundle(opened)


def test_a_folder_that_is_not_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a bundle: it has no vcagent-bundle\.json"):
        open_bundle(tmp_path, HOST)


def test_a_pipe_in_a_bundle_is_not_waited_for(tmp_path: Path) -> None:
    folder = bundle(tmp_path)
    (wheel,) = (folder / "wheels").iterdir()
    wheel.unlink()
    os.mkfifo(wheel)
    with pytest.raises(HostError, match=r"is a link, a device or a pipe|is incomplete: 1 of its files"):
        open_bundle(folder, HOST)
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)
    with pytest.raises(UsageError, match=r"cannot be read: .*not an ordinary file"):
        open_bundle(folder, HOST)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"platform": "debian-12-x64"}, "is for debian-12-x64, and this host is ubuntu-24.04-x64"),
        ({"python": "3.11"}, "are for Python 3.11, and the agent runs with 3.12"),
        (
            {"files": [{"path": "wheels/gone.whl", "size_bytes": 1, "sha256": "00"}]},
            "is incomplete: 1 of its files are not as its manifest has them",
        ),
    ],
)
def test_a_bundle_for_other_hosts_or_with_missing_files(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(HostError, match=message):
        open_bundle(bundle(tmp_path, **changed), HOST)


def test_the_minor_releases_of_rhel_share_their_bundles() -> None:
    for platform, version in (
        ("rocky-9-x64", "9.6"),
        ("ubuntu-24.04-x64", "24.04"),
        ("rhel-10-arm64", "10.0"),
    ):
        modelled = platform_facts(platform)
        found = {**modelled, "distribution": replace(modelled["distribution"], version=version)}
        assert host_platform(Facts(None, found)) == platform


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "wheels/../../secret", ""])
def test_files_outside_of_the_bundle_are_refused(tmp_path: Path, path: str) -> None:
    files = [{"path": path, "size_bytes": 1, "sha256": "00"}]
    with pytest.raises(UsageError, match=r"manifest of the bundle .* cannot be read"):
        open_bundle(bundle(tmp_path, files=files), HOST)


def test_a_file_with_another_content(tmp_path: Path) -> None:
    opened = open_bundle(bundle(tmp_path), HOST)
    (tmp_path / "wheels" / "tiny-1.0-py3-none-any.whl").write_bytes(b"another")
    with pytest.raises(HostError, match="is damaged") as caught:
        check_bundle(opened)
    assert caught.value.details == ("wheels/tiny-1.0-py3-none-any.whl",)
