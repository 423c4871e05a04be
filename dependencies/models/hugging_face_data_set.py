"""Provides the files of a data set of a hub under one name in the package folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.environment_script import program_command
from agent.core.counts import count_of
from agent.core.errors import DependencyFailedError
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.bundle import bundle_of
from agent.facts.files import exists, file_stamp, link_target, text_of
from dependencies.models.bundled_hub import HubFiles
from dependencies.models.hub_access import hub_servers
from dependencies.models.hugging_face_model import hub_cache
from dependencies.packages.package_folder import locked, package_link, point_link, write_whole

if TYPE_CHECKING:
    from agent.component.downloads import Download
    from agent.facts import Facts


class HuggingFaceDataSetParameters(ComponentParameters):
    """A data set of a hub, and the files to fetch."""

    package_name: str = Field(
        ...,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name} refers to it.",
    )
    repository: str = Field(
        ...,
        pattern=r"^[\w.-]+(/[\w.-]+)?$",
        description="Its name on the hub, such as cais/mmlu. If the working folder has a folder of that "
        "name, it is taken in place of the hub.",
    )
    revision: str = Field("main", min_length=1, description="Commit, tag or branch; a commit pins it.")
    include: tuple[str, ...] = Field((), description="Patterns of files to fetch, such as all/*.")
    environment: Path = Field(..., description="The Python environment that has huggingface_hub.")
    cache_dir: Path | None = Field(None, description="The hub's cache; HF_HUB_CACHE, HF_HOME or ~/.cache.")

    @field_validator("include", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )


class HuggingFaceDataSet(Dependency):
    """Fetches the files of a data set into the hub's own cache; a link in the package folder points there.

    A note beside the link lists the files with their sizes, so that a lost file is fetched again.
    """

    Parameters = HuggingFaceDataSetParameters
    parameters: HuggingFaceDataSetParameters

    def plan(self, facts: Facts) -> Plan:
        """Fetch the files, unless all of them exist; or let the link point to a folder of this host."""
        asked = self.parameters
        link, target = package_link(facts, asked.package_name, "a data set", lifted_by=None)
        own = Path(asked.repository).absolute()
        if facts[exists(own)]:
            if target == own:
                return Plan(nothing_to_do=f"the data set is a folder of this host: {own}")
            return Plan((self._link(link, own),))
        missing = self._missing(facts, target)
        if not missing:
            return Plan(nothing_to_do=f"all files of {asked.repository} are in {target}")
        if bundled := self._files.in_bundle(facts):
            command = f"cp -r {bundled} {self._files.stored(self._cache) / 'snapshots'}"
        else:
            program = program_command(asked.environment, "model_files.model_snapshot")
            command = f"{' '.join(program)}  # datasets/{asked.repository} at {asked.revision}"
        step = Step(
            "fetch",
            missing,
            self._fetch,
            command,
            lambda fresh: not self.plan(fresh).steps,
            estimate_s=20,
            fetches_from=None if bundled else hub_servers,
        )
        return Plan((step,))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the files, unless the host has a folder in their place."""
        if bundle_of(facts) and facts[exists(Path(self.parameters.repository).absolute())]:
            return ()
        return (self._files.download(),)

    @property
    def _files(self) -> HubFiles:
        asked = self.parameters
        return HubFiles("dataset", asked.repository, asked.revision, include=asked.include)

    def _wish(self) -> str:
        asked = self.parameters
        wish = [asked.repository, asked.revision, *asked.include, str(self._cache)]
        return hashlib.sha256(json.dumps(wish).encode()).hexdigest()

    @property
    def _cache(self) -> Path:
        return (self.parameters.cache_dir or hub_cache(os.environ)).absolute()

    def _note(self, packages: Path) -> Path:
        return packages / ".data_sets" / f"{self.parameters.package_name}.json"

    def _missing(self, facts: Facts, target: Path | None) -> str:
        """Return what is missing; empty if nothing is."""
        asked = self.parameters
        try:
            note = json.loads(facts[text_of(self._note(facts[PACKAGE_DIR]))] or "{}")
            wish, folder, files = note["wish"], Path(note["folder"]), dict(note["files"])
        except (ValueError, KeyError, TypeError):
            return f"{asked.repository} is not on this host"
        if wish != self._wish() or folder != target:
            return f"{target or 'nothing'} is what the name {asked.package_name} leads to"
        for name, size in files.items():
            if not facts[file_stamp(folder / name)].startswith(f"{size} "):
                return f"{folder / name} is missing or has another size"
        return ""

    def _link(self, link: Path, folder: Path) -> Step:
        def point(context: StepContext) -> StepOutcome:
            context.package_dir.mkdir(parents=True, exist_ok=True)
            with locked(context.package_dir, self.parameters.package_name, context):
                point_link(link, folder)
            return StepOutcome(f"{link} points to {folder}")

        reason = f"the data set is a folder of this host, so the hub is not asked: {folder}"
        return Step(
            "link",
            reason,
            point,
            f"ln -sfn {folder} {link}",
            lambda fresh: fresh[link_target(link)] == folder,
        )

    def _fetch(self, context: StepContext) -> StepOutcome:
        asked = self.parameters
        with locked(context.package_dir, asked.package_name, context):
            folder, sizes = self._files.provide(asked.environment, self._cache, context)
            if not sizes:
                raise DependencyFailedError(
                    f"{asked.repository} has no file of {', '.join(asked.include) or 'any name'}",
                    remedy="correct include; the hub's page lists the files",
                )
            note = self._note(context.package_dir)
            note.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"wish": self._wish(), "folder": str(folder), "files": sizes}, indent=2)
            write_whole(note, text + "\n")
            point_link(context.package_dir / asked.package_name, folder)
        return StepOutcome(
            f"{count_of(len(sizes), 'file')} of {asked.repository} at {folder.name} in {folder}"
        )
