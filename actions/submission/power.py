"""Find and check the power measurement of a result: its files, and samples of power within the test.

MLCommons' power client starts the test twice, for ranging and for the measurement. It leaves a folder with
``power``, ``ranging`` and ``run_1``, and writes the checksums of all of these files, so that they are filed
as they are.

Sources: mlcommons/inference, tools/submission/submission_checker/checks/power_check.py, and constants.py
(REQUIRED_POWER_FILES, REQUIRED_PERF_POWER_FILES). The power meter's own log, and the checksums of the
measuring programs, are left to the official checker.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING

from actions.submission.findings import Finding, note
from agent.core.file_hash import sha256_of
from parsers.loadgen import DETAIL_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from actions.submission.tree import Place
    from parsers.loadgen import DetailLog

SAMPLES_NAME = "spl.txt"
POWER_REMEDY = (
    "give the run that MLCommons' power client started, and all that it wrote: power, ranging, run_1"
)
_RUN_FILES = frozenset({"mlperf_log_summary.txt", DETAIL_NAME, SAMPLES_NAME})
POWER_FILES = {
    "power": frozenset({"client.json", "client.log", "ptd_logs.txt", "server.json", "server.log"}),
    "ranging": _RUN_FILES,
    "run_1": _RUN_FILES,
}
_OPTIONAL = frozenset({"mlperf_log_accuracy.json", "mlperf_log_trace.json", "results.json", ".gitkeep"})
_TIME = "%m-%d-%Y %H:%M:%S.%f"
_WATTS = 3
"""Place of the power in a sample: Time,TIME,Watts,POWER,…"""


def power_folders(root: Path | None) -> dict[tuple[str, str], Path]:
    """Return the folders of power measurements below ``root``, by benchmark and scenario."""
    found = sorted(root.glob("*/*")) if root else []
    return {(path.parent.name, path.name): path for path in found if path.is_dir()}


def is_measured(folder: Path, logs: Path) -> bool:
    """Return True if a test is the one whose power was measured: its detail log is the measurement's.

    Args:
        folder: the measurement, with ``run_1``.
        logs: the folder with the logs of the test.
    """
    own = folder / "run_1" / DETAIL_NAME
    return own.is_file() and sha256_of(own) == sha256_of(logs / DETAIL_NAME)


def power_findings(place: Place, log: DetailLog | None) -> Iterator[Finding]:
    """Yield findings about a result's power measurement; none if it has none.

    Args:
        place: the result.
        log: the performance run's detail log, if it can be read.
    """
    folder = place.performance.parent
    samples = folder / "run_1" / SAMPLES_NAME
    if not (samples.exists() or any((folder / name).exists() for name in ("power", "ranging"))):
        return
    for name, wanted in POWER_FILES.items():
        yield from _layout(folder / name, wanted)
    if log is None or not samples.is_file():
        return
    watts = _average_watts(samples, log)
    if watts is None:
        text = "no sample of power lies between the test's power_begin and power_end"
        yield Finding("power", text, f"file the {SAMPLES_NAME} of this run, with the clocks synchronised")
        return
    text = f"the average power is {watts:.4g} W; vcagent does not judge the power meter's log and checksums"
    yield note("power", text, "check them with the official checker")


def _layout(folder: Path, wanted: frozenset[str]) -> Iterator[Finding]:
    found = {path.name for path in folder.iterdir() if path.is_file()} if folder.is_dir() else set()
    name = f"performance/{folder.name}"
    if missing := sorted(wanted - found):
        text = f"the power measurement has no {', '.join(missing)} in {name}"
        yield Finding("power", text, "file all that MLCommons' power client wrote, or remove the measurement")
    if extra := sorted(found - wanted - _OPTIONAL):
        yield Finding("power", f"{name} has files that are not of a measurement: {', '.join(extra)}")


def _average_watts(path: Path, log: DetailLog) -> float | None:
    """Return the mean of the samples within the timed part of the test, in W; None if there is none."""
    begin, end = (_moment(log.text(key)) for key in ("power_begin", "power_end"))
    if begin is None or end is None:
        return None
    total, count = 0.0, 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            fields = line.split(",", _WATTS + 1)
            if fields[0] != "Time" or len(fields) <= _WATTS:
                continue
            moment = _moment(fields[1])
            if moment is None or not begin < moment < end:
                continue
            watts = _number(fields[_WATTS])
            if watts > 0:
                total, count = total + watts, count + 1
    return total / count if count else None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _TIME)  # noqa: DTZ007 - both clocks are UTC
    except ValueError:
        return None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
