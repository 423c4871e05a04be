"""Plans as data: facts and parameters as input; steps, or the reason for having none, as output.

A case has ``facts``, ``parameters`` and one of ``steps``, ``nothing_to_do``, ``refused``. ``after`` gives the
facts that the steps result in; with them, a new plan must have nothing to do. With ``base: name``, its facts
override those of ``_name.yaml`` in the same folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from agent.core.errors import HostError
from agent.core.yaml_data import yaml_data
from agent.facts import Facts
from agent.facts.amd_driver import AmdgpuModule
from agent.facts.amd_gpus import AmdGpu
from agent.facts.cuda_toolkits import CudaToolkit
from agent.facts.disks import BlockDevice, Signature
from agent.facts.git import GitCheckout
from agent.facts.gpu_memory import GpuMemory, MemoryHolder
from agent.facts.gpu_processes import GpuProcess
from agent.facts.linux import Distribution
from agent.facts.memory import Memory
from agent.facts.packages import INSTALLED_PACKAGES, InstalledPackage
from agent.facts.processor import Processor
from agent.facts.python import PythonInterpreter
from agent.facts.python_environments import PythonEnvironment
from agent.facts.storage import Mount
from agent.facts.users import User
from dependencies.amd.rocm_installation import AmdRocmInstallation
from dependencies.disks.format_disks import FormatDisks
from dependencies.disks.mount_disks import MountDisks
from dependencies.docker.installation import DockerInstallation
from dependencies.llamacpp.installation import LlamaCppInstallation
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.nvidia.free_gpu_memory import FreeGpuMemory
from dependencies.nvidia.gpu_selection import GpuSelection
from dependencies.packages.linux_package_installation import LinuxPackageInstallation
from dependencies.python.environment_installation import PythonEnvironmentInstallation
from dependencies.python.wheels import OfferedFiles
from dependencies.sources.git_repo_clone import GitRepoClone
from dependencies.system.reboot_system import RebootSystem
from parsers.llamacpp.build import Build
from tests.dependencies.docker_facts import DOCKER_READERS
from tests.dependencies.nvidia_cases import NVIDIA_READERS, expand, solution_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.component.component import ComponentParameters, Dependency
    from agent.facts import Fact

T = TypeVar("T")
INSTALLERS: dict[str, type[Dependency]] = {
    "amd_rocm_installation": AmdRocmInstallation,
    "docker_installation": DockerInstallation,
    "format_disks": FormatDisks,
    "free_gpu_memory": FreeGpuMemory,
    "git_repo_clone": GitRepoClone,
    "gpu_selection": GpuSelection,
    "linux_package_installation": LinuxPackageInstallation,
    "llamacpp_installation": LlamaCppInstallation,
    "mount_disks": MountDisks,
    "nvidia_container_toolkit_installation": NvidiaContainerToolkitInstallation,
    "nvidia_cuda_installation": NvidiaCudaInstallation,
    "python_environment_installation": PythonEnvironmentInstallation,
    "reboot_system": RebootSystem,
}
CASES = sorted((Path(__file__).parent / "cases").glob("*/[!_]*.yaml"))


def block_device(value: dict[str, Any]) -> BlockDevice:
    children = tuple(map(block_device, value.get("children", ())))
    return BlockDevice(
        **{**value, "mount_points": tuple(value.get("mount_points", ())), "children": children}
    )


READERS: dict[str, Callable[[Any], Any]] = {
    **DOCKER_READERS,
    **NVIDIA_READERS,
    "amd_gpu_processes": lambda value: tuple(GpuProcess(*process) for process in value),
    "amd_gpus": lambda value: tuple(AmdGpu(**gpu) for gpu in value),
    "amdgpu_blacklists": tuple,
    "amdgpu_module": lambda value: value and AmdgpuModule(*value),
    "available_packages": frozenset,
    "compute_capabilities": tuple,
    "cuda_toolkits": lambda value: tuple(CudaToolkit(**toolkit) for toolkit in value),
    "distribution": lambda value: Distribution(**{**value, "like": tuple(value.get("like", ()))}),
    "disks": lambda value: tuple(map(block_device, value)),
    "git_checkout": lambda value: (
        value
        and GitCheckout(
            **{**value, **{name: tuple(value.get(name, ())) for name in ("tags", "changed", "ahead")}}
        )
    ),
    "gpu_memory": lambda value: tuple(GpuMemory(**gpu) for gpu in value),
    "gpu_memory_holders": lambda value: tuple(
        MemoryHolder(**{**holder, "uuids": tuple(holder["uuids"])}) for holder in value
    ),
    "installed_packages": lambda value: {name: InstalledPackage(*state) for name, state in value.items()},
    "link_target": lambda value: value and Path(value),
    "llamacpp_build": lambda value: value and Build(value, "515e855"),
    "members": lambda value: value if value is None else tuple(value),
    "memory": lambda value: Memory(**value),
    "mounts": lambda value: tuple(Mount(Path(target), "ext4", size, free) for target, size, free in value),
    "names_in": tuple,
    "offered_files": lambda value: OfferedFiles(tuple(value.get("built", ())), value.get("missing", {})),
    "package_dir": Path,
    "system_root": Path,
    "reboots": tuple,
    "signatures": lambda value: value if value is None else tuple(Signature(**item) for item in value),
    "processor": lambda value: Processor(**{**value, "flags": frozenset(value.get("flags", ()))}),
    "python": lambda value: value and PythonInterpreter(**value),
    "python_environment": lambda value: (
        value and PythonEnvironment(**{**value, "changed": tuple(value.get("changed", ()))})
    ),
    "user": lambda value: User(**value),
}


class ModelledFacts(Facts):
    """A modelled host, with the package manager's solution."""

    def __getitem__(self, fact: Fact[T]) -> T:
        if fact.name.startswith("package_solution[") and fact.name not in self._modelled:
            rpm = self._modelled.get("package_manager") == "dnf"
            offers = self._modelled["rpm_driver_offers" if rpm else "package_offers[nvidia]"]
            solution = solution_of(fact.name.partition("[")[2][:-1], offers, self[INSTALLED_PACKAGES])
            return cast("T", solution)
        if fact.name.startswith("offered_files[") and fact.name not in self._modelled:
            return cast("T", OfferedFiles())
        return super().__getitem__(fact)

    def fresh(self) -> Facts:
        return ModelledFacts(None, self._modelled)


def facts_of(*written: dict[str, Any]) -> Facts:
    values: dict[str, Any] = {
        "visible_devices": None,
        "hip_visible_devices": None,
        "dkms_builds": (),
        "dnf_5": False,
        "apt_repositories": (),
        "nvidia_module_file": None,
    }
    merged = {key: value for part in written for key, value in part.items()}
    for name, value in expand(merged).items():
        read = READERS.get(name.partition("[")[0], lambda plain: plain)
        values[name] = read(value)
    return ModelledFacts(None, values)


def read_case(path: Path) -> dict[str, Any]:
    """Return a case; with ``base: name``, its facts are added to those of ``_name.yaml``."""
    case: dict[str, Any] = yaml_data(path.read_text())
    if "base" in case:
        base = yaml_data((path.parent / f"_{case['base']}.yaml").read_text())
        case["facts"] = base | case.get("facts", {})
    return case


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    case = read_case(path)
    installer = INSTALLERS[path.parent.name]
    parameters: ComponentParameters = installer.Parameters.model_validate(case["parameters"])
    component = installer(parameters)
    facts = facts_of(case["facts"])
    if "refused" in case:
        with pytest.raises(HostError) as refusal:
            component.plan(facts)
        assert case["refused"] in refusal.value.message
        assert case["remedy"] in (refusal.value.remedy or "")
        assert case.get("details", "") in "\n".join(refusal.value.details)
        return
    plan = component.plan(facts)
    if "nothing_to_do" in case:
        assert case["nothing_to_do"] in plan.nothing_to_do
        assert not plan.steps
        return
    assert [step.name for step in plan.steps] == [step["name"] for step in case["steps"]]
    for step, expected in zip(plan.steps, case["steps"], strict=True):
        assert expected["reason"] in step.reason
        for part in expected.get("command", ()):
            assert part in step.command
        for part in expected.get("not_in_command", ()):
            assert part not in step.command
        assert step.holds is None or not step.holds(facts), "what holds already needs no step"
    applied = facts_of(case["facts"], case["after"])
    assert component.plan(applied).nothing_to_do
    assert all(step.holds is None or step.holds(applied) for step in plan.steps)


def test_every_installer_has_cases() -> None:
    assert {path.parent.name for path in CASES} == set(INSTALLERS)
