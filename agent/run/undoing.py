"""``vcagent clean --dependencies``: undoes what the journals say that steps did, and nothing else."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.component.component import Dependency, Plan, StepContext
from agent.component.registry import component_class
from agent.core.errors import DependencyFailedError, VcagentError
from agent.facts.agent_paths import PACKAGE_DIR
from agent.host.processes import LocalProcesses
from agent.store.journal import Journal, StepRow, StepStatus
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from agent.core.progress import RunProgress
    from agent.facts import Facts


@dataclass(frozen=True)
class Undoing:
    """A step of an earlier run, and the plan to undo it.

    Args:
        run_dir: the run's folder.
        row: the step.
        number: its number among the journal's ``undos``; None if the step noted nothing.
        values: what the step noted for its undo.
        plan: the steps to do now, or the reason for leaving it.
        unknown: whether the undo could not be planned.
    """

    run_dir: Path
    row: StepRow
    number: int | None
    values: Mapping[str, Any]
    plan: Plan
    unknown: bool = False

    @property
    def name(self) -> str:
        """Its name for people: the type of its element, and its step."""
        return f"{self.row.type}: {self.row.name}"

    @property
    def stands(self) -> bool:
        """True if the step's changes are still in place, or may be."""
        return bool(self.plan.steps) or self.unknown


def undoings(runs: Iterable[Path], facts: Facts) -> list[Undoing]:
    """Return the steps of these runs' dependencies with the plans to undo them, newest first.

    Args:
        runs: folders of runs, oldest first.
        facts: the host.
    """
    found: list[Undoing] = []
    for run_dir in runs:
        with Journal(run_dir / JOURNAL) as journal:
            rows = {row.key: row for row in journal.steps() if row.kind == "dependency"}
            noted = [(number, rows[key], values) for number, key, values in journal.undos() if key in rows]
            known = {row.key for _, row, _ in noted} | journal.undone_steps()
        silent = [row for row in rows.values() if row.key not in known and row.status is StepStatus.DONE]
        plan = Plan(nothing_to_do="the step left nothing that can be undone")
        found += [Undoing(run_dir, row, None, {}, plan) for row in silent]
        found += [
            Undoing(run_dir, row, number, values, *_plan(row, values, facts)) for number, row, values in noted
        ]
    return found[::-1]


def _plan(row: StepRow, values: Mapping[str, Any], facts: Facts) -> tuple[Plan, bool]:
    """Return the plan to undo a step, and whether it is unknown; a plan that fails gives the reason."""
    try:
        implementation = component_class(row.type)
        if not issubclass(implementation, Dependency):
            return Plan(nothing_to_do=f"{row.type} is not a dependency"), True
        return implementation.undo(values, facts), False
    except VcagentError as error:
        why = f"{error.message} ({error.remedy})" if error.remedy else error.message
        return Plan(nothing_to_do=why), True


def carry_out(undoing: Undoing, facts: Facts, progress: RunProgress) -> str:
    """Undo one step, with a new plan for the current host, and note it in the journal.

    Args:
        undoing: the step.
        facts: the host.
        progress: shows what happens.

    Returns:
        The reason if it was left after all; empty if it was undone.

    Raises:
        VcagentError: if it could not be undone.
    """
    plan, _ = _plan(undoing.row, undoing.values, facts.fresh())
    if plan.nothing_to_do:
        return plan.nothing_to_do
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", undoing.row.key)
    processes = LocalProcesses(f"clean-{undoing.run_dir.name}", stop=threading.Event())
    for step in plan.steps:
        shown = progress.start(f"{undoing.row.type}: {step.name}")
        log = undoing.run_dir / "logs" / f"clean-{name}.log"
        step.run(
            StepContext(
                facts=facts.fresh(),
                processes=processes,
                progress=shown,
                stop=processes.stop,
                run_dir=undoing.run_dir,
                package_dir=facts[PACKAGE_DIR],
                log=log,
            )
        )
        if step.holds and not step.holds(facts.fresh()):
            raise DependencyFailedError(f"{undoing.name} was not undone", remedy=f"see {log}")
        progress.finish(shown, "undone")
    if undoing.number is not None:
        with Journal(undoing.run_dir / JOURNAL) as journal:
            journal.undone(undoing.number)
    return ""
