"""Check the papers of a result: system description, measurements, user.conf, README, code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.submission.findings import Finding, note
from actions.submission.tree import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from actions.submission.tree import Place, Submitter

# mlcommons/inference, tools/submission/submission_checker/constants.py: SYSTEM_DESC_REQUIRED_FIELDS and
# SYSTEM_DESC_MEANINGFUL_RESPONSE_REQUIRED_FIELDS.
MEANINGFUL_FIELDS = (
    "division", "submitter", "system_type", "status", "system_name", "number_of_nodes",
    "host_processor_model_name", "host_processors_per_node", "host_processor_core_count",
    "host_memory_capacity",
    "host_memory_configuration", "host_storage_capacity", "host_storage_type", "host_networking",
    "host_network_card_count", "host_networking_topology", "accelerators_per_node", "accelerator_model_name",
    "accelerator_memory_capacity", "accelerator_host_interconnect", "accelerator_memory_configuration",
    "accelerator_interconnect", "cooling", "framework", "operating_system", "other_software_stack",
)  # fmt: skip
OPTIONAL_FIELDS = (
    "host_processor_frequency", "host_processor_caches", "host_processor_interconnect",
    "accelerator_frequency",
    "accelerator_interconnect_topology", "accelerator_on-chip_memories", "hw_notes", "sw_notes",
    "system_type_detail",
)  # fmt: skip
"""Fields that must exist but may be empty."""
COUNTS = ("number_of_nodes", "host_processors_per_node", "host_processor_core_count", "accelerators_per_node")
STATUSES = ("available", "preview", "rdi")
SYSTEM_TYPES = ("datacenter", "edge", "datacenter,edge", "edge,datacenter")
MEASUREMENT_FIELDS = (
    "input_data_types", "retraining", "starting_weights_filename", "weight_data_types",
    "weight_transformations",
)  # fmt: skip


def system_findings(system: Mapping[str, Any], *, division: str, submitter: str) -> Iterator[Finding]:
    """Yield faults of a system description."""
    missing = [name for name in (*MEANINGFUL_FIELDS, *OPTIONAL_FIELDS) if name not in system]
    if missing:
        yield Finding("system_fields", f"the system description lacks {', '.join(missing)}", "add them")
    empty = [name for name in MEANINGFUL_FIELDS if name in system and _is_empty(system[name])]
    if empty:
        yield Finding(
            "system_fields", f"the system description has nothing in {', '.join(empty)}", "fill them"
        )
    for name in COUNTS:
        if not _is_empty(system.get(name)) and not _is_count(system[name]):
            yield note("system_counts", f"{name} is {system[name]!r}, not a number", "write only the number")
    for name, wanted in (("division", division), ("submitter", submitter)):
        if str(system.get(name, wanted)).lower() != wanted.lower():
            text = f"the system description has {name} {system[name]!r}, its folder {wanted!r}"
            yield Finding(f"system_{name}", text)
    if not _is_empty(system.get("status")) and str(system["status"]).lower() not in STATUSES:
        yield Finding("system_status", f"status {system['status']!r} is not one of {', '.join(STATUSES)}")
    kind = system.get("system_type")
    if not _is_empty(kind) and kind not in SYSTEM_TYPES:
        yield Finding("system_type", f"system_type {kind!r} is not one of {'; '.join(SYSTEM_TYPES)}")
    is_network = str(system.get("is_network", "false")).lower() == "true"
    if division in {"closed", "network"} and is_network is not (division == "network"):
        yield Finding("network", f"is_network is {is_network}, which the {division} division does not allow")


def _is_empty(value: object) -> bool:
    return value is None or str(value).strip() == ""


def _is_count(value: object) -> bool:
    try:
        return float(str(value)) >= 0
    except ValueError:
        return False


def measurement_findings(place: Place) -> Iterator[Finding]:
    """Yield faults of the files that accompany a result's runs."""
    for name in ("user.conf", "README.md"):
        path = place.measurements / name
        if not path.is_file():
            yield Finding("measurements", f"{name} is missing", f"put it into {place.measurements}")
        elif not path.stat().st_size:
            yield Finding("measurements", f"{name} is empty", "fill it")
    path_or_none = place.measurements_file()
    if path_or_none is None:
        yield Finding("measurements", "the measurements file is missing", f"add it to {place.measurements}")
        return
    values = read_json(path_or_none)
    if not isinstance(values, dict):
        yield Finding("measurements", f"{path_or_none.name} is not JSON")
        return
    lacking = [name for name in MEASUREMENT_FIELDS if _is_empty(values.get(name))]
    if lacking:
        yield Finding("measurements", f"{path_or_none.name} has nothing in {', '.join(lacking)}", "fill them")


def source_findings(submitter: Submitter, folder: str) -> Iterator[Finding]:
    """Yield a finding if a submitter's code is missing."""
    path = submitter.folder / folder
    if not path.is_dir() or not any(path.iterdir()):
        yield Finding("source", f"the folder {folder}/ has no code", "add the code needed to repeat the runs")
