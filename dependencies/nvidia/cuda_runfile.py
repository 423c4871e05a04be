"""Installs the CUDA toolkit from NVIDIA's runfile: fetched, checked, beside other versions, on the PATH.

The runfile installs only the toolkit: the package manager installs the driver. The options are those of the
CUDA Installation Guide for Linux, "Runfile Installation", "Advanced Options".
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.component.component import Step, StepOutcome
from agent.component.downloads import Download, Fetching
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError, LiftedBy
from agent.core.safe_files import distrust_file
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.bundle import bundle_of
from agent.facts.cuda_toolkits import cuda_toolkit
from agent.facts.files import distrust, exists, link_target, names_in, text_of
from agent.facts.gpu_processes import NVIDIA_DRM_HOLDERS
from agent.facts.storage import MOUNTS, free_bytes, mount_of
from agent.facts.system_paths import SYSTEM_ROOT
from dependencies.packages.package_folder import point_link, write_whole
from dependencies.sources.download import Checksum, download, published_checksum
from dependencies.sources.fetching_context import fetching_context

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.facts import Facts

RUNFILE_BYTES = 5 << 30
"""A runfile's usual size: 12.4.0 has 4.45 GB, 12.8.0 has 5.38 GB."""
UNPACKED = 1.5
"""The disk space of a toolkit, in multiples of its runfile; it exists unpacked and installed for a while."""

_RUNFILES = "runfiles"
"""The folder of runfiles in a bundle."""
_LOGS = ("var/log/cuda-installer.log", "var/log/nvidia-installer.log")
_LOG_LINES = 15
_TOOLKIT_NAMES = re.compile(
    r"(?:bin|compute-sanitizer|docs?|DOCS|EULA\.txt|extras|gds.*|include|lib.*|man|nsight.*|nvml|nvvm.*|pkgconfig"
    r"|README|samples|share|src|targets|tools|version\.json)"
)
"""Names that a runfile creates in the toolkit's folder."""
_REMEDIES = (
    (r"nvidia-drm", "end what uses nvidia-drm (a display server), or leave the driver to the packages"),
    (r"[Nn]ot enough space|No space left", "free some space, or choose another CudaPath or package folder"),
    (r"[Uu]nknown option|[Uu]nrecognized option", "this runfile has other options: see RunfileOptions"),
    (r"[Ff]ailed to verify gcc", "install a compiler that this toolkit supports, or add --override"),
)


@dataclass(frozen=True)
class ToolkitWish:
    """The requested toolkit.

    Args:
        version: the version, such as ``12.4``.
        path: the folder to install it into.
        runfile: the runfile's address, or its path on this host.
        checksum: the expected checksum; empty for the published one, ``none`` for no check.
        md5sum_uri: the list of published checksums; empty for NVIDIA's own, beside the runfile.
        options: further options of the runfile.
        keep: whether to keep the runfile after the installation.
    """

    version: str
    path: Path
    runfile: str
    checksum: str = ""
    md5sum_uri: str = ""
    options: tuple[str, ...] = ()
    keep: bool = False

    @property
    def name(self) -> str:
        """The file name of the runfile."""
        return self.runfile.partition("?")[0].rpartition("/")[2]

    @property
    def is_remote(self) -> bool:
        """True if the runfile must be fetched."""
        return self.runfile.startswith(("http://", "https://"))

    def local(self, facts: Facts) -> Path:
        """Return the path of the runfile on this host, present or future."""
        return facts[PACKAGE_DIR] / "cuda" / self.name if self.is_remote else Path(self.runfile)


def toolkit_path(facts: Facts, version: str, chosen: str) -> Path:
    """Return the path of a toolkit: the chosen one, or one in /usr/local."""
    return Path(chosen) if chosen else facts[SYSTEM_ROOT] / "usr/local" / f"cuda-{version}"


def published_list(runfile: str) -> str | None:
    """Return NVIDIA's list of checksums beside a runfile's address; None for an address of another form."""
    match = re.fullmatch(r"(https?://.*/cuda/\d+\.\d+\.\d+)/local_installers/[^/]+\.run", runfile)
    return f"{match.group(1)}/docs/sidebar/md5sum.txt" if match else None


def toolkit_steps(wish: ToolkitWish, facts: Facts) -> list[Step]:
    """Return the steps that install missing parts of a toolkit.

    Raises:
        HostError: if it cannot be installed on this host.
    """
    there = facts[cuda_toolkit(wish.path)]
    whole = there is not None and there.complete and _is(there.version, wish.version)
    steps = []
    if not whole:
        local = wish.local(facts)
        _require_runfile(wish, facts, local)
        fetched = facts[exists(local)]
        _require_space(wish, facts, fetched=fetched)
        _require_own_folder(wish, facts)
        if wish.is_remote and not fetched:
            steps.append(_download_step(wish, local))
        reason = (
            f"no CUDA {wish.version} in {wish.path}"
            if there is None
            else f"CUDA {there.version} in {wish.path} "
            + ("was cut short" if _is(there.version, wish.version) else f"is not {wish.version}")
        )
        steps.append(
            Step(
                "toolkit",
                reason,
                partial(_install, wish),
                shlex.join(_command(wish, local, facts[PACKAGE_DIR] / "cuda" / "tmp")),
                lambda after: (found := after[cuda_toolkit(wish.path)]) is not None and found.complete,
                estimate_s=300,
                undo={
                    "toolkit": str(wish.path),
                    "link": str(facts[SYSTEM_ROOT] / "usr/local/cuda"),
                    "before": bool(facts[names_in(wish.path)]),
                },
            )
        )
    if missing := _missing_entries(wish, facts):
        steps.append(
            Step(
                "toolkit-environment",
                "; ".join(missing),
                partial(_write_environment, wish),
                f"write {_profile(facts)} and {_linker(facts)}; ldconfig",
                lambda after: not _missing_entries(wish, after),
                undo={"lines": _lines(wish, facts), "root": str(facts[SYSTEM_ROOT])},
            )
        )
    return steps


def _is(version: str, wanted: str) -> bool:
    return version == wanted or version.startswith(f"{wanted}.")


def _require_runfile(wish: ToolkitWish, facts: Facts, local: Path) -> None:
    if not wish.runfile:
        raise HostError(
            f"CUDA {wish.version} is not in {wish.path}, and no runfile is given to install it",
            remedy="give LinuxLocalRunFile, or CudaRequired=false",
            lifted_by=LiftedBy.SYSTEM,
        )
    if not wish.is_remote and not facts[exists(local)]:
        raise HostError(
            f"the runfile {local} is not there",
            remedy="copy it there, or give its address",
            lifted_by=lift_of_path(facts, local),
        )
    if wish.runfile.startswith("http://") and not _is_sha256(wish.checksum):
        raise HostError(
            f"{wish.runfile} would be fetched without any proof of where it comes from, and run as root",
            remedy="give an https address, or Checksum=sha256:… from its publisher",
            lifted_by=LiftedBy.NOTHING,
        )
    if not wish.is_remote and not wish.checksum and (reason := facts[distrust(local)]):
        raise HostError(
            f"root does not run {local}: {reason}", remedy="chown root and chmod go-w it, or give Checksum"
        )
    if wish.is_remote and not (wish.checksum or wish.md5sum_uri or published_list(wish.runfile)):
        raise HostError(
            f"nobody publishes a checksum for {wish.runfile}",
            remedy="give Checksum=sha256:… or Md5sumUri; Checksum=none takes it unchecked",
            lifted_by=LiftedBy.NOTHING,
        )


def _is_sha256(checksum: str) -> bool:
    return checksum.lower() not in {"", "none"} and Checksum.parse(checksum).algorithm == "sha256"


def _require_own_folder(wish: ToolkitWish, facts: Facts) -> None:
    """Refuse a folder with other content: it would be mixed with the toolkit, and removed with it."""
    others = sorted(name for name in facts[names_in(wish.path)] if not _TOOLKIT_NAMES.fullmatch(name))
    if others:
        raise HostError(
            f"{wish.path} is to hold CUDA {wish.version}, and holds something else: {', '.join(others[:5])}",
            remedy="choose a CudaPath of its own, such as /opt/cuda-" + wish.version,
        )


def _require_space(wish: ToolkitWish, facts: Facts, *, fetched: bool, size: int = RUNFILE_BYTES) -> None:
    """Require enough space for runfile, unpacked content and toolkit, which may share a file system."""
    mounts = facts[MOUNTS]
    needed: dict[str, int] = defaultdict(int)
    where: dict[str, Path] = {}
    download_bytes = size if wish.is_remote and not fetched else 0
    for path, byte_count in (
        (facts[PACKAGE_DIR], download_bytes + int(UNPACKED * size)),
        (wish.path, int(UNPACKED * size)),
    ):
        mount = mount_of(mounts, path)
        if mount:
            needed[str(mount.target)] += byte_count
            where[str(mount.target)] = path
    for target, byte_count in needed.items():
        free = free_bytes(mounts, where[target])
        if free is not None and free < byte_count:
            raise HostError(
                f"CUDA {wish.version} needs {byte_count / 1e9:.1f} GB on {target} to be fetched, unpacked "
                f"and installed, and {free / 1e9:.1f} GB are free",
                remedy="free some space, or choose another CudaPath or VCAGENT_PACKAGE_DIR",
                lifted_by=LiftedBy.SPACE,
            )


def _download_step(wish: ToolkitWish, local: Path) -> Step:
    def run(context: StepContext) -> StepOutcome:
        def check_space(size: int) -> None:
            _require_space(wish, context.facts.fresh(), fetched=False, size=size)

        checksum = _checksum(wish)
        download(wish.runfile, local, checksum, context, check_space=check_space)
        checked = f"{checksum.algorithm} as published" if checksum else "unchecked"
        return StepOutcome(f"{local.stat().st_size / 1e9:.2f} GB, {checked}")

    return Step(
        "toolkit-download",
        f"{wish.name} is not in {local.parent}",
        run,
        f"fetch {wish.runfile} to {local}",
        lambda after: after[exists(local)],
        estimate_s=120,
    )


def _checksum(wish: ToolkitWish) -> Checksum | None:
    """Return the expected checksum; None if the profile wants no check, or none is published.

    Raises:
        DependencyFailedError: if the published checksum cannot be read.
    """
    if wish.checksum:
        return None if wish.checksum.lower() == "none" else Checksum.parse(wish.checksum)
    listing = wish.md5sum_uri or (published_list(wish.runfile) if wish.is_remote else None)
    return published_checksum(listing, wish.name) if listing else None


def runfile_download(wish: ToolkitWish) -> Download:
    """Return the download of a runfile, which is compared with its checksum."""

    def fetch(fetching: Fetching) -> None:
        fetching.say(f"runfile {wish.runfile}")
        file = fetching.folder / _RUNFILES / wish.name
        download(wish.runfile, file, _checksum(wish), fetching_context(fetching, wish.name))

    return Download("runfile", (wish.runfile,), fetch)


def bundled_runfile(wish: ToolkitWish, facts: Facts) -> ToolkitWish:
    """Return the same wish with the runfile of the host's bundle, if the bundle has it."""
    bundle = bundle_of(facts)
    if bundle is None or ("runfile", wish.runfile) not in bundle.contents:
        return wish
    return replace(wish, runfile=str(bundle.folder / _RUNFILES / wish.name), md5sum_uri="")


def _command(wish: ToolkitWish, runfile: Path, temporary: Path) -> list[str]:
    return [
        "sh",
        str(runfile),
        "--silent",
        "--toolkit",
        f"--toolkitpath={wish.path}",
        "--override",
        "--no-man-page",
        f"--tmpdir={temporary}",
        *wish.options,
    ]


def _install(wish: ToolkitWish, context: StepContext) -> StepOutcome:
    root = context.facts[SYSTEM_ROOT]
    link = root / "usr/local/cuda"
    before = link.readlink() if link.is_symlink() else None
    free = before is None and not link.exists()
    ours = before is not None and _line(before) in _text(_profile(context.facts))
    runfile = wish.local(context.facts)
    # Check each time: the file may be from an earlier run and have changed since.
    if checksum := _checksum(wish):
        checksum.check(runfile, context)
    elif reason := distrust_file(runfile):
        raise DependencyFailedError(
            f"root does not run {runfile}: {reason}",
            remedy="chown root and chmod go-w it, or give Checksum",
        )
    temporary = context.package_dir / "cuda" / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    logs = [root / name for name in _LOGS]
    changed = {path: _changed(path) for path in logs}
    try:
        context.processes.run(_command(wish, runfile, temporary), log=context.log)
    except ActionFailedError as error:
        details = list(error.details)
        for path in (path for path in logs if _changed(path) != changed[path]):
            details += [f"{path}:", *_text(path).splitlines()[-_LOG_LINES:]]
        told = "\n".join(details)
        if "nvidia-drm" in told and (holders := context.facts.fresh()[NVIDIA_DRM_HOLDERS]):
            details.append(f"nvidia-drm is in use by {', '.join(map(str, holders))}")
        known = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, told))
        raise DependencyFailedError(
            f"the runfile of CUDA {wish.version} failed: {error.message}",
            remedy=next(known, f"all of its output is in {context.log}"),
            details=tuple(details),
        ) from error
    if free or ours:
        point_link(link, wish.path)
    elif before is not None and link.is_symlink() and link.readlink() != before:
        point_link(link, before)  # restore another owner's link, which the runfile replaced
    if wish.is_remote and not wish.keep:
        runfile.unlink(missing_ok=True)
    return StepOutcome(f"CUDA {wish.version} in {wish.path}")


def _profile(facts: Facts) -> Path:
    return facts[SYSTEM_ROOT] / "etc/profile.d/vcagent-cuda.sh"


def _linker(facts: Facts) -> Path:
    return facts[SYSTEM_ROOT] / "etc/ld.so.conf.d/vcagent-cuda.conf"


def _line(path: Path) -> str:
    """Return the shell line that puts a toolkit first on the PATH, even if it is read repeatedly."""
    return f'case ":$PATH:" in *:{path}/bin:*) ;; *) PATH={path}/bin:$PATH ;; esac'


def _lines(wish: ToolkitWish, facts: Facts) -> dict[str, str]:
    """Return, by file, the lines that make shells and the linker find a toolkit."""
    return {str(_profile(facts)): _line(wish.path), str(_linker(facts)): f"{wish.path}/lib64"}


def _missing_entries(wish: ToolkitWish, facts: Facts) -> list[str]:
    missing = []
    if _line(wish.path) not in (facts[text_of(_profile(facts))] or "").splitlines():
        missing.append(f"{wish.path}/bin is not on the PATH of new shells")
    if f"{wish.path}/lib64" not in (facts[text_of(_linker(facts))] or "").splitlines():
        missing.append(f"the linker does not look into {wish.path}/lib64")
    link = facts[SYSTEM_ROOT] / "usr/local/cuda"
    if not facts[exists(link)] and facts[link_target(link)] is None:
        missing.append(f"{link} is not there")
    return missing


def _write_environment(wish: ToolkitWish, context: StepContext) -> StepOutcome:
    root = context.facts[SYSTEM_ROOT]
    for file, line in _lines(wish, context.facts).items():
        _add_line(Path(file), line)
    link = root / "usr/local/cuda"
    if not link.exists() and not link.is_symlink():
        point_link(link, wish.path)
    context.processes.run(["ldconfig", *(["-r", str(root)] if root != Path("/") else [])], log=context.log)
    return StepOutcome("new shells find it")


def _add_line(path: Path, line: str) -> None:
    lines = _text(path).splitlines()
    if line not in lines:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "\n".join([*lines, line]) + "\n")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
