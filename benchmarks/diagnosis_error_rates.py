"""Measure how often the diagnosis reports a healthy host, and how often it finds the sick ones.

Fleets are simulated with normal noise and a number of hosts that are 7 % slow. They are judged by the default
rules as ``vcagent diagnose`` does, by SuperBench's rule (5 % below the median, ``x < -0.05``) and by a plain
z-score (3 standard deviations below the mean). The same seed gives the same figures.

    python benchmarks/diagnosis_error_rates.py benchmarks/results/diagnosis_error_rates.json
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.diagnosis import HostState
from agent.diagnosis.judging import diagnose
from agent.diagnosis.observations import Measured, observe
from agent.diagnosis.rules import default_rules

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20
LOSS = 0.07
FLEETS = {4: 400, 8: 400, 16: 400, 64: 100}
"""Simulated fleets of each kind by number of hosts; 400 if no host is sick."""
NOISES = (0.002, 0.01, 0.02, 0.05, 0.2)
SICK = (0, 1, 3)
REPEATS = (1, 3)
RULES = default_rules()

Runs = dict[str, list[float]]
Named = tuple[set[str], bool]
"""The reported hosts, and True if some value was reported as not judged."""


def by_default_rules(fleet: Runs) -> Named:
    """Judge like ``vcagent diagnose``."""
    measured = [
        Measured(host, "case/speed", value, "queries/s", Relativity.HIGHER)
        for host, values in fleet.items()
        for value in values
    ]
    try:
        hosts = diagnose(observe(measured), RULES).hosts
    except UsageError:
        return set(), True
    sick = {host.host for host in hosts if host.state is HostState.SICK}
    return sick, any(host.state is HostState.NOT_JUDGED for host in hosts)


def by_superbench(fleet: Runs) -> Named:
    """Judge by SuperBench's variance rule."""
    middles = {host: statistics.median(values) for host, values in fleet.items()}
    baseline = statistics.median(middles.values())
    return {host for host, value in middles.items() if value / baseline - 1 < -0.05}, False


def by_z_score(fleet: Runs) -> Named:
    """Judge by the distance from the mean in standard deviations."""
    means = {host: statistics.fmean(values) for host, values in fleet.items()}
    mean, deviation = statistics.fmean(means.values()), statistics.stdev(means.values())
    return {host for host, value in means.items() if value < mean - 3 * deviation}, False


JUDGES: dict[str, Callable[[Runs], Named]] = {
    "vcagent": by_default_rules,
    "superbench": by_superbench,
    "z_score": by_z_score,
}


def rates(hosts: int, noise: float, sick: int, repeats: int) -> dict[str, object]:
    """Return the rates of each judge for one kind of fleet."""
    count = FLEETS[hosts] if sick else max(FLEETS.values())
    source = random.Random(f"{SEED} {hosts} {noise} {sick} {repeats}")  # noqa: S311 - a simulation
    counts = {
        name: {"false_alarm": 0, "all_found": 0, "missed_in_silence": 0, "not_judged": 0} for name in JUDGES
    }
    slow = {f"host-{number:03}" for number in range(sick)}
    for _ in range(count):
        fleet = {
            f"host-{number:03}": [
                source.gauss(1 - LOSS * (number < sick), noise * (1 - LOSS * (number < sick)))
                for _ in range(repeats)
            ]
            for number in range(hosts)
        }
        for name, judge in JUDGES.items():
            named, unjudged = judge(fleet)
            counts[name]["false_alarm"] += bool(named - slow)
            counts[name]["all_found"] += named >= slow
            counts[name]["missed_in_silence"] += not (named >= slow or unjudged)
            counts[name]["not_judged"] += unjudged
    return {
        "hosts": hosts,
        "noise": noise,
        "sick": sick,
        "repeats": repeats,
        "fleets": count,
        **{name: {what: round(n / count, 4) for what, n in found.items()} for name, found in counts.items()},
    }


def main() -> None:
    """Print and write the rates."""
    found = []
    for hosts in FLEETS:
        for noise in NOISES:
            for sick in SICK:
                if sick > 1 and hosts // 4 < sick:
                    continue
                for repeats in REPEATS:
                    found.append(rates(hosts, noise, sick, repeats))
                    print(json.dumps(found[-1]), flush=True)
    document = {"seed": SEED, "loss": LOSS, "noise": "normal, as a share of a host's speed", "rates": found}
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
