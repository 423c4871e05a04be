"""Compares verdict and score of every LoadGen log in public result repositories with the checker's parser.

    python benchmarks/public_logs.py --inference DIR [--workers 2] [--limit N] [--results FILE] ROUND…

DIR is a checkout or git directory of mlcommons/inference, whose tools/submission/log_parser.py is the
reference; each ROUND one of mlcommons/inference_results_vX.Y, its version in its name. A git directory needs
no work tree. Each pair of detail log and summary is read three times: by the checker's parser, by ours, and
the summary alone by ours. A round's results replace older ones of that round; other rounds in the file stay.

The checker's parser has no verdict of its own. VALID here means what the submission checker requires:
result_validity is VALID, and the log holds no error. Its score is the field that the round's checker reads.

Every disagreement belongs to a class with an explanation; the command ends with 1 if one does not.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/public_logs.json"
NAMES = {"mlperf_log_detail.txt": "detail", "mlperf_log_summary.txt": "summary"}
EXAMPLES = 2
SAME = 1e-9
_BLOCK = 200

# RESULT_FIELD_NEW and RESULT_FIELD_BENCHMARK_OVERWRITE of the submission checkers, by first round.
FIELDS: dict[str, tuple[tuple[float, str], ...]] = {
    "Offline": ((0, "result_samples_per_second"),),
    "SingleStream": ((0, "result_90.00_percentile_latency_ns"), (2.0, "early_stopping_latency_ss")),
    "MultiStream": ((0, "effective_samples_per_query"), (2.0, "early_stopping_latency_ms")),
    "Server": ((0, "result_scheduled_samples_per_sec"), (4.1, "result_completed_samples_per_sec")),
}
_TOKENS = {"Offline": "result_tokens_per_second", "Server": "result_completed_tokens_per_second"}
_INFERRED = {
    "Offline": "result_inferred_tokens_per_second",
    "Server": "result_inferred_completed_tokens_per_second",
}
OVERWRITES: tuple[tuple[str, float, dict[str, str]], ...] = (
    (r"llama3[._]1-8b-edge", 5.1, {**_TOKENS, "SingleStream": "result_90.00_percentile_latency_ns"}),
    (r"llama2-70b(-interactive)?-99(\.9)?|mixtral-8x7b", 4.1, _TOKENS),
    (r"gptj-99(\.9)?", 4.1, _INFERRED),
    (r"llama3\.1-405b", 5.0, _TOKENS),
    (r"llama3\.1-8b|deepseek-r1", 5.1, _TOKENS),
    (r"whisper", 5.1, {"Offline": "result_tokens_per_second"}),
)

EXPLANATIONS = {
    "accuracy": "an accuracy run has no result_validity, and its logs do not hold its accuracy",
    "accuracy_errors": "an accuracy run in which LoadGen counted errors",
    "accuracy_summary": "the summary of an accuracy run holds no number, so that it is refused alone",
    "audit_error": "a compliance run whose only error comes with its audit.config: a second "
    "configuration, or too few prepared queries",
    "audit_invalid": "a compliance run (TEST01, 04, 06: answers kept, samples repeated) that LoadGen calls "
    "INVALID, as its narrower test must be",
    "audit_repeats": "TEST04 that LoadGen calls VALID: it repeats a sample or issues each once, so its "
    "rate is not a result",
    "checker_refuses": "the checker's parser raises an error at a line that is not JSON, such as a name with "
    "a null byte; ours reads on",
    "no_estimate": "too few queries for early stopping: the checker reads LoadGen's 0, ours leaves the "
    "estimate out",
    "not_a_log": "an empty file, or one without a LoadGen record",
    "open_model": "a model of the open division that the checker does not know by this name: it takes "
    "samples/s; ours is tokens/s, with samples/s beside",
    "other_summary": "detail log and summary are of two runs: their numbers differ",
    "percentile": "the target is not the 90th percentile, which the checker of rounds before v2.0 reads "
    "in any case",
    "summary_counts_errors": "the summary alone tells only how many errors there were, which may be "
    "those of an audit",
    "too_old": "LoadGen 0.5 or 0.7: no :::MLLOG records, refused as too old",
}


def main() -> None:
    """Read the arguments, compare all rounds, write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "rounds", nargs="+", type=Path, help="checkouts or git directories of result repositories"
    )
    parser.add_argument(
        "--inference", type=Path, required=True, help="checkout or git directory of mlcommons/inference"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--limit", type=int, default=0, help="about so many pairs of a round, evenly spread; 0: all"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        yardstick = Path(folder) / "log_parser.py"
        yardstick.write_bytes(_file_of(arguments.inference, "tools/submission/log_parser.py"))
        for source in arguments.rounds:
            rows = compare_round(source, yardstick, arguments.workers, arguments.limit)
            report = _with_round(
                arguments.results, _round_name(source), _round_report(_round_name(source), rows)
            )
            arguments.results.write_text(json.dumps(report, indent=1) + "\n")
            print(json.dumps(report["totals"]), flush=True)
    sys.exit(1 if report["totals"]["unexplained"] else 0)


def _round_name(source: Path) -> str:
    match = re.search(r"v\d\.\d", str(source))
    if match is None:
        raise SystemExit(f"{source} does not name its round, such as v5.1")
    return match[0]


# ---- sources of logs


def _is_git(source: Path) -> bool:
    return (source / "HEAD").is_file() and (source / "objects").is_dir()


def _file_of(source: Path, name: str) -> bytes:
    if not _is_git(source):
        return (source / name).read_bytes()
    return subprocess.check_output(["git", "-C", str(source), "show", f"HEAD:{name}"])


def folders_of(source: Path) -> dict[str, dict[str, str]]:
    """Return every folder with a LoadGen log: the kind of log, and the file's path or git's name for it."""
    folders: dict[str, dict[str, str]] = {}
    if _is_git(source):
        listed = subprocess.check_output(["git", "-C", str(source), "ls-tree", "-r", "-z", "HEAD"])
        for entry in listed.decode("utf-8", "surrogateescape").split("\0"):
            about, _, path = entry.partition("\t")
            folder, _, name = path.rpartition("/")
            if name in NAMES:
                folders.setdefault(folder, {})[NAMES[name]] = about.split()[2]
        return folders
    for folder, _, files in os.walk(source):
        for name in NAMES.keys() & set(files):
            place = Path(folder)
            folders.setdefault(place.relative_to(source).as_posix(), {})[NAMES[name]] = str(place / name)
    return folders


def _contents(source: Path, wanted: list[str]) -> Iterator[bytes | None]:
    """Yield the files' contents in this order, or None for one that a partial copy of a repository lacks."""
    if not _is_git(source):
        yield from (Path(name).read_bytes() for name in wanted)
        return
    command = ["git", "-C", str(source), "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in wanted:
            process.stdin.write(name.encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if head[1] == b"missing":
                yield None
                continue
            content = process.stdout.read(int(head[2]))
            process.stdout.read(1)
            yield content
        process.stdin.close()


# ---- one pair


def compare_round(source: Path, yardstick: Path, workers: int, limit: int) -> list[dict[str, Any]]:
    """Read every pair of a round; return one row each."""
    folders = sorted(folders_of(source).items())
    folders = folders[:: max(1, len(folders) // limit)] if limit else folders
    blocks = [folders[at : at + _BLOCK] for at in range(0, len(folders), _BLOCK)]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(workers) as pool:
        tasks = [pool.submit(_compare_block, source, yardstick, block) for block in blocks]
        for task in tasks:
            rows += task.result()
            print(f"{_round_name(source)}: {len(rows)} of {len(folders)}", file=sys.stderr, end="\r")
    print(file=sys.stderr)
    return rows


def _compare_block(
    source: Path, yardstick: Path, block: list[tuple[str, dict[str, str]]]
) -> list[dict[str, Any]]:
    sys.path.insert(0, str(ROOT))
    logging.disable(logging.CRITICAL)
    read = _log_parser(yardstick)
    contents = _contents(source, [name for _, files in block for _, name in sorted(files.items())])
    rows = []
    with tempfile.TemporaryDirectory(dir=_fast_folder()) as scratch:
        for folder, files in block:
            kinds = {kind: next(contents) for kind in sorted(files)}
            rows.append(_compare(folder, kinds, Path(scratch), read, _round_name(source)))
    return rows


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a folder of its own is made there


def _log_parser(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("log_parser", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MLPerfLog


def _compare(
    folder: str, contents: dict[str, bytes | None], scratch: Path, read: Any, name: str
) -> dict[str, Any]:
    row: dict[str, Any] = {"folder": folder}
    if None in contents.values():
        return {**row, "absent": True}
    if "detail" not in contents:
        return {**row, "summary_only": True, "alone": _ours(scratch, {"summary": contents["summary"] or b""})}
    row["pair"] = "summary" in contents
    row["ours"] = _ours(scratch, {kind: content or b"" for kind, content in contents.items()})
    row["checker"] = _checkers(scratch, read, folder, float(name[1:]))
    if row["pair"]:
        row["alone"] = _ours(scratch, {"summary": contents["summary"] or b""})
    return row


def _ours(scratch: Path, contents: dict[str, bytes]) -> dict[str, Any]:
    from agent.core.errors import ParseError
    from parsers.loadgen import PARSER

    for file_name, kind in NAMES.items():
        path = scratch / file_name
        if kind in contents:
            path.write_bytes(contents[kind])
        else:
            path.unlink(missing_ok=True)
    try:
        (output,) = PARSER.parse(scratch)
    except ParseError as error:
        return {"verdict": "REFUSED", "why": error.message}
    assert output.verdict is not None
    score = output.metrics[0] if output.metrics else None
    return {
        "verdict": output.verdict.validity.value,
        "codes": sorted({reason.code for reason in output.verdict.reasons}),
        "why": output.verdict.reasons[0].message if output.verdict.reasons else "",
        "mode": output.details.get("mode", ""),
        "scenario": output.details.get("scenario", ""),
        "version": output.tool_version,
        "errors": output.details.get("errors", 0),
        "key": score.metadata.get("loadgen_key", "") if score else "",
        "score": score.metadata.get("tool_value", score.value) if score else None,
        "repeats": any(
            output.details.get(f"performance_issue_{how}") in {True, "True"} for how in ("same", "unique")
        ),
    }


def _checkers(scratch: Path, read: Any, folder: str, round_: float) -> dict[str, Any]:
    try:
        log = read(str(scratch / "mlperf_log_detail.txt"))
        said = log["result_validity"]
        if said is None:
            return {"verdict": "NONE"}
        field = _field(folder, str(log["effective_scenario"]), round_)
        number = log[field]
        return {
            "verdict": "VALID" if said == "VALID" and not log.has_error() else "INVALID",
            "said": said,
            "key": field,
            "score": float(number) if number is not None else None,
        }
    except Exception as error:  # noqa: BLE001 - whatever the yardstick raises is its answer
        return {"verdict": "REFUSED", "why": f"{type(error).__name__}: {error}"[:100]}


def _field(folder: str, scenario: str, round_: float) -> str:
    field = [name for since, name in FIELDS[scenario] if round_ >= since][-1]
    for part in folder.split("/"):
        for pattern, since, fields in OVERWRITES:
            if round_ >= since and re.fullmatch(pattern, part):
                return fields.get(scenario, field)
    return field


# ---- classes of differences


def _verdict_class(row: dict[str, Any]) -> str:
    """Return why the verdicts differ; empty if they agree, ``unexplained`` if unknown."""
    ours, checker = row["ours"], row["checker"]
    pair = (checker["verdict"], ours["verdict"])
    codes = set(ours.get("codes", ()))
    is_accuracy = checker["verdict"] == "NONE" and ours.get("mode") == "AccuracyOnly"
    classes = {
        "": pair in {("VALID", "VALID"), ("INVALID", "INVALID")},
        "too_old": ours["verdict"] == "REFUSED" and "too old" in ours["why"],
        "not_a_log": ours["verdict"] == "REFUSED" and checker["verdict"] in {"REFUSED", "NONE"},
        "accuracy": is_accuracy and ours["verdict"] == "NOT_APPLICABLE",
        "accuracy_errors": is_accuracy and codes == {"errors"},
        "audit_error": pair == ("INVALID", "NOT_APPLICABLE") and checker.get("said") == "VALID",
        "audit_invalid": pair == ("INVALID", "NOT_APPLICABLE"),
        "audit_repeats": pair == ("VALID", "NOT_APPLICABLE") and ours.get("repeats"),
        "checker_refuses": checker["verdict"] == "REFUSED",
        "other_summary": pair == ("VALID", "INVALID") and codes == {"logs_disagree"},
    }
    return next((name for name, holds in classes.items() if holds), "unexplained")


def _score_class(row: dict[str, Any]) -> str:
    ours, checker = row["ours"], row["checker"]
    if checker.get("score") is None or ours.get("score") is None:
        return ""
    if checker["score"] == 0 and "early_stopping" in checker["key"]:
        return "no_estimate"
    if math.isclose(checker["score"], ours["score"], rel_tol=SAME):
        return "same"
    if "tokens" in ours["key"] and "samples" in checker["key"]:
        return "open_model"
    if checker["key"] == "result_90.00_percentile_latency_ns" and "percentile" in ours["key"]:
        return "percentile"
    return "unexplained"


def _alone_class(row: dict[str, Any]) -> str:
    """Return why the summary alone gets a verdict that differs from the pair's."""
    alone, ours = row["alone"], row["ours"]
    if alone["verdict"] == ours["verdict"]:
        return ""
    if alone["verdict"] == "REFUSED" and ours.get("mode") == "AccuracyOnly":
        return "accuracy_summary"
    if ours["verdict"] in {"INVALID", "FAILED"} and set(ours["codes"]) <= {
        "logs_disagree",
        "incomplete_log",
        "errors",
    }:
        return "other_summary"
    if {alone["verdict"], ours["verdict"]} == {"INVALID", "NOT_APPLICABLE"}:
        return "summary_counts_errors"
    return "unexplained"


def _round_report(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the report on one round: counts, and each class of disagreement with a few examples."""
    counts: dict[str, Counter[str]] = {
        kind: Counter() for kind in ("versions", "verdicts", "scores", "alone")
    }
    classes: dict[str, dict[str, Any]] = {}
    totals: Counter[str] = Counter(pairs=0, unexplained=0, wrong_valid=0, wrong_invalid=0)
    for row in rows:
        if row.get("absent"):
            continue
        if row.get("summary_only"):
            counts["alone"][f"no detail log -> {row['alone']['verdict']}"] += 1
            continue
        verdict, score = _verdict_class(row), _score_class(row)
        found = [("verdict", verdict), ("score", score)]
        totals["pairs"] += 1
        counts["versions"][row["ours"].get("version", "")] += 1
        counts["verdicts"][f"{row['checker']['verdict']} -> {row['ours']['verdict']}"] += 1
        counts["scores"][score or "none"] += 1
        if row["pair"]:
            counts["alone"][f"{row['ours']['verdict']} -> {row['alone']['verdict']}"] += 1
            found.append(("summary_alone", _alone_class(row)))
        for what, class_ in found:
            if class_ in {"", "same"}:
                continue
            entry = classes.setdefault(f"{what}/{class_}", {"count": 0, "examples": []})
            entry["count"] += 1
            totals["unexplained"] += class_ == "unexplained"
            if len(entry["examples"]) < EXAMPLES:
                entry["examples"].append(_example(name, row, what))
        wrong = verdict == "unexplained"
        totals["wrong_valid"] += wrong and row["ours"]["verdict"] == "VALID"
        totals["wrong_invalid"] += wrong and row["ours"]["verdict"] in {"INVALID", "FAILED"}
    return {
        "folders_read": len(rows),
        "absent": sum(bool(row.get("absent")) for row in rows),
        **totals,
        "loadgen_versions": dict(sorted(counts["versions"].items())),
        "checker -> ours": dict(sorted(counts["verdicts"].items())),
        "scores": dict(sorted(counts["scores"].items())),
        "pair -> summary alone": dict(sorted(counts["alone"].items())),
        "disagreements": dict(sorted(classes.items())),
    }


def _with_round(results: Path, name: str, round_: dict[str, Any]) -> dict[str, Any]:
    """Return the results with this round in place of an older one; other rounds stay."""
    rounds = json.loads(results.read_text())["rounds"] if results.is_file() else {}
    rounds = dict(sorted({**rounds, name: round_}.items()))
    names = {class_.split("/")[1] for found in rounds.values() for class_ in found["disagreements"]}
    sums = ("pairs", "unexplained", "wrong_valid", "wrong_invalid")
    return {
        "what": "verdict and score of public LoadGen logs, beside the submission checker's log parser",
        "command": "python benchmarks/public_logs.py --inference INFERENCE [--limit N] ROUND…",
        "totals": {key: sum(found[key] for found in rounds.values()) for key in sums},
        "explanations": {class_: EXPLANATIONS[class_] for class_ in sorted(names & EXPLANATIONS.keys())},
        "rounds": rounds,
    }


def _example(name: str, row: dict[str, Any], what: str) -> dict[str, Any]:
    ours = row["alone"] if what == "summary_alone" else row["ours"]
    checker = {
        key: row["checker"].get(key)
        for key in ("verdict", "key", "score")
        if row["checker"].get(key) is not None
    }
    return {
        "path": f"{name}/{row['folder']}",
        "checker": checker,
        "ours": {key: ours[key] for key in ("verdict", "codes", "key", "score") if ours.get(key)},
        "why": ours.get("why", "")[:200],
    }


if __name__ == "__main__":
    main()
