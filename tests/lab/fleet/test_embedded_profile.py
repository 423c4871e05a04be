"""The embedded profile on three hosts at the same time, over SSH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.lab.fleet.ssh_host import start_hosts
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from tests.lab.fleet.controller import Controller
    from tests.lab.fleet.ssh_host import SshHost
    from tests.lab.host.docker_engine import DockerEngine

pytestmark = pytest.mark.lab

_EMBEDDED = Path(__file__).parents[3] / "profiles" / "PERF-CPU-MLPERF.yaml"


def entries(hosts: list[SshHost], controller: Controller) -> str:
    """Return an inventory of hosts whose keys are then known."""
    with controller.known_hosts.open("a") as known:
        known.writelines(host.host_key() for host in hosts)
    return controller.write_inventory({host.name: {"address": host.address} for host in hosts})


def embedded_wheels() -> Path:
    """Return the packages of the embedded profile as wheels for the hosts' Python."""
    profile = yaml.safe_load(_EMBEDDED.read_text())
    parameters = next(one["parameters"] for one in profile["dependencies"] if "Python" in one["type"])

    def download(folder: Path) -> None:
        options = ["--no-deps", "--python-version", "3.11", "--only-binary", ":all:", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "--quiet", "download", *options, *parameters["requirements"]]
        subprocess.run(command, check=True)

    return cached_folder("embedded-wheels", fingerprint("3.11", parameters["requirements"]), download)


@pytest.mark.timeout(600)
def test_the_embedded_profile_runs_on_three_hosts_at_once(
    controller: Controller, docker_engine: DockerEngine, ssh_base: str
) -> None:
    names = [f"embedded-{number}" for number in (1, 2, 3)]
    mount = f"--volume={embedded_wheels()}:/wheels:ro"
    hosts = start_hosts(docker_engine, ssh_base, names, Path(f"{controller.key}.pub"), options=[mount])
    small = "OfflineMinDuration=0.5,,,OfflineMinQueryCount=24,,,AccuracySamples=8,,,MaxOutputTokens=4"
    # On a machine with two cores, three hosts of two threads each would mostly wait for each other.
    small += ",,,Threads=1"
    fleet = controller.fleet(
        *("run", "-i", entries(hosts, controller), "-p", "PERF-CPU-MLPERF.yaml"),
        *("--scenarios=-server-performance,-singlestream-performance",),
        *("--parameters", f"{small},,,WheelsDir=/wheels"),
        exit_code=0,
    )
    assert {name: host["verdict"] for name, host in fleet["hosts"].items()} == dict.fromkeys(names, "VALID")
    measured = {(one["scenario"], one["metric"]): one for one in fleet["distributions"]}
    throughput = measured["smollm2-135m/Offline/performance", "tokens_per_second"]
    assert throughput["count"] == len(names)
    assert throughput["minimum"] > 0
    folder = Path(fleet["folder"]) / "hosts"
    for name in names:
        assert list((folder / name).rglob("mlperf_log_summary.txt"))
