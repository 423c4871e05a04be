"""Reads ``accuracy.txt`` of MLPerf's evaluation scripts, and judges it by the benchmark's targets.

The file is beside LoadGen's logs, in ``<benchmark>/<scenario>/accuracy``. Neither the file nor the logs name
the benchmark, so its name comes from the folders. Source: mlcommons/inference, tools/submission,
``submission_checker/constants.py`` (ACC_PATTERN).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Parser, Reason, Relativity, Validity, Verdict
from parsers.numbers import measured
from parsers.terminal import whole_lines
from parsers.trees import beginning, files_in, parse_files, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agent.core.records import MetadataValue
    from parsers.mlperf_accuracy.targets import Target

__all__ = ["PARSER"]

FORMAT = "mlperf_accuracy"
TOOL = "MLPerf's accuracy script"
NAME = "accuracy.txt"
_LOGS = {"mlperf_log_detail.txt", "mlperf_log_summary.txt"}
_SCENARIOS = {"offline", "server", "interactive", "singlestream", "multistream"}
_PARENTS = 4

_PLAIN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"accuracy=(?P<value>[^\s%]+?)%?(?:, .*)?"), "acc"),
    (re.compile(r"mAP=(?P<value>[^\s%]+?)%?(?:, .*)?"), "mAP"),
    (re.compile(r"AUC=(?P<value>[^\s%]+?)%?(?:, .*)?"), "auc"),
    (re.compile(r"BLEU: (?P<value>\S+)"), "bleu"),
    (re.compile(r"Word Error Rate: .*, accuracy=(?P<value>[^\s%]+)%"), "word_accuracy"),
    (re.compile(r"Accuracy: mean = (?P<value>\S+?)(?:, .*)?"), "dice"),
)
_PAIR = re.compile(
    r"""["']([\w-]+)["']: *["']?(?:np\.float\d+\()?([^\s"',{}()]+(?:,\d[^\s"',{}()]*)*)["')]*(?=[,}])"""
)
_LINE_OF_PAIRS = re.compile(r"""["'][\w-]+["']: *["']?[^\s"',{}()]+["']?,?""")
_IN_PAIRS = {
    **{name: name for name in ("rouge1", "rouge2", "rougeL", "rougeLsum", "gen_len", "tokens_per_sample",
                               "exact_match", "f1", "gsm8k", "mbxp")},
    "accuracy": "acc", "mean-accuracy": "acc", "Total": "mAP",
    "CLIP_SCORE": "clip_score", "FID_SCORE": "fid_score",
}  # fmt: skip
_LABEL = "Accuracy Results: "
"""What TensorRT's harness puts before the scores of Stable Diffusion XL."""
_COUNTS = {"gen_len", "tokens_per_sample"}
_SCORES = {"clip_score", "fid_score", "bleu"}
_RATIOS = {"dice"}
_HASH = re.compile(r"hash=[0-9a-f]{64}")


def _file_of(path: Path) -> Path:
    """Return the path itself if it is an accuracy file, or the accuracy file beside a log."""
    return path.with_name(NAME) if path.name in _LOGS else path


def _is_accuracy(path: Path) -> bool:
    """Return True if the name shows that it is an accuracy file, or a less specific name and a score do."""
    file = _file_of(path)
    if not file.name.endswith(NAME) or not file.is_file():
        return False
    return file.name == NAME or any(
        True for line in beginning(file).splitlines() for _ in _told(line.strip())
    )


def recognise(path: Path) -> bool:
    """Return True if the path is such a file, a LoadGen log beside one, or a folder that contains one."""
    return any(map(_is_of_a_tree, files_in(path))) if path.is_dir() else _is_accuracy(path)


def _is_of_a_tree(path: Path) -> bool:
    return path.name not in _LOGS and _is_accuracy(path)


def parse(path: Path) -> list[ParsedOutput]:
    """Return the scores of a file, or of all files in a tree, with a verdict if the benchmark is known.

    Raises:
        ParseError: if there is none, or the only one has no score.
    """
    return parse_files(
        path,
        FORMAT,
        TOOL,
        _is_of_a_tree,
        lambda file: [_parse_file(_file_of(file))],
        always=False,
    )


def _parse_file(path: Path) -> ParsedOutput:
    text = text_of(path)
    text, cut = whole_lines(f"{text}\n" if _ends(text) else text)
    try:
        scores = _scores(text)
    except ParseError as error:
        raise ParseError(error.message, where=str(path), remedy=error.remedy) from error
    if not scores:
        raise ParseError(
            "it does not contain a score that MLPerf knows",
            where=str(path),
            remedy="see the accuracy script's own output: it may have ended with an error",
        )
    model, targets, scenario = _named(path)
    metadata: dict[str, MetadataValue] = {"model": model} if model else {}
    metrics = [
        metric for name, value in scores.items() for metric in _metrics(name, value, targets, metadata)
    ]
    warnings = (
        [] if any(map(_HASH.fullmatch, text.splitlines())) else ["it lacks the hash of the accuracy log"]
    )
    if targets:
        reasons = tuple(_reasons(scores, targets))
        validity = Validity.INVALID if reasons else Validity.VALID
    else:
        reasons, validity = (), Validity.NOT_APPLICABLE
        warnings.insert(0, "its folders do not name an MLPerf benchmark, so the scores are not judged")
    return ParsedOutput(
        FORMAT,
        TOOL,
        scenario="/".join(part for part in (model, scenario, "accuracy") if part),
        metrics=tuple(metrics),
        verdict=Verdict(validity, reasons, tuple(warnings)),
        complete=not cut,
        sources=(str(path),),
    )


def _ends(text: str) -> bool:
    """Return True if a text without a final line end is complete: its last line shows it."""
    last = text[text.rfind("\n") + 1 :].rstrip()
    return last.endswith(("}", "%")) or _HASH.fullmatch(last) is not None


def _scores(text: str) -> dict[str, float]:
    """Return the scores of a text by their names.

    Raises:
        ParseError: if a score is not a number, is below 0, or occurs twice.
    """
    found: dict[str, float] = {}
    for line in text.splitlines():
        for name, told in _told(line.strip()):
            value = measured(told, name)
            if value is not None and found.setdefault(name, value) != value:
                raise ParseError(
                    f"{name} occurs twice: the file contains several results",
                    remedy="keep each result in a file of its own",
                )
    return found


def _told(line: str) -> Iterator[tuple[str, str]]:
    line = line.removeprefix(_LABEL)
    if _LINE_OF_PAIRS.fullmatch(line):  # of a dictionary that was printed over several lines
        line = f"{{{line.rstrip(',')}}}"
    if line.startswith("{") and line.endswith("}"):
        for key, told in _PAIR.findall(line):
            if name := _IN_PAIRS.get(key):
                yield name, told
    for pattern, name in _PLAIN:
        if match := pattern.fullmatch(line):
            yield name, match["value"]
            return


def _named(path: Path) -> tuple[str, Mapping[str, Target], str]:
    """Return the benchmark named by the folders, its targets, and the scenario."""
    from parsers.mlperf_accuracy.targets import known_targets

    scenario = ""
    for folder in list(path.absolute().parents)[:_PARENTS]:
        if folder.name.lower() in _SCENARIOS:
            scenario = folder.name
        if known := known_targets(folder.name):
            return known.model, known.scores, scenario
    return "", {}, scenario


def _reasons(scores: Mapping[str, float], targets: Mapping[str, Target]) -> Iterator[Reason]:
    remedy = "check the engine's precision, and that the model is the one of the benchmark"
    for name, target in targets.items():
        least = target.target * target.least
        most = target.target * target.most if target.most else None
        if name not in scores:
            yield Reason(
                f"accuracy {name} is missing", "see the accuracy script's own output", code="accuracy"
            )
        elif scores[name] < least:
            yield Reason(f"accuracy {name} is {scores[name]:g}, below {least:g}", remedy, code="accuracy")
        elif most is not None and scores[name] > most:
            yield Reason(f"accuracy {name} is {scores[name]:g}, above {most:g}", remedy, code="accuracy")


def _metrics(
    name: str, value: float, targets: Mapping[str, Target], metadata: Mapping[str, MetadataValue]
) -> Iterator[Metric]:
    count = name in _COUNTS
    percent = name not in _COUNTS | _SCORES | _RATIOS and not (name == "acc" and value <= 1)
    unit = "count" if count else "score" if name in _SCORES else "ratio"
    relativity = (
        Relativity.UNDEFINED if count else Relativity.LOWER if name == "fid_score" else Relativity.HIGHER
    )
    told: dict[str, MetadataValue] = {"tool_value": value, "tool_unit": "percent"} if percent else {}
    shown = name.lower()
    yield Metric(
        f"accuracy_{shown}",
        value / 100 if percent else value,
        unit,
        relativity,
        "accuracy",
        metadata={**metadata, **told},
    )
    if target := targets.get(name):
        least = target.target * target.least
        yield Metric(
            f"accuracy_{shown}_threshold", least / 100 if percent else least, unit,
            description="accuracy that is required", verbosity=2, metadata=metadata,
        )  # fmt: skip


PARSER = Parser(
    FORMAT,
    "accuracy.txt of MLPerf's accuracy scripts, beside LoadGen's logs",
    recognise=recognise,
    parse=parse,
)
