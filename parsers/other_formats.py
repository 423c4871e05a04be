"""Refuses common formats that are not supported by name, and names the format to use instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Parser, Validity, Verdict
from parsers.trees import beginning, files_in

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "other_formats"
_HEAD = 1 << 16


class _Other(NamedTuple):
    """A format that is not supported.

    Args:
        what: its name.
        remedy: what to use instead.
        pattern: a pattern for the beginning of the file.
    """

    what: str
    remedy: str
    pattern: re.Pattern[str]


def _other(what: str, remedy: str, pattern: str) -> _Other:
    return _Other(what, remedy, re.compile(pattern, re.MULTILINE))


_QUERY = "use nvidia-smi --query-gpu=… --format=csv, or nvidia-smi -q"
_AMD = "use amd-smi metric --json, or rocm-smi -a --json"
_STATS = "use PREFIX_stats.csv, or the web UI's “Download request statistics CSV”"
_LOADGEN = "name the folder with mlperf_log_detail.txt and mlperf_log_summary.txt"
_FORMATS: tuple[_Other, ...] = (
    _other("nvidia-smi topo, the links between GPUs", _QUERY, r"^[ \t]*GPU0[ \t].*CPU Affinity"),
    _other("nvidia-smi pmon, the processes on GPUs", _QUERY, r"^#\s*(?:Date\s+)?(?:Time\s+)?gpu\s.*\bpid\b"),
    _other("nvidia-smi dmon as CSV", "use nvidia-smi dmon without --format", r"^#\s*gpu\s*,"),
    _other("nvidia-smi nvlink, the links' state", _QUERY, r"^GPU \d+: .*\n\s+Link 0:"),
    _other(
        "nvidia-smi --query-compute-apps, the processes on GPUs",
        _QUERY,
        r"^(?:pid|gpu_\w+), .*used_\w*memory|^pid, process_name",
    ),
    _other("nvidia-smi --query-supported-clocks", _QUERY, r"^memory \[MHz\], graphics \[MHz\]"),
    _other(
        "nvidia-smi mig, the list of MIG instances",
        _QUERY,
        r"^\|\s*(?:GPU|Compute) instance(?: profiles|s)\b",
    ),
    _other("a dcgmi table", _QUERY, r"^#\s*Entity\s|^\+-+\+\n\|\s*GPU ID\s+\| Device Information"),
    _other(
        "an output of rocm-smi without readings, or in words",
        _AMD,
        r"ROCm System Management Interface|^GPU\[\d+\]\s*: ",
    ),
    _other(
        "rocminfo, the list of ROCm's agents",
        f"{_AMD}; vcagent facts amd_gpus tells what rocminfo does",
        r"ROCk module .{0,80}(?:is loaded|NOT loaded)|^HSA System Attributes",
    ),
    _other(
        "amd-smi's list of processes, links, partitions or versions",
        _AMD,
        r"\"(?:process_list|process_info|amdsmi_library_version|compute_partition|memory_partition)\":"
        r"|\"link_type\":|^AMDSMI Tool:|^(?:CURRENT|MEMORY)_PARTITION:",
    ),
    _other(
        "amd-smi's text, table or CSV",
        _AMD,
        r"^gpu,(?:socket_power|.*(?:gfx_\w+|hotspot|vram_\w+|power_limit))|AMD-SMI|^GPU:? \d+\n\s+\w+:"
        r"|^GPU\s+(?:XCP\s+)?(?:POWER|PVIOL|GPU_T|GFX)|^[ \t]+(?:PROCESS_INFO|GFX_\d+|VCLK_\d+):"
        r"|^timestamp\s+gpu_id\s+severity"
        r"|\"(?:socket_power|gfx_activity)\":|AMDSMI",
    ),
    _other(
        "locust's history of its requests, which is not a result by itself",
        _STATS,
        r"^Timestamp,User Count,Type,Name",
    ),
    _other("locust's list of failures", _STATS, r"^Method,Name,Error,Occurrences"),
    _other("locust's list of exceptions", _STATS, r"^Count,Message,Traceback,Nodes"),
    _other(
        "a table of locust before 1.0",
        "use locust 1.0 or later",
        r'^"?(?:Method|Type)"?,"?Name"?,"?# requests"?',
    ),
    _other(
        "what locust prints on a terminal",
        "run locust with --csv PREFIX",
        r"^[ \t]*Type[ \t]+Name\s+# reqs\s+# fails",
    ),
    _other("locust's HTML report", _STATS, r"<title>[^<]*Locust"),
    _other(
        "lm-eval's log of samples",
        "use results_<time>.json beside it",
        r'^\{.*"doc_id":.*"(?:filtered_)?resps":',
    ),
    _other(
        "LoadGen's accuracy log, which MLPerf's accuracy script turns into accuracy.txt",
        _LOADGEN,
        r'^\[?\s*\{ ?"seq_id" ?: ?\d+, ?"qsl_idx"',
    ),
    _other("LoadGen's trace", _LOADGEN, r'^\{ ?"traceEvents"'),
    _other(
        "the outcome of an MLPerf audit test",
        _LOADGEN,
        r"^TEST\d\d(?: |: ).*|^(?:Accuracy|Performance) check pass: ",
    ),
    _other(
        "vLLM's benchmark",
        "use LocustLoad or an MLPerf action",
        r"=+ Serving Benchmark Result =+|\"mean_ttft_ms\":",
    ),
    _other(
        "timings of SGLang's benchmark",
        "use LocustLoad or an MLPerf action",
        r"=+ Offline Throughput Benchmark Result =+",
    ),
)
_TYPE = re.compile(
    r"^# TYPE (?P<name>[a-zA-Z_:][\w:]*) (?:counter|gauge|histogram|summary|untyped)\s*$", re.MULTILINE
)
_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"\xfd7zXZ", "xz"),
    (b"(\xb5/\xfd", "zstd"),
    (b"BZh", "bzip2"),
)
_ENDINGS = {"", ".txt", ".log", ".out", ".csv", ".json", ".jsonl", ".html", ".prom", ".md"}


def _known(path: Path) -> _Other | None:
    """Return the format of a file if it is known but not supported."""
    text = beginning(path, _HEAD)
    for other in _FORMATS:
        if other.pattern.search(text):
            return other
    if found := _TYPE.search(text):
        return _other(
            f"the /metrics of a server that is neither vLLM nor llama.cpp ({found['name'][:60]})",
            "use the answer of vLLM's or llama.cpp's server",
            "",
        )
    try:
        with path.open("rb") as file:
            magic = file.read(6)
    except OSError:
        return None
    for begins, name in _COMPRESSED:
        if magic.startswith(begins):
            return _other(f"a file compressed with {name}", "unpack it first", "")
    return None


def recognise(path: Path) -> bool:
    """Return True if a file has such a format, or a folder contains one."""
    files = files_in(path)
    if not path.is_dir():
        return _known(path) is not None
    return any(_known(file) for file in files if file.suffix.lower() in _ENDINGS)


def parse(path: Path) -> list[ParsedOutput]:
    """Return an output without numbers for each such file in a folder.

    Raises:
        ParseError: if the path is such a file, or contains none.
    """
    if not path.is_dir():
        other = _known(path)
        raise ParseError(
            f"this is {other.what}, which is not supported" if other else "its format is unknown",
            where=str(path),
            remedy=other.remedy if other else None,
        )
    found = [
        (file, other)
        for file in files_in(path)
        if file.suffix.lower() in _ENDINGS and (other := _known(file))
    ]
    if not found:
        raise ParseError("no file of a format that is known but not supported", where=str(path))
    return [
        ParsedOutput(
            FORMAT,
            "",
            scenario=file.relative_to(path).as_posix(),
            verdict=Verdict(
                Validity.NOT_APPLICABLE, warnings=(f"this is {other.what}, not supported: {other.remedy}",)
            ),
            sources=(str(file),),
        )
        for file, other in found
    ]


PARSER = Parser(
    FORMAT,
    "formats that are refused by name",
    recognise=recognise,
    parse=parse,
    refuses=True,
)
