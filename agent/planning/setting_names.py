"""Names in remedies what the user can set: a parameter of the profile, or of one element by ``--set``.

Components know their parameters by the names of fields, such as ``input_tokens_max``, and parsers know the
tool's own, such as LoadGen's ``min_query_count``. A profile has other words for both.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.names import canonical
from agent.core.secret_shapes import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.core.errors import VcagentError
    from agent.core.records import Reason
    from agent.profile import Element

_NAME = re.compile(
    r"(?<![\w.$%/{-])(?![A-Z0-9_]+\b)([a-z]\w*_\w+|[A-Za-z][a-z0-9]*[A-Z]\w*|[a-z]+(?==))(?![\w(/]|\.\w)"
    r"(=[^\s,;)]+)?"
)
"""A name in snake_case or camelCase, or any with a value; not that of an environment variable."""
_ORDER = re.compile(r"\b(set|raise|lower|correct|give|remove) ([a-z]+)\b(?!=)")
"""Advice about a setting whose name is a single word: ``raise timeout``."""
_REFERENCE = re.compile(r"\$\.parameters\.([a-z0-9_-]+)", re.IGNORECASE)
_OPTIONS = ("--parameters", "--set")
_UNITS = ("", "ms")
"""Endings that a parameter may have after the tool's name of it."""


class SettingNames:
    """The names by which the user sets the parameters of one element.

    Args:
        element: the element as written in the profile.
        fields: the names of its component's parameters.
        scenario: its scenario, resolved; its type if it has none.
    """

    def __init__(self, element: Element, fields: Iterable[str], scenario: str) -> None:
        self._fields = {canonical(name): name for name in fields}
        self._written = {canonical(name): (name, value) for name, value in element.parameters.items()}
        self._scenario = scenario or element.type

    def in_element(self, name: str) -> str:
        """Return a parameter as the element has it, or as a profile would write it."""
        key = self._field(name) or canonical(name)
        return self._written[key][0] if key in self._written else camel_case(self._fields.get(key, name))

    def in_text(self, text: str) -> str:
        """Return a text of a component about its own parameters, with the words of the element."""
        return _NAME.sub(
            lambda match: self.in_element(match[1]) + (match[2] or "") if self._field(match[1]) else match[0],
            text,
        )

    def in_remedy(self, text: str) -> str:
        """Return a remedy with names that the command line takes; ``name=value`` also as an option."""
        if any(option in text for option in _OPTIONS):
            return text
        options: dict[str, None] = {}

        def word(match: re.Match[str]) -> str:
            field = self._field(match[1])
            if not field:
                return match[0]
            name, option = self._settable(field)
            if match[2] and not is_secret_name(name):
                options[option + match[2]] = None
            return name + (match[2] or "")

        def order(match: re.Match[str]) -> str:
            field = self._field(match[2])
            return f"{match[1]} {self._settable(field)[0]}" if field else match[0]

        text = _ORDER.sub(order, _NAME.sub(word, text))
        return f"{text} ({', '.join(options)})" if options else text

    def in_error(self, error: VcagentError) -> None:
        """Change an error's remedy likewise."""
        error.remedy = error.remedy and self.in_remedy(error.remedy)

    def in_reason(self, reason: Reason) -> Reason:
        """Return a reason whose remedy and setting name what can be set."""
        remedy = self.in_remedy(reason.remedy)
        field = self._field(reason.setting) if reason.setting else None
        if field is None:
            return replace(reason, remedy=remedy)
        name, option = self._settable(field)
        value = f"{reason.value:g}" if isinstance(reason.value, float) else str(reason.value or "")
        if value and value in remedy and option not in remedy:
            remedy += f" ({option}={value})"
        return replace(reason, remedy=remedy, setting=name)

    def _field(self, name: str) -> str | None:
        """Return the canonical name of the parameter that a tool or component calls so; None if unknown."""
        names = (canonical(name) + unit for unit in _UNITS)
        return next((known for known in names if known in self._fields), None)

    def _settable(self, field: str) -> tuple[str, str]:
        """Return the name of a setting, and the option that sets it without its value."""
        own, value = self._written.get(field, (camel_case(self._fields[field]), None))
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found:
            return found[1], f"--parameters {found[1]}"
        return own, f"--set {self._scenario}.{own}"


def camel_case(name: str) -> str:
    """Return a field's name as profiles write it: ``input_tokens_max`` is ``inputTokensMax``."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
