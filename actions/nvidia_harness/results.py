"""Read the results of one run of the harness, and never those of an older run."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Reason, Validity, Verdict
from agent.core.safe_files import copy_file, make_folder
from parsers import mlperf_harness_summary, mlperf_metadata
from parsers.loadgen import ACCURACY_NOT_JUDGED, DETAIL_NAME, parse_folder

if TYPE_CHECKING:
    from pathlib import Path

    from actions.nvidia_harness.workspace import Test

METADATA = "metadata.json"
COPY_LIMIT_BYTES = 64 << 20
"""Size limit of copied files; larger ones, such as an accuracy log, stay in the harness's folder."""

_TARGET = re.compile(r"-99(\.9)?$")
_RATES = {"Offline": "offline_expected_qps", "Server": "server_target_qps"}
_SAME = 1e-4
"""Relative difference up to which values of two logs are equal: LoadGen writes six digits."""
_SEVERITY = (Validity.VALID, Validity.NOT_APPLICABLE, Validity.INVALID, Validity.FAILED)


def copy_logs(logs: Path, target: Path) -> tuple[str, ...]:
    """Copy the logs of one run; remove copies of an earlier attempt.

    Args:
        logs: the run's own LOG_DIR, to which nothing else writes.
        target: the destination.

    Returns:
        The files that are too large and were not copied.
    """
    left = []
    shutil.rmtree(target, ignore_errors=True)
    for path in sorted(path for path in logs.rglob("*") if path.is_file() and not path.is_symlink()):
        if path.stat().st_size > COPY_LIMIT_BYTES:
            left.append(str(path))
            continue
        copy = target / path.relative_to(logs)
        make_folder(copy.parent)
        copy_file(path, copy)
    return tuple(left)


def keep_logs(logs: Path, aside: Path) -> bool:
    """Move the harness's log folder away before ``make clean`` deletes it; return True if it had logs."""
    if not logs.is_dir() or not any(logs.iterdir()):
        return False
    logs.rename(aside)
    return True


def results_in(folder: Path, test: Test, benchmark: str) -> list[ParsedOutput]:
    """Return the results in the logs of one run.

    Args:
        folder: the run's logs.
        test: the requested test.
        benchmark: the benchmark.

    Raises:
        ParseError: if a result is missing, truncated, or of another test than requested.
    """
    outputs = []
    for path in sorted(folder.rglob("*.json")):
        if path.name == METADATA:
            outputs.append(_with_loadgen(_metadata(path), path.parent))
        elif path.name in mlperf_harness_summary.NAMES:
            text = path.read_text(encoding="utf-8", errors="replace")
            for output in mlperf_harness_summary.parse_summary(text, str(path)):
                logs = _logs_of(path.parent, output)
                outputs.append(_with_loadgen(output, logs) if logs else _unproven(output))
    if not outputs:
        raise ParseError(
            f"the harness ended with 0 but left no result of {benchmark} {test.scenario} {test.mode}",
            where=str(folder),
            remedy="see its log: a configuration that does not exist is only a warning there",
        )
    if others := [output.scenario for output in outputs if not _is_of(output, test, benchmark)]:
        raise ParseError(
            f"{benchmark} {test.scenario} {test.config_ver} {test.mode} was requested, but "
            f"the results are of {', '.join(others)}",
            where=str(folder),
            remedy="check RunArgs and the make variables: they may name other benchmarks, scenarios or modes",
        )
    return outputs


def _is_of(output: ParsedOutput, test: Test, benchmark: str) -> bool:
    """Return True if a result is of the requested benchmark, accuracy target, scenario and mode.

    The code writes a benchmark as ``bert-99`` or ``bert-99.9``, and one with a single target as ``resnet50``
    (code/common/harness.py, _get_submission_benchmark_name; v5.x, submission_benchmark_name).
    """
    full, scenario, mode = output.scenario.rsplit("/", 2)
    name = _TARGET.sub("", full)
    target = full.removeprefix(name)
    wanted = "-99.9" if "high_accuracy" in test.config_ver else "-99"
    found = (name.lower(), scenario.lower(), mode)
    return found == (benchmark.lower(), test.scenario.lower(), test.mode) and target in ("", wanted)


def _metadata(path: Path) -> ParsedOutput:
    return mlperf_metadata.parse_metadata(path.read_text(encoding="utf-8", errors="replace"), str(path))


def _logs_of(folder: Path, output: ParsedOutput) -> Path | None:
    """Return LoadGen's folder for a result whose file is above it: <system>/<benchmark>/<scenario>."""
    benchmark, scenario = output.scenario.split("/")[:2]
    folders = [path.parent for path in sorted(folder.rglob(DETAIL_NAME)) if path.parent.name == scenario]
    fitting = [path for path in folders if path.parent.name.startswith(benchmark)]
    return fitting[0] if len(fitting) == 1 else None


def _with_loadgen(output: ParsedOutput, folder: Path) -> ParsedOutput:
    if not (folder / DETAIL_NAME).is_file():
        return _unproven(output)
    return merged(output, parse_folder(folder))


def _unproven(output: ParsedOutput) -> ParsedOutput:
    """Return the result as not valid: it has no proof without LoadGen's own log."""
    verdict = output.verdict or Verdict(Validity.NOT_APPLICABLE)
    reason = Reason(
        f"{DETAIL_NAME} is not beside the harness's summary, so nothing proves its result",
        "run it again and keep the folder of logs as the harness wrote it",
        code="no_loadgen_log",
    )
    validity = Validity.INVALID if verdict.validity is Validity.VALID else verdict.validity
    return replace(output, verdict=replace(verdict, validity=validity, reasons=(*verdict.reasons, reason)))


def merged(summary: ParsedOutput, log: ParsedOutput) -> ParsedOutput:
    """Return the harness's summary merged with LoadGen's own log: with its numbers, and the stricter verdict.

    Args:
        summary: the output of metadata.json, or of an older file.
        log: the output of mlperf_log_detail.txt in the same folder.
    """
    own = {metric.name: metric for metric in summary.metrics}
    judged, raw = summary.verdict or Verdict(Validity.VALID), log.verdict or Verdict(Validity.FAILED)
    differ = [
        Reason(
            f"{metric.name} is {own[metric.name].value:g} in the summary, {metric.value:g} in LoadGen's log",
            "the summary may be of another run: run it again, with nothing else in build/logs",
            code="summary_mismatch",
        )
        for metric in log.metrics
        if metric.name in own and not math.isclose(metric.value, own[metric.name].value, rel_tol=_SAME)
    ]
    # LoadGen's log has the reasons; the summary only has the verdict.
    raw_reasons = tuple(_in_its_words(reason, summary.scenario) for reason in raw.reasons)
    reasons = [reason for reason in judged.reasons if not (raw.reasons and reason.code == "loadgen_invalid")]
    codes = {reason.code for reason in raw.reasons}
    reasons = [reason for reason in reasons if reason.code not in codes]
    validities = [Validity.INVALID if differ else judged.validity]
    if summary.verdict is None or ACCURACY_NOT_JUDGED not in raw.warnings:
        validities.append(raw.validity)  # in an accuracy run the score decides, not the log
    validity = max((judged.validity, *validities), key=_SEVERITY.index)
    raw_warnings = (warning for warning in raw.warnings if warning != ACCURACY_NOT_JUDGED)
    return replace(
        summary,
        metrics=(*summary.metrics, *(metric for metric in log.metrics if metric.name not in own)),
        verdict=Verdict(
            validity,
            (*raw_reasons, *reasons, *differ),
            tuple(dict.fromkeys((*judged.warnings, *raw_warnings))),
        ),
        start=log.start,
        end=log.end,
        complete=summary.complete and log.complete,
        details={**log.details, **summary.details},
        sources=(*summary.sources, *log.sources),
    )


def _in_its_words(reason: Reason, scenario: str) -> Reason:
    """Return a reason of LoadGen's log with the setting's name in NVIDIA's configurations."""
    name = _RATES.get(scenario.split("/")[1]) if reason.setting == "target_qps" else None
    if name is None:
        return reason
    return replace(reason, setting=name, remedy=re.sub(r"\btarget_qps\b", name, reason.remedy))
