"""``vcagent clean --dependencies``: takes back what journals say that steps did, and nothing else."""

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
    """One step of an earlier run, and what takes it back.

    Args:
        run_dir: the folder of its run.
        row: the step.
        number: its number among the journal's ``undos``; None where the step noted nothing.
        values: what it noted.
        plan: what is to be done now, or why it is left.
        unknown: whether it could not be planned.
    """

    run_dir: Path
    row: StepRow
    number: int | None
    values: Mapping[str, Any]
    plan: Plan
    unknown: bool = False

    @property
    def stands(self) -> bool:
        """Whether what the step did is still there, or may be."""
        return bool(self.plan.steps) or self.unknown


def undoings(runs: Iterable[Path], facts: Facts) -> list[Undoing]:
    """What these runs' dependencies did and what takes it back, the newest first.

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
        plan = Plan(nothing_to_do="the step left nothing that can be taken back")
        found += [Undoing(run_dir, row, None, {}, plan) for row in silent]
        found += [
            Undoing(run_dir, row, number, values, *_plan(row, values, facts)) for number, row, values in noted
        ]
    return found[::-1]


def _plan(row: StepRow, values: Mapping[str, Any], facts: Facts) -> tuple[Plan, bool]:
    """What takes a step back; what cannot be planned is left, with the reason, and unknown."""
    try:
        implementation = component_class(row.type)
        if not issubclass(implementation, Dependency):
            return Plan(nothing_to_do=f"{row.type} is no dependency"), True
        return implementation.undo(values, facts), False
    except VcagentError as error:
        why = f"{error.message} ({error.remedy})" if error.remedy else error.message
        return Plan(nothing_to_do=why), True


def carry_out(undoing: Undoing, facts: Facts, progress: RunProgress) -> str:
    """Take one step back, planned anew from what the host is now, and note it in the journal.

    Args:
        undoing: the step.
        facts: the host.
        progress: shows what happens.

    Returns:
        Why it was left after all; empty where it was taken back.

    Raises:
        VcagentError: if it could not be taken back.
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
            raise DependencyFailedError(f"{undoing.row.key} was not taken back", remedy=f"see {log}")
        progress.finish(shown, "taken back")
    if undoing.number is not None:
        with Journal(undoing.run_dir / JOURNAL) as journal:
            journal.undone(undoing.number)
    return ""
