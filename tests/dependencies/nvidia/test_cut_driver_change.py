"""A driver change that was cut short while its packages are held: the real apt finds the plan's solution.

apt works on a separate state and only simulates; it neither reads nor changes anything of this host.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from agent.facts.packages import INSTALLED_PACKAGES
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.packages.apt import FIX_BROKEN, simulated_changes
from tests.dependencies.test_cases import CASES, facts_of, read_case

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")

OLD, NEW = "550.90.07-0ubuntu0.22.04.1", "550.163.01-0ubuntu0.22.04.2"
DRIVER, MODULE = "nvidia-driver-550-server", "nvidia-dkms-550-server"


def stanza(name: str, version: str, depends: Sequence[str], **fields: str) -> str:
    lines = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "t <t@example.com>"}
    if depends:
        lines["Depends"] = ", ".join(f"{other} (= {version})" for other in depends)
    lines |= {**fields, "Description": "stand-in"}
    return "".join(f"{field}: {value}\n" for field, value in lines.items()) + "\n"


@pytest.fixture
def apt(tmp_path: Path) -> list[str]:
    """Return apt-get for a host whose driver is between two versions, with all its packages held."""
    for folder in ("repository", "state/lists/partial", "cache/archives/partial"):
        (tmp_path / folder).mkdir(parents=True)
    case = read_case(next(path for path in CASES if path.stem == "cut_short_while_held"))
    installed = facts_of(case["facts"])[INSTALLED_PACKAGES]
    libraries = sorted(name for name in installed if name not in (DRIVER, MODULE))
    relations = {DRIVER: [MODULE, *libraries], MODULE: ["nvidia-kernel-common-550-server"]}
    file = {"Filename": "./none.deb", "Size": "1", "SHA256": "0" * 64}
    offered = [
        stanza(name, version, relations.get(name, ()), **file) for version in (OLD, NEW) for name in installed
    ]
    (tmp_path / "repository" / "Packages").write_text("".join(offered))
    present = [
        stanza(
            name,
            package.version,
            relations.get(name, ()),
            Status=f"hold ok {'unpacked' if package.broken else 'installed'}",
        )
        for name, package in installed.items()
    ]
    (tmp_path / "status").write_text("".join(present))
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/repository ./\n")
    places = {
        "Dir::State": "state",
        "Dir::State::status": "status",
        "Dir::Cache": "cache",
        "Dir::Etc::sourcelist": "sources.list",
    }
    options = [f"--option={name}={tmp_path / place}" for name, place in places.items()]
    options += ["--option=Dir::Etc::sourceparts=-", "--option=APT::Architecture=amd64"]
    command = ["apt-get", *options]
    subprocess.run([*command, "--quiet", "update"], check=True, capture_output=True)
    return command


def simulate(apt: list[str], arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*apt, *arguments, "--simulate"], capture_output=True, text=True, check=False)


def test_what_apt_cannot_repair_it_can_install(apt: list[str]) -> None:
    repaired = simulate(apt, FIX_BROKEN[1:])
    assert "held packages" in repaired.stderr, "apt by itself does not change what is held"
    case = read_case(next(path for path in CASES if path.stem == "cut_short_while_held"))
    parameters = NvidiaCudaInstallation.Parameters.model_validate(case["parameters"])
    steps = {
        step.name: step for step in NvidiaCudaInstallation(parameters).plan(facts_of(case["facts"])).steps
    }
    installed = simulate(apt, shlex.split(steps["driver"].command)[1:])
    assert installed.returncode == 0, installed.stderr
    removed, changed = simulated_changes(installed.stdout)
    assert removed == []
    assert DRIVER in changed
    assert f"Conf {MODULE} ({NEW}" in installed.stdout
