"""Find numbers in a command's output by the rules of a profile."""

from __future__ import annotations

import csv
import json
import math
import re
from typing import TYPE_CHECKING, Any

from actions.commands.json_paths import find, parse_json_path
from actions.commands.metric_rules import FIELD, TAKE, MetricRule
from agent.component.parsing import parsers
from agent.core.errors import ParseError
from agent.core.names import canonical
from agent.core.records import Metric, ParsedOutput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

OUTPUT, STDOUT, STDERR = "output", "stdout", "stderr"
STREAM_FILES: Mapping[str, str] = {STDOUT: "stdout.txt", STDERR: "stderr.txt"}
"""Files of a case that hold a command's two output streams."""

_LARGEST_BYTES = 64 * 2**20
"""Size limit in bytes; larger files are not searched for numbers."""
_LONGEST_LINE = 20_000
"""Number of characters of a line that a regular expression is matched against."""
_MATCHING_S = 10.0
"""Time limit in seconds for matching one regular expression against one line."""

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")


def read_outputs(
    rules: Iterable[MetricRule], folder: Path, *, tool: str, since_s: float
) -> list[ParsedOutput]:
    """Return all rules' results in a folder: one output for all metrics, and one for each parser's output.

    Args:
        rules: the rules.
        folder: the folder of the case, with the command's streams and the collected files.
        tool: the tool's name in the records.
        since_s: start of the command, in seconds since the epoch; older files were not written by it.

    Raises:
        ParseError: if a rule finds nothing, or finds something that is not a number.
    """
    outputs: list[ParsedOutput] = []
    metrics: list[Metric] = []
    sources: list[str] = []
    for rule in rules:
        if rule.parser:
            outputs += _parsed(rule, folder)
            continue
        files = _files(rule, folder, since_s)
        sources += [str(file.relative_to(folder)) for file in files]
        metrics += _metrics(rule, files)
    names = [metric.name for metric in metrics]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ParseError(
            f"two rules give a metric named {twice[0]}",
            remedy="name them differently: the name is unique in a case",
        )
    if metrics or not outputs:
        own = ParsedOutput("rules", tool, metrics=tuple(metrics), sources=tuple(dict.fromkeys(sources)))
        outputs.insert(0, own)
    return outputs


def _parsed(rule: MetricRule, folder: Path) -> list[ParsedOutput]:
    known = {canonical(name): parser for name, parser in parsers().items()}
    path = folder / STREAM_FILES.get(rule.file, rule.file)
    if not path.exists():
        raise ParseError(
            f"{rule.file} is not in the case's folder", remedy="bring it home by outputs", where=str(folder)
        )
    return known[canonical(rule.parser)].parse(path)


def _files(rule: MetricRule, folder: Path, since_s: float) -> list[Path]:
    asked = rule.file or (OUTPUT if rule.regex else STDOUT)
    if asked == OUTPUT:
        return [folder / name for name in STREAM_FILES.values()]
    if asked in STREAM_FILES:
        return [folder / STREAM_FILES[asked]]
    found = sorted(path for path in folder.glob(asked) if path.is_file())
    if not found:
        raise ParseError(
            f"{rule.kind}: no file of the case's folder is {asked}",
            where=str(folder),
            remedy="name it in outputs as well, which brings it home; * stands for any part of a name",
        )
    for path in found:
        if path.stat().st_mtime < since_s:
            raise ParseError(
                f"{path.name} is older than the command, which did not write it",
                where=str(path),
                remedy="see why the command did not write it; remove files of earlier commands",
            )
    return found


def _metrics(rule: MetricRule, files: Iterable[Path]) -> Iterator[Metric]:
    """Yield the metrics of a rule, one for each name."""
    read = _regex_matches if rule.regex else _json_matches if rule.json_path else _csv_matches
    found: dict[str, tuple[list[float], Mapping[str, str]]] = {}
    for file in files:
        for text, fields in read(rule, file):
            if all(fields.get(name) == value for name, value in rule.where.items()):
                name = re.sub(r"\s+", "_", _filled(rule, rule.name or "<name>", fields).strip())
                found.setdefault(name, ([], fields))[0].append(_number(text, rule, file))
    if not found:
        where = f" where {rule.where}" if rule.where else ""
        raise ParseError(
            f"{rule.kind}{where} matches nothing in {', '.join(file.name for file in files)}",
            where=str(next(iter(files)).parent),
            remedy="look at what the command wrote, and correct the rule",
        )
    for name, (values, fields) in found.items():
        taken = TAKE[rule.take](values)
        own: dict[str, str | float] = (
            {} if rule.scale == 1 else {"tool_value": taken, "tool_unit": rule.tool_unit}
        )
        yield Metric(
            name,
            taken * rule.scale,
            _filled(rule, rule.unit or "<unit>", fields),
            rule.relativity,
            _filled(rule, rule.description, fields),
            rule.verbosity,
            tuple(_filled(rule, tag, fields) for tag in rule.tags),
            {key: value for key, value in own.items() if value != ""},
        )


def _filled(rule: MetricRule, template: str, fields: Mapping[str, str]) -> str:
    def field(match: re.Match[str]) -> str:
        if not fields.get(match[1]):
            raise ParseError(
                f"{rule.kind}: <{match[1]}> is unknown for the number that it found",
                remedy=f"known fields: {', '.join(sorted(name for name, value in fields.items() if value))}",
            )
        return fields[match[1]]

    return FIELD.sub(field, template)


def _number(text: Any, rule: MetricRule, file: Path) -> float:
    if isinstance(text, str):
        text = text.strip()
        text = text.replace(",", "") if _THOUSANDS.fullmatch(text) else text
    try:
        value = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ParseError(
            f"{rule.kind}: {str(text)[:80]!r} in {file.name} is not a number",
            where=str(file),
            remedy="correct the rule, or exclude such entries with where",
        )
    return value


def _read(file: Path) -> str:
    if file.stat().st_size > _LARGEST_BYTES:
        raise ParseError(
            f"{file.name} is larger than {_LARGEST_BYTES >> 20} MiB",
            where=str(file),
            remedy="let the command write its numbers into a file of their own",
        )
    return file.read_text(encoding="utf-8-sig", errors="replace")


def _regex_matches(rule: MetricRule, file: Path) -> Iterator[tuple[Any, Mapping[str, str]]]:
    import regex

    pattern = regex.compile(rule.regex)
    for line in _read(file).splitlines():
        try:
            found = pattern.finditer(line[:_LONGEST_LINE], timeout=_MATCHING_S)
            for place, match in enumerate(match for match in found if match["value"] is not None):
                groups = {name: text or "" for name, text in match.groupdict().items()}
                yield match["value"], {"match": str(place), **groups}
        except TimeoutError:
            raise ParseError(
                f"{rule.kind} took longer than {_MATCHING_S:g} s for one line",
                where=str(file),
                remedy="write it so that each part can match in only one way: no nested repetition",
            ) from None


def _json_matches(rule: MetricRule, file: Path) -> Iterator[tuple[Any, Mapping[str, str]]]:
    text = _read(file)
    path = parse_json_path(rule.json_path)
    for document in _documents(text, file):
        for found in find(document, path):
            if found.value is not None:
                yield found.value, found.fields


def _documents(text: str, file: Path) -> Iterator[Any]:
    """Yield the JSON documents of a text: a single one, one per line, or one after lines of other text."""
    try:
        yield json.loads(text)
    except RecursionError:
        raise ParseError(f"the JSON in {file.name} is nested too deeply", where=str(file)) from None
    except ValueError as whole:
        lines = [line for line in text.splitlines() if line.lstrip().startswith(("{", "["))]
        try:
            documents = [json.loads(line) for line in lines]
        except ValueError:
            documents = []
        if not documents and (begin := re.search(r"^\s*[\[{]", text, re.MULTILINE)):
            try:
                documents = [json.JSONDecoder().raw_decode(text[begin.end() - 1 :])[0]]
            except ValueError:
                documents = []
        if not documents:
            raise ParseError(
                f"{file.name} holds no JSON: {whole}",
                where=str(file),
                remedy="ask the command for JSON, or name the file that has it",
            ) from None
        yield from documents


def _csv_matches(rule: MetricRule, file: Path) -> Iterator[tuple[Any, Mapping[str, str]]]:
    lines = [line for line in _read(file).splitlines() if line.strip()]
    rows = csv.reader(lines, delimiter=rule.delimiter, skipinitialspace=True)
    try:
        header = list(rule.header) or [name.strip() for name in next(rows, [])]
        if rule.column not in header:
            raise ParseError(
                f"{file.name} has no column {rule.column!r}",
                where=str(file),
                remedy=f"its columns: {', '.join(header) or 'none'}; set header if the file has none",
            )
        for row in rows:
            fields = {name: cell.strip() for name, cell in zip(header, row, strict=False)}
            if fields.get(rule.column):
                yield fields[rule.column], fields
    except csv.Error as error:
        raise ParseError(f"{file.name} is not a CSV: {error}", where=str(file)) from error
