"""Reads rules from a YAML file: ours, and SuperBench's if their meaning is unambiguous."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError, UsageError
from agent.core.names import did_you_mean
from agent.diagnosis.criteria import LABEL, Criterion, parse_criterion
from agent.diagnosis.patterns import MetricPattern, own_pattern, superbench_pattern
from agent.profile.document import read_document
from agent.profile.finding import source_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agent.profile.syntax import Document, Path

_KEYS = ("function", "criteria", "categories", "metrics", "store")
_OWN_KEYS = (*_KEYS, "verbosity", "suspect")
_SUPERBENCH = "superbench"
_ANY_VERBOSITY = 5
CHANCE = "chance"
NOISE_CHANCE = "noise_chance"
WORST = "worst"
WORST_CHANCE = "worst_chance"
LEAST_WORSE = "least_worse"
HOSTS = "hosts"


class Function(str, Enum):
    """Function of a rule; the names are SuperBench's.

    VALUE judges the values themselves, VARIANCE their distance from the baseline as a share of it;
    FAILURE_CHECK is VALUE, and a missing metric is also a defect; MULTI_RULES judges the results of rules
    before it; STORE only keeps the values for those.
    """

    VALUE = "value"
    VARIANCE = "variance"
    FAILURE_CHECK = "failure_check"
    MULTI_RULES = "multi_rules"
    STORE = "store"


_VARIABLES: Mapping[Function, tuple[str, ...]] = {
    Function.VALUE: ("x",),
    Function.VARIANCE: ("x", "z", "worse", CHANCE, NOISE_CHANCE, WORST, WORST_CHANCE, LEAST_WORSE, HOSTS),
    Function.FAILURE_CHECK: ("x",),
    Function.MULTI_RULES: (LABEL,),
}


@dataclass(frozen=True)
class Rule:
    """One rule.

    Args:
        name: its name in the file.
        function: its function.
        categories: the categories of its defects.
        criterion: true for a defect; None if there is nothing to judge, or only missing metrics.
        patterns: the patterns of its metrics.
        is_stored: True if its result is only for later rules, and not a defect by itself.
        verbosity: metrics with a higher verbosity are ignored.
        is_suspicion: True if a host that violates it is suspect, not sick.
    """

    name: str
    function: Function
    categories: str
    criterion: Criterion | None = None
    patterns: tuple[MetricPattern, ...] = ()
    is_stored: bool = False
    verbosity: int = _ANY_VERBOSITY
    is_suspicion: bool = False

    @property
    def sources(self) -> frozenset[str]:
        """The rules whose results it judges."""
        return self.criterion.counts | self.criterion.values if self.criterion else frozenset()

    def is_about(self, metric: str, verbosity: int) -> bool:
        """Return True if it judges the metric with this full name."""
        return verbosity <= self.verbosity and any(one.matches(metric) for one in self.patterns)


def default_rules() -> tuple[Rule, ...]:
    """Return the rules that are used by default."""
    text = resources.files("agent.diagnosis").joinpath("rules.yaml").read_text("utf-8")
    return read_rules(text, "rules.yaml")


def read_rules(text: str, label: str) -> tuple[Rule, ...]:
    """Return the rules of a file, in its order.

    Args:
        text: the file's text.
        label: its name, for messages.

    Raises:
        UsageError: naming file, line and rule, if one cannot be read or is ambiguous.
    """
    try:
        document = read_document(source_from_text(text, label=label, format="yaml"))
    except ProfileError as error:
        raise UsageError(
            error.message, where=error.where, remedy=error.remedy, details=error.details
        ) from None
    path, superbench = _place(document, label)
    content: Any = document.data
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    if not isinstance(content, dict) or not content:
        raise UsageError(
            "there are no rules",
            where=_where(document, label, path),
            remedy="they stand below rules:, by name",
        )
    rules: list[Rule] = []
    for name, values in content.items():
        try:
            rules.append(_rule(name, values, rules, superbench=superbench))
        except UsageError as error:
            raise UsageError(
                f"rule {name}: {error.message}",
                where=_where(document, label, (*path, name)),
                remedy=error.remedy,
            ) from None
    return tuple(rules)


def _place(document: Document, label: str) -> tuple[Path, bool]:
    """Return the path of the rules, and True if they are SuperBench's."""
    content = document.data if isinstance(document.data, dict) else {}
    if _SUPERBENCH not in content:
        _known_keys(content, ("rules",), label)
        return ("rules",), False
    where = _where(document, label, (_SUPERBENCH,))
    _known_keys(content, ("version", _SUPERBENCH), where)
    inner = content[_SUPERBENCH] if isinstance(content[_SUPERBENCH], dict) else {}
    if "benchmarks" in inner:
        raise UsageError(
            "this is SuperBench's format of before 0.4, with criteria inside of benchmarks",
            where=where,
            remedy="write its rules as SuperBench 0.4 and later have them: superbench: rules:",
        )
    _known_keys(inner, ("rules", "var"), where)
    return (_SUPERBENCH, "rules"), True


def _known_keys(content: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
    if unknown := [key for key in content if key not in known]:
        raise UsageError(
            f"the key {unknown[0]!r} is not known", where=where, remedy=did_you_mean(unknown[0], known)
        )


def _where(document: Document, label: str, path: Path) -> str:
    line = document.line(path)
    return f"{label}:{line}" if line else label


def _rule(name: str, values: object, before: Sequence[Rule], *, superbench: bool) -> Rule:
    known = _KEYS if superbench else _OWN_KEYS
    if not isinstance(values, dict):
        raise UsageError("it has no keys", remedy=f"a rule has {', '.join(known)}")
    _known_keys(values, known)
    is_stored, is_suspicion = (_flag(values, key) for key in ("store", "suspect"))
    if is_stored and is_suspicion:
        raise UsageError("a stored rule does not judge hosts by itself", remedy="leave suspect out")
    categories = values.get("categories", None if superbench else name)
    if not isinstance(categories, str) or not categories:
        raise UsageError("categories is a text that names what its defects are")
    function = _function(values, is_stored=is_stored)
    verbosity = values.get("verbosity", _ANY_VERBOSITY)
    if not isinstance(verbosity, int) or isinstance(verbosity, bool):
        raise UsageError("verbosity is a whole number, 1 for headline numbers only")
    return Rule(
        name,
        function,
        categories,
        _criterion(values, function, before, superbench=superbench),
        _patterns(values, function, superbench=superbench),
        is_stored,
        verbosity,
        is_suspicion,
    )


def _flag(values: Mapping[str, Any], key: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{key} is true or false")
    return value


def _function(values: Mapping[str, Any], *, is_stored: bool) -> Function:
    name = values.get("function")
    if name is None and is_stored:
        return Function.STORE
    known = [one.value for one in _VARIABLES]
    if name not in known:
        raise UsageError(
            "there is no function" if name is None else f"there is no function {name!r}",
            remedy=did_you_mean(str(name), known),
        )
    return Function(name)


def _criterion(
    values: Mapping[str, Any], function: Function, before: Sequence[Rule], *, superbench: bool
) -> Criterion | None:
    text = values.get("criteria")
    if function is Function.STORE:
        if text is not None:
            raise UsageError(
                "it has criteria, but no function", remedy="say what they are about: function: value"
            )
        return None
    if text is None and function is Function.FAILURE_CHECK and not superbench:
        return None
    if not isinstance(text, str):
        raise UsageError("criteria is an expression, such as x < -0.05")
    variables = _VARIABLES[function]
    criterion = parse_criterion(text, variables[:1] if superbench else variables)
    stored = {rule.name: rule.function for rule in before if rule.is_stored}
    for rule in sorted(criterion.counts | criterion.values):
        if rule not in stored:
            raise UsageError(
                f"no rule {rule!r} before it keeps its outcome",
                remedy=f"put it before this one, with store: true; {did_you_mean(rule, stored)}",
            )
        has_values = stored[rule] is Function.STORE
        if has_values != (rule in criterion.values) or rule in criterion.values & criterion.counts:
            use = f'{LABEL}["{rule}"]{".values()" if has_values else ""}'
            raise UsageError(f"{rule} keeps {'values' if has_values else 'a number of defects'}: use {use}")
    return criterion


def _patterns(
    values: Mapping[str, Any], function: Function, *, superbench: bool
) -> tuple[MetricPattern, ...]:
    metrics = values.get("metrics")
    if function is Function.MULTI_RULES:
        if metrics:
            raise UsageError("multi_rules judge the outcomes of other rules and take no metrics")
        return ()
    texts = [metrics] if isinstance(metrics, str) else metrics
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one for one in texts):
        raise UsageError("metrics is a list of names or patterns")
    return tuple((superbench_pattern if superbench else own_pattern)(text) for text in texts)
