"""The embedded profile runs from its bundle, in a network namespace that has no route."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.core.errors import UsageError
from agent.facts import Facts, LocalHost
from agent.facts.linux import DISTRIBUTION
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.python import PYTHON
from agent.run.bundle_opening import host_platform
from agent.run.bundling import platform_facts

_ROOT = Path(__file__).parents[3]
_PARAMETERS = (
    "OfflineMinDuration=1,,,OfflineMinQueryCount=24,,,AccuracySamples=16,,,MaxOutputTokens=4,,,Threads=1"
)
_SCENARIOS = "--scenarios=-server-performance,-singlestream-performance"
"""All dependencies, and short cases. Server and SingleStream need nothing more than Offline."""

_ALONE = 'ip link set lo up && exec "$@"'
"""The shell's line in a new network namespace: there is only the loopback device, and no route."""


def platform_here() -> str:
    """Return the name of this host's platform, or skip the test."""
    facts = Facts(LocalHost())
    try:
        platform_facts(host_platform(facts))
    except UsageError:
        pytest.skip(f"bundles are not made for {facts[DISTRIBUTION].name}")
    if os.geteuid() or facts[PACKAGE_MANAGER] != "apt" or not shutil.which("unshare"):
        pytest.skip("needs root, apt and unshare")
    return host_platform(facts)


def vcagent(folder: Path, *arguments: str, alone: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", *arguments]
    if alone:
        command = ["unshare", "--net", "sh", "-c", _ALONE, "sh", *command]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "COLUMNS": "200"},
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.engine
@pytest.mark.root
def test_the_profile_runs_from_its_bundle(tmp_path: Path) -> None:
    platform = platform_here()
    python = Facts(LocalHost())[PYTHON]
    assert python is not None
    version = ".".join(python.version.split(".")[:2])
    made = vcagent(
        tmp_path,
        *("bundle", "--profile", "PERF-CPU-MLPERF", "--platform", platform, "--python", version),
        *("--output", "bundle", "--json"),
    )
    assert made.returncode == 0, made.stderr
    contents = {(one["kind"], one["name"]) for one in json.loads(made.stdout)["contents"]}
    assert ("deb", "libgomp1") in contents
    assert ("wheel", "mlcommons-loadgen==6.0.17") in contents

    # There is no network in the namespace: an index cannot be reached.
    options = ("--profile", "PERF-CPU-MLPERF", "--package-dir", "packages", _SCENARIOS)
    options += ("--parameters", _PARAMETERS)
    unreached = subprocess.run(
        ["unshare", "--net", "sh", "-c", _ALONE, "sh", "ip", "route"], check=True, capture_output=True
    )
    assert unreached.stdout == b""

    # A parameter that changes what is needed: the plan says so, and nothing is done.
    lacking = vcagent(
        tmp_path,
        *("plan", *options, "--bundle", "bundle"),
        *("--set", "InstallOpenMPRuntime.packages-apt=vcagent-absent"),
        alone=True,
    )
    assert lacking.returncode == 4, lacking.stdout + lacking.stderr
    assert "lacks deb vcagent-absent" in lacking.stdout
    assert not (tmp_path / "packages").exists()

    ended = vcagent(tmp_path, *options, "--bundle", "bundle", "--quiet", alone=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    run = json.loads((tmp_path / "results" / "latest" / "run.json").read_text())
    cases = {one["scenario"]: one["validity"] for one in run["cases"]}
    assert len(cases) == 2, cases
    assert cases["smollm2-135m/Offline/performance"] == "VALID"
