"""Gives the remedies of a step's results the words of its profile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agent.planning.setting_names import SettingNames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.component.component import ComponentParameters
    from agent.core.records import ParsedOutput
    from agent.profile import Element


def names_of(element: Element, parameters: ComponentParameters) -> SettingNames:
    """Return the names by which the user sets an element's parameters.

    Args:
        element: the element as written in the profile.
        parameters: its parameters, resolved.
    """
    return SettingNames(element, type(parameters).model_fields, parameters.scenario or "")


def with_user_settings(
    outputs: Iterable[ParsedOutput], element: Element, parameters: ComponentParameters
) -> tuple[ParsedOutput, ...]:
    """Return the outputs with remedies that name parameters of the profile or of its element.

    Args:
        outputs: what the element's tool wrote.
        element: the element as written in the profile.
        parameters: its parameters, resolved.
    """
    names = names_of(element, parameters)
    return tuple(
        replace(
            output,
            verdict=replace(output.verdict, reasons=tuple(map(names.in_reason, output.verdict.reasons))),
        )
        if output.verdict
        else output
        for output in outputs
    )
