"""``report.html`` of a fleet run: sick hosts with their values, the distributions of metrics, all hosts."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent.core.counts import count_of
from agent.core.errors import ExitCode
from agent.core.quantities import format_duration, quantity, words
from agent.core.records import Relativity
from agent.core.safe_files import replace_text
from agent.diagnosis.diagnosis import HostState
from agent.fleet.display import counted
from agent.fleet.reasons import reason_groups
from agent.fleet.status import HostPhase, HostStatus
from agent.report.html import page_environment
from agent.report.page_filters import agent_version, moment
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.diagnosis.diagnosis import Defect, Diagnosis, HostDiagnosis
    from agent.fleet.distribution import Distribution

PAGE_FILE = "report.html"
_MOST_ORDERS = 4
_EDGE = 2.0
"""Percent of a strip that stays empty on each side, so that points at the ends are fully visible."""


def write_page(
    run_dir: Path, description: Mapping[str, Any], found: Sequence[Distribution], diagnosis: Diagnosis | None
) -> None:
    """Write the page atomically; it loads no other files.

    Args:
        run_dir: the fleet run's folder.
        description: ``fleet.json``.
        found: the distributions.
        diagnosis: the diagnosis; None if there is none.
    """
    hosts = description["hosts"]
    statuses = [HostStatus.from_json(host) for host in hosts]
    good = sum(host["good"] for host in hosts)
    states = {one.host: one for one in diagnosis.hosts} if diagnosis else {}
    defects = [
        {"host": one.host, "suspect": suspect, **row}
        for one in (diagnosis.hosts if diagnosis else ())
        for of_host, suspect in ((one.defects, False), (one.suspicions, True))
        for defect in of_host
        for row in _rows(defect)
    ]
    text = page_environment("agent.fleet").get_template("fleet.html.j2").render(
        run=description,
        agent_version=agent_version({}),
        made=now(),
        status=_status(description),
        outcome=f"{good} of {count_of(len(hosts), 'host')} succeeded",
        counts=counted(statuses),
        reasons=reason_groups(statuses),
        identity=_identity(description),
        states=states,
        defects=defects,
        diagnosis=diagnosis,
        distributions=[_distribution(one) for one in found],
        rows=_host_rows(hosts, states, found),
        orders=[
            *("failed first", "name", "longest"),
            *(f"{words(one.metric)} · {one.scenario}" for one in _sortable(found)),
        ],
    )  # fmt: skip
    replace_text(run_dir / PAGE_FILE, text)


def _status(description: Mapping[str, Any]) -> str:
    if description["exit_code"] is None or description["exit_code"] == ExitCode.INTERRUPTED:
        return "INTERRUPTED"
    return "DONE" if all(host["good"] for host in description["hosts"]) else "FAILED"


def _identity(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    start = datetime.fromisoformat(description["start"])
    rows = [("Hosts", str(len(description["hosts"]))), ("Start", moment(start))]
    if description["end"] and description["duration_s"] is not None:
        rows.append(("Duration", format_duration(description["duration_s"])))
    return [
        *rows,
        ("Transport", {"ssh": "SSH", "slurm": "Slurm"}.get(description["via"], description["via"])),
    ]


def _elapsed_s(host: Mapping[str, Any]) -> float | None:
    if host["duration_s"] is not None:
        return float(host["duration_s"])
    if not (host["started"] and host["ended"]):
        return None
    started, ended = (datetime.fromisoformat(host[name]) for name in ("started", "ended"))
    return (ended - started).total_seconds()


def _sortable(found: Sequence[Distribution]) -> Sequence[Distribution]:
    """Return the metrics by which hosts can be sorted."""
    return found[:_MOST_ORDERS]


def _host_rows(
    hosts: Sequence[Mapping[str, Any]], states: Mapping[str, HostDiagnosis], found: Sequence[Distribution]
) -> list[dict[str, Any]]:
    """Return the hosts with their position in every order: failed hosts first, then sick and suspect ones.

    The page has no script: its style sheet sorts the rows in the selected order.
    """

    def severity(host: Mapping[str, Any]) -> int:
        if not host["good"]:
            return 1 if host["phase"] == HostPhase.SKIPPED.value else 0
        state = states.get(host["name"])
        return {HostState.SICK: 2, HostState.SUSPECT: 3}.get(state.state, 4) if state else 4

    def natural(host: Mapping[str, Any]) -> list[Any]:
        parts = re.split(r"(\d+)", host["name"])
        return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

    def worst_first(one: Distribution) -> Callable[[Mapping[str, Any]], tuple[bool, float]]:
        sign = -1.0 if one.relativity is Relativity.LOWER else 1.0
        return lambda host: (host["name"] not in one.values, sign * one.values.get(host["name"], 0.0))

    orders: list[Callable[[Mapping[str, Any]], Any]] = [
        lambda host: (severity(host), natural(host)),
        natural,
        lambda host: -(_elapsed_s(host) or 0.0),
        *map(worst_first, _sortable(found)),
    ]
    places: list[dict[str, int]] = [
        {host["name"]: place for place, host in enumerate(sorted(hosts, key=order))} for order in orders
    ]
    return [
        {
            **host,
            "elapsed": "" if (elapsed_s := _elapsed_s(host)) is None else format_duration(elapsed_s),
            "places": [place[host["name"]] for place in places],
        }
        for host in sorted(hosts, key=orders[0])
    ]


def _rows(defect: Defect, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Yield a defect, then the defects that it combines."""
    unit = defect.unit or ""
    yield {
        "depth": depth,
        "category": defect.category,
        "rule": defect.rule,
        "criteria": defect.criteria,
        "metric": defect.metric,
        "value": None if defect.value is None else quantity(defect.value, unit, defect.baseline),
        "baseline": None if defect.baseline is None else quantity(defect.baseline, unit),
        "variance": "" if defect.variance is None else f"{defect.variance:+.1%}",
        "z": "" if defect.z is None else f"{defect.z:+.1f}",
    }
    for one in defect.evidence:
        yield from _rows(one, depth + 1)


def _distribution(one: Distribution) -> dict[str, Any]:
    """Return the display of a metric: least, median and greatest value, and the position of each host."""
    least, greatest = min(one.values.values()), max(one.values.values())
    spread = greatest - least
    return {
        "scenario": one.scenario,
        "metric": one.metric,
        "relativity": one.relativity,
        "least": quantity(least, one.unit, one.median),
        "median": quantity(one.median, one.unit),
        "greatest": quantity(greatest, one.unit, one.median),
        "outliers": [(host, quantity(one.values[host], one.unit, one.median)) for host in one.outliers],
        "middle": _place(one.median, least, spread),
        "points": [
            {
                "host": host,
                "value": quantity(value, one.unit, one.median),
                "at": _place(value, least, spread),
                "is_outlier": host in one.outliers,
            }
            for host, value in sorted(one.values.items(), key=lambda item: item[0] in one.outliers)
        ],
    }


def _place(value: float, least: float, spread: float) -> float:
    """Return the position of a value on a strip, in percent of its width."""
    return round(_EDGE + (100 - 2 * _EDGE) * ((value - least) / spread if spread else 0.5), 2)
