"""One slow host of 16: its link has half the bandwidth of the others, which shows in its numbers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from agent.core.quantities import plain_quantity
from tests.lab.conftest import unavailable
from tests.lab.fleet.controller import DEADLINE_S
from tests.lab.fleet.ssh_host import start_hosts
from tests.lab.fleet.test_embedded_profile import entries
from tests.lab.host.cache import cached_folder, fingerprint
from tests.lab.host.docker_engine import LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.fleet.controller import Controller
    from tests.lab.fleet.ssh_host import SshHost
    from tests.lab.host.docker_engine import DockerEngine

pytestmark = pytest.mark.lab

COUNT = 16
SLOW = "link-7"
WELL_BITS_PER_S, SLOW_BITS_PER_S = 400_000, 200_000
BURST_BYTES = 4096
"""Small beside what a link sends between two readings, so that the highest rate is that of the link."""
QUEUE_S = 20
"""Long enough that no packet is dropped: TCP's pauses after a loss differ from host to host."""
METRIC = "mock/Offline/performance/samples_per_second"
RULES = """\
rules:
  much-slower:
    function: variance
    criteria: worse > 0.3
    categories: Throughput
    metrics: ["*/performance/samples_per_second"]
  sends-little:
    function: variance
    criteria: x < -0.3
    categories: Network
    metrics: ["*/network_sent_max"]
"""
_IN_ENVIRONMENT = Path(__file__).parents[3] / "actions" / "loadgen" / "in_environment"
_REQUIREMENTS = ("mlcommons-loadgen==6.0.17", "aiohttp>=3.9,<4")


def loadgen_environment() -> Path:
    """Return an environment with LoadGen for the hosts' Python."""

    def make(folder: Path) -> None:
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to("/usr/bin/python3.11")
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        options = [
            "--python-version=3.11",
            "--only-binary=:all:",
            f"--target={folder}/lib/python3.11/site-packages",
        ]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *options, *_REQUIREMENTS], check=True)

    return cached_folder("fleet-loadgen", fingerprint("3.11", _REQUIREMENTS), make)


@pytest.fixture
def server(controller: Controller, docker_engine: DockerEngine, ssh_base: str) -> SshHost:
    """Return a host that all others query, on port 8000; the agent has run there before."""
    mount = f"--volume={_IN_ENVIRONMENT}:/in_environment:ro"
    host = start_hosts(
        docker_engine, ssh_base, ["link-server"], Path(f"{controller.key}.pub"), options=[mount]
    )[0]
    controller.fleet(
        "run", "-i", entries([host], controller), "-p", controller.write_profile("true"), exit_code=0
    )
    docker_engine.docker(
        "exec", "--detach", "--env=PYTHONPATH=/in_environment", host.name,
        "python3", "-m", "mock_engine", "--host=0.0.0.0",
    )  # fmt: skip
    return host


@pytest.fixture
def image(docker_engine: DockerEngine, server: SshHost) -> Iterator[str]:
    """Make an image on which the agent has run before: unpacking it on each host is not tested here."""
    name = f"{LABEL}/linked"
    docker_engine.docker("commit", server.name, name)
    yield name
    docker_engine.docker("rmi", name)


@pytest.fixture
def linked_hosts(controller: Controller, docker_engine: DockerEngine, image: str) -> Iterator[list[SshHost]]:
    """Start hosts whose links have a fixed bandwidth, which the kernel enforces under any load."""
    options = ["--cap-add=NET_ADMIN", f"--volume={loadgen_environment()}:/environment:ro"]
    names = [f"link-{number}" for number in range(1, COUNT + 1)]
    hosts = start_hosts(docker_engine, image, names, Path(f"{controller.key}.pub"), options=options)
    for host in hosts:
        rate = SLOW_BITS_PER_S if host.name == SLOW else WELL_BITS_PER_S
        try:
            host.run(f"tc qdisc add dev eth0 root tbf rate {rate}bit burst {BURST_BYTES} latency {QUEUE_S}s")
        except RuntimeError as error:
            unavailable(f"this kernel has no token bucket filter (sch_tbf): {error}")
    yield hosts
    docker_engine.docker("rm", "--force", *names)


def test_one_slow_host_of_16_is_found(
    controller: Controller, linked_hosts: list[SshHost], server: SshHost
) -> None:
    upload = {
        "type": "LoadGenExecutor",
        "parameters": {
            "scenario": "upload",
            "model": "mock",
            "loadgenScenario": "Offline",
            "environment": "/environment",
            "endpoint": f"http://{server.address}:8000",
            "dataset": "synthetic",
            "samples": 4,
            "inputTokens": 5000,
            "maxOutputTokens": 2,
            "targetQps": 1,
            "minDuration": 1,
            "minQueryCount": 36,
            "maxInFlight": 2,
            "warmupSamples": 8,
        },
    }
    # Results need not go over the limited link.
    lift = {
        "type": "ExecuteCommand",
        "parameters": {"scenario": "lift", "command": "tc qdisc del dev eth0 root"},
    }
    profile = {
        "description": "A test.",
        "monitors": [{"type": "HostMonitor"}],
        "actions": [upload, lift],
    }
    (controller.folder / "P.yaml").write_text(yaml.safe_dump(profile))
    (controller.folder / "rules.yaml").write_text(RULES)
    process = controller.start("run", "-i", entries(linked_hosts, controller), "-p", "P.yaml")
    out, err = process.communicate(timeout=2 * DEADLINE_S)
    assert process.returncode == 0, out + err
    folder = controller.folder / "results" / "fleet" / "latest"

    found = json.loads((folder / "fleet.json").read_text())["diagnosis"]
    # Healthy hosts share two processors: one may be behind, which makes the slow one suspect.
    named = {*found["defective"], *found["suspect"]}
    assert SLOW in named
    defects = [
        (defect["variance"], host["host"], defect)
        for host in found["hosts"]
        for defect in (*host["defects"], *host["suspicions"])
        if defect["metric"] == METRIC
    ]
    _, worst, defect = min(defects, key=lambda one: one[0])
    assert worst == SLOW
    assert defect["value"] == pytest.approx(defect["baseline"] * SLOW_BITS_PER_S / WELL_BITS_PER_S, rel=0.2)
    assert defect["variance"] == pytest.approx(defect["value"] / defect["baseline"] - 1)
    assert diagnosis(folder) == found
    value, normal = (plain_quantity(defect[name], "samples/s") for name in ("value", "baseline"))
    measured = f"{METRIC} is {value}, normal is {normal}"
    told = f"{SLOW}: Performance: {measured} ({defect['variance']:+.1%})"
    assert told in " ".join(out.split()).replace(" (suspect):", ":")
    page = (folder / "report.html").read_text().partition('id="diagnosis"')[2].partition("</section>")[0]
    assert set(re.findall(r"link-\d+", page)) == named
    assert f"{defect['variance']:+.1%}" in page

    rules = ("--rules", str(controller.folder / "rules.yaml"))
    ruled = diagnosis(folder, *rules)
    assert ruled["defective"] == [SLOW]
    host = next(host for host in ruled["hosts"] if host["host"] == SLOW)
    assert host["categories"] == ["Network", "Throughput"]

    well = diagnosis(*(path for path in (folder / "hosts").iterdir() if path.name != SLOW), *rules)
    assert well["defective"] == []
    assert len(well["hosts"]) == COUNT - 1


def diagnosis(*arguments: str | Path) -> dict[str, Any]:
    """Return the findings of ``vcagent diagnose``."""
    command = [sys.executable, "-m", "agent", "diagnose", *map(str, arguments), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode in {0, 10}, ended.stderr
    return dict(json.loads(ended.stdout))
