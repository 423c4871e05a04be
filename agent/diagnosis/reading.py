"""Reads measurements: runs, fleet runs, files of records, and SuperBench's results."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.observations import Measured, Observations, observe
from agent.store.documents import FLEET_FILE, FleetDocument, RunDocument
from agent.store.rounds import scenarios_without_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Names = Mapping[str, Mapping[str, str]]

_METRICS = "metrics.jsonl"


def read_text(path: Path) -> str:
    """Return the text of a file that the user named.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def read_observations(paths: Sequence[Path], known_hosts: Iterable[str] = ()) -> Observations:
    """Return the measurements on the hosts of several runs.

    A record that is read twice counts once; several values of a metric of one host are kept together, whether
    they come from several runs or from the rounds of one.

    Args:
        paths: folders of runs or fleet runs, files of records, or SuperBench's results (jsonl).
        known_hosts: known hosts in addition to those of the paths.

    Raises:
        UsageError: if there are no records, or a line is not a record.
    """
    hosts = list(known_hosts)
    measured: dict[tuple[Any, ...], Measured] = {}
    for path in paths:
        hosts += _hosts_of_fleet(path)
        file = _file(path)
        try:
            measured |= dict(_lines(file, cache(partial(_names_without_rounds, file.parent))))
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
    if not measured:
        raise UsageError(
            f"there are no records in {', '.join(map(str, paths))}",
            remedy="name the folders of runs that came to their end",
        )
    return observe(measured.values(), hosts)


def _file(path: Path) -> Path:
    file = path / _METRICS if path.is_dir() else path
    if file.is_file():
        return file
    raise UsageError(
        f"there is no {file}",
        remedy="name the folder of a run or fleet run, such as results/fleet/latest, or a file of records",
    )


def _hosts_of_fleet(path: Path) -> list[str]:
    """Return all hosts of a fleet run, including those without results."""
    file = path / FLEET_FILE
    if not file.is_file():
        return []
    try:
        return [host.name for host in FleetDocument.read(path).hosts]
    except UsageError as error:
        raise UsageError(
            error.message, where=error.where, remedy="vcagent fleet resume writes it again"
        ) from error


def _names_without_rounds(folder: Path) -> Names:
    """Return the names of the scenarios of a run, or of a fleet run's hosts, by the run's id.

    A host whose run.json did not come home keeps the names of its records.
    """
    names = {}
    for run in (folder, *sorted(folder.glob("hosts/*"))):
        with suppress(UsageError):
            document = RunDocument.read(run)
            names[document.run_id] = scenarios_without_rounds(document.cases)
    return names


def _lines(path: Path, names: Callable[[], Names]) -> Iterator[tuple[tuple[Any, ...], Measured]]:
    """Yield the numbers of a file, each with its identity; an incomplete last line is ignored."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                yield from _of_line(json.loads(line), (path, number), names)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
                if not line.endswith("\n"):
                    return
                raise UsageError(
                    f"this is not a record: {type(error).__name__}: {error}",
                    where=f"{path}:{number}",
                    remedy="metrics.jsonl of a run is read, and results-summary.jsonl of SuperBench",
                ) from error


def _of_line(
    content: dict[str, Any], place: tuple[Any, ...], names: Callable[[], Names]
) -> Iterator[tuple[tuple[Any, ...], Measured]]:
    """Yield our record, or the numbers of one node in SuperBench's form, with null for a missing one."""
    if "client_id" in content:
        one = _of_record(content, names)
        yield (content.get("run_id"), one.host, content.get("record_id", place)), one
        return
    host = str(content.pop("node"))
    for metric, value in content.items():
        if _is_number(value):
            yield (*place, metric), Measured(host, metric, float(value))


def _of_record(content: dict[str, Any], names: Callable[[], Names]) -> Measured:
    value, scenario = content["value"], str(content["scenario"])
    if not _is_number(value):
        raise ValueError(f"{content['metric']} is {value!r}")
    if "#" in scenario:
        scenario = names().get(str(content.get("run_id")), {}).get(scenario, scenario)
    return Measured(
        str(content["client_id"]),
        f"{scenario}/{content['metric']}",
        float(value),
        str(content["unit"]),
        Relativity(content["relativity"]),
        int(content["verbosity"]),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
