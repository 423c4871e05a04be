"""The commands of a driver's installation steps, and their messages on failure; packages are modelled."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.component.component import StepContext
from agent.core.errors import ActionFailedError, DependencyFailedError
from agent.core.yaml_data import yaml_data
from agent.host.processes import ProcessResult
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.packages import belongs_to_driver, driver_package_names, other_branch, upstream
from dependencies.nvidia.undo import undo_plan
from tests.dependencies.conftest import Messages
from tests.dependencies.nvidia_cases import expand
from tests.dependencies.test_cases import facts_of

if TYPE_CHECKING:
    from agent.component.component import Step, StepOutcome
    from agent.facts import Facts

CASES = Path(__file__).parents[1] / "cases/nvidia_cuda_installation"
EXCLUSIONS = "etc/apt/apt.conf.d/52vcagent-nvidia"


@dataclass
class Processes:
    """Keeps commands; those that begin as in ``failing`` end with its lines."""

    failing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    output: str = "why it failed\n"

    def run(self, command: list[str], *, log: Path, **options: Any) -> ProcessResult:
        line = " ".join(command)
        self.commands.append(line)
        for start, details in self.failing.items():
            if line.startswith(start):
                raise ActionFailedError(f"{start} ended with 1", details=details)
        return ProcessResult(line, 0, self.output, "", 0.1, timed_out=False, log=log)

    def start(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is started")


def facts(base: str, root: Path, **changes: Any) -> Facts:
    """Return a host of the cases whose files are below another root."""
    written = yaml_data((CASES / f"_{base}.yaml").read_text())
    values = {
        re.sub(r"(?<!keyring)\[(?=/(?:etc|usr)/)", f"[{root}", key): value
        for key, value in expand(written).items()
    }
    return facts_of(values | {"system_root": str(root), "package_lock": None} | changes)


def steps(facts: Facts, **parameters: Any) -> dict[str, Step]:
    values = {"LinuxDriverVersion": "550", "CudaRequired": False, **parameters}
    component = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(values))
    return {step.name: step for step in component.plan(facts).steps}


def context(facts: Facts, root: Path, processes: Processes) -> StepContext:
    return StepContext(
        facts=facts,
        processes=processes,
        progress=Messages(),
        stop=threading.Event(),
        run_dir=root,
        package_dir=root,
        log=root / "step.log",
    )


def run(step: Step, facts: Facts, root: Path, processes: Processes) -> StepOutcome:
    outcome = step.run(context(facts, root, processes))
    assert outcome
    return outcome


def test_the_driver_is_solved_again_when_it_is_installed(tmp_path: Path) -> None:
    host = facts("fresh", tmp_path, apt_lists_age_s=None, **{"package_offers[nvidia]": []})
    planned = steps(host)
    fetched = facts("fresh", tmp_path)
    processes = Processes()
    outcome = run(planned["driver"], fetched, tmp_path, processes)
    assert outcome.message == "driver 550.163.01 from Ubuntu"
    simulated, done = processes.commands
    assert simulated == f"{done} --simulate"
    assert "nvidia-fabricmanager-550=550.163.01-0ubuntu0.22.04.2" in done
    useless = facts("fresh", tmp_path, **{"package_offers[nvidia]": ["server 570.1.2-1 Ubuntu"]})
    with pytest.raises(DependencyFailedError, match="no repository has driver 550") as error:
        run(planned["driver"], useless, tmp_path, processes)
    assert error.value.remedy
    assert len(processes.commands) == 2


def test_nothing_else_goes_for_a_driver(tmp_path: Path) -> None:
    host = facts("fresh", tmp_path, held_packages=["libc6"])
    step = steps(host)["driver"]
    head = "NOTE: This is only a simulation!\n"
    for line, told in (
        ("Remv ubuntu-desktop:amd64 [1.2]\n", "would remove ubuntu-desktop"),
        ("Inst libc6 [2.35] (2.36 Ubuntu:22.04 [amd64])\n", "would change what is held: libc6"),
    ):
        processes = Processes(output=head + line)
        with pytest.raises(DependencyFailedError, match=told):
            run(step, host, tmp_path, processes)
        assert len(processes.commands) == 1, "it was only simulated"
    others = "Remv libnvidia-compute-535:i386 [535.1]\nInst nvidia-driver-550-server (550.163.01 Ubuntu)\n"
    run(step, host, tmp_path, Processes(output=head + others))


def test_what_was_cut_short_is_finished(tmp_path: Path) -> None:
    unpacked = {"nvidia-dkms-550-server": ["550.163.01-0ubuntu0.22.04.2", "iU"]}
    host = facts("fresh", tmp_path, installed_packages=unpacked, apt_lists_age_s=None)
    planned = steps(host)
    assert [*planned][:3] == ["update", "repair", "driver"], "apt brings what is missing from its lists"
    unmet = ("dpkg: dependency problems prevent configuration of nvidia-dkms-550-server:",)
    processes = Processes({"dpkg --configure -a": unmet})
    run(planned["repair"], host, tmp_path, processes)
    configure, simulated, fixed = processes.commands
    assert configure.startswith("dpkg --configure -a")
    assert fixed.split() == simulated.removesuffix(" --simulate").split(), "nothing goes for it"
    fetched = facts("fresh", tmp_path, installed_packages=unpacked, held_packages=[*unpacked])
    processes = Processes()
    run(planned["driver"], fetched, tmp_path, processes)
    assert "--fix-broken" in processes.commands[-1], "apt brings what it lacks, in the driver's version"
    assert "nvidia-dkms-550-server=550.163.01-0ubuntu0.22.04.2" in processes.commands[-1]


@pytest.mark.parametrize("output", ["Remv somebody-s-tool [1.0]\n", "Purg somebody-s-tool [1.0]\n"])
def test_nothing_is_removed_to_finish_what_was_cut_short(tmp_path: Path, output: str) -> None:
    unpacked = {"nvidia-dkms-550-server": ["550.163.01-0ubuntu0.22.04.2", "iU"]}
    host = facts("fresh", tmp_path, installed_packages=unpacked, apt_lists_age_s=None)
    processes = Processes(output=output)
    run(steps(host)["repair"], host, tmp_path, processes)
    assert processes.commands[-1].endswith("--simulate")


def test_what_is_installed_is_kept(tmp_path: Path) -> None:
    planned = steps(facts("fresh", tmp_path))
    after = facts("healthy", tmp_path)
    processes = Processes()
    run(planned["exclude"], after, tmp_path, processes)
    text = (tmp_path / EXCLUSIONS).read_text()
    assert '"^nvidia-driver-550-server$";' in text
    run(planned["hold"], after, tmp_path, processes)
    (hold,) = processes.commands
    assert hold.startswith("apt-mark hold ")
    assert "nvidia-fabricmanager-550" in hold
    assert planned["exclude"].holds
    assert planned["exclude"].holds(facts("healthy", tmp_path, **{f"text[{tmp_path}/{EXCLUSIONS}]": text}))


@pytest.mark.parametrize(
    ("module", "reboots"),
    [(["550.54.14", False], True), (["550.90.07", True], True), (["550.90.07", False], False)],
)
def test_a_reboot_is_asked_for_where_it_is_still_needed(
    tmp_path: Path,
    module: list[Any],
    reboots: bool,  # noqa: FBT001
) -> None:
    reboot = steps(facts("healthy", tmp_path, nvidia_module=["550.54.14", False]))["reboot"]
    outcome = run(reboot, facts("healthy", tmp_path, nvidia_module=module), tmp_path, Processes())
    assert bool(outcome.reboot) is reboots


def test_nouveau_is_kept_out(tmp_path: Path) -> None:
    host = facts("healthy", tmp_path, competing_modules=["nouveau"], nvidia_module=None)
    planned = steps(host)
    processes = Processes()
    run(planned["blacklist"], host, tmp_path, processes)
    assert "blacklist nouveau" in (tmp_path / "etc/modprobe.d/vcagent-nouveau.conf").read_text()
    assert processes.commands == ["update-initramfs -u"]
    assert "nouveau holds the GPUs" in run(planned["reboot"], host, tmp_path, processes).reboot


def test_a_module_that_is_rejected(tmp_path: Path) -> None:
    host = facts("healthy", tmp_path, nvidia_module=None)
    load = steps(host)["load"]
    rejected = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    with pytest.raises(DependencyFailedError) as error:
        run(load, host, tmp_path, Processes({"modprobe": (rejected,)}))
    assert "enrol the key" in (error.value.remedy or "")
    with pytest.raises(DependencyFailedError) as error:
        run(load, host, tmp_path, Processes({"modprobe": ("modprobe: ERROR: No such device",)}))
    assert "dkms status" in (error.value.remedy or "")
    assert run(load, host, tmp_path, Processes()).message == "loaded"


def test_a_fabric_manager_that_does_not_start(tmp_path: Path) -> None:
    host = facts("healthy", tmp_path, **{"service[nvidia-fabricmanager]": None})
    step = steps(host)["fabric-manager"]
    with pytest.raises(DependencyFailedError, match="nvidia-fabricmanager does not start") as error:
        run(step, host, tmp_path, Processes({"systemctl restart": ()}))
    assert error.value.details == ("why it failed",)
    processes = Processes()
    run(step, host, tmp_path, processes)
    assert processes.commands == [
        "systemctl enable nvidia-fabricmanager.service",
        "systemctl restart nvidia-fabricmanager.service",
    ]


def test_the_driver_is_taken_back(tmp_path: Path) -> None:
    planned = steps(facts("fresh", tmp_path))
    after = facts("healthy", tmp_path)
    driver, hold = planned["driver"].undo, planned["hold"].undo
    assert driver
    assert hold
    (unhold,) = undo_plan(hold, after).steps
    assert unhold.command.startswith("apt-mark unhold libnvidia-cfg1-550-server")
    (remove,) = undo_plan(driver, after).steps
    assert "nvidia-fabricmanager-550" in remove.command
    assert "linux-image" not in remove.command
    assert undo_plan(driver, facts("fresh", tmp_path)).nothing_to_do
    assert undo_plan(hold, facts("fresh", tmp_path)).nothing_to_do
    upgraded = steps(after, LinuxDriverVersion="570")["driver"].undo
    assert upgraded
    assert "driver 550.90.07 was there before" in undo_plan(upgraded, after).nothing_to_do


def test_files_are_taken_back_unless_they_are_somebody_elses(tmp_path: Path) -> None:
    host = facts("healthy", tmp_path, competing_modules=["nouveau"], nvidia_module=None)
    undo = steps(host)["blacklist"].undo
    assert undo
    path = Path(undo["file"])
    run(steps(host)["blacklist"], host, tmp_path, Processes())
    text = f"text[{path}]"
    (remove,) = undo_plan(undo, facts_of({text: path.read_text()})).steps
    processes = Processes()
    remove.run(context(host, tmp_path, processes))
    assert not path.exists()
    assert processes.commands == ["update-initramfs -u"]
    assert undo_plan(undo, facts_of({text: "blacklist nouveau # by the admin\n"})).nothing_to_do


@pytest.mark.parametrize(
    "parameters",
    [
        {"LinuxDriverVersion": "R550"},
        {"LinuxCudaVersion": "12"},
        {"Checksum": "md5:xyz"},
        {"FabricManager": "perhaps"},
        {"CudaPath": "cuda"},
        {"OpenKernel": True},
    ],
)
def test_parameters_that_mean_nothing(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NvidiaCudaInstallation.Parameters.model_validate(parameters)


def test_names_and_versions() -> None:
    assert upstream("1:550.90.07-0ubuntu1") == "550.90.07"
    assert upstream("535.183.01-1~deb12u1") == "535.183.01"
    assert upstream("515.76+really.515.65.01-0ubuntu0.22.04.1") == "515.65.01"
    assert other_branch("dkms, nvidia-firmware-580-server-580.178.04, nvidia-prime (>= 0.8)", "580") is None
    assert other_branch("nvidia-driver-570-server", "550") == "nvidia-driver-570-server"
    for name in ("nvidia-firmware-550-550.90.07", "libnvidia-ml1", "kmod-nvidia-open-dkms", "libxnvctrl0"):
        assert belongs_to_driver(name), name
    for name in (
        "libnvidia-container1",
        "nvidia-cuda-toolkit",
        "nvidia-fs-dkms",
        "ubuntu-desktop",
        "cuda-12-4",
    ):
        assert not belongs_to_driver(name), name
    pattern = driver_package_names("6.8.0-1021-azure")
    for name in ("nvidia-driver-550", "libnvidia-compute-550-server", "nvlsm", "nvidia-imex",
                 "linux-modules-nvidia-550-open-6.8.0-1021-azure"):  # fmt: skip
        assert re.fullmatch(pattern, name), name
    for name in (
        "nvidia-container-toolkit",
        "nvidia-cuda-toolkit",
        "linux-modules-nvidia-550-6.8.0-1-azure",
    ):
        assert not re.fullmatch(pattern, name), name
