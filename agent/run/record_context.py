"""The context of records: the host, the runtime, the scenario and the tool's own output.

Each context is stored once, and records refer to it by ``context_id`` in their metadata: a context is a few
KB, and a monitor makes hundreds of thousands of records an hour. Sinks whose format needs the context on
every record add it there.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.facts.host_metadata import gpu_runtime, metadata_dependencies, metadata_host
from agent.host.containers.records import container_records
from agent.store.documents import ContextDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agent.core.records import ParsedOutput
    from agent.facts import Facts
    from agent.store.journal import Journal

LONGEST_RESULT_CHARACTERS = 4096
"""Longest ``tool_results``, in characters; the tool's whole output is in the run's folder."""

_LONGEST_PARAMETER_CHARACTERS = 1024
_LARGEST_SOURCE_BYTES = 1 << 20


class RecordContexts:
    """The contexts of a run's records; safe to use from several threads.

    Args:
        journal: keeps them.
        facts: the host.
        run: the part that all contexts share: experiment, run, client, profile, system, metadata.
        runtime: how the agent was called, as VirtualClient's ``metadata_runtime`` names it.
        mask: takes secrets out of values.
        run_dir: the run's folder.
    """

    def __init__(
        self,
        journal: Journal,
        facts: Facts,
        *,
        run: Mapping[str, Any],
        runtime: Mapping[str, Any],
        mask: Callable[[Any], Any],
        run_dir: Path,
    ) -> None:
        self._journal = journal
        self._facts = facts
        self._run = dict(run)
        self._runtime = dict(runtime)
        self._mask = mask
        self._run_dir = run_dir
        self._lock = threading.Lock()
        self._settled: dict[str, Any] | None = None
        self._general = ""

    def settle(self) -> None:
        """Read the host's facts now and keep them, since the dependencies are done and the actions begin."""
        with self._lock:
            self._settled = self._host()
            self._general = ""

    def of_run(self) -> str:
        """Return the id of the context of records that belong to no case, such as a monitor's."""
        with self._lock:
            if not self._general:
                general = self._journal.add_context(self._document(self._settled or self._host()))
                if self._settled is None:
                    return general  # not stored yet: dependencies may still change the host
                self._general = general
            return self._general

    def of_case(self, scenario: Mapping[str, Any], output: ParsedOutput, log: str = "") -> str:
        """Return the id of the context of a case's records.

        Args:
            scenario: the element's type and parameters, and the step's command.
            output: what its tool wrote.
            log: the step's log, used if the output was not read from a file.
        """
        with self._lock:
            host = self._settled or self._host()
        tool = {"toolName": output.tool_name, "toolVersion": output.tool_version}
        return self._journal.add_context(
            self._document(
                host,
                metadata_scenario={
                    **_short(dict(scenario)),
                    **{key: text for key, text in tool.items() if text},
                },
                tool_results=_tool_results(output.sources) or _tool_results((log,)),
            )
        )

    def _host(self) -> dict[str, Any]:
        facts = self._facts.fresh()
        gpus = gpu_runtime(facts)
        return {
            "metadata_host": metadata_host(facts),
            "metadata_dependencies": metadata_dependencies(facts),
            "metadata_runtime": {**self._runtime, **({"gpus": gpus} if gpus else {})},
        }

    def _document(self, host: Mapping[str, Any], **case: Any) -> dict[str, Any]:
        runtime = dict(host["metadata_runtime"])
        images = {
            record["image"]["reference"]: record["image"]["digests"] or record["image"]["id"]
            for record in container_records(self._run_dir)
        }
        if images:
            runtime["images"] = images
        values = self._mask({**self._run, **host, "metadata_runtime": runtime, **case})
        return ContextDocument.model_validate(values).to_json()


def _short(value: Any) -> Any:
    """Return parameters without empty values, and with long texts cut and marked."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items() if item not in (None, "", [], {}, ())}
    return [_short(item) for item in value] if isinstance(value, list) else _cut(value)


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else ""
    if len(text) <= _LONGEST_PARAMETER_CHARACTERS:
        return value
    return f"{text[:_LONGEST_PARAMETER_CHARACTERS]}… ({len(text)} characters)"


def _tool_results(sources: Iterable[str]) -> str:
    """Return the shortest of the texts that a case was read from, cut if it is long."""
    sizes = {}
    for name in sources:
        path = Path(name)
        if path.is_file() and path.stat().st_size:
            sizes[path] = path.stat().st_size
    if not sizes or min(sizes.values()) > _LARGEST_SOURCE_BYTES:
        return ""
    text = min(sizes, key=lambda path: sizes[path]).read_text(encoding="utf-8", errors="replace")
    if "\0" in text:  # a binary file
        return ""
    if len(text) <= LONGEST_RESULT_CHARACTERS:
        return text
    return f"{text[:LONGEST_RESULT_CHARACTERS]}… ({len(text)} characters)"
