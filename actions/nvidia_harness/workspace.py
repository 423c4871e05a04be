"""Find the workspace of a run of NVIDIA's harness: account, code, GPUs, scratch space."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.nvidia_harness.benchmarks import Benchmark, benchmark
from actions.nvidia_harness.host_programs import check_programs
from actions.nvidia_harness.layouts import LAYOUTS, Layout, layout_of, nvidia_folder
from actions.nvidia_harness.scratch import DataStage, Scratch, bytes_made
from agent.core.errors import HostError, LiftedBy, refusals_lifted_by
from agent.core.safe_files import give_to, make_folder
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.disk_filter import filter_disks
from agent.facts.disks import DISKS
from agent.facts.docker import DOCKER_GROUP, PROCESS_GROUPS
from agent.facts.files import exists, text_of
from agent.facts.git import git_checkout
from agent.facts.gpus import GPUS
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.users import ROOT, USER, Account, account_of
from agent.store.results import write_json
from gpu_configs.systems import GpuSet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actions.nvidia_harness.parameters import MLPerfParameters
    from agent.component.component import StepContext
    from agent.facts import Facts

CONTAINER_FOLDER = "/work"
"""Path of NVIDIA's code in the container (Makefile.docker, CONTAINER_VOL)."""

BUILT, CLONED, SYSTEM = "built.json", "cloned.json", "system.json"
"""Notes: the container of the build; the clone of MLPerf's code; the host's name in NVIDIA's code."""

_NOTES = Path("build", ".vcagent")
_VENDOR = Path("/sys/class/dmi/id/sys_vendor")
_DATA_STAGES = (
    ("download_data", "data"),
    ("download_model", "models"),
    ("preprocess_data", "preprocessed_data"),
)


@dataclass(frozen=True)
class Test:
    """One run of the harness.

    Args:
        config_ver: such as ``default``.
        scenario: LoadGen's scenario.
        mode: ``performance`` or ``accuracy``.
    """

    config_ver: str
    scenario: str
    mode: str

    __test__ = False  # keeps pytest from collecting it

    @property
    def test_mode(self) -> str:
        """Value for ``--test_mode``."""
        return "PerformanceOnly" if self.mode == "performance" else "AccuracyOnly"


@dataclass(frozen=True)
class Workspace:
    """Everything that a run works with.

    Args:
        account: the account that runs it.
        as_root: True if the agent is root and must switch to the account.
        joins_docker: True if the account must first become a member of the group docker.
        folder: NVIDIA's code on the host.
        mlperf_round: the round of that code.
        layout: the layout of that code.
        scratch: the scratch space.
        benchmark: the benchmark to test.
        prepared: the benchmarks whose data is prepared.
        gpus: the GPUs of the container; None for none.
    """

    account: Account
    as_root: bool
    joins_docker: bool
    folder: Path
    mlperf_round: str
    layout: Layout
    scratch: Scratch
    benchmark: Benchmark
    prepared: tuple[Benchmark, ...]
    gpus: GpuSet | None

    @property
    def tag(self) -> str:
        """Value of DOCKER_TAG."""
        return f"vcagent-{self.account.name}"

    @property
    def logs(self) -> Path:
        """Folder of the harness's logs."""
        return self.folder / "build" / "logs"

    @property
    def data_stages(self) -> tuple[DataStage, ...]:
        """Stages that fill the scratch space, in order."""
        return _data_stages(self.prepared)

    def commit(self, facts: Facts) -> str:
        """Return the commit that is checked out; empty if the folder is not in a repository."""
        checkout = facts[git_checkout(self.folder.parent.parent)]
        return checkout.commit if checkout else ""

    @contextmanager
    def locked(self, context: StepContext) -> Iterator[None]:
        """Hold the scratch space for one stage; see ``Scratch.locked``."""
        with self.scratch.locked(context, self.account, as_root=self.as_root):
            yield

    def note(self, name: str, value: Mapping[str, Any]) -> None:
        """Store a note about the build; the account owns it, so that ``make clean`` can delete it."""
        path = self.folder / _NOTES / name
        make_folder(path.parent)
        write_json(path, value)
        if self.as_root:
            for one in (path.parent, path):
                give_to(one, self.account.uid, self.account.gid)

    def noted(self, name: str) -> Mapping[str, Any]:
        """Return a note about the build; empty if there is none."""
        try:
            found = json.loads((self.folder / _NOTES / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def as_user(self, command: Sequence[str], facts: Facts) -> list[str]:
        """Return a command line that runs a command as the account on the host, with its current groups.

        A process keeps the groups that it was started with; this makes logging in again unnecessary.
        """
        account = self.account
        if self.as_root:
            return [
                *("setpriv", f"--reuid={account.uid}", f"--regid={account.gid}", "--init-groups"),
                *("--reset-env", "--", *self._engine(), *command),
            ]
        if "docker" not in facts[PROCESS_GROUPS] and account.name in (facts[DOCKER_GROUP] or ()):
            return ["sg", "docker", "-c", shlex.join(command)]
        return list(command)

    @staticmethod
    def _engine() -> tuple[str, ...]:
        """Return a prefix that keeps DOCKER_HOST, since the account's environment does not have it."""
        address = os.environ.get("DOCKER_HOST")
        return ("env", f"DOCKER_HOST={address}") if address else ()


def find_workspace(parameters: MLPerfParameters, facts: Facts) -> Workspace:
    """Find everything that is needed on this host, without changes.

    Raises:
        HostError: if the account, repository, disk, free space, GPU or a program for building the image
            is missing.
    """
    account = _account(parameters, facts)
    # Check first what no dependency provides: a repository may still have to be cloned.
    gpus, scratch = _gpus(parameters, facts), Scratch(_scratch(parameters, facts))
    prepared = tuple(benchmark(name) for name in parameters.benchmarks or (parameters.model,))
    _check_space(scratch, prepared, parameters, facts)
    with refusals_lifted_by(lift_of_path(facts, parameters.repository) if parameters.repository else None):
        folder = _folder(parameters, facts)
    if not parameters.image:
        check_programs(folder, account, facts)
    if parameters.round:
        mlperf_round = parameters.round
        layout = next(one for one in LAYOUTS if mlperf_round in one.rounds)
    else:
        mlperf_round, layout = layout_of(facts[text_of(folder / "VERSION")], folder)
    return Workspace(
        account=account,
        as_root=facts[ROOT],
        joins_docker=facts[ROOT] and account.name not in (facts[DOCKER_GROUP] or ()),
        folder=folder,
        mlperf_round=mlperf_round,
        layout=layout,
        scratch=scratch,
        benchmark=benchmark(parameters.model),
        prepared=prepared,
        gpus=gpus,
    )


def _data_stages(prepared: tuple[Benchmark, ...]) -> tuple[DataStage, ...]:
    return tuple(DataStage(target, folder, one.name) for one in prepared for target, folder in _DATA_STAGES)


def _account(parameters: MLPerfParameters, facts: Facts) -> Account:
    user = facts[USER]
    name = parameters.username or (user.sudo_user if facts[ROOT] else user.name)
    if not name or name == "root":
        raise HostError(
            "NVIDIA's harness must not run as root, but no other account is set",
            remedy="start vcagent with sudo from that account, or set Username",
            lifted_by=LiftedBy.NOTHING,
        )
    account = facts[account_of(name)]
    if account is None:
        raise HostError(
            f"there is no account {name}",
            remedy="create it (useradd -m), or correct Username",
            lifted_by=LiftedBy.ACCOUNT,
        )
    if account.uid == 0:
        raise HostError(
            f"the account {name} is root's",
            remedy="set Username to an ordinary account",
            lifted_by=LiftedBy.NOTHING,
        )
    if not facts[ROOT] and name != user.name:
        raise HostError(
            f"only root can run the harness as {name}; this is {user.name}",
            remedy="start vcagent with sudo, or remove Username",
            lifted_by=LiftedBy.NOTHING,
        )
    return account


def _folder(parameters: MLPerfParameters, facts: Facts) -> Path:
    repository = parameters.repository or facts[PACKAGE_DIR] / parameters.package_name
    marks = (repository / "closed" / parameters.submitter / "Makefile.docker", repository / "Makefile.docker")
    return nvidia_folder(
        repository.absolute(), {mark: facts[exists(mark)] for mark in marks}, parameters.submitter
    )


def _scratch(parameters: MLPerfParameters, facts: Facts) -> Path:
    if parameters.scratch_path:
        return parameters.scratch_path.absolute()
    if own := os.environ.get("MLPERF_SCRATCH_PATH"):
        return Path(own).absolute()
    # As in VirtualClient: never the disk of the operating system.
    disks = filter_disks(facts[DISKS], f"{parameters.disk_filter}&OSDisk:false")
    for disk in disks:
        for device in disk.walk():
            for point in device.mount_points:
                if point.startswith("/"):
                    return Path(point) / "scratch"
    found = f"{', '.join(disk.path for disk in disks)} is not mounted" if disks else "no disk fits"
    raise HostError(
        f"no place was found for the scratch space: {found} (DiskFilter {parameters.disk_filter})",
        remedy="mount a data disk, correct DiskFilter, or set a folder: ScratchPath or MLPERF_SCRATCH_PATH",
        lifted_by=LiftedBy.PATH,
    )


def _gpus(parameters: MLPerfParameters, facts: Facts) -> GpuSet | None:
    gpus = facts[GPUS]
    if not gpus and parameters.gpus != "none":
        raise HostError(
            "this host has no NVIDIA GPU",
            remedy="see lspci -d 10de:; for a virtual machine, pass a GPU through",
            lifted_by=LiftedBy.NOTHING,
        )
    if parameters.gpus not in ("all", "none"):
        wanted = [int(number) for number in parameters.gpus.split(",")]
        if missing := [number for number in wanted if number >= len(gpus)]:
            raise HostError(
                f"there is no GPU {missing[0]}: this host has {len(gpus)}",
                remedy="correct Gpus",
                lifted_by=LiftedBy.NOTHING,
            )
        gpus = tuple(gpus[number] for number in wanted)
    if len(kinds := dict.fromkeys(str(gpu.name) for gpu in gpus)) > 1 and parameters.gpus != "none":
        raise HostError(
            f"this host has GPUs of several kinds: {', '.join(kinds)}",
            remedy="select GPUs of one kind with Gpus, such as 0,1; see nvidia-smi -L",
            lifted_by=LiftedBy.NOTHING,
        )
    if not gpus or gpus[0].name is None or gpus[0].memory_mib is None:
        return None
    vendor = (facts[text_of(_VENDOR)] or "").strip()
    return GpuSet(gpus[0].name, gpus[0].memory_mib, len(gpus), vendor, gpus[0].pci_id)


def _check_space(
    scratch: Scratch, prepared: tuple[Benchmark, ...], parameters: MLPerfParameters, facts: Facts
) -> None:
    made = {stage: facts[bytes_made(scratch.record_path(stage))] for stage in _data_stages(prepared)}
    due = {stage.benchmark for stage, size in made.items() if size is None}
    # A resumed run needs no space for existing data.
    there = {name: sum(size or 0 for stage, size in made.items() if stage.benchmark == name) for name in due}
    needed = sum(max(0, one.scratch_bytes - there[one.name]) for one in prepared if one.name in due)
    if parameters.least_free_gb is not None:
        needed = max(0, int(parameters.least_free_gb * 10**9) - sum(size or 0 for size in made.values()))
    mounts = facts[MOUNTS]
    free = free_bytes(mounts, scratch.path)
    if free is not None and free < needed:
        raise HostError(
            f"{scratch.path} has {free / 1e9:.0f} GB free; "
            f"{', '.join(sorted(due)) or parameters.model} needs about {needed / 1e9:.0f} GB",
            remedy="free some space, choose another disk (DiskFilter, ScratchPath), or lower LeastFreeGb",
            lifted_by=LiftedBy.SPACE,
        )
