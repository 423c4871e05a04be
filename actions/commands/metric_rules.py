"""Define rules of a profile for finding numbers in a command's output: regex, JSON, CSV or parser."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from actions.commands.json_paths import parse_json_path
from agent.component.parameter_types import ParameterGroup, Words
from agent.component.parsing import parsers
from agent.core.names import canonical, did_you_mean
from agent.core.records import Relativity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIELD = re.compile(r"<([^<>]+)>")

_RELATIVITIES = {
    "higher": Relativity.HIGHER,
    "higherisbetter": Relativity.HIGHER,
    "lower": Relativity.LOWER,
    "lowerisbetter": Relativity.LOWER,
    "undefined": Relativity.UNDEFINED,
    "none": Relativity.UNDEFINED,
}

TAKE: Mapping[str, Callable[[list[float]], float]] = {
    "last": lambda values: values[-1],
    "first": lambda values: values[0],
    "minimum": min,
    "maximum": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "sum": math.fsum,
}


def _relativity(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if canonical(value) not in _RELATIVITIES:
        raise ValueError(f"{value!r} is not higher, lower or undefined")
    return _RELATIVITIES[canonical(value)]


class MetricRule(ParameterGroup):
    """One rule.

    ``<field>`` in name, unit, description and tags is replaced by a value found next to the number.
    """

    parser: str = Field(
        "", description="Name of a format that vcagent parse knows; do not set the other ways with it."
    )
    regex: str = Field(
        "", description="A regular expression with a group value; may have groups name, unit and others."
    )
    json_path: str = Field("", description="A path to numbers in JSON: jobs[*].read.iops.")
    column: str = Field("", description="Name of the CSV column with the numbers.")
    file: str = Field(
        "", description="Where to look: output (stdout, then stderr), stdout, stderr, or files of the case."
    )
    name: str = Field("", description="The metric's name; by default the group name.")
    unit: str = Field(
        "", description="Its unit after scale, such as seconds or bytes/s; by default the group unit."
    )
    scale: float = Field(1.0, description="Factor by which the tool's number is multiplied.")
    tool_unit: str = Field("", description="Unit of the tool's number, if scale is not 1.")
    relativity: Annotated[Relativity, BeforeValidator(_relativity)] = Field(
        Relativity.UNDEFINED, description="Whether higher or lower is better; may be undefined."
    )
    description: str = Field("", description="Meaning of the number.")
    verbosity: int = Field(1, ge=0, le=5, description="1 for headline metrics, up to 5 for details.")
    tags: Words = Field((), description="Labels of the metric.")
    take: str = Field("last", description=f"Which of several numbers of one name: {', '.join(TAKE)}.")
    where: dict[str, str] = Field(
        default_factory=dict,
        description="Conditions: values that these groups, members or columns must have.",
    )
    header: Words = Field((), description="Column names of a CSV that does not have a header line.")
    delimiter: str = Field(",", min_length=1, max_length=1, description="Separator of a CSV's columns.")

    @field_validator("take")
    @classmethod
    def _known_take(cls, value: str) -> str:
        if value not in TAKE:
            raise ValueError(f"{value!r}: {did_you_mean(value, TAKE)}")
        return value

    @field_validator("where", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return {str(name): str(entry) for name, entry in value.items()} if isinstance(value, dict) else value

    @field_validator("file")
    @classmethod
    def _below_the_case(cls, value: str) -> str:
        if Path(value).is_absolute() or ".." in Path(value).parts:
            raise ValueError("name a file of the case's folder; outputs copies files there")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> MetricRule:
        ways = [way for way in ("parser", "regex", "json_path", "column") if getattr(self, way)]
        if len(ways) != 1:
            raise ValueError(
                "a rule has one of parser, regex, json_path, column" + f", not {len(ways)}" * bool(ways)
            )
        if self.parser:
            return self._checked_parser()
        if not math.isfinite(self.scale) or not self.scale:
            raise ValueError("scale is a number other than 0")
        if self.regex:
            self._check_regex()
        elif self.json_path:
            parse_json_path(self.json_path)
        if not self.name and not self.regex:
            raise ValueError("the rule needs a name for its metric")
        if not self.unit and not self.regex:
            raise ValueError("the rule needs the unit of its metric, such as seconds, bytes/s or count")
        return self

    @property
    def fixed_name(self) -> str | None:
        """The metric's name, if it does not depend on the match."""
        return self.name if self.name and not FIELD.search(self.name) else None

    @property
    def kind(self) -> str:
        """Short description of the rule, for messages."""
        way = next(way for way in ("parser", "regex", "json_path", "column") if getattr(self, way))
        return f"{way.replace('_path', '')} '{getattr(self, way)}'"

    def _checked_parser(self) -> MetricRule:
        if canonical(self.parser) not in map(canonical, parsers()):
            raise ValueError(f"no format is named {self.parser!r}; {did_you_mean(self.parser, parsers())}")
        ignored = [name for name in self.model_fields_set if name not in {"parser", "file"}]
        if ignored:
            raise ValueError(f"a parser names its metrics itself: leave {', '.join(sorted(ignored))} out")
        return self

    def _check_regex(self) -> None:
        import regex

        try:
            groups = set(regex.compile(self.regex).groupindex)
        except regex.error as error:
            raise ValueError(f"'{self.regex}' is not a regular expression: {error}") from error
        if "value" not in groups:
            raise ValueError(f"'{self.regex}' has no group (?P<value>…) for the number")
        for what in ("name", "unit"):
            if not getattr(self, what) and what not in groups:
                raise ValueError(
                    f"'{self.regex}' has no group (?P<{what}>…), and the rule no {what}: give one"
                )
        used = {
            field
            for text in (self.name, self.unit, self.description, *self.tags)
            for field in FIELD.findall(text)
        } | set(self.where)
        if unknown := sorted(used - groups - {"match"}):
            raise ValueError(
                f"<{unknown[0]}> is not a group of '{self.regex}'; it has {', '.join(sorted(groups))}"
            )


def _rules(value: Any) -> Any:
    entries = value if isinstance(value, list | tuple) else [value] if value not in (None, "") else []
    return [{"parser": entry} if isinstance(entry, str) else entry for entry in entries]


MetricRules = Annotated[tuple[MetricRule, ...], BeforeValidator(_rules)]
"""A list of rules; a text in it is the name of a parser."""
