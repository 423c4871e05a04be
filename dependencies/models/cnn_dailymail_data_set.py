"""Prepares CNN-DailyMail as in MLPerf, from a local copy or the hub."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.component.environment_script import program_command
from agent.core.errors import HostError, LiftedBy
from agent.facts.agent_paths import PACKAGE_DIR, lift_of_path
from agent.facts.files import exists, file_stamp, link_target, text_of
from dependencies.models.environment_module import require_environment, run_module
from dependencies.models.hub_access import hub_servers, require_access
from dependencies.packages.package_folder import locked, point_link, write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts

_NOTE = "data_set.json"
"""The file that is written last: without it a folder is incomplete."""
_SAMPLES = "samples.jsonl"
_REPOSITORY = "abisee/cnn_dailymail"


class CnnDailyMailDataSetParameters(ComponentParameters):
    """Source, size and prompt format of the data set."""

    package_name: str = Field(
        "cnn-dailymail",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name}/samples.jsonl is the data set.",
    )
    environment: Path = Field(..., description="The benchmark's Python environment, which prepares it.")
    source: Path | None = Field(
        None,
        description="A local copy: parquet, csv, JSON lines, MLPerf's cnn_eval.json, or a folder of one; "
        "the hub if absent.",
    )
    revision: str = Field("main", min_length=1, description="The hub's revision of abisee/cnn_dailymail.")
    benchmark: Literal["datacenter", "edge"] = Field(
        "datacenter", description="All 13,368 articles, or the edge benchmark's 5,000."
    )
    prompts: Literal["tokens", "text"] = Field(
        "tokens", description="tokens if available (tokenizer, or MLPerf's file); text for any model."
    )
    tokenizer: Path | None = Field(None, description="The model's folder, with tokenizer.json.")

    @field_validator("source", "tokenizer", mode="before")
    @classmethod
    def _none_if_empty(cls, value: Any) -> Any:
        return value or None


class CnnDailyMailDataSet(Dependency):
    """Prepares the data set from the current state of its source.

    It is stored in ``.data_sets/<name>-<hash>``, and a link points there.
    """

    lifts = frozenset()
    Parameters = CnnDailyMailDataSetParameters
    parameters: CnnDailyMailDataSetParameters

    def plan(self, facts: Facts) -> Plan:
        """Prepare the data set, unless it exists, is complete, and was made from the same source."""
        parameters = self.parameters
        link = facts[PACKAGE_DIR] / parameters.package_name
        target = facts[link_target(link)]
        if target is None and facts[exists(link)]:
            raise HostError(
                f"{link} exists and is not a link to a data set",
                remedy="move it away, or choose another packageName; it is never deleted",
                lifted_by=LiftedBy.SYSTEM,
            )
        folder = self._folder(facts)
        reason = _wrong(facts, folder)
        if not reason and target == folder:
            return Plan(nothing_to_do=f"{folder} is whole")
        for path in (parameters.source, parameters.tokenizer):
            if reason and path is not None and not facts[exists(path)]:
                raise HostError(
                    f"{path} is not there", remedy="correct the path", lifted_by=lift_of_path(facts, path)
                )
        if reason and parameters.source is None:
            require_access(facts, _REPOSITORY, parameters.revision, kind="datasets/")
        command = " ".join(program_command(parameters.environment, "model_files.cnn_dailymail"))
        step = Step(
            "prepare",
            reason or f"{link} does not point to {folder}",
            lambda context: self._prepare(context, folder),
            f"{command}  # {parameters.source or _REPOSITORY}",
            lambda fresh: not self.plan(fresh).steps,
            estimate_s=60,
            undo={"folder": str(folder), "link": str(link)},
            fetches_from=hub_servers if reason and parameters.source is None else None,
        )
        return Plan((step,))

    @classmethod
    def undo(cls, values: Mapping[str, Any], facts: Facts) -> Plan:
        """Remove the data set and the link to it."""
        folder, link = Path(values["folder"]), Path(values["link"])
        if not facts[exists(folder)]:
            return Plan(nothing_to_do=f"{folder} is gone")
        linked = facts[link_target(link)] == folder

        def remove(_: StepContext) -> None:
            if linked:
                link.unlink()
            shutil.rmtree(folder)

        command = " ".join(["rm -r", *([str(link)] if linked else []), str(folder)])
        return Plan(
            (Step("remove", f"{folder} was made", remove, command, lambda fresh: not fresh[exists(folder)]),)
        )

    def _folder(self, facts: Facts) -> Path:
        parameters = self.parameters
        tokenizer = parameters.tokenizer and parameters.tokenizer / "tokenizer.json"
        wish = [
            str(parameters.source or ""), facts[file_stamp(parameters.source)] if parameters.source else "",
            "" if parameters.source else parameters.revision, parameters.benchmark, parameters.prompts,
            facts[file_stamp(tokenizer)] if tokenizer else "",
        ]  # fmt: skip
        key = hashlib.sha256(json.dumps(wish).encode()).hexdigest()[:16]
        return facts[PACKAGE_DIR] / ".data_sets" / f"{parameters.package_name}-{key}"

    def _prepare(self, context: StepContext, folder: Path) -> StepOutcome:
        parameters = self.parameters
        require_environment(parameters.environment)
        with locked(context.package_dir, parameters.package_name, context):
            if _wrong(context.facts.fresh(), folder):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                note = self._make(context, folder)
                write_whole(folder / _NOTE, json.dumps(note, indent=2) + "\n")
            point_link(context.package_dir / parameters.package_name, folder)
        note = json.loads((folder / _NOTE).read_text(encoding="utf-8"))
        lengths = f", {note['mean_tokens']:.0f} tokens in the mean" if note.get("mean_tokens") else ""
        return StepOutcome(f"{note['samples']} samples{lengths}, in {folder / _SAMPLES}")

    def _make(self, context: StepContext, folder: Path) -> dict[str, Any]:
        parameters = self.parameters
        asked = {
            "source": str(parameters.source.absolute()) if parameters.source else "",
            "revision": parameters.revision,
            "benchmark": parameters.benchmark,
            "prompts": parameters.prompts,
            "tokenizer": str(parameters.tokenizer.absolute()) if parameters.tokenizer else "",
            "output": str(folder / _SAMPLES),
        }
        return run_module(parameters.environment, "model_files.cnn_dailymail", asked, context=context)


def _wrong(facts: Facts, folder: Path) -> str:
    """Return the fault of the data set in a folder, or nothing."""
    text = facts[text_of(folder / _NOTE)]
    if text is None:
        return f"{folder} is half-made" if facts[exists(folder)] else f"{folder} is not there"
    try:
        size = int(json.loads(text)["bytes"])
    except (ValueError, KeyError, TypeError):
        return f"{folder / _NOTE} is damaged"
    if not facts[file_stamp(folder / _SAMPLES)].startswith(f"{size} "):
        return f"{folder / _SAMPLES} was changed"
    return ""
