"""Prepares a data set for LoadGen's harness with a program of a benchmark's environment."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.environment_script import program_command
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.bundle import bundle_of
from agent.facts.files import exists, file_stamp, text_of
from dependencies.models.environment_module import require_environment, run_module
from dependencies.models.hub_access import hub_servers
from dependencies.packages.package_folder import locked, package_link, point_link, removal_of, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.downloads import Download
    from agent.facts import Facts
    from dependencies.models.bundled_hub import HubFiles

_NOTE = "data_set.json"
"""The file that is written last: without it a folder is incomplete."""
_SAMPLES = "samples.jsonl"

OptionalPath = Annotated[Path | None, BeforeValidator(lambda value: value or None)]
"""A path of a profile; an empty text is none."""


class PreparedDataSetParameters(ComponentParameters):
    """What every prepared data set has."""

    package_name: str = Field(
        ...,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name}/samples.jsonl is the data set.",
    )
    environment: Path = Field(..., description="The benchmark's Python environment, which prepares it.")
    source: OptionalPath = Field(None, description="A local copy; the hub if absent.")


class PreparedDataSet(Dependency):
    """Prepares the data set from the current state of its source.

    It is stored in ``.data_sets/<name>-<hash>``, and a link points there.
    """

    lifts = frozenset()
    parameters: PreparedDataSetParameters
    program: ClassVar[str]
    """The program of ``model_files`` that prepares it."""

    @property
    def source_name(self) -> str:
        """Return what it is made from, for people."""
        raise NotImplementedError

    @property
    def hub_files(self) -> HubFiles | None:
        """The files of a hub that it is made from; None if there is a local source."""
        raise NotImplementedError

    def wish(self, facts: Facts) -> list[str]:
        """Return everything that its content depends on."""
        raise NotImplementedError

    def require_source(self, facts: Facts) -> None:
        """Refuse a source that is missing.

        Raises:
            HostError: if it is.
        """
        raise NotImplementedError

    def asked(self) -> dict[str, Any]:
        """Return the program's configuration, except ``output``."""
        raise NotImplementedError

    def plan(self, facts: Facts) -> Plan:
        """Prepare the data set, unless it exists, is complete, and was made from the same source."""
        parameters = self.parameters
        link, target = package_link(facts, parameters.package_name, "a data set")
        folder = self._folder(facts)
        reason = _wrong(facts, folder)
        if not reason and target == folder:
            return Plan(nothing_to_do=f"the data set is whole: {folder}")
        bundled = self._in_bundle(facts)
        if reason and not bundled:
            self.require_source(facts)
        command = " ".join(program_command(parameters.environment, self.program))
        step = Step(
            "prepare",
            reason or f"the link to the data set is out of date: {link} does not point to {folder}",
            lambda context: self._prepare(context, folder),
            f"{command}  # {bundled or self.source_name}",
            lambda fresh: not self.plan(fresh).steps,
            estimate_s=60,
            undo={"folder": str(folder), "link": str(link)},
            fetches_from=hub_servers if reason and self.hub_files and not bundled else None,
        )
        return Plan((step,))

    def downloads(self, facts: Facts) -> tuple[Download, ...]:
        """Return the files that it is made from; none if they are on the host, or it was made."""
        if self.hub_files is None:
            if not self.parameters.source:
                self.require_source(facts)
            return ()
        if bundle_of(facts) and not _wrong(facts, self._folder(facts)):
            return ()
        return (self.hub_files.download(),)

    def _in_bundle(self, facts: Facts) -> Path | None:
        return self.hub_files.in_bundle(facts) if self.hub_files else None

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the data set and the link to it."""
        return removal_of(Path(values["folder"]), Path(values["link"]), facts)

    def _folder(self, facts: Facts) -> Path:
        key = hashlib.sha256(json.dumps(self.wish(facts)).encode()).hexdigest()[:16]
        return facts[PACKAGE_DIR] / ".data_sets" / f"{self.parameters.package_name}-{key}"

    def _prepare(self, context: StepContext, folder: Path) -> StepOutcome:
        parameters = self.parameters
        require_environment(parameters.environment)
        with locked(context.package_dir, parameters.package_name, context):
            if _wrong(context.facts.fresh(), folder):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                asked = {**self.asked(), "output": str(folder / _SAMPLES)}
                if bundled := self._in_bundle(context.facts):
                    asked["source"] = str(bundled)
                note = run_module(parameters.environment, self.program, asked, context=context)
                write_whole(folder / _NOTE, json.dumps(note, indent=2) + "\n")
            point_link(context.package_dir / parameters.package_name, folder)
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        lengths = f", {note['mean_tokens']:.0f} tokens in the mean" if note.get("mean_tokens") else ""
        return StepOutcome(f"{note['samples']} samples{lengths}, in {folder / _SAMPLES}")


def _wrong(facts: Facts, folder: Path) -> str:
    """Return the fault of the data set in a folder, or nothing."""
    text = facts[text_of(folder / _NOTE)]
    if text is None:
        state = "is half-made" if facts[exists(folder)] else "is not there"
        return f"the data set {state}: {folder}"
    try:
        size = int(json.loads(text)["bytes"])
    except (ValueError, KeyError, TypeError):
        return f"{folder / _NOTE} is damaged"
    if not facts[file_stamp(folder / _SAMPLES)].startswith(f"{size} "):
        return f"{folder / _SAMPLES} was changed"
    return ""
