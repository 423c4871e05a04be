"""Write the system description from the host's facts and its owner's statements."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from actions.submission.papers import MEANINGFUL_FIELDS, MEASUREMENT_FIELDS, OPTIONAL_FIELDS
from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from actions.submission.runs import Case

_MIB, _GIB = 1 << 20, 1 << 30
_NONE = "N/A"
_PREFIX = "measurements."
_WHAT = {
    "status": "available, preview or rdi",
    "host_memory_configuration": "the host's memory modules, such as 24x 64 GB DDR5-4800",
    "host_storage_type": "such as NVMe SSD",
    "host_networking": "such as Ethernet 10 GbE, or N/A",
    "host_network_card_count": "such as 1x 10 GbE",
    "host_networking_topology": "such as N/A for a single host",
    "accelerator_host_interconnect": "such as PCIe Gen5 x16",
    "accelerator_memory_configuration": "such as HBM3e",
    "accelerator_interconnect": "such as 18x 4th-gen NVLink, 900 GB/s, or N/A for one accelerator",
    "cooling": "such as air-cooled",
    "input_data_types": "such as int32",
    "retraining": "N, or the retrained parts",
    "starting_weights_filename": "such as the name of the checkpoint",
    "weight_data_types": "such as fp8",
    "weight_transformations": "such as quantisation to fp8 with Quark",
}


def read_description(path: Path | None, settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the owner's fields of the system description, and of the measurements.

    Args:
        path: a YAML or JSON file with the description's fields, and ``measurements`` with its own; or None.
        settings: ``field: value`` of the command line, which take precedence; those of measurements begin
            with ``measurements.``.

    Raises:
        UsageError: if the file cannot be read, or a field is unknown.
    """
    values = _of_file(path) if path else {}
    measurements = values.pop("measurements", {})
    if not isinstance(measurements, dict):
        raise UsageError(
            "measurements is not a mapping", where=str(path), remedy="write field: value below it"
        )
    system = {str(name): _text(value) for name, value in values.items()}
    measured = {str(name): _text(value) for name, value in measurements.items()}
    for name, text in settings.items():
        (measured if name.startswith(_PREFIX) else system)[name.removeprefix(_PREFIX)] = text
    _refuse_unknown(system, (*MEANINGFUL_FIELDS, *OPTIONAL_FIELDS), "")
    _refuse_unknown(measured, MEASUREMENT_FIELDS, _PREFIX)
    return system, measured


def _of_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UsageError(
            f"the description cannot be read: {str(error)[:200]}",
            where=str(path),
            remedy="write YAML or JSON",
        ) from error
    if not isinstance(values, dict):
        raise UsageError("the description is not a mapping", where=str(path), remedy="write field: value")
    return values


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _refuse_unknown(values: Mapping[str, str], known: Iterable[str], prefix: str) -> None:
    from agent.core.names import did_you_mean

    for name in values:
        if name not in known:
            raise UsageError(f"no field is named {prefix}{name}", remedy=did_you_mean(name, known))


def system_description(
    cases: Iterable[Case],
    said: Mapping[str, str],
    *,
    division: str,
    submitter: str,
    system_type: str,
    name: str,
) -> dict[str, str]:
    """Return the system description: facts of the runs' host, overridden by the owner's fields.

    Args:
        cases: the tests, all of the same host.
        said: the owner's fields.
        division: closed or open.
        submitter: the submitter's name.
        system_type: datacenter, edge, or both.
        name: the system's name.

    Raises:
        UsageError: if the runs are of different hosts.
    """
    known = [dict(_of_facts(case)) for case in cases]
    for field in ("host_processor_model_name", "accelerator_model_name", "accelerators_per_node"):
        values = {each[field] for each in known if field in each}
        if len(values) > 1:
            raise UsageError(
                f"the runs are of different systems: {field} is {' and '.join(sorted(values))}",
                remedy="build a submission from runs of one system",
            )
    found = {key: value for each in known for key, value in each.items()}
    found |= {"division": division, "submitter": submitter, "system_type": system_type, "system_name": name}
    found |= dict.fromkeys((key for key in OPTIONAL_FIELDS if key not in found), "")
    return {key: said.get(key) or found.get(key, "") for key in (*MEANINGFUL_FIELDS, *OPTIONAL_FIELDS)}


def missing_fields(system: Mapping[str, str], measurements: Mapping[str, str]) -> list[str]:
    """Return the fields that are still empty, each with a description."""
    left = [name for name in MEANINGFUL_FIELDS if not str(system.get(name, "")).strip()]
    lines = [f"{name}: {_WHAT.get(name, 'not known from the run')}" for name in left]
    left = [name for name in MEASUREMENT_FIELDS if not str(measurements.get(name, "")).strip()]
    return lines + [f"{_PREFIX}{name}: {_WHAT[name]}" for name in left]


def _of_facts(case: Case) -> Iterator[tuple[str, str]]:
    facts = case.run.facts
    yield "number_of_nodes", "1"
    yield from _processor(facts)
    if total := _part(facts, "memory").get("total_bytes"):
        yield "host_memory_capacity", f"{round(total / _GIB)} GiB"
    disks = [
        disk for disk in facts.get("disks") or [] if disk.get("kind") == "disk" and disk.get("size_bytes")
    ]
    if disks:
        yield "host_storage_capacity", f"{round(sum(disk['size_bytes'] for disk in disks) / _GIB)} GiB"
        if all("nvme" in str(disk.get("path")) for disk in disks):
            yield "host_storage_type", "NVMe"
    yield from _accelerators(facts)
    system = [_part(facts, "distribution").get("name"), facts.get("kernel") and f"Linux {facts['kernel']}"]
    if any(system):
        yield "operating_system", ", ".join(filter(None, system))
    yield "framework", _framework(case)
    yield "other_software_stack", _software(case)
    yield "sw_notes", f"Built by vcagent {case.run.versions.get('vcagent', '')}".strip()


def _processor(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    processor = _part(facts, "processor")
    if model := processor.get("model"):
        yield "host_processor_model_name", str(model)
    sockets, cores = processor.get("sockets"), processor.get("physical_cores")
    if sockets:
        yield "host_processors_per_node", str(sockets)
    if sockets and cores:
        yield "host_processor_core_count", str(cores // sockets)


def _accelerators(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    nvidia, amd = facts.get("gpus"), facts.get("amd_gpus")
    if nvidia is None and amd is None:
        return
    gpus = [
        *((gpu.get("name"), (gpu.get("memory_mib") or 0) * _MIB) for gpu in nvidia or []),
        *((gpu.get("name"), gpu.get("memory_bytes") or 0) for gpu in amd or []),
    ]
    yield "accelerators_per_node", str(len(gpus))
    if not gpus:
        for name in MEANINGFUL_FIELDS:
            if name.startswith("accelerator_"):
                yield name, _NONE
        return
    names = Counter(str(name) for name, _ in gpus if name)
    if names:
        yield "accelerator_model_name", ", ".join(names)
    memory = {size for _, size in gpus if size}
    if memory:
        yield "accelerator_memory_capacity", ", ".join(f"{round(size / _GIB)} GiB" for size in sorted(memory))


def _framework(case: Case) -> str:
    details = case.part.details
    engine = details.get("engine_server") or details.get("engine_type") or ""
    version = details.get("engine_version") or details.get("backend_version") or ""
    tool = f"{case.part.tool_name} {case.part.tool_version}".strip()
    return ", ".join(filter(None, [f"{engine} {version}".strip(), tool]))


def _software(case: Case) -> str:
    facts = case.run.facts
    parts = [f"Python {case.run.versions['python']}" if case.run.versions.get("python") else ""]
    drivers = sorted({str(gpu["driver"]) for gpu in facts.get("gpus") or [] if gpu.get("driver")})
    parts += [f"NVIDIA driver {driver}" for driver in drivers]
    if rocm := facts.get("rocm_version"):
        parts.append(f"ROCm {rocm}")
    toolkits = [str(kit.get("version")) for kit in facts.get("cuda_toolkits") or [] if kit.get("version")]
    parts += [f"CUDA {version}" for version in dict.fromkeys(toolkits)]
    return ", ".join(filter(None, parts))


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}
