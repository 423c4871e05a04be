from __future__ import annotations

import itertools
import json
import os
import socket
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import typer
from typer.testing import CliRunner

from agent.cli.doctor import _show, doctor
from agent.cli.facts import facts as facts_command
from agent.component.component import Step, StepContext
from agent.core.errors import HostError, LiftedBy, UsageError
from agent.doctor.check import Check, Status
from agent.doctor.gpus import check_gpus
from agent.doctor.host import check_host, writable
from agent.doctor.profile import agree, check_plan, check_secrets, check_servers, for_profile, unset_secrets
from agent.facts import Fact, Facts, LocalHost
from agent.facts.amd_gpus import AmdGpu
from agent.facts.docker import DockerEngine, DockerServer
from agent.facts.gpu_health import GpuHealth
from agent.facts.gpu_processes import GpuProcess
from agent.facts.gpus import Gpu
from agent.facts.linux import Distribution
from agent.facts.memory import Memory
from agent.facts.nvidia_module import NvidiaModule
from agent.facts.nvml import Nvml
from agent.facts.packages import InstalledPackage, PackageLock
from agent.facts.python import PythonInterpreter
from agent.facts.reachability import apt_proxies, origins, unreachable
from agent.facts.repositories import AptRepository, RpmRepository
from agent.facts.services import ServiceState
from agent.facts.storage import Mount
from agent.facts.unattended_upgrades import UnattendedUpgrades
from agent.facts.users import User
from agent.profile import Element, Location, Source, load_sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIB = 1024**3


def _mounts(total: int, free: int) -> dict[str, Any]:
    return {"mounts": (Mount(Path("/"), "ext4", total, free),)}


def healthy(folder: Path, **changes: Any) -> Facts:
    values = {
        "package_dir": folder / "packages",
        "mounts": (Mount(Path("/"), "ext4", 100 * GIB, 50 * GIB),),
        "memory": Memory(16 * GIB, 8 * GIB, 0),
        "user": User("root", 0),
        "python": PythonInterpreter("/usr/bin/python3", "3.11.2", "linux-x86_64"),
        "distribution": Distribution("ubuntu", like=("debian",)),
        "package_manager": "apt",
        "package_lock": None,
        "installed_packages": {"git": InstalledPackage("1")},
        "apt_repositories": (AptRepository("http://archive.ubuntu.com/ubuntu", "noble"),),
        "rpm_repositories": (RpmRepository("base", ("http://mirror.centos.org/$releasever/os",)),),
        "unreachable": {},
        "unattended_upgrades": UnattendedUpgrades(enabled=True, excluded=("nvidia-", "libnvidia-")),
        "docker_engine": DockerEngine("docker-ce", "5:27.3"),
        "docker_server": DockerServer("27.3.1"),
        "docker_group": (),
        "docker_problem": None,
    }
    return Facts(None, {**values, **changes})


def checks(folder: Path, **changes: Any) -> dict[str, Check]:
    return {check.name: check for check in check_host(healthy(folder, **changes), folder / "results", folder)}


def test_a_healthy_host(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert {check.status for check in found.values()} == {Status.OK}
    assert found["space for results"].message == f"50.0 GiB free below {tmp_path}/results"


WRONG: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "full": (_mounts(GIB, 10), "space for results", "problem", "0.0 GiB", "free some"),
    "narrow": (_mounts(GIB, GIB), "space for packages", "warning", "1.0 GiB", "4.0 GiB"),
    "unknown": ({"mounts": ()}, "space for results", "warning", "nobody can tell", "df"),
    "memory": ({"memory": Memory(4 * GIB, GIB, 0)}, "memory", "warning", "1.0 of 4.0 GiB", "smaller model"),
    "user": ({"user": User("ann", 1000)}, "user", "warning", "ann is not root", "run as root"),
    "ensurepip": (
        {"python": PythonInterpreter("/p", "3.11.2", "x", ensurepip=False)},
        *("python environments", "problem", "/p cannot", "apt-get install python3.11-venv"),
    ),
    "python": ({"python": None}, "python environments", "problem", "does not answer", "again"),
    "lock": (
        {"package_lock": PackageLock(42, "unattended-upgr", "/var/lib/dpkg/lock")},
        *("package lock", "warning", "unattended-upgr (process 42)", "never delete"),
    ),
    "manager": ({"package_manager": None}, "package lock", "warning", "no package manager", "yourself"),
    "distribution": (
        {"distribution": Distribution("nixos", "24.05", name="NixOS 24.05")},
        *("distribution", "warning", "no installer knows NixOS 24.05", "is accepted"),
    ),
    "repository": (
        {"unreachable": {"http://archive.ubuntu.com/": "timed out"}},
        *("repositories", "warning", "http://archive.ubuntu.com/ does not answer: timed out", "proxy"),
    ),
    "upgrades": (
        {"unattended_upgrades": UnattendedUpgrades(enabled=True, excluded=("nvidia-",))},
        *("unattended upgrades", "warning", "may be replaced", "systemctl stop"),
    ),
    "engine": (
        {"docker_server": None, "docker_problem": "Is the docker daemon running?"},
        *("Docker", "warning", "docker-ce: Is the docker daemon running?", "journalctl -u docker"),
    ),
    "group": (
        {"docker_server": None, "docker_group": ("bob",), "user": User("ann", 1000)},
        *("Docker", "warning", "ann is not in the group docker", "usermod -aG docker ann"),
    ),
    "packages": (
        {"installed_packages": {"x:amd64": InstalledPackage("1", "iF")}},
        *("packages", "warning", "half installed: x", "dpkg --configure"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_a_remedy(tmp_path: Path, case: str) -> None:
    changes, name, status, message, remedy = WRONG[case]
    check = checks(tmp_path, **changes)[name]
    assert check.status.value == status
    assert message in check.message
    assert remedy in check.remedy


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert writable(tmp_path / "not" / "yet")
    assert not writable(tmp_path / "file" / "below")
    assert not writable(Path("/proc/1/none"))
    found = checks(tmp_path, package_dir=tmp_path / "file")
    assert found["packages folder"].status is Status.PROBLEM


def test_a_refused_plan_is_a_problem() -> None:
    def planned(**values: Any) -> Any:
        number = next(numbers)
        place = Location("/etc/P.yaml", number)
        element = Element("dependency", "X", f"dependencies[{number}]", location=place)
        nothing = {"error": None, "for_now": None, "plan": None, "note": "", "scenario": ""}
        return SimpleNamespace(element=element, **{**nothing, **values})

    numbers = itertools.count(1)

    step = SimpleNamespace(name="install")
    refused, perhaps, quiet, busy = check_plan(
        [
            planned(error=HostError("no disk", remedy="buy one")),
            planned(note="planned later (now: no key)", for_now=HostError("no key", remedy="enrol one")),
            planned(note="installed", scenario="first"),
            planned(plan=SimpleNamespace(steps=(step, step)), scenario="second"),
        ]
    )
    assert refused == Check("X (P.yaml:1)", Status.PROBLEM, "no disk", "buy one")
    # On a fresh host, Docker must be installed first: that must not hide the problem with Secure Boot.
    remedy = "if the dependencies do not change that: enrol one"
    assert perhaps == Check("X (P.yaml:2)", Status.WARNING, "planned later (now: no key)", remedy)
    assert quiet == Check("X first", Status.OK, "installed")
    assert busy == Check("X second", Status.OK, "install, install")
    no_docker = HostError("no Docker", remedy="install it", lifted_by=LiftedBy.DOCKER)
    (in_order,) = check_plan([planned(note="planned later (now: no Docker)", for_now=no_docker)])
    assert (in_order.name, in_order.status, in_order.remedy) == ("X", Status.OK, "")


def test_what_the_profile_brings_is_no_problem() -> None:
    def planned(kind: str, *steps: str) -> Any:
        plan = SimpleNamespace(steps=steps) if steps else None
        return SimpleNamespace(element=SimpleNamespace(key="dependencies[1]", type=kind), plan=plan)

    missing = Check("fabric manager", Status.PROBLEM, "no service", "install it")
    fallen = Check("GPUs", Status.PROBLEM, "one does not answer", "power cycle")
    memory = Check("memory", Status.WARNING, "little", "free some")
    checks = [missing, fallen, memory]
    brought = agree(checks, [planned("NvidiaCudaInstallation", "install")])
    told = "no service; NvidiaCudaInstallation sees to it"
    assert brought == [Check("fabric manager", Status.OK, told), fallen, memory]
    # A driver that is left unchanged does not install anything.
    assert agree(checks, [planned("NvidiaCudaInstallation"), planned("DockerInstallation", "a")]) == checks


def test_a_sick_gpu_is_no_problem_of_a_profile_that_uses_none() -> None:
    checks = [
        Check("GPUs", Status.PROBLEM, "no driver answers for 0000:05:00.0", "see dmesg"),
        Check("GPU clocks", Status.WARNING, "slowed down", "see to cooling"),
        Check("nouveau", Status.OK, "not loaded"),
    ]
    without, beside = SimpleNamespace(uses_gpus=False), SimpleNamespace(uses_gpus=True)
    told = replace(
        checks[0],
        status=Status.WARNING,
        message="no driver answers for 0000:05:00.0; the profile uses no GPU",
    )
    assert for_profile(checks, [cast("Any", without)]) == [told, *checks[1:]]
    assert for_profile(checks, [cast("Any", without), cast("Any", beside)]) == checks


def command_line(command: Any, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_the_commands(tmp_path: Path) -> None:
    folder = f"--package-dir={tmp_path}"
    result = command_line(doctor, "--json", folder, f"--results-dir={tmp_path}")
    names = {check["name"] for check in json.loads(result.stdout)["checks"]}
    assert {"results folder", "memory", "package lock"} <= names
    table = command_line(doctor, folder, f"--results-dir={tmp_path}")
    assert table.exit_code == result.exit_code
    assert table.stdout.splitlines()[-1] == json.loads(result.stdout)["summary"]
    states = [line.split()[0] for line in table.stdout.splitlines() if not line.startswith(" ")][:-1]
    assert states == sorted(states, key=["problem", "warning", "ok"].index)


def test_equal_causes_are_one_entry(capsys: pytest.CaptureFixture[str]) -> None:
    cause = ("no engine answers", "start Docker")
    checks = [
        Check("memory", Status.OK, "8 GiB"),
        Check("first", Status.PROBLEM, *cause),
        Check("second", Status.PROBLEM, *cause),
    ]
    _show(checks)
    assert capsys.readouterr().out.splitlines() == [
        "problem  first, second: no engine answers",
        "         → start Docker",
        "ok       memory: 8 GiB",
        "2 problems, no warning; 1 of 3 checks passed.",
    ]


def test_the_command_looks_at_amd_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Fact("amd_gpus", "a test", lambda _: (AmdGpu("0000:0c:00.0", "0x74a1", "AMD Instinct MI300X"),))
    monkeypatch.setattr("agent.doctor.amd_gpus.AMD_GPUS", gpus)
    result = command_line(doctor, "--json", f"--package-dir={tmp_path}", f"--results-dir={tmp_path}")
    found = {check["name"]: check["message"] for check in json.loads(result.stdout)["checks"]}
    assert found["AMD GPUs"] == "1: AMD Instinct MI300X"
    assert "amdgpu" in found


ON_THE_CPU = """
description: A test.
actions:
- type: ExecuteCommand
  parameters: {scenario: one, command: "true"}
"""
ON_THE_GPUS = (
    ON_THE_CPU
    + """
monitors:
- type: NvidiaSmiMonitor
  parameters: {scenario: watch}
"""
)


@pytest.mark.parametrize(("profile", "status"), [(ON_THE_CPU, "warning"), (ON_THE_GPUS, "problem")])
def test_the_command_weighs_a_sick_gpu_by_the_profile(
    profile: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = (*HGX[:1], Gpu("0000:05:00.0", "2330"))
    monkeypatch.setattr("agent.doctor.gpus.GPUS", Fact("gpus", "a test", lambda _: lost))
    file = tmp_path / "profile.yaml"
    file.write_text(profile)
    result = command_line(
        doctor, "--json", f"--package-dir={tmp_path}", f"--results-dir={tmp_path}", str(file)
    )
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert found["GPUs"]["status"] == status, found["GPUs"]
    assert "no driver answers for 0000:05:00.0" in found["GPUs"]["message"]


def test_facts_as_table_and_json() -> None:
    shown = command_line(facts_command, "platform", "Package-Dir", "--json")
    assert set(json.loads(shown.stdout)["facts"]) == {"platform", "package_dir"}
    everything = command_line(facts_command)
    assert everything.exit_code == 0
    for text in ("linux-", " more", "—"):
        assert text in everything.stdout
    assert "entries" not in everything.stdout
    one = command_line(facts_command, "distribution")
    assert one.stdout.startswith("# source: /etc/os-release")
    assert "distribution:\n  id: " in one.stdout
    wrong = command_line(facts_command, "plattform")
    assert isinstance(wrong.exception, UsageError)
    assert "platform" in str(wrong.exception)


HGX = tuple(Gpu(f"0000:{bus}:00.0", "0x2330", "NVIDIA H100 80GB HBM3", 81559, "550.90.07") for bus in "45")
FIT = GpuHealth("0000:4:00.0", ecc=True, uncorrected=0, mig=False, mig_pending=False, persistence=True)


def gpu_checks(**changes: Any) -> dict[str, Check]:
    values = {
        "gpus": HGX,
        "nvidia_module": NvidiaModule("550.90.07", open=True),
        "nvml": Nvml("550.90.07", ("NVIDIA H100 80GB HBM3",) * 2),
        "installed_packages": {
            "libnvidia-compute-550-server:amd64": InstalledPackage("550.90.07-0ubuntu0.22.04.1"),
            "libnvidia-compute-535": InstalledPackage("535.1.2", "rc"),
        },
        "competing_modules": (),
        "secure_boot": True,
        "module_key_enrolled": True,
        "nvswitch_count": 4,
        "nvswitch_bridges": 0,
        "service[nvidia-fabricmanager]": ServiceState(active=True, enabled=True),
        "gpu_processes": (GpuProcess(812, "nvidia-persiste"),),
        "gpu_health": (FIT,),
        **changes,
    }
    return {check.name: check for check in check_gpus(Facts(None, values))}


def test_a_healthy_gpu_host() -> None:
    found = gpu_checks()
    assert {check.status for check in found.values()} == {Status.OK}
    assert len(found) == 10
    assert found["GPUs"].message == "2: NVIDIA H100 80GB HBM3"


def test_a_host_without_gpus_has_one_line() -> None:
    assert [check.status for check in gpu_checks(gpus=()).values()] == [Status.OK]


def health(**values: Any) -> dict[str, Any]:
    return {"gpu_health": (FIT, GpuHealth("0000:5:00.0", **values))}


NO_DRIVER = tuple(Gpu(gpu.bus_id, gpu.pci_id) for gpu in HGX)
FABRIC = "service[nvidia-fabricmanager]"
GPU_WRONG: dict[str, tuple[dict[str, Any], str, str, str, str]] = {
    "no driver": (
        {"gpus": NO_DRIVER, "nvidia_module": None, "gpu_health": ()},
        *("GPU driver", "warning", "module is not loaded", "NvidiaCudaInstallation"),
    ),
    "silent": (
        {"gpus": NO_DRIVER},
        "GPUs",
        "warning",
        "2 on the PCI bus, and no driver",
        "installs the driver",
    ),
    "lost": ({"gpus": (HGX[0], NO_DRIVER[1])}, "GPUs", "problem", "no driver answers for 0000:5:00.0", "Xid"),
    "mismatch": (
        {"nvidia_module": NvidiaModule("550.54.14")},
        *("GPU driver", "problem", "module 550.54.14 is loaded, libraries of 550.90.07", "reboot"),
    ),
    "nvml": (
        {"nvml": Nvml(error="Driver/library version mismatch"), "installed_packages": {}},
        *("GPU driver", "problem", "Driver/library version mismatch", "reboot"),
    ),
    "nvml lost": ({"nvml": Nvml(error="GPU is lost")}, "GPU driver", "problem", "GPU is lost", "dmesg"),
    "nouveau": ({"competing_modules": ("nouveau",)}, "nouveau", "problem", "nouveau holds", "reboot (--yes)"),
    "secure boot": (
        {"module_key_enrolled": False, "nvidia_module": None},
        *("Secure Boot", "problem", "will reject", "mokutil --import"),
    ),
    "no fabric manager": (
        {FABRIC: None},
        "fabric manager",
        "problem",
        "4 NVSwitches, and no service",
        "fits",
    ),
    "fabric manager failed": (
        {
            FABRIC: ServiceState(active=False, failed=True, result="exit-code"),
            "nvswitch_count": None,
            "nvswitch_bridges": 2,
        },
        *("fabric manager", "problem", "does not run, it failed: exit-code", "very version"),
    ),
    "processes": (
        {"gpu_processes": (GpuProcess(99, "python3"),)},
        *("GPU processes", "warning", "python3 (process 99)", "end them"),
    ),
    "mig": (
        health(mig=True, mig_pending=True),
        "MIG",
        "warning",
        "0000:5:00.0: is split",
        "--multi-instance-gpu=0",
    ),
    "mig pending": (health(mig=True, mig_pending=False), "MIG", "warning", "will be whole", "--gpu-reset"),
    "uncorrected": (
        health(uncorrected=3, remapping_pending=True),
        *("GPU memory errors", "problem", "3 memory errors were not corrected", "dcgmi diag"),
    ),
    "remapping failed": (
        health(remapping_failed=True),
        "GPU memory errors",
        "problem",
        "no spare rows",
        "exchanged",
    ),
    "remapping": (health(remapping_pending=True), "GPU memory errors", "warning", "waits", "--gpu-reset"),
    "cap": (
        health(graphics_clock_cap_mhz=1200),
        "GPU clocks",
        "warning",
        "set 1200 MHz",
        "--reset-applications",
    ),
    "hot": (
        health(throttled=("hw_thermal_slowdown",)),
        "GPU clocks",
        "warning",
        "hw_thermal_slowdown",
        "cooling",
    ),
    "persistence": (health(persistence=False), "GPU persistence", "warning", "is unloaded", "persistenced"),
}


@pytest.mark.parametrize("case", GPU_WRONG)
def test_what_is_wrong_with_gpus_is_told_with_a_remedy(case: str) -> None:
    changes, name, status, message, remedy = GPU_WRONG[case]
    check = gpu_checks(**changes)[name]
    assert check.status.value == status
    assert message in check.message
    assert remedy in check.remedy


def test_gpus_with_the_same_finding_are_told_together() -> None:
    twice = tuple(GpuHealth(f"gpu{n}", mig=True, remapping_failed=n == 1) for n in range(2))
    found = gpu_checks(gpu_health=twice)
    assert found["MIG"].message == "gpu0, gpu1: is split into instances"
    assert found["GPU memory errors"].message.startswith("gpu1: ")


def test_tokens_that_nobody_gave() -> None:
    text = """
    {"Description": "d", "Parameters": {"HfToken": "", "Model": "", "ApiKey": "given-by-me"},
     "Actions": [{"Type": "X", "Parameters": {"Password": "", "Token": "$.Parameters.HfToken"}}]}"""
    found = check_secrets(load_sources([Source("P", "P.json", text, "json")]))
    assert [(check.name, check.message) for check in found] == [
        ("parameter HfToken", "HfToken is empty"),
        ("X (P.json:3)", "Password is empty"),
    ]
    assert {check.status for check in found} == {Status.WARNING}


@pytest.mark.parametrize(("value", "count"), [(None, 1), ("", 1), ("hf_x", 0)])
def test_a_secret_of_the_environment_that_is_not_set(
    value: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
    {"Description": "d", "Parameters": {"HfToken": "{EnvironmentVariable:SOME_TOKEN}"},
     "Actions": [{"Type": "X", "Parameters": {"ApiKey": "{EnvironmentVariable:SOME_TOKEN}"}}]}"""
    monkeypatch.delenv("SOME_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("SOME_TOKEN", value)
    found = check_secrets(load_sources([Source("P", "P.json", text, "json")]))
    assert [check.name for check in found] == ["parameter HfToken", "X (P.json:3)"][: 2 * count]
    told = unset_secrets(load_sources([Source("P", "P.json", text, "json")]))
    assert [line.partition(" ")[0] for line in told] == ["HfToken", "ApiKey"][: 2 * count]
    assert all("export SOME_TOKEN=" in line for line in told)
    assert {check.message for check in found} <= {
        "HfToken is empty: SOME_TOKEN of the environment is not set",
        "ApiKey is empty: SOME_TOKEN of the environment is not set",
    }
    assert {check.remedy for check in found} <= {"set it before the command: export SOME_TOKEN=…"}


def test_servers_that_answer_and_those_that_do_not() -> None:
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # answers every request with 501
    threading.Thread(target=server.serve_forever, daemon=True).start()
    alive = f"http://127.0.0.1:{server.server_port}/"
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        found = unreachable([f"{alive}debian", f"{dead}x", f"{dead}y"]).read(WithoutProxies())
    server.shutdown()
    server.server_close()
    assert set(found) == {dead}
    assert "refused" in found[dead]


def test_servers_that_the_steps_fetch_from() -> None:
    asked: list[str] = []

    class Host(LocalHost):
        def output(self, command: Sequence[str], **_: Any) -> str | None:
            asked.extend(part for part in command if part.startswith("http"))
            return (
                None if command[0] == "apt-config" else json.dumps({"https://keys.example.com/": "timed out"})
            )

    def ignored(_: StepContext) -> None: ...

    steps = [
        Step("key", "it is missing", ignored, "fetch https://keys.example.com/gpg, check it, write /etc/x"),
        Step("x", "it is missing", ignored, "apt-get install x"),
        Step(
            "model", "it is missing", ignored, "fetch", fetches_from=lambda _: ["https://hub.example.com/x"]
        ),
    ]
    planned: list[Any] = [SimpleNamespace(plan=SimpleNamespace(steps=steps)), SimpleNamespace(plan=None)]
    (check,) = check_servers(planned, Facts(Host()))
    assert asked == ["https://keys.example.com/", "https://hub.example.com/"]
    assert (check.status, check.name) == (Status.PROBLEM, "server https://keys.example.com/")
    assert "timed out" in check.message


class WithoutProxies(LocalHost):
    def output(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 10,
        env: Mapping[str, str] | None = None,
        hang_is_error: bool = False,
    ) -> str | None:
        unset = [part for name in ("http_proxy", "HTTP_PROXY") for part in ("-u", name)]
        return (
            None
            if command[0] == "apt-config"
            else super().output(["env", *unset, *command], timeout_s=30, env=env)
        )


def test_servers_of_addresses() -> None:
    addresses = [
        "https://me:secret@x.org/a",
        "https://x.org/b",
        "http://m/$releasever",
        "cdrom:x",
        "http://$h/a",
    ]
    assert origins(addresses) == ("https://x.org/", "http://m/")
    dump = 'Acquire::http::Proxy "http://p:3142";\nAcquire::https::Proxy "DIRECT";\nAcquire::ftp "";'
    assert apt_proxies(dump) == {"http": "http://p:3142"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to distrust others' folders")
@pytest.mark.parametrize("what", ["results", "packages"])
@pytest.mark.parametrize("plant", ["writable", "foreign"])
def test_folders_that_others_may_write_to(what: str, plant: str, tmp_path: Path) -> None:
    folder = tmp_path / what
    folder.mkdir()
    if plant == "writable":
        folder.chmod(0o777)
    else:
        os.chown(folder, 65534, 65534)
    facts = healthy(tmp_path, package_dir=folder if what == "packages" else tmp_path)
    found = {
        check.name: check for check in check_host(facts, folder if what == "results" else tmp_path, tmp_path)
    }
    check = found[f"{what} folder"]
    assert check.status is Status.PROBLEM
    assert "root does not write there" in check.message
    assert f"chown root {folder} and chmod go-w {folder}" in check.remedy
    assert f"--{what.rstrip('s')}" in check.remedy.replace("results-dir", "result-dir")
