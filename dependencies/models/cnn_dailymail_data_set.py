"""Prepares CNN-DailyMail as in MLPerf, from a local copy or the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from agent.core.errors import HostError
from agent.facts.agent_paths import lift_of_path
from agent.facts.files import exists, file_stamp
from dependencies.models.bundled_hub import HubFiles
from dependencies.models.hub_access import require_access
from dependencies.models.in_environment.model_files.cnn_dailymail import FILE, REPOSITORY
from dependencies.models.prepared_data_set import (
    OptionalPath,
    PreparedDataSet,
    PreparedDataSetParameters,
)

if TYPE_CHECKING:
    from agent.facts import Facts


class CnnDailyMailDataSetParameters(PreparedDataSetParameters):
    """Source, size and prompt format of the data set."""

    package_name: str = Field(
        "cnn-dailymail",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name}/samples.jsonl is the data set.",
    )
    source: OptionalPath = Field(
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
    tokenizer: OptionalPath = Field(None, description="The model's folder, with tokenizer.json.")


class CnnDailyMailDataSet(PreparedDataSet):
    """Prepares CNN-DailyMail with MLPerf's prompt."""

    Parameters = CnnDailyMailDataSetParameters
    parameters: CnnDailyMailDataSetParameters
    program: ClassVar[str] = "model_files.cnn_dailymail"

    @property
    def source_name(self) -> str:
        """Return the local copy, or the hub's repository."""
        return str(self.parameters.source or REPOSITORY)

    @property
    def hub_files(self) -> HubFiles | None:
        """The table of the validation split in the hub; None if the data set has a local copy."""
        if self.parameters.source:
            return None
        return HubFiles("dataset", REPOSITORY, self.parameters.revision, include=(FILE,))

    def wish(self, facts: Facts) -> list[str]:
        """Return everything that its content depends on."""
        parameters = self.parameters
        tokenizer = parameters.tokenizer and parameters.tokenizer / "tokenizer.json"
        return [
            str(parameters.source or ""), facts[file_stamp(parameters.source)] if parameters.source else "",
            "" if parameters.source else parameters.revision, parameters.benchmark, parameters.prompts,
            facts[file_stamp(tokenizer)] if tokenizer else "",
        ]  # fmt: skip

    def require_source(self, facts: Facts) -> None:
        """Refuse a missing path, and a hub that does not grant access.

        Raises:
            HostError: if that is so.
        """
        parameters = self.parameters
        for path in (parameters.source, parameters.tokenizer):
            if path is not None and not facts[exists(path)]:
                raise HostError(
                    f"{path} is not there", remedy="correct the path", lifted_by=lift_of_path(facts, path)
                )
        if parameters.source is None:
            require_access(facts, REPOSITORY, parameters.revision, kind="datasets/")

    def asked(self) -> dict[str, Any]:
        """Return the program's configuration, except ``output``."""
        parameters = self.parameters
        return {
            "source": str(parameters.source.absolute()) if parameters.source else "",
            "revision": parameters.revision,
            "benchmark": parameters.benchmark,
            "prompts": parameters.prompts,
            "tokenizer": str(parameters.tokenizer.absolute()) if parameters.tokenizer else "",
        }
