"""Provides a model: from a hub, from its cache on this host, or from a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

import gpu_configs
from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.downloads import Download, not_carried
from agent.component.environment_script import program_command
from agent.core.errors import DependencyFailedError, HostError, LiftedBy
from agent.facts.agent_paths import lift_of_path
from agent.facts.bundle import bundle_of
from agent.facts.files import link_target, text_of
from agent.facts.model_folders import model_folder
from agent.facts.storage import MOUNTS, free_bytes
from dependencies.models.bundled_hub import HubFiles
from dependencies.models.hub_access import hub_servers, require_access
from dependencies.models.in_environment.model_files.hub import hub_home
from dependencies.packages.package_folder import locked, package_link, point_link

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts

_GIB = 1024**3
_COMMIT_LENGTH = 40
_SHIPPED = "shipped:"
_CONFIGURATIONS = Path(gpu_configs.__file__).with_name("models")
"""The architectures of models, without weights and tokenizer."""


class HuggingFaceModelParameters(ComponentParameters):
    """A model and its source."""

    package_name: str = Field(
        ...,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name} refers to it.",
    )
    repository: str = Field(
        "", pattern=r"^$|^[\w.-]+(/[\w.-]+)?$", description="Its name on the hub, such as org/model."
    )
    path: Path | None = Field(
        None,
        description="A folder with it, instead of the hub; shipped:<model>, such as shipped:llama3.1-8b,"
        " is only its configuration, for loadFormat: dummy without a licence.",
    )
    llm_config: dict[str, Any] = Field(
        default_factory=dict,
        description="vLLM's arguments; if they name a model, the engine has it and nothing is provided.",
    )
    moved_by: str = Field("", description="What sets path, such as LAB_MODEL; a refusal names it.")
    revision: str = Field("main", min_length=1, description="Commit, tag or branch; a commit pins it.")
    environment: Path | None = Field(
        None, description="A Python environment with huggingface_hub, for the hub."
    )
    load_format: Literal["auto", "dummy"] = Field(
        "auto", description="dummy: only configuration and tokenizer, for random weights."
    )
    exclude: tuple[str, ...] = Field(
        ("original/*", "*.pth", "*.gguf", "onnx/*", "*.msgpack", "*.h5"), description="Files to skip."
    )
    cache_dir: Path | None = Field(None, description="The hub's cache; HF_HUB_CACHE, HF_HOME or ~/.cache.")
    required_space: float = Field(0, ge=0, description="GiB that must be free before the download.")

    @field_validator("path", mode="before")
    @classmethod
    def _absent_if_empty(cls, value: Any) -> Any:
        if isinstance(value, str) and value.startswith(_SHIPPED):
            return _shipped(value.removeprefix(_SHIPPED))
        return None if value == "" else value

    @model_validator(mode="after")
    def _one_source(self) -> HuggingFaceModelParameters:
        if bool(self.repository) == bool(self.path):
            raise ValueError("give either repository or path")
        if self.repository and not self.environment:
            raise ValueError("environment is missing: the Python environment that has huggingface_hub")
        return self


def _shipped(model: str) -> Path:
    """Return the folder of a configuration that is shipped with vcagent."""
    folders = {folder.name.replace("_", "."): folder for folder in _CONFIGURATIONS.iterdir()}
    if model not in folders:
        raise ValueError(f"no configuration of {model} is shipped; there is {', '.join(sorted(folders))}")
    return folders[model]


def hub_cache(environment: Mapping[str, str]) -> Path:
    """Return the folder where huggingface_hub caches files."""
    if chosen := environment.get("HF_HUB_CACHE"):
        return Path(chosen).expanduser()
    return hub_home(environment) / "hub"


class HuggingFaceModel(Dependency):
    """Provides a complete model under its name in the package folder.

    A model of a hub stays in the hub's own cache, where other programs find it too; the name is a link.
    """

    lifts = frozenset()
    Parameters = HuggingFaceModelParameters
    parameters: HuggingFaceModelParameters

    def plan(self, facts: Facts) -> Plan:
        """Fetch the model, unless it exists and is complete; or let its name point to it."""
        parameters = self.parameters
        if named := parameters.llm_config.get("model"):
            return Plan(nothing_to_do=f"llm_config names the model: {named}")
        link, target = package_link(facts, parameters.package_name, "a model")
        folder, problem = self._present(facts)
        if folder and not problem:
            if target == folder:
                return Plan(nothing_to_do=f"the model is whole: {folder}")
            return Plan((self._link(link, folder),))
        if parameters.path:
            raise HostError(
                f"{parameters.path} holds no whole model: {problem}",
                remedy=f"correct {parameters.moved_by or 'path'}, or complete the folder",
                lifted_by=lift_of_path(facts, parameters.path),
            )
        self._check_space(facts)
        if bundled := self._files.in_bundle(facts):
            command = f"cp -r {bundled} {self._files.stored(self._cache) / 'snapshots'}"
        else:
            if bundle_of(facts) is None:
                require_access(facts, parameters.repository, parameters.revision)
            program = program_command(self._environment, "model_files.model_snapshot")
            command = f"{' '.join(program)} {link}.json  # {parameters.repository} at {parameters.revision}"
        step = Step(
            "fetch",
            f"{parameters.repository} is not on this host: {problem}",
            self._fetch,
            command,
            lambda fresh: not self.plan(fresh).steps,
            fetches_from=None if bundled else hub_servers,
        )
        return Plan((step,))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the model, if a hub has it and the host does not."""
        parameters = self.parameters
        if named := str(parameters.llm_config.get("model") or ""):
            if not named.startswith("/"):
                raise not_carried(f"the model {named}, which the engine fetches")
            return ()
        if parameters.path:
            return ()
        if bundle_of(facts):
            folder, problem = self._present(facts)
            if folder and not problem:
                return ()
        return (self._files.download(),)

    @property
    def _files(self) -> HubFiles:
        parameters = self.parameters
        return HubFiles(
            "model",
            parameters.repository,
            parameters.revision,
            exclude=parameters.exclude,
            weights=parameters.load_format != "dummy",
        )

    @property
    def _environment(self) -> Path:
        assert self.parameters.environment is not None  # noqa: S101 - ensured by a validator
        return self.parameters.environment

    @property
    def _cache(self) -> Path:
        return (self.parameters.cache_dir or hub_cache(os.environ)).absolute()

    def _present(self, facts: Facts) -> tuple[Path | None, str]:
        """Return the folder of the model, existing or not, and what is missing there."""
        parameters = self.parameters
        folder = parameters.path and parameters.path.absolute()
        if folder is None:
            stored = self._files.stored(self._cache)
            commit = parameters.revision
            if len(commit) != _COMMIT_LENGTH:
                commit = (facts[text_of(stored / "refs" / commit)] or "").strip()
            if not commit:
                return None, f"{stored} has no {parameters.revision}"
            folder = stored / "snapshots" / commit
        problem = facts[model_folder(folder)].problem(weights=parameters.load_format != "dummy")
        return folder, f"{folder}: {problem}" if problem else ""

    def _check_space(self, facts: Facts) -> None:
        mounts = facts[MOUNTS]
        free = free_bytes(mounts, self._cache)
        if free is not None and free < self.parameters.required_space * _GIB:
            raise HostError(
                f"{self._cache} has {free / _GIB:.1f} GiB free; {self.parameters.repository} needs "
                f"{self.parameters.required_space:g} GiB",
                remedy="free some space, or put the cache elsewhere: cacheDir or HF_HOME",
                lifted_by=LiftedBy.SPACE,
            )

    def _link(self, link: Path, folder: Path) -> Step:
        def point(context: StepContext) -> StepOutcome:
            context.package_dir.mkdir(parents=True, exist_ok=True)
            with locked(context.package_dir, self.parameters.package_name, context):
                point_link(link, folder)
            return StepOutcome(f"{link} points to {folder}")

        return Step(
            "link",
            f"{link} does not point to {folder}",
            point,
            f"ln -sfn {folder} {link}",
            lambda fresh: fresh[link_target(link)] == folder,
        )

    def _fetch(self, context: StepContext) -> StepOutcome:
        parameters = self.parameters
        with locked(context.package_dir, parameters.package_name, context):
            folder, _ = self._files.provide(self._environment, self._cache, context)
            self._check_whole(context, folder)
            point_link(context.package_dir / parameters.package_name, folder)
        return StepOutcome(f"{parameters.repository} at {folder.name} in {folder}")

    def _check_whole(self, context: StepContext, folder: Path) -> None:
        found = context.facts.fresh()[model_folder(folder)]
        if problem := found.problem(weights=self.parameters.load_format != "dummy"):
            raise DependencyFailedError(
                f"{self.parameters.repository} is not whole in {folder}: {problem}",
                remedy="see whether exclude leaves out what it needs; loadFormat: dummy needs no weights",
            )
