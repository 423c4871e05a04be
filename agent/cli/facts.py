"""``vcagent facts``: what the agent knows of this host, and where from."""

from __future__ import annotations

from typing import Annotated, Any

import typer

_LONG = 200
"""Characters after which a value is only counted in the table; ``--json`` has all of it."""


def facts(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Facts to show; all by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Whole values, for programs.")] = False,
) -> None:
    """Show facts about this host with their sources; nothing is changed."""
    from agent.core.errors import UsageError, VcagentError
    from agent.core.names import canonical, did_you_mean
    from agent.facts import Facts, LocalHost, known_facts
    from agent.run.description import to_json

    known = known_facts()
    by_canonical = {canonical(name): fact for name, fact in known.items()}
    chosen = []
    for name in names or known:
        fact = by_canonical.get(canonical(name))
        if fact is None:
            raise UsageError(f"there is no fact {name}", remedy=did_you_mean(name, known))
        chosen.append(fact)
    host = Facts(LocalHost())
    values: dict[str, Any] = {}
    for fact in chosen:
        try:
            values[fact.name] = to_json(host[fact])
        except VcagentError as error:
            values[fact.name] = {"error": str(error)}
    if as_json:
        from agent.cli.output import print_json

        print_json(values)
        return
    from rich.table import Table

    from agent.core.terminal import safe_console

    table = Table("fact", "value", "source", box=None, pad_edge=False, header_style="bold")
    for fact in chosen:
        table.add_row(fact.name, _brief(values[fact.name], whole=bool(names)), fact.source)
    safe_console(highlight=False).print(table)


def _brief(value: Any, *, whole: bool) -> str:
    """Return a value for the table."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        text = ", ".join(f"{key} {_brief(item, whole=whole)}" for key, item in value.items()) or "none"
    elif isinstance(value, list):
        text = "; ".join(_brief(item, whole=whole) for item in value) or "none"
    else:
        text = str(value)
    if len(text) > _LONG and not whole and isinstance(value, (dict, list)):
        return f"{len(value)} entries"
    return text
