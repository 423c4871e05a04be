"""Pairs of damaged logs: never a traceback, never VALID if a needed fact changed."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.errors import ParseError
from agent.core.records import Validity
from parsers.loadgen import parse_folder
from tests.parsers.loadgen.mangling import Pair, mangle
from tests.parsers.loadgen.written_logs import DETAIL, RELEASES, SUMMARY, Run

RUNS = [
    Run(version, scenario, tokens)
    for version in ("1.1", "2.1", "4.1", "5.1.2", "6.0.17")
    for scenario in ("SingleStream", "MultiStream", "Server", "Offline")
    for tokens in (False, True)
    if not tokens or "tokens" in RELEASES[version]
]


def pair_of(run: Run) -> Pair:
    return Pair(run.detail().splitlines(keepends=True), run.summary().splitlines(keepends=True))


def validity_of(pair: Pair) -> Validity | None:
    """Return the verdict; None if the logs are refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / DETAIL).write_text("".join(pair.detail))
        (folder / SUMMARY).write_text("".join(pair.summary))
        try:
            output = parse_folder(folder)
        except ParseError:
            return None
    assert output.verdict is not None
    return output.verdict.validity


# Changes that leave a result as it is: numbers in only one of the logs that do not affect the verdict.
def changes_a_needed_fact(before: Pair, after: Pair, run: Run) -> bool:
    """Return True if the two logs together no longer say the same about the run."""
    needed = needed_facts(before, run)
    return needed_facts(after, run) != needed


def needed_facts(pair: Pair, run: Run) -> object:
    records, said = pair.facts()
    lines = {name for name, _ in said}
    keys = {"result_validity", *run.met, "effective_scenario", "effective_test_mode", "num_errors"}
    keys |= {"result_samples_per_second", "result_completed_samples_per_sec", "early_stopping_latency_ss"} & {
        key for key, _ in records
    }
    flags = (
        "result is",
        "satisfied",
        "scenario",
        "mode",
        "samples per second",
        "errors encountered",
        "mlperf results",
    )
    return (
        [record for record in records if record[0] in keys],
        [line for line in said if any(flag in line[0] for flag in flags)],
        len(lines) > 0,
    )


@settings(max_examples=400)
@given(at=st.integers(0, len(RUNS) - 1), other=st.integers(0, len(RUNS) - 1), seed=st.integers(0, 2**32))
def test_a_mangled_pair_is_never_valid_and_never_a_traceback(at: int, other: int, seed: int) -> None:
    run = RUNS[at]
    before, after, another = pair_of(run), pair_of(run), pair_of(RUNS[other])
    ways = mangle(after, another, random.Random(seed))  # noqa: S311 - no secret
    validity = validity_of(after)
    is_of_other = not changes_a_needed_fact(another, after, RUNS[other])  # both logs came from it
    if changes_a_needed_fact(before, after, run) and not is_of_other:
        assert validity is not Validity.VALID, (ways, run)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.version}-{run.scenario}{'-tokens' * run.tokens}")
def test_a_pair_cut_at_any_line_is_never_valid(run: Run) -> None:
    for which in ("detail", "summary"):
        lines = getattr(pair_of(run), which)
        last = max(at for at, line in enumerate(lines) if line.strip())
        for count in range(last):
            pair = pair_of(run)
            setattr(pair, which, lines[:count])
            assert validity_of(pair) is not Validity.VALID, (which, count)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.version}-{run.scenario}{'-tokens' * run.tokens}")
def test_no_line_may_come_twice(run: Run) -> None:
    for which in ("detail", "summary"):
        for at, line in enumerate(getattr(pair_of(run), which)):
            counts = "result_" in line or "effective_" in line or " : " in line or "satisfied" in line
            no_number_of_ours = (" percentile : ", "SUT name", "Completed tokens")
            if not counts or any(name in line for name in no_number_of_ours):
                continue
            pair = pair_of(run)
            getattr(pair, which).insert(at, line)
            assert validity_of(pair) is not Validity.VALID, line


@pytest.mark.parametrize("run", RUNS[:2], ids=lambda run: f"{run.version}-{run.scenario}")
def test_a_summary_cut_within_its_last_line_is_never_valid(run: Run) -> None:
    pair = pair_of(run)
    text = "".join(pair.summary).rstrip("\n")
    for length in range(len(text) - len("No errors encountered during test."), len(text)):
        pair.summary = [text[:length]]
        assert validity_of(pair) is not Validity.VALID, text[-50:length]
