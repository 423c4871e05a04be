"""Prepares MLPerf's samples of OpenOrca for Llama 2 70B, from a local file or a hub."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from agent.core.errors import HostError, LiftedBy
from agent.facts.agent_paths import lift_of_path
from agent.facts.files import exists, file_stamp
from dependencies.models.bundled_hub import HubFiles
from dependencies.models.hub_access import require_access
from dependencies.models.in_environment.model_files.open_orca import ENDS, STEMS, candidates
from dependencies.models.prepared_data_set import (
    OptionalPath,
    PreparedDataSet,
    PreparedDataSetParameters,
)

if TYPE_CHECKING:
    from agent.facts import Facts

_HOW = "it is the table that mlcommons/inference, language/llama2-70b/README.md, fetches or makes"


class OpenOrcaDataSetParameters(PreparedDataSetParameters):
    """Source and prompt format of the data set."""

    package_name: str = Field(
        "open-orca",
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$",
        description="Its name below the package folder; {PackagePath:name}/samples.jsonl is the data set.",
    )
    source: OptionalPath = Field(
        None,
        description="A file (.pkl, .pkl.gz, .parquet, .jsonl), or a folder with one of MLPerf's name, such "
        "as processed-data.pkl.gz.",
    )
    repository: str = Field(
        "",
        pattern=r"^([\w.-]+/[\w.-]+)?$",
        description="A data set of a hub with such a file, if source is empty.",
    )
    revision: str = Field("main", min_length=1, description="The hub's revision of it.")
    prompts: Literal["tokens", "text"] = Field(
        "tokens", description="Llama 2's tokens, which the table has; or text for any model."
    )
    moved_by: str = Field("", description="What sets source, such as LAB_DATASET; a refusal names it.")


class OpenOrcaDataSet(PreparedDataSet):
    """Prepares the samples; a pickled table is read without running its content."""

    Parameters = OpenOrcaDataSetParameters
    parameters: OpenOrcaDataSetParameters
    program: ClassVar[str] = "model_files.open_orca"

    @property
    def source_name(self) -> str:
        """Return the local file or folder, or the hub's repository."""
        return str(self.parameters.source or self.parameters.repository)

    @property
    def hub_files(self) -> HubFiles | None:
        """The table in the hub, under each of its names; None if the data set has a local file."""
        parameters = self.parameters
        if parameters.source or not parameters.repository:
            return None
        include = tuple(f"*{stem}.*" for stem in STEMS)
        return HubFiles("dataset", parameters.repository, parameters.revision, include=include)

    def wish(self, facts: Facts) -> list[str]:
        """Return everything that its content depends on."""
        parameters, file = self.parameters, self._file(facts)
        hub = [] if parameters.source else [parameters.repository, parameters.revision]
        return [str(file or ""), facts[file_stamp(file)] if file else "", *hub, parameters.prompts]

    def _file(self, facts: Facts) -> Path | None:
        """Return the local file; the source itself if it is one, or if a folder does not have it."""
        source = self.parameters.source
        if source is None:
            return None
        return next((path for path in candidates(source) if facts[exists(path)]), source)

    def require_source(self, facts: Facts) -> None:
        """Refuse a missing file, and a hub that does not grant access.

        Raises:
            HostError: if that is so; the message names the places that were searched.
        """
        parameters = self.parameters
        setter = parameters.moved_by or "source"
        if parameters.source is None:
            if not parameters.repository:
                raise HostError(
                    "no place is given for the samples of OpenOrca",
                    remedy=f"set {setter} to the file or its folder, or give repository=OWNER/NAME of "
                    f"a hub, which has it; {_HOW}",
                    lifted_by=LiftedBy.NOTHING,
                )
            require_access(facts, parameters.repository, parameters.revision, kind="datasets/")
            return
        source = parameters.source
        if not facts[exists(source)]:
            raise HostError(
                f"{source} is not there; it should be the samples of OpenOrca, or their folder",
                remedy=f"correct {setter}; {_HOW}",
                lifted_by=lift_of_path(facts, source),
            )
        if self._file(facts) == source and not source.name.endswith(ENDS):
            shown = ", ".join(str(path.relative_to(source)) for path in candidates(source))
            raise HostError(
                f"{source} is not a folder with samples of OpenOrca; searched it for {shown}",
                remedy=f"put the file there, or set {setter} to its folder or to the file; {_HOW}",
                lifted_by=lift_of_path(facts, source),
            )

    def asked(self) -> dict[str, Any]:
        """Return the program's configuration, except ``output``."""
        parameters = self.parameters
        return {
            "source": str(parameters.source.absolute()) if parameters.source else "",
            "repository": parameters.repository,
            "revision": parameters.revision,
            "prompts": parameters.prompts,
        }
