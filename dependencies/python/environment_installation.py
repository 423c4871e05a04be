"""Creates Python environments with a benchmark's requirements, separate from the agent's own."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, field_validator, model_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.downloads import Download, not_carried
from agent.component.fetching_environment import pip_environment
from agent.core.counts import count_of
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError, LiftedBy
from agent.core.safe_files import make_folder
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.bundle import bundle_of
from agent.facts.files import exists
from agent.facts.linux import DISTRIBUTION
from agent.facts.packages import PACKAGE_MANAGER
from agent.facts.python import PYTHON, PythonInterpreter, interpreter
from agent.facts.python_environments import ENVIRONMENT_MARKER, inventory_of, python_environment
from agent.facts.storage import MOUNTS, free_bytes
from agent.facts.users import ROOT
from dependencies.packages.package_folder import locked, package_link, point_link, removal_of, write_whole
from dependencies.packages.package_managers import PackageWish, installation_steps, manager_of, removal_plan
from dependencies.python.bundled_wheels import fetch_wheels
from dependencies.python.pip import (
    PipProgress,
    masked,
    only_from_folder,
    package_indexes,
    pip_remedy,
    required_here,
    split_git_credentials,
    split_requirements,
    unfulfilled,
)
from dependencies.python.wheel_file import require_fit, wheel_requirement
from dependencies.python.wheels import build_packages, offered_files
from dependencies.sources.git_credentials import git_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.component.downloads import Fetching
    from agent.facts import Facts

_MIB = 1024 * 1024
_FEW = 30
"""Requirements that are installed in about half a minute; a longer list may be many gigabytes."""
_REQUIREMENTS = "vcagent-requirements.txt"
"""The name of the file with pip's settings: other users could read a command line."""


class PythonEnvironmentInstallationParameters(ComponentParameters):
    """An environment and its contents."""

    package_name: str = Field(
        ...,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name} refers to it.",
    )
    requirements: tuple[str, ...] = Field((), description="What to install (PEP 508).")
    wheels: tuple[Path, ...] = Field(
        (), description="Wheel files to install too; refused if they are for another Python or platform."
    )
    no_deps: bool = Field(default=False, description="The list is complete: no dependencies are installed.")
    python: str = Field("", description="The interpreter; by default the one that runs the agent.")
    wheels_dir: Path | None = Field(None, description="A folder of wheels to install from, without an index.")
    required_space: int = Field(1024, ge=0, description="Free space that it needs, in MiB.")

    @field_validator("requirements", mode="before")
    @classmethod
    def _requirements(cls, value: Any) -> Any:
        requirements = split_requirements(value) if isinstance(value, str) else value
        for requirement in requirements or ():
            try:
                Requirement(requirement)
            except InvalidRequirement as error:
                raise ValueError(f"{masked(str(requirement))!r} is not a requirement: {error}") from error
        return requirements

    @field_validator("wheels_dir", mode="before")
    @classmethod
    def _no_folder(cls, value: Any) -> Any:
        return value or None

    @field_validator("wheels", mode="before")
    @classmethod
    def _without_empty_texts(cls, value: Any) -> Any:
        files = value.split(",") if isinstance(value, str) else value
        return [one for one in files if one not in ("", None)] if isinstance(files, list | tuple) else value

    @field_validator("wheels")
    @classmethod
    def _named_as_wheels(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in value:
            wheel_requirement(path)
        return value

    @model_validator(mode="after")
    def _something(self) -> PythonEnvironmentInstallationParameters:
        if not self.everything:
            raise ValueError("requirements is empty: name what to install")
        return self

    @property
    def everything(self) -> tuple[str, ...]:
        """The requirements, with those of the wheel files."""
        return (*self.requirements, *map(wheel_requirement, self.wheels))


class PythonEnvironmentInstallation(Dependency):
    """Creates a virtual environment with exactly the requested packages.

    It is created in ``.environments/<name>-<hash>``, and a link with its name points there, so that
    a changed wish never touches an environment that another run may be using.
    """

    lifts = frozenset()
    Parameters = PythonEnvironmentInstallationParameters
    parameters: PythonEnvironmentInstallationParameters

    def plan(self, facts: Facts) -> Plan:
        """Create the environment, unless it exists, is complete, and is unchanged."""
        parameters = self.parameters
        python = self._interpreter(facts)
        folder = self._folder(facts[PACKAGE_DIR], python)
        link, target = package_link(facts, parameters.package_name, "an environment")
        reason = self._wrong(facts, folder, python)
        if not reason and target == folder:
            return Plan(nothing_to_do=f"the environment has all requirements: {folder}")
        tools: list[Step] = []
        if reason:
            self._check_host(facts, python)
            tools = self._build_tools(facts, python)
        elif target is None:
            reason = f"the link to the environment is not there: {link}"
        else:
            reason = f"the link to the environment is wrong: {link} points to {target}, not to {folder}"

        def indexes(fresh: Facts) -> tuple[str, ...]:
            return fresh[package_indexes(python.path)]

        step = Step(
            "install",
            reason,
            lambda context: self._install(context, python, folder),
            " && ".join(map(shlex.join, self._commands(facts, python, folder)))
            + f"  # {', '.join(self._shown)}",
            lambda fresh: not self.plan(fresh).steps,
            estimate_s=30 if len(parameters.everything) <= _FEW else None,
            undo={"folder": str(folder), "link": str(link)},
            fetches_from=None if parameters.wheels_dir else indexes,
        )
        return Plan((*tools, step))

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the environment and the link to it, unless something else was installed into it."""
        if "packages" in values:
            return removal_plan(values, facts)
        folder = Path(values["folder"])
        environment = facts[python_environment(folder)]
        if environment and environment.changed:
            changed = ", ".join(environment.changed)
            return Plan(nothing_to_do=f"the environment was changed: {changed} in {folder}")
        state = "was made, and is unchanged" if environment else "is half-made"
        reason = f"the environment {state}: {folder}"
        return removal_of(folder, Path(values["link"]), facts, reason)

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the wheels of the requirements; none if they come from a folder of the host."""
        parameters = self.parameters
        python = self._interpreter(facts)
        if parameters.wheels_dir:
            return ()
        if parameters.wheels and not parameters.no_deps:
            raise not_carried(
                "what wheel files of the host need", "set noDeps, and name in requirements what they need"
            )
        wanted = tuple(required_here(parameters.requirements, python.version, python.machine))
        if of_addresses := [masked(one) for one in wanted if Requirement(one).url]:
            raise not_carried(f"requirements with addresses: {', '.join(of_addresses)}")

        def fetch(fetching: Fetching) -> None:
            fetch_wheels(wanted, python, fetching, no_deps=parameters.no_deps)

        return (Download("wheel", wanted, fetch),) if wanted else ()

    @property
    def _shown(self) -> list[str]:
        return [masked(requirement) for requirement in self.parameters.everything]

    def _interpreter(self, facts: Facts) -> PythonInterpreter:
        python = facts[interpreter(self.parameters.python)] if self.parameters.python else facts[PYTHON]
        if python is None:
            # An earlier dependency may create the interpreter in the package folder.
            asked = self.parameters.python
            own = "/" in asked and lift_of_path(facts, Path(asked)) is None
            raise HostError(
                f"{self.parameters.python or 'the Python of the agent'} cannot be run",
                remedy="correct the parameter python, or install that interpreter",
                lifted_by=None if own else LiftedBy.PROGRAM,
            )
        return python

    def _key(self, python: PythonInterpreter) -> str:
        parameters = self.parameters
        # A different password does not make a different environment.
        wish = [sorted(self._shown), parameters.no_deps, python.version, python.platform]
        return hashlib.sha256(json.dumps(wish).encode()).hexdigest()[:16]

    def _folder(self, package_dir: Path, python: PythonInterpreter) -> Path:
        return package_dir / ".environments" / f"{self.parameters.package_name}-{self._key(python)}"

    def _wrong(self, facts: Facts, folder: Path, python: PythonInterpreter) -> str:
        """Return the fault of the environment, or nothing."""
        environment = facts[python_environment(folder)]
        if environment is None:
            state = "is half-made" if facts[exists(folder)] else "is not there"
            return f"the environment {state}: {folder}"
        if environment.key != self._key(python):
            return f"the environment was made from other requirements: {folder}"
        if environment.version != python.version:
            return (
                f"the environment's Python is {environment.version or 'gone'}, not {python.version}: {folder}"
            )
        if environment.changed:
            return f"the environment was changed: {', '.join(environment.changed)} in {folder}"
        return ""

    def _check_host(self, facts: Facts, python: PythonInterpreter) -> None:
        if not python.venv or not python.ensurepip:
            version = ".".join(python.version.split(".")[:2])
            debian = facts[DISTRIBUTION].is_like("debian")
            package = f"apt-get install python{version}-venv" if debian else "the package of its pip and venv"
            raise HostError(
                f"{python.path} cannot make virtual environments: it lacks "
                f"{'ensurepip' if python.venv else 'the module venv'}",
                remedy=f"install it: {package}",
                lifted_by=LiftedBy.PROGRAM,
            )
        for wheel in self.parameters.wheels:
            require_fit(wheel, python, facts)
        mounts = facts[MOUNTS]
        free = free_bytes(mounts, facts[PACKAGE_DIR])
        if free is not None and free < self.parameters.required_space * _MIB:
            raise HostError(
                f"{facts[PACKAGE_DIR]} has {free // _MIB} MiB free; the environment "
                f"{self.parameters.package_name} needs {self.parameters.required_space} MiB",
                remedy="free some space, or choose another folder: --package-dir",
                lifted_by=LiftedBy.SPACE,
            )
        if self.parameters.wheels_dir and not facts[exists(self.parameters.wheels_dir)]:
            raise HostError(
                f"the folder of wheels {self.parameters.wheels_dir} is not there",
                remedy="correct wheelsDir; fill the folder with: pip download -d FOLDER …",
                lifted_by=lift_of_path(facts, self.parameters.wheels_dir),
            )

    def _build_tools(self, facts: Facts, python: PythonInterpreter) -> list[Step]:
        """Return the steps that install a missing compiler and headers, if a requirement must be built.

        Raises:
            HostError: if a requirement has no file for this Python.
        """
        parameters = self.parameters
        wheels = self._wheels(facts)
        offered = facts[offered_files(parameters.everything, python, wheels)]
        if offered.missing:
            told = ", ".join(map(masked, offered.missing))
            versions = next(iter(offered.missing.values()))
            pin = f"pin a version that has one: {', '.join(versions)}; or " if versions else ""
            raise HostError(
                f"{told} has no file for Python {python.version} on {python.machine}",
                remedy=f"{pin}set python to another interpreter, such as python3.12",
                lifted_by=lift_of_path(facts, wheels) if wheels else LiftedBy.NOTHING,
            )
        built = offered.built
        if not built or (python.headers and python.compiler):
            return []
        names = build_packages(facts[PACKAGE_MANAGER], python)
        missing = " and ".join(
            what for what, there in (("g++", python.compiler), ("Python.h", python.headers)) if not there
        )
        machine = python.machine
        why = (
            f"no wheel of {', '.join(map(masked, built))} is offered for Python {python.version} on "
            f"{machine}: it is built from source, and this host lacks {missing}"
        )
        manager = manager_of(facts, " ".join(names))
        if not facts[ROOT]:
            raise HostError(
                why,
                remedy=f"once, as root: {manager.by_hand} {' '.join(names)}; or run vcagent as root",
                lifted_by=LiftedBy.PROGRAM,
            )
        steps = installation_steps(facts, manager, [PackageWish(name) for name in names], lock_timeout_s=600)
        return [replace(step, name=f"tools-{step.name}", reason=f"{why} ({step.reason})") for step in steps]

    def _wheels(self, facts: Facts) -> Path | None:
        """Return the folder of wheels that takes the place of the index, if any."""
        bundle = bundle_of(facts)
        return self.parameters.wheels_dir or (bundle.wheels if bundle else None)

    def _commands(self, facts: Facts, python: PythonInterpreter, folder: Path) -> list[list[str]]:
        parameters = self.parameters
        pip = [str(folder / "bin" / "python"), "-I", "-m", "pip", "install", "--no-input"]
        pip += ["--disable-pip-version-check", "--progress-bar=off"]
        if parameters.no_deps:
            pip.append("--no-deps")
        if wheels := self._wheels(facts):
            pip += ["--no-index", f"--find-links={wheels}"]
        return [
            [python.path, "-I", "-m", "venv", "--clear", str(folder)],
            [*pip, "--requirement", str(folder / _REQUIREMENTS)],
        ]

    def _install(self, context: StepContext, python: PythonInterpreter, folder: Path) -> StepOutcome:
        with locked(context.package_dir, self.parameters.package_name, context):
            # Another agent may have created it while this one waited.
            if self._wrong(context.facts.fresh(), folder, python):
                if folder.exists():
                    shutil.rmtree(folder)
                make_folder(folder.parent)
                make, fill = self._commands(context.facts, python, folder)
                self._run(context, make)
                self._fill(context, fill, folder)
                self._finish(context, python, folder)
            point_link(context.package_dir / self.parameters.package_name, folder)
        return StepOutcome(f"{count_of(len(self.parameters.everything), 'requirement')} in {folder}")

    def _fill(self, context: StepContext, command: Sequence[str], folder: Path) -> None:
        requirements, addresses = split_git_credentials(self.parameters.everything)
        write_whole(folder / _REQUIREMENTS, "".join(f"{line}\n" for line in requirements), mode=0o600)
        try:
            self._run(context, command, git_environment(addresses, os.environ))
        finally:
            (folder / _REQUIREMENTS).unlink(missing_ok=True)

    def _run(
        self, context: StepContext, command: Sequence[str], more: Mapping[str, str] | None = None
    ) -> None:
        counted = PipProgress(len(self.parameters.everything))

        def show(line: str) -> None:
            if message := counted.read(line):
                context.progress.update(message, done=counted.done, total=counted.total)

        environment = {**pip_environment(os.environ), **(more or {})}
        if bundle_of(context.facts):
            environment |= only_from_folder(os.environ)
        try:
            context.processes.run(command, log=context.log, env=environment, on_line=show)
        except ActionFailedError as error:
            remedy = pip_remedy("\n".join(error.details)) or error.remedy
            name = self.parameters.package_name
            raise DependencyFailedError(
                f"the environment {name} could not be made: {error.message}",
                remedy=remedy,
                details=error.details,
            ) from error

    def _finish(self, context: StepContext, python: PythonInterpreter, folder: Path) -> None:
        inventory = context.facts.fresh()[inventory_of(folder)]
        if inventory is None:
            raise DependencyFailedError(
                f"the new interpreter of {folder} does not run",
                remedy=f"see whether {python.path} is whole",
            )
        found = json.loads(inventory)
        if missing := unfulfilled(self.parameters.everything, found["version"], found["distributions"]):
            raise DependencyFailedError(
                f"pip ended well, but {folder} lacks {', '.join(missing)}",
                remedy="see pip config list and the variables PIP_…: target, prefix, root, dry-run",
            )
        note = {
            "key": self._key(python),
            "requirements": self._shown,
            "no_deps": self.parameters.no_deps,
            "python": python.path,
            **found,
        }
        write_whole(folder / ENVIRONMENT_MARKER, json.dumps(note, indent=2) + "\n")
