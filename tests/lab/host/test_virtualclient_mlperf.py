"""VirtualClient's unchanged PERF-GPU-MLPERF, from a bare disk to its results, with stand-ins for NVIDIA.

systemd, apt, git, mount, make and Docker are real; the driver, the GPUs and the results of NVIDIA's code are
not. Docker and the container toolkit are installed before, since the lab's packages lack their publishers'
signatures.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.actions.nvidia_harness.test_profiles import FIXTURE
from tests.lab.harness.nvidia_harness import BASE, PROGRAMS, PYTHON, base_archive
from tests.lab.host.lab_host import Hardware
from tests.lab.host.packages import add_repository, install
from tests.lab.host.web.content import DOCKER_REPOSITORY, TOOLKIT_REPOSITORY
from tests.lab.host.web.debian_packages import STANDINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.host.lab_host import LabHost

pytestmark = [pytest.mark.lab, pytest.mark.root]

GB = 10**9
ACCOUNT = "bench"
HOME = f"/home/{ACCOUNT}"
MODES = ("performance", "accuracy")
SCENARIOS = {
    *(f"bert-99/{one}/{mode}" for one in ("Offline", "Server", "SingleStream") for mode in MODES),
    *(f"3d-unet-99/{one}/{mode}" for one in ("Offline", "SingleStream") for mode in MODES),
}


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Return a data disk and one for Docker, each with a file system: loop devices on sparse files."""
    programs = ("losetup", "mkfs.ext4")
    if os.geteuid() or not all(map(shutil.which, (*programs, *PROGRAMS))) or not PYTHON.exists():
        pytest.skip(f"needs root, {', '.join((*programs, *PROGRAMS))}, {PYTHON}")
    attached: list[str] = []
    try:
        for size in (1200 * GB, 200 * GB):
            image = tmp_path / f"{size}.img"
            with image.open("wb") as file:
                file.truncate(size)
            sparse = ("-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", "-i", str(16 << 20))
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", *sparse, image], check=True)
            command = ["losetup", "--find", "--show", str(image)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                pytest.skip(f"no loop devices: {result.stderr.strip()}")
            attached.append(result.stdout.strip())
        yield tuple(attached)
    finally:
        for path in attached:
            subprocess.run(["losetup", "--detach", path], check=True)


@pytest.fixture
def gpu_host(disks: tuple[str, ...], make_host: Callable[[Hardware], LabHost], tmp_path: Path) -> LabHost:
    """Return a host: eight A100, no driver, an unmounted data disk, Docker, the toolkit, and an account."""
    hardware = Hardware(name="NVIDIA A100-SXM4-40GB", pci_id="0x20b0", memory_mib=40960, disks=disks)
    host = make_host(hardware)
    host.put("/usr/local/sbin/runc", (STANDINS / "runc").read_bytes(), 0o755)
    host.run(f"mount {disks[1]} /var/lib/docker")
    add_repository(host, "docker", f"{DOCKER_REPOSITORY}/gpg", f"{DOCKER_REPOSITORY} noble stable")
    toolkit = f"{TOOLKIT_REPOSITORY}/stable/deb/$(ARCH) /"
    add_repository(host, "toolkit", f"{TOOLKIT_REPOSITORY}/gpgkey", toolkit)
    install(host, "docker-ce", "nvidia-container-toolkit")
    archive = base_archive(tmp_path / "base")
    host.engine.docker("exec", "--interactive", host.name, "docker", "import", "-", BASE, stdin=archive)
    host.run(f"useradd --create-home --shell=/bin/sh {ACCOUNT}")
    host.put(f"/etc/sudoers.d/{ACCOUNT}", f"{ACCOUNT} ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    return host


def virtualclient_s_profile() -> Path:
    """Return the profile itself if available, else the fixture, which test_profiles compares with it."""
    shared = Path(os.environ.get("VCAGENT_SHARED") or Path(__file__).parents[4] / "shared")
    real = shared / "peers" / "virtualclient" / "profiles" / FIXTURE.name
    return real if real.exists() else FIXTURE


def vcagent(host: LabHost, *arguments: str) -> str:
    """Return vcagent's output for the account, which calls it with sudo in its home."""
    command = " ".join(["sudo", "COLUMNS=500", "vcagent", *arguments])
    return host.run(["su", "-", ACCOUNT, "-c", command], timeout_s=900).stdout


def test_from_a_bare_disk_to_results(gpu_host: LabHost, disks: tuple[str, ...]) -> None:
    profile = virtualclient_s_profile()
    gpu_host.put(f"{HOME}/{profile.name}", profile.read_bytes())
    disk = disks[0].removeprefix("/dev/")
    vcagent(gpu_host, "--profile", f"{HOME}/{profile.name}")

    run = json.loads(gpu_host.read(f"{HOME}/results/latest/run.json"))
    assert run["exit_code"] == 0
    assert {step["status"] for step in run["steps"]} == {"done"}
    names = [step["name"] for step in run["steps"]]
    assert names[:2] == [f"mount-{disk}", "clone"]
    assert {"driver", "proof"} < set(names)
    assert {case["scenario"]: case["validity"] for case in run["cases"]} == dict.fromkeys(SCENARIOS, "VALID")
    (container,) = run["containers"]
    request = container["config"]["HostConfig"]["DeviceRequests"]
    assert request == [{"Capabilities": [["gpu"]], "Count": -1, "Driver": ""}]

    rows = csv.DictReader(io.StringIO(gpu_host.read(f"{HOME}/results/latest/metrics.csv")))
    values = {(row["ScenarioName"], row["MetricName"]): float(row["MetricValue"]) for row in rows}
    for scenario in SCENARIOS:
        mode = scenario.rpartition("/")[2]
        name = "PerformanceMode_p99" if mode == "performance" else "AccuracyMode_p99"
        assert values[scenario, name] == 1
    scratch = f"/mnt_dev_{disk}/scratch"
    owners = gpu_host.run(f"stat -c %U {scratch}/data {scratch}/data/squad/dev-v1.1.json").stdout.split()
    assert owners == [ACCOUNT] * 2
    assert not gpu_host.run("docker ps --all --quiet").stdout

    plan = json.loads(vcagent(gpu_host, "plan", "--profile", f"{HOME}/{profile.name}", "--json"))
    again = [(part["type"], len(part["steps"])) for part in plan["components"]]
    assert [kind for kind, steps in again if steps] == ["MLPerfExecutor"] * 2
    assert len(again) == 8
