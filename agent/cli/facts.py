"""``vcagent facts``: what the agent knows of this host, and where from."""

from __future__ import annotations

from itertools import accumulate
from typing import Annotated, Any

import typer

from agent.cli.completion import complete_facts

_LONG = 200
"""Characters after which a value is cut; ``vcagent facts NAME`` shows all of it."""


def facts(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Facts to show whole; by default all, one line each.",
            show_default=False,
            autocompletion=complete_facts,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: whole values.")] = False,
) -> None:
    """Show facts about this host; facts that are named are shown whole, with their sources."""
    from agent.cli.output import say
    from agent.core.errors import UsageError, VcagentError
    from agent.core.names import canonical, did_you_mean
    from agent.facts import Facts, LocalHost, broken_plug_ins, known_facts
    from agent.run.description import to_json

    known = known_facts()
    for problem in broken_plug_ins():
        say(f"warning: {problem}", error=True)
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
        from agent.cli.output import print_document
        from agent.store.command_documents import FactsDocument

        print_document(FactsDocument, {"facts": values})
        return
    from agent.core.terminal import safe_console

    if names:
        _show_whole({fact.name: (fact.source, values[fact.name]) for fact in chosen})
        return
    from agent.core.layout import print_columns, print_lines

    rows = [(fact.name, " ".join(_brief(values[fact.name]).split())) for fact in chosen]
    console = safe_console(highlight=False)
    print_columns(console, ("fact", "value"), rows)
    if console.is_terminal:
        print_lines(console, "vcagent facts NAME shows a fact whole, with its source; — is an unknown value.")


def _show_whole(facts: dict[str, tuple[str, Any]]) -> None:
    """Print facts as YAML, each with its source as a comment."""
    import yaml

    from agent.cli.output import say

    for name, (source, value) in facts.items():
        say(f"# source: {' '.join(source.split())}")
        say(yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True, width=4000), end="")


def _brief(value: Any) -> str:
    """Return a value for its line; a long list or mapping ends after its first entries."""
    text = _one_line(value)
    if len(text) <= _LONG or not isinstance(value, (dict, list)):
        return text
    between = ", " if isinstance(value, dict) else "; "
    entries = (
        [f"{key} {_one_line(item)}" for key, item in value.items()]
        if isinstance(value, dict)
        else [_one_line(item) for item in value]
    )
    lengths = accumulate(len(entry) + len(between) for entry in entries)
    shown = max(1, sum(length <= _LONG for length in lengths))
    rest = len(entries) - shown
    first = between.join(entries[:shown])[:_LONG]
    return f"{first}{between}and {rest} more" if rest else f"{first} …"


def _one_line(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_one_line(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(_one_line, value)) or "none"
    return str(value)
