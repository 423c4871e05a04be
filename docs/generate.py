"""Writes the pages in docs/reference from the code: ``python docs/generate.py``."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from agent import facts, sinks
from agent.cli.man_page import ENVIRONMENT, EXIT_CODES, whole_program
from agent.component import component, downloads
from agent.component.component import Action, ComponentParameters, Dependency
from agent.component.registry import component_class, known_types
from agent.core import errors, records
from agent.core.errors import ExitCode
from agent.facts import known_facts
from agent.profile import find, installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic.fields import FieldInfo

    from agent.component.component import Component

FOLDER = Path(__file__).with_name("reference")
API: dict[str, tuple[type, ...]] = {
    "Components": (
        component.ComponentParameters, component.Component, component.Dependency, component.Action,
        component.ServiceAction, component.Monitor, component.MonitorContext, component.MonitorSummary,
    ),
    "Plans and steps": (
        component.Plan, component.Step, component.StepContext, component.StepOutcome, component.Service,
        downloads.Download,
    ),
    "Facts": (facts.Fact, facts.Facts, facts.Host),
    "Parsers and records": (records.Parser, records.ParsedOutput, records.Metric, records.MetricRecord),
    "Sinks": (sinks.Sink, sinks.SinkContext),
    "Errors": (errors.UsageError, errors.HostError, errors.ParseError),
}  # fmt: skip
"""Classes that a plug-in uses, by the headings of their page."""


def pages() -> dict[str, str]:
    """Return each generated page by its file name."""
    made: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
        "commands.md": ("Commands", _commands),
        "components.md": ("Dependencies, actions and monitors", _components),
        "profiles.md": ("Profiles and their parameters", _profiles),
        "facts.md": ("Facts", _facts),
        "parsers.md": ("Formats that `vcagent parse` reads", _parsers),
        "exit-codes.md": ("Exit codes", _exit_codes),
        "environment.md": ("Environment variables", _environment),
        "api.md": ("Classes for plug-ins", _api),
    }
    return {name: f"# {title}\n\n{_joined(lines())}\n" for name, (title, lines) in made.items()}


def _joined(parts: Iterator[str]) -> str:
    return "\n".join(parts).strip()


def _commands() -> Iterator[str]:
    yield from _command(whole_program(), "vcagent")


def _command(command: Any, name: str) -> Iterator[str]:
    with typer.Context(command, info_name=name) as context:
        arguments = " ".join(
            parameter.metavar
            or (parameter.name.upper() if parameter.required else f"[{parameter.name.upper()}]")
            for parameter in command.params
            if parameter.param_type_name == "argument"
        )
        usage = f"{name} {arguments}".strip()
        yield f"## `{usage}`\n"
        yield f"{_paragraphs(command.help or '')}\n"
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                record = parameter.get_help_record(context)
                if record:
                    yield f"- `{record[0]}`: {_one_line(record[1])}"
        yield ""
    for child in sorted(getattr(command, "commands", {})):
        if not command.commands[child].hidden:
            yield from _command(command.commands[child], f"{name} {child}")


def _components() -> Iterator[str]:
    kinds: dict[str, list[str]] = {"Dependencies": [], "Actions": [], "Monitors": []}
    for name in known_types():
        kind = component_class(name)
        group = "Dependencies" if issubclass(kind, Dependency) else "Actions"
        kinds[group if issubclass(kind, (Dependency, Action)) else "Monitors"].append(name)
    yield "Names match without case, `_` and `-`: `TargetQps` and `target_qps` are the same parameter.\n"
    yield "Every element has these parameters:\n"
    yield from _fields(ComponentParameters.model_fields)
    yield ""
    for group, names in kinds.items():
        yield f"## {group}\n"
        for name in names:
            yield from _component(name, component_class(name))


def _component(name: str, kind: type[Component]) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{_paragraphs(inspect.getdoc(kind) or '')}\n"
    common = ComponentParameters.model_fields
    fields = kind.Parameters.model_fields
    yield from _fields(
        {field: value for field, value in fields.items() if str(value) != str(common.get(field))}
    )
    yield ""


def _fields(fields: Mapping[str, FieldInfo], indent: str = "") -> Iterator[str]:
    for name, field in fields.items():
        kind = f"{_type_of(field.annotation)}{_default_of(field)}"
        yield f"{indent}- `{name}` ({kind}): {_one_line(field.description or '')}"
        for group in _groups(field.annotation):
            yield from _fields(group.model_fields, f"{indent}    ")


def _groups(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the groups of parameters that a parameter's type has."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _groups(part)


_WORDS: dict[Any, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", dict: "mapping",
    Any: "any value",
}  # fmt: skip


def _type_of(annotation: Any) -> str:  # noqa: PLR0911 - one for each kind of type
    """Return a parameter's type in words, without None: a parameter that may be absent has a default."""
    origin, parts = get_origin(annotation), [part for part in get_args(annotation) if part is not NoneType]
    if origin is Annotated:
        return _type_of(parts[0])
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in {Union, UnionType}:
        return " or ".join(dict.fromkeys(map(_type_of, parts)))
    if origin in {tuple, list, frozenset, Sequence}:
        return f"list of {_type_of(parts[0])}"
    if origin in {dict, Mapping}:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "group"
    return _WORDS.get(annotation) or getattr(annotation, "__name__", str(annotation))


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return ", required"
    if field.default in (None, PydanticUndefined, "", (), [], {}):
        return ""
    value = field.default.value if hasattr(field.default, "value") else field.default
    return f", default `{value}`"


def _profiles() -> Iterator[str]:
    for name in sorted(installed()):
        text = find(name).text
        data = {str(key).lower(): value for key, value in yaml.safe_load(text).items()}
        yield f"## {name.rpartition('.')[0]}\n"
        yield f"{_one_line(data.get('description') or '')}\n"
        yield from _profile_parameters(text)
        yield ""


def _profile_parameters(text: str) -> Iterator[str]:
    """Yield the parameters of a profile with its own comments."""
    inside, comment = False, []
    for line in text.splitlines():
        if re.match(r"(?i)parameters:\s*$", line):
            inside = True
        elif inside and line and not line.startswith((" ", "#")):
            return
        elif inside and (found := re.match(r"  (\w+):\s*(.*)$", line)):
            if comment:
                yield f"\n{_one_line(' '.join(comment))}\n"
            value = found[2].strip()
            yield f"- `{found[1]}`" + (f": `{value}`" if value and value not in {'""', "null"} else "")
            comment = []
        elif inside and (found := re.match(r"  # ?(.*)$", line)):
            comment.append(found[1])
        elif inside and not line.strip():
            comment = []


def _facts() -> Iterator[str]:
    yield "`vcagent facts` shows the values on this host. Each fact is read only if something needs it.\n"
    for name, fact in known_facts().items():
        source = re.sub(
            r"/\S*/bin/python[\d.]*", "python3", fact.source
        )  # the interpreter that made this page
        yield f"- `{name}`: from {source}"


def _parsers() -> Iterator[str]:
    for point in sorted(entry_points(group="vcagent.parsers"), key=lambda point: point.name):
        parser: Any = point.load()
        yield f"- `{parser.name}`: {parser.description}"


def _exit_codes() -> Iterator[str]:
    yield from (f"- **{code.value}**: {EXIT_CODES[code]}" for code in ExitCode)


def _environment() -> Iterator[str]:
    yield "A profile reads further variables as `{EnvironmentVariable:NAME}`.\n"
    yield from (f"- `{name}`: {meaning}" for name, meaning in ENVIRONMENT.items())


def _api() -> Iterator[str]:
    yield "[Extending](../extending.md) builds a distribution with these classes.\n"
    for heading, classes in API.items():
        yield f"## {heading}\n"
        for kind in classes:
            yield f"### {kind.__name__}\n"
            package = kind.__module__.rpartition(".")[0]
            module = package if hasattr(sys.modules[package], kind.__name__) else kind.__module__
            yield f"`from {module} import {kind.__name__}`\n"
            yield from _docstring(kind)
            bases = [base for base in kind.__mro__ if base is kind or base.__name__.startswith("_")]
            for name, value in (item for base in bases for item in vars(base).items()):
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
                    signature = "" if isinstance(value, property) else _signature(function)
                    yield f"#### `{name}{signature}`\n"
                    yield from _docstring(function)


def _signature(function: Any) -> str:
    """Return the names of a function's parameters, with ``…`` for defaults."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    keyword = [value for value in parameters if value.kind is inspect.Parameter.KEYWORD_ONLY]
    names = [value.name if value.default is value.empty else f"{value.name}=…" for value in parameters]
    if keyword:
        names.insert(parameters.index(keyword[0]), "*")
    return f"({', '.join(names)})"


def _docstring(value: Any) -> Iterator[str]:
    """Yield a docstring as Markdown: each entry of its sections is an item of a list."""
    text = inspect.getdoc(value) or ""
    yield f"{_paragraphs(text)}\n"
    for title, body in re.findall(r"^(Args|Returns|Raises|Yields):\n((?:[ ]+.*\n?|\n)*)", text, re.MULTILINE):
        yield f"{title}:\n"
        for item in re.split(r"\n(?=\S)", textwrap.dedent(body).strip()):
            name, colon, meaning = item.partition(": ")
            named = colon and re.fullmatch(r"[\w*, ]+", name) and title in {"Args", "Raises"}
            yield f"- `{name}`: {_one_line(meaning)}" if named else f"- {_one_line(item)}"
        yield ""


def _paragraphs(text: str) -> str:
    """Return a docstring's text without its sections for programmers."""
    text = re.split(r"\n\s*(?:Args|Raises|Returns|Attributes|Yields):\n", textwrap.dedent(text))[0]
    return "\n\n".join(_one_line(part) for part in text.split("\n\n")).replace("``", "`")


def _one_line(text: str) -> str:
    return re.sub(r"\[/?(?:bold|dim|cyan)?\]", "", " ".join(text.split())).replace("``", "`")


def main() -> int:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
