from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from typing_extensions import override

from agent.core.errors import HostError
from agent.facts import Facts, LocalHost, known_facts
from agent.facts.agent_paths import package_dir
from agent.facts.containers import IN_CONTAINER
from agent.facts.docker import docker_version
from agent.facts.files import exists, text_of
from agent.facts.git import git_checkout, remote_revision
from agent.facts.gpus import (
    CUDA_VERSION,
    DRIVER_VERSION,
    GPU_COUNT,
    GPU_MEMORY_MIB,
    GPU_NAME,
    GPUS,
    NVSWITCH_COUNT,
    Gpu,
)
from agent.facts.linux import PLATFORM, Distribution, os_release, platform_of
from agent.facts.memory import MEMORY
from agent.facts.processor import PROCESSOR, cpuinfo
from agent.facts.python import PYTHON, interpreter, interpreter_answer
from agent.facts.python_environments import PythonEnvironment, environment_of
from agent.facts.storage import df_mounts, free_bytes, mount_of
from tests.agent.facts.recorded_host import RecordedHost
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE = Path(__file__).parent


def test_every_fact_of_this_host_can_be_read_and_a_command_runs_once() -> None:
    asked: list[tuple[str, ...]] = []

    class Host(LocalHost):
        @override
        def output(self, command: Sequence[str], **options: Any) -> str | None:
            asked.append(tuple(command))
            return super().output(command, **options)

    facts = Facts(Host())
    for name, fact in known_facts().items():
        assert fact.name == name
        assert fact.source
        facts[fact]
    assert len(set(asked)) > 20
    assert {command: asked.count(command) for command in asked if asked.count(command) > 1} == {}
    facts.fresh()[GPUS]
    assert len(asked) > len(set(asked))


UBUNTU = """\
PRETTY_NAME="Ubuntu 22.04.4 LTS"
NAME="Ubuntu"
VERSION_ID="22.04"
VERSION_CODENAME=jammy
ID=ubuntu
ID_LIKE=debian
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (UBUNTU, Distribution("ubuntu", "22.04", "jammy", ("debian",), "Ubuntu 22.04.4 LTS")),
        (
            'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.3"\n',
            Distribution("rocky", "9.3", "", ("rhel", "centos", "fedora"), "rocky"),
        ),
        ("# nothing\nNAME='unclosed\n", Distribution("linux", name="unclosed")),
        ("", Distribution("linux", name="linux")),
    ],
)
def test_os_release(text: str, expected: Distribution) -> None:
    assert os_release(text) == expected


def test_a_derived_distribution_is_like_its_parent() -> None:
    assert os_release(UBUNTU).is_like("debian")
    assert not os_release(UBUNTU).is_like("rhel")


@pytest.mark.parametrize(
    ("machine", "name"), [("x86_64", "x64"), ("aarch64", "arm64"), ("riscv64", "riscv64")]
)
def test_platform(machine: str, name: str) -> None:
    assert platform_of(machine) == f"linux-{name}"
    assert Facts(RecordedHost(outputs={"uname -m": f"{machine}\n"}))[PLATFORM] == f"linux-{name}"


def _core(number: int, package: int, core: int, flags: str) -> str:
    return (
        f"processor\t: {number}\nmodel name\t: Xeon 8480C\nphysical id\t: {package}\ncore id\t\t: {core}\n"
        f"flags\t\t: {flags}\n"
    )


def test_cpuinfo_names_model_and_flags_of_interest() -> None:
    text = "\n".join(_core(number, 0, number, "fpu avx2 amx_tile sse") for number in range(2))
    assert cpuinfo(text) == ("Xeon 8480C", frozenset({"avx2", "amx_tile"}))


def test_cpuinfo_of_arm64_has_features_and_no_model() -> None:
    assert cpuinfo("processor\t: 0\nFeatures\t: fp asimd sve\n") == (None, frozenset({"asimd", "sve"}))


def test_counts_are_those_that_psutil_finds() -> None:
    processor, memory = Facts(LocalHost())[PROCESSOR], Facts(LocalHost())[MEMORY]
    assert processor.logical_cores == psutil.cpu_count()
    assert processor.physical_cores == psutil.cpu_count(logical=False)
    assert memory.total_bytes == psutil.virtual_memory().total
    assert 0 < memory.available_bytes < memory.total_bytes


def test_without_proc_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)  # noqa: ARG005
    monkeypatch.setattr(psutil, "virtual_memory", missing)
    for fact in (PROCESSOR, MEMORY):
        with pytest.raises(HostError) as error:
            Facts(LocalHost())[fact]
        assert error.value.remedy == "mount /proc"


DF = """\
Mounted on           Type      1B-blocks        Avail
/                    overlay       1000          400
/data with blank     xfs           9000         5000
/data                ext4          5000          300
/broken              nfs              -            -
"""


def test_free_space_is_that_of_the_mount_that_holds_a_path() -> None:
    mounts = df_mounts(DF)
    assert [str(mount.target) for mount in mounts] == ["/", "/data with blank", "/data"]
    expected = {"/data/x/not/yet": 300, "/database": 400, "/data with blank/x": 5000, "/broken": 400}
    assert {path: free_bytes(mounts, Path(path)) for path in expected} == expected
    assert mount_of((), Path("/x")) is None


def _pci(bus: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    return {
        f"/sys/bus/pci/devices/{address}/{name}": f"{value}\n"
        for address, values in bus.items()
        for name, value in zip(("vendor", "class", "device"), values, strict=True)
    }


H100 = ("0x10de", "0x030200", "0x2330")
BUS = _pci(
    {
        "0000:00:1f.0": ("0x8086", "0x060100", "0x7000"),
        "0000:05:00.0": ("0x10de", "0x068000", "0x22a3"),
        "0000:06:00.0": H100,
        "0000:3b:00.0": H100,
        "0000:3b:00.1": ("0x10de", "0x040300", "0x0000"),
    }
)


def test_gpus_without_a_driver_come_from_the_bus() -> None:
    facts = Facts(RecordedHost(BUS))
    assert [gpu.bus_id for gpu in facts[GPUS]] == ["0000:06:00.0", "0000:3b:00.0"]
    assert facts[GPU_COUNT] == 2
    assert facts[NVSWITCH_COUNT] == 1
    for fact in (GPU_NAME, GPU_MEMORY_MIB, DRIVER_VERSION, CUDA_VERSION):
        assert facts[fact] is None


def test_gpus_with_a_driver() -> None:
    answer = (
        "00000000:06:00.0, NVIDIA H100 80GB HBM3, 81559, 580.159.04, Disabled\n"
        "00000000:3B:00.0, NVIDIA H100 80GB HBM3, [N/A], 580.159.04, [Not Supported]\n"
    )
    host = RecordedHost(
        BUS
        | {
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
            "580.159.04  Release Build  (root@x)\nGCC version: gcc 12.3.0\n"
        },
        {"nvidia-smi --query-gpu": answer, "nvidia-smi": (_HERE / "h100_nvidia_smi.txt").read_text()},
    )
    facts = Facts(host)
    first, second = facts[GPUS]
    assert first == Gpu("0000:06:00.0", "0x2330", "NVIDIA H100 80GB HBM3", 81559, "580.159.04", mig=False)
    assert (second.memory_mib, second.mig, second.pci_id) == (None, None, "0x2330")
    assert facts[GPU_NAME] == "NVIDIA H100 80GB HBM3"
    assert facts[DRIVER_VERSION] == "580.159.04"
    assert facts[CUDA_VERSION] == "13.0"


def test_a_driver_that_does_not_answer_says_nothing() -> None:
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    facts = Facts(RecordedHost(BUS, {"nvidia-smi": text}))
    assert facts[GPU_COUNT] == 2
    assert facts[GPU_NAME] is None


def test_no_bus_and_no_answer_is_unknown_not_zero() -> None:
    facts = Facts(RecordedHost())
    assert (facts[GPU_COUNT], facts[NVSWITCH_COUNT]) == (None, None)
    cpu_host = Facts(RecordedHost(_pci({"0000:00:1f.0": ("0x8086", "0x060100", "0x7000")})))
    assert (cpu_host[GPU_COUNT], cpu_host[NVSWITCH_COUNT]) == (0, 0)


def test_package_dir() -> None:
    chosen = package_dir({"VCAGENT_PACKAGE_DIR": "/data/p"}, root=True)
    assert chosen == Path("/data/p")
    assert package_dir({}, root=True) == Path("/var/cache/vcagent/packages")
    assert package_dir({"HOME": "/home/a"}, root=False) == Path("/home/a/.cache/vcagent/packages")
    assert package_dir({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, root=False) == Path("/c/vcagent/packages")


def test_docker_and_containers() -> None:
    assert docker_version("Docker version 24.0.7, build afdd53b\n") == "24.0.7"
    assert docker_version(None) is None
    assert Facts(RecordedHost({"/.dockerenv": ""}))[IN_CONTAINER]
    assert not Facts(RecordedHost({"/etc/hostname": ""}))[IN_CONTAINER]


def test_python_interpreters() -> None:
    facts = Facts(LocalHost())
    own = facts[PYTHON]
    assert own
    assert own.version == sys.version.split()[0]
    assert own.venv
    assert facts[interpreter("no-such-python")] is None
    assert interpreter_answer("garbage") is None
    assert interpreter_answer('{"path": "/x"}') is None


def test_files_and_checkouts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    facts = Facts(LocalHost())
    assert facts[text_of(tmp_path / "file")] == "text"
    assert facts[exists(tmp_path / "link")]
    assert not facts[exists(tmp_path / "none")]
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    assert Facts(LocalHost())[git_checkout(repository)] is None, "nothing is committed"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "tag", "v1"], check=True)
    (repository / "below").mkdir()
    checkout = facts[git_checkout(repository)]
    assert checkout
    assert (checkout.branch, checkout.tags, checkout.uri) == ("main", ("v1",), None)
    assert all(checkout.is_at(revision) for revision in ("main", "v1", checkout.commit, checkout.commit[:7]))
    assert not any(checkout.is_at(revision) for revision in ("v2", checkout.commit[:3], "0000000"))
    assert facts[git_checkout(repository / "below")] is None, "a folder in a checkout is not a checkout"


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 60 & echo $! >{note}; wait"]
    assert LocalHost().output(command, timeout_s=3) is None
    child = Path(f"/proc/{note.read_text().strip()}/stat")
    with suppress(OSError):  # it no longer exists
        wait_for(lambda: ") Z " in child.read_text())


def test_to_hang_is_not_to_be_absent() -> None:
    host = LocalHost()
    with pytest.raises(HostError, match="sleep gave no answer for 0 s"):
        host.output(["sleep", "60"], timeout_s=0.1, hang_is_error=True)
    assert host.output(["no-such-program"], hang_is_error=True) is None
    assert host.output(["false"], hang_is_error=True) is None
    assert host.output(["sh", "-c", 'echo "$LC_ALL $X"'], env={"X": "1"}) == "C 1\n"


def test_an_environment_that_lost_files() -> None:
    marker = '{"key": "k", "distributions": {"a": "1", "b": "2"}, "damaged": ["b"]}'
    inventory = '{"version": "3.11.2", "distributions": {"a": "1", "b": "2"}, "damaged": ["a", "b"]}'
    assert environment_of(marker, inventory) == PythonEnvironment("k", "3.11.2", ("a",))
    assert environment_of(marker, "[]") == PythonEnvironment("k", None)
    assert environment_of("{}", inventory) is None


def test_what_a_remote_has() -> None:
    text = "a1\trefs/heads/main\nb2\trefs/tags/main\nc3\trefs/tags/v1\nd4\trefs/tags/v1^{}\n"
    assert [remote_revision(text, name) for name in ("main", "v1", "none")] == ["a1", "d4", ""]
