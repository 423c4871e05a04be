"""An environment comes from a bundle that was made for this host, without an index."""

from __future__ import annotations

import json
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError
from agent.core.progress import RunProgress
from agent.facts import Facts, LocalHost
from agent.facts.linux import DISTRIBUTION, GLIBC
from agent.facts.python import PYTHON
from agent.run import bundling
from agent.run.bundle_opening import host_platform
from agent.run.request import RunRequest
from agent.run.session import plan, start
from dependencies.python.bundled_wheels import platform_tags
from tests.agent.conftest import vcagent
from tests.dependencies.python.test_python_environment_installation import make_wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["vcagent"]


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of this host's platform; bundles are made for it, whatever distribution it has."""
    facts = Facts(LocalHost())
    distribution, python = facts[DISTRIBUTION], facts[PYTHON]
    assert python is not None
    release = bundling._Release(
        distribution.codename, ".".join(python.version.split(".")[:2]), facts[GLIBC] or "2.31"
    )
    monkeypatch.setitem(bundling._RELEASES, (distribution.id, distribution.version), release)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return host_platform(facts)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    make_wheel(folder, "tiny_one", "1.0", requires='tiny_two; python_version >= "3.10"')
    make_wheel(folder, "tiny_two", "1.0", requires='tiny_three; python_version < "3.10"')
    return folder


def request(tmp_path: Path, *requirements: str, **options: Any) -> RunRequest:
    parameters = {"packageName": "tiny", "requirements": list(requirements), "requiredSpace": 0}
    profile = tmp_path / "TINY.json"
    element = {"Type": "PythonEnvironmentInstallation", "Parameters": parameters}
    profile.write_text(json.dumps({"Description": "A test.", "Dependencies": [element]}))
    folders = {"results_dir": tmp_path / "results", "package_dir": tmp_path / "packages"}
    return RunRequest((str(profile),), **folders, **options)


def test_an_environment_from_a_bundle(tmp_path: Path, platform: str, wheels: Path) -> None:
    asked = request(tmp_path, "tiny_one==1.0", 'tiny_nine==9; python_version < "3"')
    bundle = tmp_path / "bundle"
    made = bundling.make_bundle(asked, platform, bundle, wheels=wheels)
    assert [(one.kind, one.name) for one in made.contents] == [("wheel", "tiny_one==1.0")]
    names = [one.path for one in made.files]
    assert names == ["wheels/tiny_one-1.0-py3-none-any.whl", "wheels/tiny_two-1.0-py3-none-any.whl"]

    ended = start(request(tmp_path, "tiny_one==1.0", bundle=bundle), RunProgress())
    assert ended.outcome.exit_code == 0, ended.outcome.error
    python = tmp_path / "packages" / "tiny" / "bin" / "python"
    said = subprocess.run([python, "-c", "import tiny_one, tiny_two"], check=False, capture_output=True)
    assert said.returncode == 0, said.stderr

    # Another wish: the plan says what the bundle lacks, and the run does not begin.
    other = request(tmp_path, "tiny_one==1.0", "tiny_two==2.0", bundle=bundle)
    planned = plan(other).components[0]
    assert planned.standing.value == "refused"
    assert planned.note == f"the bundle {bundle} lacks wheel tiny_two==2.0"
    with pytest.raises(HostError, match=r"lacks wheel tiny_two==2\.0"):
        start(other, RunProgress())


def test_markers_are_those_of_the_other_python(tmp_path: Path, wheels: Path) -> None:
    make_wheel(wheels, "tiny_three", "1.0")
    make_wheel(wheels, "tiny_four", "1.0", requires='tiny_three; platform_machine == "aarch64"')
    made = bundling.make_bundle(
        request(tmp_path, "tiny_four"), "debian-13-arm64", tmp_path / "bundle", wheels=wheels
    )
    assert [one.path.split("-")[0] for one in made.files] == ["wheels/tiny_four", "wheels/tiny_three"]
    assert (made.platform, made.python) == ("debian-13-arm64", "3.13")


def test_a_bundle_in_an_archive(
    tmp_path: Path, wheels: Path, vcagent: Callable[..., tuple[int, str, str]]
) -> None:
    (profile,) = request(tmp_path, "tiny_two").profiles
    command = ("bundle", "--profile", profile, "--platform", "ubuntu-24.04-x64", "--wheels", str(wheels))
    archive = tmp_path / "stick.tar"
    code, out, error = vcagent(*command, "--output", str(archive), "--json")
    assert code == 0, error
    told = json.loads(out)
    assert told["bundles"] == [str(archive)]
    assert told["contents"] == [{"kind": "wheel", "name": "tiny_two"}]
    with tarfile.open(archive) as packed:
        names = [member.name for member in packed if member.isfile()]
    assert names == ["stick/vcagent-bundle.json", "stick/wheels/tiny_two-1.0-py3-none-any.whl"]
    assert not list(tmp_path.glob(".vcagent-*"))

    code, _, error = vcagent(*command, "--output", str(archive))
    assert code == 2
    assert "is there already" in error
    code, _, error = vcagent("plan", profile, "--bundle", str(archive))
    assert code == 2
    assert "unpack it (tar -xf stick.tar), and give the folder" in error


def test_a_requirement_without_a_wheel_is_refused_by_name(tmp_path: Path, wheels: Path) -> None:
    with pytest.raises(HostError, match=r"wheels for Python 3\.12 on x86_64 cannot be fetched") as caught:
        bundling.make_bundle(
            request(tmp_path, "tiny_five==5"), "ubuntu-24.04-x64", tmp_path / "bundle", wheels=wheels
        )
    assert "tiny_five==5" in "\n".join(caught.value.details)
    assert not (tmp_path / "bundle" / "vcagent-bundle.json").exists()


def test_a_requirement_with_an_address_is_refused(tmp_path: Path, wheels: Path) -> None:
    wish = "tiny @ git+https://user:word@example.com/tiny.git"
    with pytest.raises(HostError, match="cannot carry requirements with addresses") as caught:
        bundling.make_bundle(request(tmp_path, wish), "ubuntu-24.04-x64", tmp_path / "bundle", wheels=wheels)
    assert "word" not in str(caught.value)


def test_tags_of_a_host() -> None:
    tags = platform_tags("x86_64", "2.17")
    assert tags[:3] == ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_16_x86_64"]
    assert tags[-2:] == ["manylinux1_x86_64", "linux_x86_64"]
