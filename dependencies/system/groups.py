"""Users that join a group of the host, and leave it again."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from agent.component.component import Plan, Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError, HostError, LiftedBy
from agent.facts.users import account

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.facts import Fact, Facts


def user_names(value: Any) -> Any:
    """Read names of users: a list, or text with commas between."""
    parts = value.split(",") if isinstance(value, str) else value or ()
    return tuple(name for name in (str(part).strip() for part in parts) if name)


def checked_names(value: Any) -> Any:
    """Check one name or several.

    Raises:
        ValueError: if one cannot be a user's.
    """
    for name in (value,) if isinstance(value, str) else value:
        if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*\$?", name):
            raise ValueError(f"{name!r} is not the name of a user")
    return value


def group_steps(
    facts: Facts,
    names: Iterable[str],
    group: str,
    members: Fact[tuple[str, ...] | None],
    *,
    parameter: str,
    prefix: str,
    outcome: str,
) -> list[Step]:
    """Return the steps that add users to a group; root needs none.

    Args:
        facts: the host.
        names: the users.
        group: the group, which is created if it is missing.
        members: the fact of its members.
        parameter: the parameter that names the users, for errors.
        prefix: the beginning of the steps' names.
        outcome: the message at the step's end; ``{name}`` is the user.

    Raises:
        HostError: if there is no such user.
    """
    present = facts[members] or ()
    missing = [name for name in names if name not in present and name != "root"]
    for name in missing:
        if not facts[account(name)]:
            raise HostError(
                f"there is no user {name} to add to the group {group}",
                remedy=f"correct {parameter}, or make the user: useradd --create-home {name}",
                lifted_by=LiftedBy.ACCOUNT,
            )
    return [_join_step(name, group, members, prefix, outcome.format(name=name)) for name in missing]


def _join_step(
    name: str, group: str, members: Fact[tuple[str, ...] | None], prefix: str, outcome: str
) -> Step:
    commands = [
        ["groupadd", "--system", "--force", group],
        ["usermod", "--append", "--groups", group, name],
    ]

    def run(context: StepContext) -> StepOutcome:
        for command in commands:
            _run(context, command)
        return StepOutcome(outcome)

    return Step(
        f"{prefix}-{name}",
        f"{name} is not in the group {group}",
        run,
        " && ".join(map(shlex.join, commands)),
        lambda fresh: name in (fresh[members] or ()),
        undo={"member": name, "group": group},
    )


def leave_group_plan(name: str, group: str, members: Fact[tuple[str, ...] | None], facts: Facts) -> Plan:
    """Remove a user from a group again."""
    if name not in (facts[members] or ()):
        return Plan(nothing_to_do=f"{name} is not in the group {group} any more")
    command = ["gpasswd", "--delete", name, group]

    def leave(context: StepContext) -> None:
        _run(context, command)

    return Plan(
        (
            Step(
                "leave",
                f"{name} was added to the group {group}",
                leave,
                shlex.join(command),
                lambda fresh: name not in (fresh[members] or ()),
            ),
        )
    )


def _run(context: StepContext, command: Sequence[str]) -> None:
    try:
        context.processes.run(command, log=context.log)
    except ActionFailedError as error:
        raise DependencyFailedError(
            error.message, remedy=f"all of its output is in {context.log}", details=error.details
        ) from error
