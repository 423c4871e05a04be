"""Groups similar hosts: those with the same GPUs, or with the same value of a fact."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.names import did_you_mean
from agent.store.documents import RunDocument
from agent.store.results import RUN_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

UNKNOWN = "unknown hardware"


def read_facts(paths: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the facts of each host, from the ``run.json`` of runs and of the hosts of fleet runs.

    Args:
        paths: folders of runs or fleet runs, or files in them.
    """
    facts: dict[str, dict[str, Any]] = {}
    for path in paths:
        folder = path if path.is_dir() else path.parent
        for file in [folder / RUN_FILE, *sorted(folder.glob(f"hosts/*/{RUN_FILE}"))]:
            if not file.is_file():
                continue
            with suppress(UsageError):  # the run's own commands report its problem
                run = RunDocument.read(file.parent)
                if run.client_id and run.facts:
                    facts[run.client_id] = run.facts
    return facts


def group_hosts(
    hosts: Sequence[str], facts: Mapping[str, Mapping[str, Any]], fact: str | None = None
) -> dict[str, str]:
    """Return the group of each host.

    Args:
        hosts: the hosts.
        facts: the facts of each host, if known.
        fact: a fact, or a part of one such as ``distribution.version``; by default the GPUs.

    Raises:
        UsageError: if no host has the fact.
    """
    if fact is None:
        if not any("gpus" in facts.get(host, {}) for host in hosts):
            return {}
        return {host: _gpus(facts.get(host, {}).get("gpus")) for host in hosts}
    values = {host: _part(facts.get(host, {}), fact) for host in hosts}
    if all(value is None for value in values.values()):
        known = sorted({name for host in hosts for name in facts.get(host, {})})
        remedy = did_you_mean(fact, known) if known else "name folders of runs, which have a run.json"
        raise UsageError(f"no host has the fact {fact!r}", remedy=remedy)
    return {host: UNKNOWN if value is None else _text(value) for host, value in values.items()}


def _gpus(gpus: object) -> str:
    """Return the models of the GPUs with their numbers: ``8 NVIDIA H100 80GB HBM3``."""
    if not isinstance(gpus, list):
        return UNKNOWN
    models = Counter(
        str(gpu.get("name") or gpu.get("pci_id") or "GPU") for gpu in gpus if isinstance(gpu, dict)
    )
    return " + ".join(f"{count} {model}" for model, count in sorted(models.items())) or "no GPU"


def _part(facts: Mapping[str, Any], fact: str) -> Any:
    value: Any = facts
    for name in fact.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
