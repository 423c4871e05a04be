"""What the terminal shows of a plan: one line for each step, as wide as the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from agent.core.counts import count_of
from agent.core.layout import print_entry, print_lines
from agent.core.progress import duration
from agent.profile.values import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from rich.console import Console

    from agent.component.component import Step
    from agent.planning.groups import PlannedGroup
    from agent.planning.planner import PlannedComponent

_LONGEST_NAME = 34
_TIME_WIDTH = 7
_LEAST_TEXT = 20
_WARNING = "Warning: "
"""The beginning of a warning in a step's reason."""
_STANDINGS = {"nothing to do": "green", "skipped": "dim", "refused": "bold red", "later": "yellow"}
_HEADINGS = {"dependency": "Dependencies", "monitor": "Monitors", "action": "Actions"}


def render_plan(
    planned: Sequence[PlannedComponent],
    console: Console,
    *,
    estimates_s: Sequence[float | None] | None = None,
    package_dir: Path | None = None,
    rounds: str = "",
    show_commands: bool = False,
) -> None:
    """Show what a run would do: one line for each step, then the count and the refusals.

    Lines are cut at the width of a terminal; elsewhere they are whole.

    Args:
        planned: the components with their plans, in order.
        console: where it is shown.
        estimates_s: the expected seconds of each step that the run counts.
        package_dir: the package folder; it is shown once, and shortened in all lines.
        rounds: how often the actions are run, as a sentence; empty for once.
        show_commands: True to show reasons in full and commands below each step.
    """
    page = _Page(planned, console, package_dir, show_commands=show_commands)
    if package_dir and any(page.package_dir in text for text in _texts(planned)):
        page.line(Text(f"… stands for the package folder {package_dir}"))
    if rounds:
        page.line(Text(rounds))
    for component in planned:
        page.component(component)
    if estimates_s is None:
        estimates_s = [step.estimate_s for one in planned for step in (one.plan.steps if one.plan else ())]
    if estimates_s or all(one.error is None for one in planned):
        page.line(Text())
        page.line(Text(_sum(estimates_s)))
    page.refusals()


def _texts(planned: Sequence[PlannedComponent]) -> Iterator[str]:
    """Yield what the lines of components and steps say, in full."""
    for component in planned:
        yield component.note
        for step in component.plan.steps if component.plan else ():
            yield step.command if step.runs_as_written else step.reason


def _sum(estimates_s: Sequence[float | None]) -> str:
    if not estimates_s:
        return "Nothing to do."
    known = [seconds for seconds in estimates_s if seconds is not None]
    text = f"{count_of(len(estimates_s), 'step')} to do"
    if known:
        unknown = len(estimates_s) - len(known)
        text += f", about {duration(sum(known))}"
        text += f" and {count_of(unknown, 'step')} of unknown duration" if unknown else ""
    return f"{text}."


class _Page:
    def __init__(
        self,
        planned: Sequence[PlannedComponent],
        console: Console,
        package_dir: Path | None,
        *,
        show_commands: bool,
    ) -> None:
        self.planned = planned
        self.console = console
        self.show_commands = show_commands
        self.package_dir = f"{package_dir}/" if package_dir else ""
        self.number = 0
        self.kind = ""
        self.groups: tuple[PlannedGroup, ...] = ()
        self.starts: list[int] = []
        widest = max((2 * len(one.groups) + cell_len(_name(one)) for one in planned), default=0)
        self.name = _name if widest <= _LONGEST_NAME else _short_name
        widest = max((2 * len(one.groups) + cell_len(self.name(one)) for one in planned), default=0)
        self.name_width = min(_LONGEST_NAME, widest)

    def line(self, text: Text, *, indent: int = 0) -> None:
        """Print one line, whole unless a terminal is narrower."""
        if indent:
            text = Text(" " * indent).append_text(text)
        if self.console.is_terminal and not self.show_commands:
            text.truncate(self.console.width, overflow="ellipsis")
        self.console.print(text, soft_wrap=True)

    def component(self, component: PlannedComponent) -> None:
        self._headings(component)
        steps = component.plan.steps if component.plan else ()
        for step in steps:
            self._step(component, step)
        if not steps:
            if component.element.kind == "monitor" and component.standing.value == "planned":
                self._row("", component, Text(component.note), None)
                return
            text = Text(component.standing.value, style=_STANDINGS.get(component.standing.value, ""))
            if component.standing.value == "later":
                self.number += 1
            if component.error is None and (
                why := self._short(component.note)
            ):  # refusals have their own list
                text.append(f": {why}", style="default not bold")
            self._row("", component, text, None)

    def _headings(self, component: PlannedComponent) -> None:
        if component.element.kind != self.kind:
            self._leave(0)
            self.kind = component.element.kind
            self.line(Text())
            self.line(Text(_HEADINGS.get(self.kind, self.kind), style="bold"))
        common = 0
        for mine, previous in zip(component.groups, self.groups, strict=False):
            if mine.element.key != previous.element.key:
                break
            common += 1
        self._leave(common)
        for depth, group in enumerate(component.groups[common:], common):
            outer = component.groups[depth - 1].element.given if depth else {}
            self.line(Text(f"{_group_name(group, outer)}:", style="bold"), indent=5 + 2 * depth)
            self.starts.append(self.number)
        self.groups = component.groups

    def _leave(self, depth: int) -> None:
        """Count the other loops of the groups that end here: their steps have the numbers that follow."""
        while len(self.starts) > depth:
            steps = self.number - self.starts.pop()
            self.number += steps * (self.groups[len(self.starts)].loops - 1)
        self.groups = self.groups[:depth]

    def _step(self, component: PlannedComponent, step: Step) -> None:
        self.number += 1
        is_only = component.plan is None or len(component.plan.steps) == 1
        what = self._short(step.command if step.runs_as_written else step.reason)
        text = Text("" if is_only else f"{step.name}: ").append(what)
        self._row(str(self.number), component, text, step.estimate_s)
        if (warning := step.reason.find(_WARNING)) >= 0:
            print_entry(self.console, Text(" " * 7), step.reason[warning:], indent=9, style="yellow")
        if self.show_commands and step.runs_as_written:
            self.line(Text(step.reason, style="dim"), indent=7)
        elif self.show_commands and step.command:
            for line in step.command.splitlines():
                self.line(Text(line, style="cyan"), indent=7)

    def _row(self, number: str, component: PlannedComponent, what: Text, estimate_s: float | None) -> None:
        indent = "  " * len(component.groups)
        name = _cut(f"{indent}{self.name(component)}", self.name_width)
        line = Text(f"{number:>3}  {name:<{self.name_width}}  ")
        time = _rough(estimate_s) if estimate_s else ""
        if self.console.is_terminal and not self.show_commands:
            width = max(_LEAST_TEXT, self.console.width - line.cell_len - _TIME_WIDTH - 1)
            what.truncate(width, overflow="ellipsis", pad=bool(time))
            line.append_text(what).append(f" {time:>{_TIME_WIDTH}}" if time else "")
        else:
            line.append_text(what).append(f"  {time}" if time else "")
        self.line(line)

    def _short(self, text: str) -> str:
        """Return a text on one line, the package folder shortened."""
        return " ".join(text.replace(self.package_dir, "…/").split() if self.package_dir else text.split())

    def refusals(self) -> None:
        """Print the refusals with their remedies: the end of a plan that cannot be run."""
        refused = list(self._refused())
        if not refused:
            return
        self.console.print()
        self.console.print(Text("This host cannot run the profile:", style="bold red"), soft_wrap=True)
        for name, message, remedy in refused:
            print_lines(self.console, f"  {name}: {message}")
            if remedy:
                print_lines(self.console, f"    → {remedy}")

    def _refused(self) -> Iterator[tuple[str, str, str]]:
        said = set()
        for component in self.planned:
            if component.error is None:
                continue
            key = (component.error.message, component.error.remedy)
            if key not in said:
                said.add(key)
                yield _name(component), component.error.message, component.error.remedy or ""


def _rough(seconds: float) -> str:
    """Return an expected duration in one number: ``70 s``, ``7 min``, ``2.5 h``."""
    if seconds < 100:  # noqa: PLR2004 - two digits
        return f"{seconds:.0f} s"
    if seconds < 6000:  # noqa: PLR2004 - likewise
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _group_name(group: PlannedGroup, outer: Mapping[str, Any]) -> str:
    """Return a group's scenario and order, with the value of its ``ForEach`` unless the scenario has it.

    Args:
        group: the group.
        outer: the values of the groups around it.
    """
    values = {name: text_of(value) for name, value in group.element.given.items() if name not in outer}
    given = ", ".join(f"{name}={text}" for name, text in values.items() if text not in group.scenario)
    name = f"{group.scenario}: {group.order}" if group.scenario else group.order
    return f"{name} ({given})" if given else name


def _short_name(component: PlannedComponent) -> str:
    """Return the scenario, or the type of a component without one: for plans with long names."""
    return component.scenario or component.element.type


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _name(component: PlannedComponent) -> str:
    scenario = component.scenario
    return f"{component.element.type} {scenario}" if scenario else component.element.type
