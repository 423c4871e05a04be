"""Check the accuracy run of a result: score, samples, truncated log, and equal configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from actions.submission.findings import Finding, note
from actions.submission.performance import is_close, scenario_of
from actions.submission.tree import ACCURACY_LOG, ACCURACY_TEXT
from agent.core.errors import ParseError
from agent.core.file_hash import sha256_of
from agent.core.records import Validity
from parsers.mlperf_accuracy import PARSER as ACCURACY_PARSER
from parsers.mlperf_accuracy.targets import known_targets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actions.submission.rounds import Benchmark
    from actions.submission.tree import Place
    from agent.core.records import ParsedOutput
    from parsers.loadgen import DetailLog

MOST_LOG_BYTES = 10 * 1024
"""Maximum size of an accuracy log in a submission (MAX_ACCURACY_LOG_SIZE)."""
CUT = b"\n\n...\n\n"
"""Stands for the part of an accuracy log that truncate_accuracy_log.py left out."""
_EXTRA_FOLDERS = {"stable-diffusion-xl": "images", "wan-2.2-t2v-a14b": "videos"}
"""Folders of the accuracy run's answers that the round lists (REQUIRED_ACC_BENCHMARK)."""
_HASH = re.compile(r"^hash=([0-9a-zA-Z_]+)\s*$", re.MULTILINE)
_SAME_NUMBERS = ("qsl_reported_total_count",)
_SAME_TOKEN_LIMITS = ("requested_server_ttft_latency", "requested_server_tpot_latency")
_SAME_IN_SERVER = ("effective_target_latency_ns",)


def accuracy_findings(
    place: Place, asked: Benchmark | None, official: str, log: DetailLog, output: ParsedOutput
) -> Iterator[Finding]:
    """Yield faults of an accuracy run.

    Args:
        place: the result.
        asked: the round's requirements for the benchmark; None if it is not one of the round's.
        official: the benchmark's official name.
        log: the run's detail log.
        output: the parser's output for its logs.
    """
    verdict = output.verdict
    if verdict is not None and verdict.validity in {Validity.INVALID, Validity.FAILED}:
        for reason in verdict.reasons:
            text = f"the accuracy run is {verdict.validity.value}: {reason.message}"
            yield Finding(reason.code or "not_valid", text, reason.remedy)
    if log.mode != "AccuracyOnly":
        yield Finding("mode", f"the accuracy run's mode is {log.mode}", "run AccuracyOnly")
    if asked is not None:
        yield from _samples(place, asked, log)
    yield from score_findings(place, official)
    yield from log_findings(place)
    folder = _EXTRA_FOLDERS.get(official)
    if folder and not any((place.accuracy / folder).glob("*")):
        text = f"the accuracy run has no {folder}"
        is_error = place.submitter.division != "open"
        remedy = f"add those listed by the round to accuracy/{folder}"
        yield Finding("accuracy_extra", text, remedy, is_error=is_error)


def _samples(place: Place, asked: Benchmark, log: DetailLog) -> Iterator[Finding]:
    count = log.number("effective_accuracy_sample_count") or log.number("qsl_reported_total_count")
    least = asked.accuracy_count(place.official_scenario)
    if count is not None and count != least:
        text = f"the accuracy run has {count:g} samples, but the data set has {least}"
        yield Finding("accuracy_samples", text, "run it over the whole data set")


def score_findings(place: Place, official: str) -> Iterator[Finding]:
    """Yield faults of ``accuracy.txt``; a score below the target is a note in the open division."""
    path = place.accuracy / ACCURACY_TEXT
    if not path.is_file():
        yield Finding(
            "accuracy_missing", f"{ACCURACY_TEXT} is missing", "run the benchmark's accuracy script"
        )
        return
    if not _HASH.search(path.read_text(encoding="utf-8", errors="replace")):
        text = f"{ACCURACY_TEXT} has no hash= of the accuracy log"
        yield Finding("accuracy_hash", text, "truncate the log with truncate_accuracy_log.py, which adds it")
    targets = known_targets(official)
    if targets is None:
        yield note("accuracy_not_judged", f"vcagent does not know an accuracy target of {official}")
        return
    try:
        reasons = [
            reason
            for output in ACCURACY_PARSER.parse(path)
            for reason in ((output.verdict and output.verdict.reasons) or ())
        ]
    except ParseError as error:
        yield Finding("accuracy_unreadable", f"{ACCURACY_TEXT}: {error.message}", error.remedy or "")
        return
    is_open = place.submitter.division == "open"
    for reason in reasons:
        yield Finding("accuracy", reason.message, reason.remedy, is_error=not is_open)


def log_findings(place: Place) -> Iterator[Finding]:
    """Yield faults of the accuracy log: missing, not truncated, or not the one of the hash."""
    path = place.accuracy / ACCURACY_LOG
    if not path.is_file():
        yield Finding("accuracy_log_missing", f"{ACCURACY_LOG} is missing", "add it, truncated to 10 KiB")
        return
    size = path.stat().st_size
    if not size:
        yield Finding("accuracy_log_empty", f"{ACCURACY_LOG} is empty", "add the one that LoadGen wrote")
    elif size > MOST_LOG_BYTES:
        text = f"{ACCURACY_LOG} has {size} bytes, more than {MOST_LOG_BYTES}"
        yield Finding("accuracy_log_not_cut", text, "truncate it with truncate_accuracy_log.py")
    text_path = place.accuracy / ACCURACY_TEXT
    said = (
        _HASH.findall(text_path.read_text(encoding="utf-8", errors="replace")) if text_path.is_file() else []
    )
    content = path.read_bytes() if size <= MOST_LOG_BYTES else b""
    if not content or CUT in content:
        return
    if not content.rstrip().endswith(b"]"):
        text = f"{ACCURACY_LOG} was cut, but not by truncate_accuracy_log.py"
        yield Finding("accuracy_log_cut", text, "run the script on the whole log that LoadGen wrote")
    elif said and sha256_of(path) not in said:
        text = f"{ACCURACY_LOG} was not truncated, and its hash differs from the one in {ACCURACY_TEXT}"
        yield note("accuracy_hash", text, "check that both are of the same run")


def configuration_findings(place: Place, performance: DetailLog, accuracy: DetailLog) -> Iterator[Finding]:
    """Yield differences between the configurations of the accuracy run and the performance run."""
    if accuracy.scenario != performance.scenario:
        text = f"the accuracy run is of {accuracy.scenario}, the performance run of {performance.scenario}"
        is_error = accuracy.scenario != scenario_of(place)
        yield Finding("configuration", text, "run both in the same scenario", is_error=is_error)
        return
    for key, remedy, is_error in (
        ("sut_name", "run both on the same system under test", True),
        ("loadgen_version", "run both with the same LoadGen", False),
    ):
        first, second = performance.text(key), accuracy.text(key)
        if first != second:
            text = f"{key} is {first!r} in the performance run and {second!r} in the accuracy run"
            yield Finding("configuration", text, remedy, is_error=is_error)
    if performance.token_latencies and not accuracy.token_latencies:
        # An accuracy run is not timed: the system under test is the same.
        yield note("configuration", "token latencies are off in the accuracy run")
    elif performance.token_latencies is not accuracy.token_latencies:
        yield Finding("configuration", "token latencies are on in the accuracy run alone")
    keys = _SAME_NUMBERS + (_SAME_TOKEN_LIMITS if accuracy.token_latencies else ())
    keys += _SAME_IN_SERVER if performance.scenario == "Server" else ()
    for key in keys:
        first_n, second_n = performance.number(key), accuracy.number(key)
        if not is_close(first_n, second_n):
            text = f"{key} is {first_n} in the performance run and {second_n} in the accuracy run"
            yield Finding("configuration", text, "run both with the same user.conf")
