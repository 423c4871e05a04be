"""Print the two verdicts on a submission side by side, followed by the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actions.submission.reruns import command_lines

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from actions.submission.building import Built
    from actions.submission.findings import CheckedResult, CheckedTree, Figure, Finding
    from actions.submission.official import OfficialVerdict

_OURS = {True: ("accepted", "bold green"), False: ("rejected", "bold red")}
_STYLES = dict(_OURS.values())


def official_word(result: CheckedResult, official: OfficialVerdict | None) -> str:
    """Return the official checker's verdict on a result: passed, rejected, not mentioned, or not run."""
    if official is None:
        return "not run"
    said = official.of(_folder(result))
    if said is False:
        # If it could not read the whole tree, it mentions no result.
        return "crashed" if official.has_crashed else "not mentioned"
    return "rejected" if said is None else "passed"


def _folder(result: CheckedResult) -> str:
    place = result.place
    return place.results.relative_to(place.submitter.root).as_posix()


def print_check(tree: CheckedTree, official: OfficialVerdict | None, console: Console) -> None:
    """Print the table, the findings and the summary."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=True)
    for name, justify in (("result", "left"), ("figure", "right"), ("vcagent", "left"), ("official", "left")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for result in tree.results:
        word, style = _OURS[result.is_accepted]
        theirs = official_word(result, official)
        table.add_row(
            Text(result.place.name),
            Text(_shown(result.figure)),
            Text(word, style=style),
            Text(theirs, style={"passed": "bold green"}.get(theirs, _STYLES.get(theirs, "dim"))),
        )
    console.print(table)
    for result in tree.results:
        if result.findings:
            console.print(Text(f"\n{result.place.name}", style="bold"))
            _print_findings(result.findings, console)
            for text in official.errors_of(_parts(result)) if official else ():
                console.print(Text(f"  official: {text}", style="dim"))
    for place, finding in tree.findings:
        console.print(Text(f"\n{place}", style="bold"))
        _print_findings((finding,), console)
    accepted = sum(result.is_accepted for result in tree.results)
    verdict = "accepted" if tree.is_accepted else "rejected"
    line = f"\nvcagent: {verdict}, {accepted} of {len(tree.results)} results have no error"
    console.print(Text(line, style=_STYLES[verdict]))
    if official is not None:
        style = "bold green" if official.has_passed else "bold red"
        console.print(Text(f"official checker ({official.checkout}): {official.summary}", style=style))


def _parts(result: CheckedResult) -> tuple[str, ...]:
    place = result.place
    return (place.submitter.name, place.system, place.benchmark, place.scenario)


def _print_findings(findings: tuple[Finding, ...], console: Console) -> None:
    from rich.text import Text

    for finding in findings:
        mark, style = ("✗", "") if finding.is_error else ("!", "yellow")
        console.print(Text(f"  {mark} {finding.message}", style=style))
        if finding.remedy and finding.is_error:
            console.print(Text(f"    → {finding.remedy}", style="cyan"))


def _shown(figure: Figure | None) -> str:
    return f"{figure.value:.6g} {figure.unit}" if figure else ""


def check_to_json(tree: CheckedTree, official: OfficialVerdict | None, round_name: str) -> dict[str, Any]:
    """Return a check as a JSON object."""
    return {
        "round": round_name,
        "accepted": tree.is_accepted,
        "official": None
        if official is None
        else {
            "checkout": str(official.checkout),
            "passed": official.has_passed,
            "crashed": official.has_crashed,
            "summary": official.summary,
        },
        "findings": [{"place": place, **_finding(finding)} for place, finding in tree.findings],
        "results": [
            {
                "result": result.place.name,
                "accepted": result.is_accepted,
                "official": official_word(result, official),
                "figure": result.figure and {"value": result.figure.value, "unit": result.figure.unit},
                "findings": [_finding(finding) for finding in result.findings],
                "official_errors": list(official.errors_of(_parts(result))) if official else [],
            }
            for result in tree.results
        ],
    }


def print_built(built: Built, output: Path, console: Console) -> None:
    """Print the filed results, and the missing ones."""
    from rich.text import Text

    for result in built.filed:
        console.print(Text(f"filed    {result.place.name}  {_shown(result.figure)}"))
    if built.filed:
        console.print(Text(f"\nwritten: {output}", style="bold green"))
    else:
        console.print(Text("nothing was written: no result can be filed", style="bold red"))
    if built.missing:
        console.print(Text("\nto be run or fixed:", style="bold"))
    for each in built.missing:
        console.print(Text(f"  ✗ {each.what}: {each.why}"))
        if each.remedy:
            console.print(Text(f"    → {each.remedy}", style="cyan"))
    if built.commands:
        console.print(Text("\ncommands, with what is said above changed:", style="bold"))
    for line in built.commands:
        console.print(Text(f"  {line}"))


def built_to_json(built: Built, output: Path) -> dict[str, Any]:
    """Return a built tree as a JSON object."""
    return {
        "output": str(output) if built.filed else None,
        "filed": [
            {
                "result": result.place.name,
                "figure": result.figure and {"value": result.figure.value, "unit": result.figure.unit},
            }
            for result in built.filed
        ],
        "missing": [
            {
                "what": each.what,
                "why": each.why,
                "remedy": each.remedy,
                "commands": command_lines(each.reruns),
            }
            for each in built.missing
        ],
        "commands": built.commands,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "error": finding.is_error,
        "message": finding.message,
        "remedy": finding.remedy,
    }
