"""Measures how often ``vcagent compare`` is wrong, with simulated runs with and without a difference.

    python benchmarks/compare_error_rates.py [--trials 3000]

Each trial draws the values of runs and judges them as the command does: with the estimates and verdicts of
``agent.comparison``. Prints the rates and writes them to benchmarks/results/compare_error_rates.json.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent.comparison.estimates import Block, Estimate, Noise, estimate, noise_between_runs
from agent.comparison.verdicts import Outcome, verdicts

THRESHOLD = 0.02
NOISE = 0.01
RESULT = Path(__file__).parent / "results/compare_error_rates.json"

Draw = Callable[[random.Random], list[Estimate]]


def _values(chance: random.Random, count: int, change: float, noise: float, *, tail: bool) -> list[float]:
    """Return values of runs: log-normal, or with a tail of a few slow ones, as on real hosts."""

    def one() -> float:
        far = tail and chance.random() < 0.1
        return 100 * (1 + change) * math.exp(chance.gauss(0, noise) * (3 if far else 1))

    return [one() for _ in range(count)]


def repeats(
    count: int, change: float, metrics: int = 1, *, noise: float = NOISE, after: float | None = None,
    tail: bool = False, single: bool = False,
) -> Draw:  # fmt: skip
    """Draw repeats of both sides, for some independent metrics.

    Args:
        count: repeats of each side.
        change: of the second side, as a share.
        metrics: number of metrics.
        noise: standard deviation of the first side.
        after: standard deviation of the second side, if different.
        tail: True if a tenth of the runs has three times the noise.
        single: True if the second side has one run.
    """

    def draw(chance: random.Random) -> list[Estimate]:
        return [
            _estimate(
                [
                    Block(
                        _values(chance, count, 0, noise, tail=tail),
                        _values(chance, 1 if single else count, change, after or noise, tail=tail),
                    )
                ]
            )
            for _ in range(metrics)
        ]

    return draw


def hosts(count: int, change: float, metrics: int = 1) -> Draw:
    """Draw one run per side on each of some hosts, whose speeds differ by 10 %."""

    def draw(chance: random.Random) -> list[Estimate]:
        return [_estimate([_host(chance, change) for _ in range(count)]) for _ in range(metrics)]

    return draw


def _host(chance: random.Random, change: float) -> Block:
    speed = math.exp(chance.gauss(0, 0.1))
    before, after = (_values(chance, 1, own, NOISE, tail=False) for own in (0.0, change))
    return Block([before[0] * speed], [after[0] * speed])


def with_history(count: int, change: float, runs: int, metrics: int = 1) -> Draw:
    """Draw repeats of both sides, and earlier runs that show the noise between runs."""

    def draw(chance: random.Random) -> list[Estimate]:
        found = []
        for _ in range(metrics):
            noise = noise_between_runs([_values(chance, runs, 0, NOISE, tail=False)])
            blocks = [Block(*(_values(chance, count, own, NOISE, tail=False) for own in (0.0, change)))]
            errors = (NOISE / 3, NOISE / 3) if count == 1 else None
            found.append(_estimate(blocks, noise, errors))
        return found

    return draw


def samples_alone(change: float) -> Draw:
    """Draw one run per side, whose samples are the only source of noise: 0.3 %."""

    def draw(chance: random.Random) -> list[Estimate]:
        blocks = [Block(*(_values(chance, 1, own, NOISE, tail=False) for own in (0.0, change)))]
        return [_estimate(blocks, None, (0.003, 0.003))]

    return draw


def _estimate(
    blocks: list[Block], history: Noise | None = None, errors: tuple[float, float] | None = None
) -> Estimate:
    found = estimate(blocks, history, errors)
    assert found
    return found


def rates(draw: Draw, trials: int, seed: int) -> dict[str, float]:
    """Return the shares of trials with any change reported, with all the same, and with something undecided.

    Trials with many metrics are repeated less often.
    """
    chance = random.Random(seed)  # noqa: S311 - simulated noise
    trials = trials // (1 + len(draw(chance)) // 5)
    named = same = undecided = 0
    for _ in range(trials):
        outcomes = verdicts(draw(chance), THRESHOLD)
        named += Outcome.CHANGED in outcomes
        same += set(outcomes) == {Outcome.SAME}
        undecided += Outcome.UNDECIDED in outcomes and Outcome.CHANGED not in outcomes
    return {
        "trials": trials,
        "changed": round(named / trials, 4),
        "same": round(same / trials, 4),
        "undecided": round(undecided / trials, 4),
    }


ALIKE: dict[str, Draw] = {
    "3 repeats": repeats(3, 0),
    "5 repeats": repeats(5, 0),
    "10 repeats": repeats(10, 0),
    "5 repeats, 4 metrics": repeats(5, 0, 4),
    "5 repeats, 20 metrics": repeats(5, 0, 20),
    "5 repeats, 5 % noise": repeats(5, 0, noise=0.05),
    "5 repeats, the second side three times as noisy": repeats(5, 0, noise=0.02, after=0.06),
    "5 repeats, a tenth of the runs with three times the noise": repeats(5, 0, noise=0.03, tail=True),
    "5 repeats against one run, 3 % noise": repeats(5, 0, noise=0.03, single=True),
    "8 hosts": hosts(8, 0),
    "3 repeats, history of 11 runs": with_history(3, 0, 11),
    "one run a side, history of 11 runs": with_history(1, 0, 11),
    "one run a side, samples alone": samples_alone(0),
}
SLOWER: dict[str, Draw] = {
    "3 repeats": repeats(3, -0.03),
    "4 repeats": repeats(4, -0.03),
    "5 repeats": repeats(5, -0.03),
    "8 repeats": repeats(8, -0.03),
    "5 repeats, 20 metrics, all slower": repeats(5, -0.03, 20),
    "8 hosts": hosts(8, -0.03),
    "3 repeats, history of 11 runs": with_history(3, -0.03, 11),
    "one run a side, history of 11 runs": with_history(1, -0.03, 11),
    "one run a side, samples alone": samples_alone(-0.03),
}


def main() -> None:
    """Run all trials, print a table, write the file."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--trials", type=int, default=3000)
    trials = arguments.parse_args().trials
    began_s = time.monotonic()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for what, cases in (("no difference", ALIKE), ("3 % slower, 1 % noise", SLOWER)):
        print(f"{what:58}  changed    same  undecided")
        found[what] = {}
        for seed, (name, draw) in enumerate(cases.items()):
            found[what][name] = one = rates(draw, trials, seed)
            print(f"  {name:56}  {one['changed']:7.2%} {one['same']:7.2%}  {one['undecided']:9.2%}")
    result = {
        "command": f"python benchmarks/compare_error_rates.py --trials {trials}",
        "python": platform.python_version(),
        "trials": trials,
        "threshold": THRESHOLD,
        "noise": NOISE,
        "seconds": round(time.monotonic() - began_s, 1),
        "rates": found,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    assert found["no difference"]["5 repeats"]["changed"] <= 0.05


if __name__ == "__main__":
    main()
