"""The results of a fleet run: its description, merged records, the hosts to try again, and a report."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.core.safe_files import open_file, replace_text
from agent.diagnosis.groups import group_hosts, read_facts
from agent.diagnosis.judging import diagnose
from agent.diagnosis.reading import read_observations
from agent.diagnosis.rules import default_rules
from agent.fleet.controller import HOSTS
from agent.fleet.distribution import Distribution, distribution_of
from agent.fleet.failed import FAILED_FILE, failed_inventory
from agent.store.documents import FLEET_FILE, FleetDocument, RollupDocument
from agent.store.results import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.diagnosis.diagnosis import Diagnosis
    from agent.fleet.record import FleetRecord
    from agent.fleet.status import HostStatus


def write_outcome(run_dir: Path, record: FleetRecord) -> dict[str, Any]:
    """Write all files that are derived from the hosts' files; return the description.

    Args:
        run_dir: the fleet run's folder.
        record: the hosts, with their secrets masked, and the status of each.
    """
    from agent.fleet.page import write_page

    statuses = record.statuses()
    for name in ("metrics.jsonl", "metrics.csv"):
        _merge(run_dir, name, statuses)
    diagnosis, undiagnosed = _diagnosed(run_dir, statuses)
    found = distributions(run_dir, statuses, diagnosis)
    document = {
        "run_id": run_dir.name,
        "experiment_id": record.recall("request")["experiment_id"],
        "profiles": [source["name"] for source in record.recall("sources")],
        "via": record.recall("options")["via"],
        "parameters": record.recall("request")["parameters"],
        "start": record.recall("started"),
        "end": record.recall("ended"),
        "duration_s": record.worked_s(),
        "exit_code": record.recall("exit_code"),
        "stopped": record.recall("stopped", ""),
        "hosts": [_host(run_dir, status) for status in statuses.values()],
        "distributions": [_distribution(one) for one in found],
        "diagnosis": diagnosis.to_json() if diagnosis else None,
        "undiagnosed": undiagnosed,
    }
    description = FleetDocument.model_validate(document).to_json()
    failed = run_dir / FAILED_FILE
    failed.unlink(missing_ok=True)
    if any(status.phase.is_final and not status.is_good for status in statuses.values()):
        replace_text(failed, failed_inventory(record.hosts(), statuses))
    write_json(run_dir / FLEET_FILE, description)
    write_page(run_dir, description, found, diagnosis)
    return description


def _diagnosed(run_dir: Path, statuses: Mapping[str, HostStatus]) -> tuple[Diagnosis | None, str]:
    """Return the diagnosis of the hosts by the default rules; without one, the reason."""
    if not (run_dir / "metrics.jsonl").stat().st_size:
        return None, "no host delivered a result"
    try:
        observed = read_observations([run_dir / "metrics.jsonl"], statuses)
        groups = group_hosts(tuple(observed.hosts), read_facts([run_dir]))
        return diagnose(observed, default_rules(), groups=groups), ""
    except UsageError as error:
        why = f" ({error.details[0]})" if error.details else ""
        return None, f"{error.message}{why}"


def distributions(
    run_dir: Path, statuses: Mapping[str, HostStatus], diagnosis: Diagnosis | None
) -> list[Distribution]:
    """Return the distribution of each headline metric over its hosts, in the order of the cases."""
    values: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for status in statuses.values():
        for case in _rollup(run_dir, status).get("cases", ()):
            for metric in case["metrics"]:
                key = case["scenario"], metric["name"], metric["unit"], metric["relativity"]
                values.setdefault(key, {})[status.name] = float(metric["value"])
    sick: dict[str, list[str]] = {}
    for host in diagnosis.hosts if diagnosis else ():
        for name in dict.fromkeys(defect.metric for defect in host.defects if defect.metric):
            sick.setdefault(name, []).append(host.host)
    return [
        distribution_of(
            *(scenario, metric, unit, Relativity(better), of_hosts, sick.get(f"{scenario}/{metric}", ()))
        )
        for (scenario, metric, unit, better), of_hosts in values.items()
    ]


def _rollup(run_dir: Path, status: HostStatus) -> dict[str, Any]:
    with suppress(UsageError):
        return RollupDocument.read(run_dir / HOSTS / status.folder).to_json()
    return {}


def _host(run_dir: Path, status: HostStatus) -> dict[str, Any]:
    folder = run_dir / HOSTS / status.folder
    report = folder / "report.html"
    return {
        **status.to_json(),
        "good": status.is_good,
        "may_go_on": status.may_go_on,
        "report": report.relative_to(run_dir).as_posix() if report.is_file() else None,
        "headline": {
            case["scenario"]: case["headline"] for case in _rollup(run_dir, status).get("cases", ())
        },
    }


def _distribution(one: Distribution) -> dict[str, Any]:
    ordered = sorted(one.values.values())
    return {
        "scenario": one.scenario,
        "metric": one.metric,
        "unit": one.unit,
        "relativity": one.relativity.value,
        "count": len(ordered),
        "minimum": ordered[0],
        "median": one.median,
        "maximum": ordered[-1],
        "mad": one.mad,
        "outliers": {host: one.values[host] for host in one.outliers},
    }


def _merge(run_dir: Path, name: str, statuses: Mapping[str, HostStatus]) -> None:
    """Merge the hosts' records; each record names its host (client_id), and a CSV file has one header."""
    part = run_dir / f"{name}.part"
    part.unlink(missing_ok=True)
    head = None
    with os.fdopen(open_file(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as merged:
        for status in statuses.values():
            for number, line in enumerate(_lines(run_dir / HOSTS / status.folder / name)):
                if name.endswith(".csv") and number == 0:
                    if head is None:
                        head = line
                        merged.write(line)
                    continue
                merged.write(line)
    part.replace(run_dir / name)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file; none if the file does not exist."""
    with suppress(OSError), path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))
