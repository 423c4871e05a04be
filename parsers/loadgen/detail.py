"""Reads ``mlperf_log_detail.txt`` as a stream: constant memory, and JSON only for lines with a relevant key.

LoadGen writes one record a line, ``:::MLLOG {"key": …, "value": …, "time_ms": …, "metadata": {…}}``
(mlcommons/inference, loadgen/logging.h). LoadGen does not escape strings, prints ``nan`` and ``inf`` as C++
does, and a killed run leaves half a line, so this module never assumes that a line is valid JSON.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from parsers.loadgen.record import decode, message_of, salvage
from parsers.loadgen.versions import RECORDS, Kind, read_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from parsers.loadgen.versions import Version

DETAIL_NAME = "mlperf_log_detail.txt"
MARKER = b":::MLLOG"
BEFORE_1_0 = "it was written by LoadGen 0.5 or 0.7, which is too old: they write no :::MLLOG records"
Value = str | int | float | bool

_LINE_LIMIT = 1 << 16  # longer lines (a sample set of any size) are read in pieces of this many bytes
_KEY_LIMIT = 2000  # distinct keys kept; LoadGen writes about 130
_DISTINCT_MESSAGES = 20
_VERDICTS = 4  # distinct verdicts kept
_MESSAGE_LIMIT = 300
# time_ms beyond this is an unsigned underflow: 2^64 ns are 1.8e13 ms (a real log has 18446744073709.23)
_TIME_LIMIT_MS = 1e12
_LARGEST = 1e25  # LoadGen's numbers have 64 bits, so that sums and products of them stay finite

_KEPT_LIMIT = 1 << 12  # longest line that is kept until another line replaces it
_HEADS = {b"loadgen_version", b"test_datetime", b"requested_scenario"}  # each occurs once in a run
_ONCE = frozenset({record.name for record in RECORDS} | {name.decode() for name in _HEADS})
_COUNTS = frozenset(
    record.name for record in RECORDS if record.kind is Kind.COUNT
)  # texts in LoadGen 1.1 and 2.0
_DIGITS = 20  # of the largest number of 64 bits
_ONCE_PREFIXES = ("effective_", "requested_", "result_")
_TEXT_FORMAT = re.compile(rb'"pid": \d+, "tid": \d+, "ts": -?\d+ns :')
_ADDED_UP = {
    *_HEADS,
    b"loaded_qsl_set",
    b"result_validity",
    b"power_end",
    b"generated_query_count",
    b"generated_samples_per_query",
}
_WHOLE = (b"}\n", b"}\r\n")
_HEAD = re.compile(rb':::MLLOG\s*\{\s*"key"\s*:\s*"([^"\\]{1,200})"')
_KEY = re.compile(rb'"key"\s*:\s*"([^"\\]{1,200})"')
_IS_ERROR = re.compile(rb'"is_error"\s*:\s*true')
_IS_WARNING = re.compile(rb'"is_warning"\s*:\s*true')
_WANTED = (
    b"result_",
    b"early_stopping_",
    b"effective_",
    b"requested_",
    b"generated_",
    b"power_",
    b"qsl_",
    b"num_errors",
    b"loadgen_version",
    b"test_datetime",
    b"sut_name",
    b"logger_",
    b"get_sut_name",
)


@dataclass(slots=True)
class Messages:
    """Errors or warnings of a log: their number, and a bounded set of distinct texts.

    Messages that differ only in numbers (sample ids, counts) are the same; the first is kept.

    Args:
        count: number of records.
        distinct: the first text of each kind, and how often that kind occurred.
    """

    count: int = 0
    distinct: dict[str, int] = field(default_factory=dict)
    _first: dict[str, str] = field(default_factory=dict, repr=False)
    _raw: dict[bytes, str] = field(default_factory=dict, repr=False)

    def add_record(self, line: bytes, name: bytes) -> None:
        """Count the message of a record; decode the same text only once."""
        raw = line[: line.rfind(b'"time_ms"')]
        text = self._raw.get(raw)
        if text is None:
            text = self.add(message_of(line, name))
            if len(self._raw) < _DISTINCT_MESSAGES:
                self._raw[raw] = text
            return
        self.count += 1
        self.distinct[text] += 1

    def add(self, text: str) -> str:
        """Count one message; return the text that it is counted under."""
        self.count += 1
        text = text[:_MESSAGE_LIMIT]
        kind = re.sub(r"\d+", "#", text)
        first = self._first.get(kind)
        if first is None:
            first = text if len(self._first) < _DISTINCT_MESSAGES else "other messages"
            if first is text:
                self._first[kind] = text
        self.distinct[first] = self.distinct.get(first, 0) + 1
        return first


@dataclass(slots=True)
class DetailLog:
    """Content of one detail log.

    Args:
        path: the file.
        values: the last value of every relevant key, finite numbers only.
        not_finite: keys whose value was nan or inf.
        errors: records with is_error, or with "error" in their key.
        warnings: records with is_warning.
        validities: the first distinct values of result_validity, in order.
        records: number of records.
        broken_lines: number of lines that are not records.
        cut: True if the last line is incomplete.
        sample_sets: sample sets loaded: rounds of an accuracy run.
        samples_loaded: samples in all of these sets.
        rounds_ended: rounds that ended (power_end).
        round_ended_ms: end of the last of them, in ms since LoadGen's start; None if the number is garbled.
        counts: number of occurrences of each relevant key, including unreadable values.
        is_summary: True if the content comes from a summary, without a detail log.
        assumed_version: the version that the log's form suggests, if the log does not name its version.
        samples_generated: number of samples that all rounds were to issue.
        last_time_ms: the largest plausible time of a relevant record, in ms since LoadGen's start.
    """

    path: Path
    values: dict[str, Value] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    errors: Messages = field(default_factory=Messages)
    warnings: Messages = field(default_factory=Messages)
    validities: list[str] = field(default_factory=list)
    records: int = 0
    broken_lines: int = 0
    cut: bool = False
    sample_sets: int = 0
    samples_loaded: int = 0
    rounds_ended: int = 0
    round_ended_ms: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    is_summary: bool = False
    assumed_version: Version = ()
    samples_generated: int = 0
    last_time_ms: float | None = None

    def number(self, key: str) -> float | None:
        """Return the value of a key as a number; None if absent, not a number, or garbled beyond 64 bits."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _LARGEST:
            return None
        return float(value) if abs(value) > 1 / _LARGEST else 0.0

    def flag(self, key: str) -> bool | None:
        """Return the value of a key as a truth value; None if absent or not a truth value."""
        value = self.values.get(key)
        return value if isinstance(value, bool) else None

    def text(self, key: str) -> str:
        """Return the value of a key as text; empty if absent."""
        return str(self.values.get(key, ""))

    @property
    def runs(self) -> int:
        """Number of runs in the log: more than one if logs were appended to each other."""
        return max(self.repeated().values(), default=1)

    def repeated(self) -> dict[str, int]:
        """Return the keys that occur more than once, with their counts; a run writes each of them once."""
        return {
            key: count
            for key, count in self.counts.items()
            if count > 1 and (key in _ONCE or key.startswith(_ONCE_PREFIXES))
        }

    @property
    def version(self) -> str:
        """LoadGen's version without the commit: ``6.0.10 @ NA`` is 6.0.10, ``.5a1 @ 6958607d52`` is 1.0."""
        text = self.text("loadgen_version")
        version = read_version(text)
        return ".".join(map(str, version)) if version else text.split("@")[0].strip()

    @property
    def version_parts(self) -> Version:
        """The version as numbers; empty if the log does not give it."""
        return read_version(self.text("loadgen_version")) or self.assumed_version

    @property
    def scenario(self) -> str:
        """Server, Offline, SingleStream or MultiStream."""
        return self.text("effective_scenario") or self.text("requested_scenario")

    @property
    def mode(self) -> str:
        """PerformanceOnly, AccuracyOnly, SubmissionRun or FindPeakPerformance."""
        return self.text("effective_test_mode") or self.text("requested_test_mode")

    @property
    def token_latencies(self) -> bool:
        """True if LoadGen measured tokens: only then it logs this setting."""
        return self.flag("requested_use_token_latencies") is True

    def settings(self) -> Mapping[str, Value]:
        """Return the effective settings, without their prefix."""
        return MappingProxyType(
            {
                key.removeprefix("effective_"): v
                for key, v in self.values.items()
                if key.startswith("effective_")
            }
        )


def read_detail(path: Path) -> DetailLog:
    """Read a detail log of any size.

    Only the last record of a repeated key counts. Most lines are therefore kept as they are until another one
    replaces them, and JSON is decoded once for each key.

    Args:
        path: the file.

    Raises:
        ParseError: if the file cannot be read or contains no LoadGen record.
    """
    log = DetailLog(path)
    latest: dict[bytes, bytes] = {}
    counts: dict[bytes, int] = {}
    piece, ended, in_set = b"\n", True, False
    try:
        with path.open("rb", buffering=1 << 20) as file:
            for piece in iter(partial(file.readline, _LINE_LIMIT), b""):
                if not ended:  # continues a line longer than a piece, whose key is already read
                    ended = piece.endswith(b"\n")
                    in_set = in_set and _count_samples(log, piece)
                    continue
                ended = piece.endswith(b"\n")
                head = _HEAD.match(piece)
                if head is None or not _is_plain(head[1], piece, head.end()):
                    for name in _KEY.findall(piece):
                        _flush(log, latest, name)
                    _take(log, piece)
                    in_set = _begins_set(log, piece)
                    continue
                log.records += 1
                if head[1].startswith(_WANTED) and (head[1] in latest or len(latest) < _KEY_LIMIT):
                    latest[head[1]] = piece
                    counts[head[1]] = counts.get(head[1], 0) + 1
    except OSError as error:
        raise ParseError(f"cannot read the log: {error.strerror}", where=str(path)) from error
    _add_latest(log, latest, counts)
    log.cut = not ended and decode(piece) is None
    if not log.records:
        raise _no_record(path)
    return log


def _add_latest(log: DetailLog, latest: dict[bytes, bytes], counts: Mapping[bytes, int]) -> None:
    for name in list(latest):
        _flush(log, latest, name)
    for name, count in counts.items():
        key = name.decode("ascii", "replace")
        log.counts[key] = log.counts.get(key, 0) + count


def _no_record(path: Path) -> ParseError:
    if is_before_1_0(path):
        return ParseError(BEFORE_1_0, where=str(path), remedy="run the test again with LoadGen 1.0 or later")
    return ParseError(
        "holds no LoadGen record (a line that starts with :::MLLOG)",
        where=str(path),
        remedy="name the folder that LoadGen wrote to; an empty log means that the run never started",
    )


def _begins_set(log: DetailLog, piece: bytes) -> bool:
    """Count the samples of a set if this line begins one; return True if it continues in the next piece."""
    head = _HEAD.match(piece)
    if head is None or head[1] != b"loaded_qsl_set" or (start := piece.find(b"[", head.end())) == -1:
        return False
    log.samples_loaded += 1
    return _count_samples(log, piece[start + 1 :])


def _count_samples(log: DetailLog, piece: bytes) -> bool:
    """Count the samples of a set by the commas between them; return True if the set continues."""
    samples, closed, _ = piece.partition(b"]")
    log.samples_loaded += samples.count(b",")
    return not closed


def is_before_1_0(path: Path) -> bool:
    """Return True for a detail log of LoadGen 0.5 or 0.7: text after ``"pid": …, "tid": …, "ts": …``."""
    try:
        with path.open("rb") as file:
            return _TEXT_FORMAT.match(file.read(_KEPT_LIMIT)) is not None
    except OSError:
        return False


def _is_plain(name: bytes, line: bytes, after_key: int) -> bool:
    """Return True if only the last record of this key counts: a complete record, no error, no sum."""
    return (
        name not in _ADDED_UP
        and not name.startswith(b"error")
        and line.endswith(_WHOLE)
        and len(line) < _KEPT_LIMIT
        and line.find(MARKER, after_key) == -1
        and not (b"true" in line and (_IS_ERROR.search(line) or _IS_WARNING.search(line)))
    )


def _flush(log: DetailLog, latest: dict[bytes, bytes], name: bytes) -> None:
    """Decode the last line that was kept for a key, if any."""
    if (line := latest.pop(name, None)) is not None:
        _keep(log, name.decode("ascii", "replace"), line)


def _take(log: DetailLog, line: bytes) -> None:
    """Add one line: usually one record, or several if a newline was lost."""
    if line.find(MARKER, 1) != -1:
        for part in line.split(MARKER):
            if part.strip():
                _take_record(log, part)
    elif line.startswith(MARKER):
        _take_record(log, line)
    elif line.strip():
        log.broken_lines += 1
        if _IS_ERROR.search(line):
            log.errors.add(line.decode("utf-8", "replace").strip())


def _take_record(log: DetailLog, line: bytes) -> None:
    found = _KEY.search(line)
    if found is None:
        log.broken_lines += 1
        return
    log.records += 1
    name = found[1]
    if name.startswith(_WANTED):
        key = name.decode("ascii", "replace")
        if key in log.counts or len(log.counts) < _KEY_LIMIT:
            log.counts[key] = log.counts.get(key, 0) + 1
        _keep(log, key, line)
    elif name == b"loaded_qsl_set":
        log.sample_sets += 1
    if b"true" in line or name.startswith(b"error"):
        if _IS_ERROR.search(line) or name.startswith(b"error"):
            log.errors.add_record(line, name)
        elif _IS_WARNING.search(line):
            log.warnings.add_record(line, name)


def _keep(log: DetailLog, key: str, line: bytes) -> None:
    decoded = decode(line) or (salvage(line) if line.endswith(b"\n") else None)
    if decoded is None:
        log.broken_lines += 1
        return
    value, time_ms = decoded
    if key in _COUNTS and isinstance(value, str) and value.isdecimal():
        value = int(value[:_DIGITS])
    if time_ms is not None and not 0 <= time_ms < _TIME_LIMIT_MS:
        time_ms = None
    if time_ms is not None:
        log.last_time_ms = max(time_ms, log.last_time_ms or 0.0)
    if isinstance(value, float) and not math.isfinite(value):
        log.not_finite.add(key)
    elif isinstance(value, (str, int, float)) and (key in log.values or len(log.values) < _KEY_LIMIT):
        log.values[key] = value
    if key == "result_validity" and isinstance(value, str):
        log.validities = list(dict.fromkeys((*log.validities, value)))[:_VERDICTS]
    elif key == "power_end":
        log.rounds_ended += 1
        log.round_ended_ms = time_ms
    elif key == "generated_samples_per_query":
        queries, samples = log.number("generated_query_count"), log.number(key)
        log.samples_generated += int((queries or 0) * (samples or 0))
