"""Measure how often the diagnosis reports a healthy host, and how often it finds the sick ones.

Fleets are simulated with normal noise and a number of hosts that are 7 % slow. They are judged by the default
rules as ``vcagent diagnose`` does, by SuperBench's rule (5 % below the median, ``x < -0.05``) and by a plain
z-score (3 standard deviations below the mean). The same seed gives the same figures. A fourth judge shows
what is possible: each host's mean against those of the others, by Student's t at 5 % over all hosts. For one
slow host, normal noise and an unknown spread between hosts no other test finds more (Ferguson, Proceedings of
the Fourth Berkeley Symposium 1, 1961).

A second part has noise that is not normal, one or three runs of each host, and many metrics at once: a fleet
counts as falsely alarmed if a healthy host is named by any metric. The noise has the same standard deviation:
Student's t with 3 degrees of freedom, Laplace, lognormal with the long tail on the slow side, a skew to slow
runs (a negative gamma of shape 2), normal noise that is four times as wide in one run of 20, and normal noise
with one run in 20 that is 4 standard deviations slow. Further kinds concern the runs of one host: runs around
two values, a drift over the runs of each host, and hosts that differ by as much as runs do.

    python benchmarks/diagnosis_error_rates.py benchmarks/results/diagnosis_error_rates.json [normal|other]

With a part's name, only that part is simulated again; the file keeps the other.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.records import Relativity
from agent.diagnosis.diagnosis import HostState
from agent.diagnosis.judging import diagnose
from agent.diagnosis.observations import Measured, observe
from agent.diagnosis.rules import default_rules
from agent.diagnosis.spread import t_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    OfHost = Callable[[random.Random, int], list[float]]

SEED = 20
LOSS = 0.07
FLEETS = {4: 100, 6: 100, 8: 100, 16: 100, 64: 40}
"""Simulated fleets of each kind by number of hosts."""
NOISES = (0.01, 0.02, 0.05)
SICK = (0, 1, 3)
REPEATS = (1, 3)
OTHER_FLEETS = {(4, 1): 100, (6, 1): 100, (16, 1): 100, (64, 1): 30, (16, 20): 6}
"""Simulated fleets of each kind by number of hosts and of metrics."""
OTHER_NOISES = (0.01, 0.03)
RULES = default_rules()

Runs = dict[str, list[float]]


@dataclass(frozen=True)
class Named:
    """The answer of a judge: hosts called sick, hosts called suspect, and True if a host was not judged."""

    sick: set[str]
    suspect: set[str] = field(default_factory=set)
    is_unjudged: bool = False


def by_default_rules(metrics: Sequence[Runs]) -> Named:
    """Judge as ``vcagent diagnose`` does."""
    measured = [
        Measured(host, f"case-{number}/speed", value, "queries/s", Relativity.HIGHER)
        for number, fleet in enumerate(metrics)
        for host, values in fleet.items()
        for value in values
    ]
    try:
        hosts = diagnose(observe(measured), RULES).hosts
    except UsageError:
        return Named(set(), is_unjudged=True)
    sick, suspect, unjudged = (
        {host.host for host in hosts if host.state is state}
        for state in (HostState.SICK, HostState.SUSPECT, HostState.NOT_JUDGED)
    )
    return Named(sick, suspect, is_unjudged=bool(unjudged))


def by_superbench(metrics: Sequence[Runs]) -> Named:
    """Judge by SuperBench's variance rule."""
    named: set[str] = set()
    for fleet in metrics:
        middles = {host: statistics.median(values) for host, values in fleet.items()}
        baseline = statistics.median(middles.values())
        named |= {host for host, value in middles.items() if value / baseline - 1 < -0.05}
    return Named(named)


def by_z_score(metrics: Sequence[Runs]) -> Named:
    """Judge by the distance from the mean in standard deviations."""
    named: set[str] = set()
    for fleet in metrics:
        means = {host: statistics.fmean(values) for host, values in fleet.items()}
        mean, deviation = statistics.fmean(means.values()), statistics.stdev(means.values())
        named |= {host for host, value in means.items() if value < mean - 3 * deviation}
    return Named(named)


def by_t_test(metrics: Sequence[Runs]) -> Named:
    """Judge the mean of each host by Student's t, with the spread of the other hosts' means."""
    named: set[str] = set()
    for fleet in metrics:
        means = {host: statistics.fmean(values) for host, values in fleet.items()}
        for host, mean in means.items():
            others = [value for other, value in means.items() if other != host]
            scale = statistics.stdev(others) * math.sqrt(1 + 1 / len(others))
            t = (statistics.fmean(others) - mean) / scale
            if t_tail(t, len(others) - 1) < 0.05 / len(means) / len(metrics):
                named.add(host)
    return Named(named)


def student(source: random.Random) -> float:
    """Noise with heavy tails, of standard deviation 1."""
    chi_square = sum(source.gauss(0, 1) ** 2 for _ in range(3))
    return source.gauss(0, 1) / math.sqrt(chi_square / 3) / math.sqrt(3)


def skewed(source: random.Random) -> float:
    """Noise with a long tail of slow runs, of standard deviation 1."""
    return (2 - source.gammavariate(2, 1)) / math.sqrt(2)


def spiky(source: random.Random) -> float:
    """Normal noise with one run in 20 that is slow, of standard deviation 1 or a little more."""
    return source.gauss(0, 1) - 4 * (source.random() < 0.05)


def laplace(source: random.Random) -> float:
    """Noise of Laplace's distribution, of standard deviation 1."""
    return source.expovariate(math.sqrt(2)) * source.choice((-1, 1))


def lognormal(source: random.Random) -> float:
    """Lognormal noise (sigma 0.5) with the long tail on the slow side, of standard deviation 1."""
    square = math.exp(0.25)
    return (math.sqrt(square) - source.lognormvariate(0, 0.5)) / math.sqrt((square - 1) * square)


def contaminated(source: random.Random) -> float:
    """Normal noise, four times as wide in one run of 20, of standard deviation 1."""
    return source.gauss(0, 4 if source.random() < 0.05 else 1) / math.sqrt(0.95 + 0.05 * 16)


def two_values(source: random.Random) -> float:
    """Noise around two values, of standard deviation 1."""
    return 0.97 * source.choice((-1, 1)) + source.gauss(0, math.sqrt(1 - 0.97**2))


def independent(shape: Callable[[random.Random], float]) -> OfHost:
    """Return the noise of a host whose runs are independent of each other."""
    return lambda source, repeats: [shape(source) for _ in range(repeats)]


def drifting(source: random.Random, repeats: int) -> list[float]:
    """Return noise that grows or shrinks from run to run, at a speed that differs between hosts."""
    speed = source.gauss(0, math.sqrt(0.5))
    middle = (repeats - 1) / 2
    return [speed * (number - middle) + source.gauss(0, math.sqrt(0.5)) for number in range(repeats)]


def unlike(source: random.Random, repeats: int) -> list[float]:
    """Return noise of which half the variance is between hosts, and the same in all runs of a host."""
    host = source.gauss(0, math.sqrt(0.5))
    return [host + source.gauss(0, math.sqrt(0.5)) for _ in range(repeats)]


SHAPES: dict[str, OfHost] = {
    "Student's t, 3": independent(student),
    "Laplace": independent(laplace),
    "lognormal": independent(lognormal),
    "contaminated": independent(contaminated),
    "skewed to slow": independent(skewed),
    "slow spikes": independent(spiky),
    "two values": independent(two_values),
    "drift": drifting,
    "unlike hosts": unlike,
}

JUDGES: dict[str, Callable[[Sequence[Runs]], Named]] = {
    "vcagent": by_default_rules,
    "superbench": by_superbench,
    "z_score": by_z_score,
    "t_test": by_t_test,
}


def other_rates(
    *, hosts: int, noise: float, sick: int, metrics: int, shape: str, repeats: int
) -> dict[str, object]:
    """Return the rates of one kind of fleet whose noise is not normal."""
    source = random.Random(f"{SEED} {hosts} {noise} {sick} {metrics} {shape} {repeats}")  # noqa: S311
    slow = {f"host-{number:03}" for number in range(sick)}
    fleets = [
        [
            {
                f"host-{number:03}": [
                    (1 - LOSS * (number < sick)) * (1 + noise * value)
                    for value in SHAPES[shape](source, repeats)
                ]
                for number in range(hosts)
            }
            for _ in range(metrics)
        ]
        for _ in range(OTHER_FLEETS[hosts, metrics])
    ]
    kind = {"hosts": hosts, "noise": noise, "shape": shape, "metrics": metrics, "sick": sick}
    return {**kind, "repeats": repeats, **judged(fleets, slow)}


def judged(fleets: Sequence[Sequence[Runs]], slow: set[str]) -> dict[str, object]:
    """Return the number of fleets, and the rates of each judge over them."""
    rates_of: dict[str, object] = {"fleets": len(fleets)}
    for name, judge in JUDGES.items():
        found = [judge(metrics) for metrics in fleets]
        counts = {
            "false_alarm": sum(bool(one.sick - slow) for one in found),
            "all_found": sum(one.sick >= slow for one in found),
            "suspects": sum(bool(one.suspect - slow) for one in found),
            "all_sick_or_suspect": sum(one.sick | one.suspect >= slow for one in found),
            "missed_in_silence": sum(
                not (one.sick | one.suspect >= slow or one.is_unjudged) for one in found
            ),
            "not_judged": sum(one.is_unjudged for one in found),
        }
        rates_of[name] = {what: round(count / len(fleets), 4) for what, count in counts.items()}
    return rates_of


def rates(hosts: int, noise: float, sick: int, repeats: int) -> dict[str, object]:
    """Return the rates of each judge for one kind of fleet."""
    count = FLEETS[hosts]
    source = random.Random(f"{SEED} {hosts} {noise} {sick} {repeats}")  # noqa: S311 - a simulation
    slow = {f"host-{number:03}" for number in range(sick)}
    fleets = [
        [
            {
                f"host-{number:03}": [
                    source.gauss(1 - LOSS * (number < sick), noise * (1 - LOSS * (number < sick)))
                    for _ in range(repeats)
                ]
                for number in range(hosts)
            }
        ]
        for _ in range(count)
    ]
    kind = {"hosts": hosts, "noise": noise, "sick": sick, "repeats": repeats}
    return {**kind, **judged(fleets, slow)}


def normal() -> list[dict[str, object]]:
    """Return the rates with normal noise and one metric."""
    found = []
    for hosts in FLEETS:
        for noise in NOISES:
            for sick in SICK:
                if sick > 1 and hosts // 4 < sick:
                    continue
                for repeats in REPEATS:
                    found.append(rates(hosts, noise, sick, repeats))
                    print(json.dumps(found[-1]), flush=True)
    return found


def other() -> list[dict[str, object]]:
    """Return the rates with other noise and several metrics."""
    found = []
    for (hosts, metrics), noise, sick, shape, repeats in product(
        OTHER_FLEETS, OTHER_NOISES, (0, 1), SHAPES, REPEATS
    ):
        is_large = (hosts, metrics) not in ((4, 1), (6, 1), (16, 1))
        if (noise > OTHER_NOISES[0] and (sick or is_large)) or (sick and metrics > 1):
            continue
        found.append(
            other_rates(hosts=hosts, noise=noise, sick=sick, metrics=metrics, shape=shape, repeats=repeats)
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    """Print and write the rates."""
    path, parts = Path(sys.argv[1]), sys.argv[2:] or ["normal", "other"]
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    document |= {"seed": SEED, "loss": LOSS, "noise": "as a share of a host's speed"}
    if "normal" in parts:
        document["rates"] = normal()
    if "other" in parts:
        document["rates_other_noise"] = other()
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
