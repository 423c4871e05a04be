"""Differences between sides apart from the results: settings, versions, clocks, hosts."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agent.comparison.measured_run import MeasuredRun
    from agent.comparison.sides import Side

_HOST_FACTS = (
    "architecture", "compute_capabilities", "distribution", "gpu_count", "gpus", "in_container", "kernel",
    "memory", "nvswitch_count", "processor", "secure_boot",
)  # fmt: skip
_VERSION_FACTS = (
    "container_toolkit_version", "cuda_version", "docker_server_version", "driver_version", "nvidia_module",
)  # fmt: skip
_CLOCK_FACTS = ("gpu_health",)
_CHANGING = frozenset(
    {"available_bytes", "bus_id", "flags", "index", "uncorrected", "uncorrected_ever", "used_bytes"}
)
"""Parts of facts that describe a moment, or one item of several."""
_CLOCK_CHANGE = 0.01
_SHARE_CHANGE = 0.05
_KINDS = ("settings", "versions", "clocks", "host")

_RESULTS = re.compile(r"client_\w+|early_stopping_\w+|\w+_met|loadgen_verdict|mlperf_result|errors|warnings")
"""Details of a case that its run brought about: no settings."""
_OWN_PORT = re.compile(r"https?://(127\.0\.0\.1|localhost):\d+\S*")
"""An address of a server of this host: its port is another one in each run."""

Facts = dict[str, set[str]]


@dataclass(frozen=True)
class ContextDifference:
    """A value that is not the same on all sides.

    Args:
        kind: settings, versions, clocks or host.
        name: the name of the setting or fact.
        values: the values on each side, in the order of the sides; several if the runs of a side differ.
    """

    kind: str
    name: str
    values: tuple[tuple[str, ...], ...]


def context_differences(sides: Sequence[Side]) -> list[ContextDifference]:
    """Return the differences between the sides: settings first, then versions, clocks, hosts."""
    found: list[ContextDifference] = []
    for kind in _KINDS:
        of_sides = [_of_side(side, kind) for side in sides]
        found += [ContextDifference(kind, name, values) for name, values in _differing(of_sides)]
        if kind == "settings":
            found += _case_settings(sides)
        elif kind == "clocks":
            found += _watched_clocks(sides)
    return found


def _case_settings(sides: Sequence[Side]) -> Iterator[ContextDifference]:
    """Yield the settings that differ in cases of all sides; once if they differ alike in several cases."""
    common = sorted(set.intersection(*map(_scenarios, sides)))
    cases: dict[tuple[str, tuple[tuple[str, ...], ...]], list[str]] = {}
    for scenario in common:
        for name, values in _differing([_of_case(side, scenario) for side in sides]):
            cases.setdefault((name, values), []).append(scenario)
    for (name, values), scenarios in cases.items():
        of_cases = f"{', '.join(scenarios)}: " if scenarios != common else ""
        yield ContextDifference("settings", f"{of_cases}{name}", values)


def _scenarios(side: Side) -> set[str]:
    return set(chain.from_iterable(run.cases for run in side.runs))


def _of_case(side: Side, scenario: str) -> Facts:
    """Return a case's settings in the runs of a side; a detail that varies between rounds is a result."""
    facts: Facts = {}
    for run in side.runs:
        rounds = [dict(_flat("", case.details)) for case in run.cases.get(scenario, ())]
        for name, value in rounds[0].items() if rounds else ():
            is_result = _RESULTS.fullmatch(name) or _OWN_PORT.fullmatch(value)
            if not is_result and all(other.get(name) == value for other in rounds):
                facts.setdefault(name, set()).add(value)
    return _without_own_paths(facts, side)


def _differing(of_sides: Sequence[Facts]) -> Iterator[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Yield the names whose values are not the same on all sides, with the values."""
    for name in sorted(set(chain.from_iterable(of_sides))):
        values = [one.get(name, set()) for one in of_sides]
        if any(value != values[0] for value in values):
            yield name, tuple(tuple(sorted(value)) for value in values)


def _without_own_paths(facts: Facts, side: Side) -> Facts:
    """Return the facts without paths into a run's own folder."""
    own_path = re.compile("|".join(rf"/{re.escape(run.name)}(?:/|$)" for run in side.runs))
    kept = {name: {value for value in values if not own_path.search(value)} for name, values in facts.items()}
    return {name: values for name, values in kept.items() if values}


def _of_side(side: Side, kind: str) -> Facts:
    """Return all values of the runs of a side."""
    facts: Facts = {}
    for run in side.runs:
        for name, value in _of_run(run, kind):
            facts.setdefault(name, set()).add(value)
    return _without_own_paths(facts, side)


def _of_run(run: MeasuredRun, kind: str) -> Iterator[tuple[str, str]]:
    document = run.document
    if kind == "settings":
        yield "profile", document.profile.name
        yield from _flat("", document.profile.parameters)
    elif kind == "versions":
        yield from _flat("", document.versions)
        yield from _facts(document.facts, _VERSION_FACTS)
        every = chain.from_iterable(run.cases.values())
        yield from ((case.tool_name, case.tool_version) for case in every if case.tool_version)
        for container in document.containers:
            image = container.get("image") or container.get("name")
            yield from _flat(f"image {image}.", {k: v for k, v in container.items() if "digest" in k})
    elif kind == "clocks":
        yield from _facts(document.facts, _CLOCK_FACTS)
    else:
        yield "host name", document.client_id
        yield from _facts(document.facts, _HOST_FACTS)


def _facts(facts: Mapping[str, Any], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name in facts:
            yield from _flat("", {name: facts[name]})


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every value with its path; the members of a list of objects share one path."""
    for name, value in values.items():
        if name in _CHANGING or value is None:
            continue
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, Sequence) and value and all(isinstance(one, Mapping) for one in value):
            for one in value:
                yield from _flat(f"{prefix}{name}.", one)
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, default=str)


def _watched_clocks(sides: Sequence[Side]) -> Iterator[ContextDifference]:
    """Yield clocks, power limits and causes of throttling, as monitors measured them, if they differ."""
    of_sides = [_clocks(side) for side in sides]
    for name, unit in sorted(set.intersection(*(set(one) for one in of_sides))):
        means = [statistics.fmean(one[name, unit]) for one in of_sides]
        allowed = _SHARE_CHANGE if unit == "ratio" else _CLOCK_CHANGE * abs(means[0])
        if max(abs(mean - means[0]) for mean in means) > allowed:
            values = tuple((f"{mean:.4g} {unit}",) for mean in means)
            yield ContextDifference("clocks", name, values)


def _clocks(side: Side) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for run in side.runs:
        for key, values in run.watched.items():
            if "clock_event" in key.metric or key.metric.endswith("clock_mean"):
                name = f"{key.scenario}: {key.metric}"
                found.setdefault((name, run.units[key.metric]), []).extend(values)
    return found
