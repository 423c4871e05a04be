"""Check the compliance runs that a closed result needs: TEST01, TEST04, TEST06 to TEST09."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.submission.findings import Finding
from agent.core.mlperf import TESTS_RUN, why_not_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actions.submission.rounds import Benchmark
    from actions.submission.tree import Place

_PASSED = "TEST PASS"
VERIFIED_BY = {
    "TEST01": ("verify_accuracy.txt", "verify_performance.txt"),
    "TEST04": ("verify_performance.txt",),
    "TEST06": ("verify_accuracy.txt",),
    "TEST07": ("verify_accuracy.txt",),
    "TEST08": ("verify_accuracy.txt",),
    "TEST09": ("verify_output_len.txt",),
}
_HAS_RUN = ("TEST01", "TEST04")
_TEST06_LINES = (
    ("First token check pass: True", "First token check pass: Skipped"),
    ("EOS check pass: True",),
    ("Sample length check pass: True",),
)


def compliance_findings(place: Place, asked: Benchmark) -> Iterator[Finding]:
    """Yield findings for missing or failed compliance runs of a closed result."""
    if place.submitter.division == "open":
        return
    for test in asked.tests:
        yield from test_findings(place.compliance / test, test)


def test_findings(folder: Path, test: str) -> Iterator[Finding]:
    """Yield findings for a missing or failed compliance run.

    Args:
        folder: the run's folder.
        test: its name, such as ``TEST06``.
    """
    if not folder.is_dir():
        yield Finding("compliance", f"{test} is missing", _how_to_run(test), test=test)
        return
    for name in VERIFIED_BY[test]:
        path = folder / name
        if not path.is_file():
            yield Finding(
                "compliance",
                f"{test} has no {name}",
                f"run the test's own script, see {test}'s page",
                test=test,
            )
        elif not _passed(folder, name, test, path.read_text(encoding="utf-8", errors="replace")):
            yield Finding("compliance", f"{test} did not pass: see {name}", "run it again", test=test)
    log = folder / "performance" / "run_1" / "mlperf_log_detail.txt"
    if test in _HAS_RUN and not log.is_file():
        yield Finding("compliance", f"{test} has no logs of its run", f"file them as {log}")


def _how_to_run(test: str) -> str:
    if test in TESTS_RUN:
        return f"run LoadGenExecutor with mode: {test}; PERF-*-MLPERF profiles do with Compliance=true"
    return why_not_run(test)


def _passed(folder: Path, name: str, test: str, text: str) -> bool:
    lines = [line.strip() for line in text.splitlines()]
    if test == "TEST06":
        return all(any(line in lines for line in either) for either in _TEST06_LINES)
    if any(_PASSED in line for line in lines):
        return True
    # TEST01 without determinism compares the scores of two runs, which are in its accuracy folder
    pair = [folder / "accuracy" / f"{kind}_accuracy.txt" for kind in ("baseline", "compliance")]
    return test == "TEST01" and name == "verify_accuracy.txt" and all(path.is_file() for path in pair)
