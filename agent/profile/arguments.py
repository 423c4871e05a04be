"""Parses the command line's own notations: ``--parameters``, ``--metadata``, ``--timeout``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from agent.core.errors import ProfileError, UsageError
from agent.core.progress import duration
from agent.core.timespan import parse_timespan


def parse_parameters(text: str) -> dict[str, str]:
    """Return the names and values in ``A=1,,,B=2``.

    The separator is ``,,,`` if the text has one, else ``;`` if it has one, else ``,``: VirtualClient's order.
    A value may hold ``=``. If a name occurs twice, the last value counts.

    Raises:
        UsageError: if a piece has no ``=``: VirtualClient would silently drop it.
    """
    separator = next((mark for mark in (",,,", ";") if mark in text), ",")
    values: dict[str, str] = {}
    for piece in filter(None, (part.strip() for part in text.split(separator))):
        name, equals, value = piece.partition("=")
        if not equals or not name.strip():
            after = f" after '{list(values)[-1]}='" if values else ""
            raise UsageError(
                f"a parameter{after} is not written name=value",
                remedy="separate by ,,, if a value contains a comma or semicolon: A=1,2,,,B=3 or A=1,2,,,",
            )
        values[name.strip()] = value.strip()
    return values


class TimeoutScope(Enum):
    """Steps that may still finish after the timeout."""

    NOTHING = "nothing"
    ACTION = "deterministic"
    ALL_ACTIONS = "deterministic*"


@dataclass(frozen=True)
class Timeout:
    """Limit for the duration of a run.

    Args:
        duration_s: seconds; None for no limit.
        scope: the steps that may still finish after the timeout.
    """

    duration_s: float | None
    scope: TimeoutScope = TimeoutScope.NOTHING

    @property
    def meaning(self) -> str:
        """What the timeout means for a run, as a sentence."""
        if self.duration_s is None:
            return "The actions are repeated until you stop the run."
        end = {
            TimeoutScope.NOTHING: "then the running action is stopped",
            TimeoutScope.ACTION: "then the running action is the last",
            TimeoutScope.ALL_ACTIONS: "then the running round is the last",
        }[self.scope]
        return f"The actions are repeated for {duration(self.duration_s)}; {end}."


def parse_timeout(text: str) -> Timeout:
    """Return the value of ``--timeout``: ``90`` (minutes), ``01:30:00``, ``1.5h``, ``never`` or ``-1``.

    ``,deterministic`` lets the running action finish, ``,deterministic*`` all actions.

    Raises:
        UsageError: if it is none of these.
    """
    if text.strip().lower() in {"-1", "never"}:
        return Timeout(None)
    remedy = "write minutes or hh:mm:ss, with ,deterministic or ,deterministic* after it if wanted"
    parts = [part for part in re.split(r"[,;\s]+", text.strip().lower()) if part]
    if not parts or len(parts) > 2:  # noqa: PLR2004 - a duration and a scope
        raise UsageError(f"'{text}' is not a timeout", remedy=remedy)
    try:
        duration_s = parse_timespan(parts[0], number_unit_s=60)
        scope = TimeoutScope(parts[1]) if len(parts) > 1 else TimeoutScope.NOTHING
    except (ProfileError, ValueError) as error:
        raise UsageError(f"'{text}' is not a timeout", remedy=remedy) from error
    if duration_s == 0 or (len(parts) > 1 and scope is TimeoutScope.NOTHING):
        raise UsageError(f"'{text}' is not a timeout", remedy=remedy)
    return Timeout(duration_s, scope)
