"""Names in remedies what the user can set: a parameter of the profile, or of one element by ``--set``.

A parser knows only the tool's own names, such as LoadGen's ``min_query_count``. A profile refuses these.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.component.component import ComponentParameters
    from agent.core.records import ParsedOutput, Reason
    from agent.profile import Element

_TOOL_NAME = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_REFERENCE = re.compile(r"\$\.parameters\.([a-z0-9_-]+)", re.IGNORECASE)
_UNITS = ("", "ms")
"""Endings that a parameter may have after the tool's name of it."""


def with_user_settings(
    outputs: Iterable[ParsedOutput], element: Element, parameters: ComponentParameters
) -> tuple[ParsedOutput, ...]:
    """Return the outputs with remedies that name parameters of the profile or of its element.

    Args:
        outputs: what the element's tool wrote.
        element: the element as written in the profile.
        parameters: its parameters, resolved.
    """
    fields = {canonical(name): name for name in type(parameters).model_fields}
    written = {canonical(name): (name, value) for name, value in element.parameters.items()}
    scenario = parameters.scenario or element.type

    def field_of(tool_name: str) -> str | None:
        names = (canonical(tool_name) + unit for unit in _UNITS)
        return next((name for name in names if name in fields), None)

    def name_of(field: str) -> tuple[str, str]:
        """Return the name of a setting, and the option that sets it without its value."""
        own, value = written.get(field, (_camel_case(fields[field]), None))
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found:
            return found[1], f"--parameters {found[1]}"
        return own, f"--set {scenario}.{own}"

    def word(match: re.Match[str]) -> str:
        field = field_of(match[0])
        return name_of(field)[0] if field else match[0]

    def reworded(reason: Reason) -> Reason:
        remedy = _TOOL_NAME.sub(word, reason.remedy)
        field = field_of(reason.setting) if reason.setting else None
        if field is None:
            return replace(reason, remedy=remedy)
        name, option = name_of(field)
        value = f"{reason.value:g}" if isinstance(reason.value, float) else str(reason.value or "")
        if value and value in remedy:
            remedy += f" ({option}={value})"
        return replace(reason, remedy=remedy, setting=name)

    return tuple(
        replace(
            output,
            verdict=replace(output.verdict, reasons=tuple(map(reworded, output.verdict.reasons))),
        )
        if output.verdict
        else output
        for output in outputs
    )


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)
