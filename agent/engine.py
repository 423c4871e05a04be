"""Carries a profile out: dependencies, then actions with monitors beside them, in rounds."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from agent.component import Action
from agent.errors import (
    ActionFailedError,
    DependencyFailedError,
    ExitCode,
    HostError,
    InterruptedRunError,
    RebootPendingError,
    VcagentError,
)
from agent.journal import StepStatus
from agent.monitoring import monitors_beside
from agent.names import canonical
from agent.planning import Planner, is_group, leaves
from agent.profile import Element, Timeout, TimeoutScope, parse_timespan, resolve
from agent.step_runner import StepRunner, of_kind, title_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.facts import Facts

__all__ = ["Engine", "EngineOptions", "Outcome"]


@dataclass(frozen=True)
class EngineOptions:
    """How often and how long a profile is run.

    Args:
        iterations: rounds of all actions; None for one, or as many as fit into ``timeout``.
        timeout: when to stop, and what to wait for then.
        fail_fast: whether the first failed action ends the run; dependencies always do.
        only_dependencies: whether to leave monitors and actions out.
    """

    iterations: int | None = None
    timeout: Timeout | None = None
    fail_fast: bool = False
    only_dependencies: bool = False


@dataclass
class Outcome:
    """How a run ended: its exit code, what ended it, what else failed, and what else is to be told."""

    exit_code: ExitCode = ExitCode.OK
    error: VcagentError | None = None
    failures: list[tuple[str, VcagentError]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class GroupParameters(BaseModel):
    """Parameters of the groups: LoopCount of SequentialExecution, the others of ParallelLoopExecution."""

    model_config = ConfigDict(extra="ignore")

    loopcount: int = Field(1, ge=1)
    duration: str | float = 0.0
    minimumiterations: int = Field(1, ge=1)


class Engine:
    """One execution of a profile, from its beginning or from where it stopped.

    Args:
        planner: builds and plans the profile's components.
        facts: the host.
        steps: runs steps.
        options: how often and how long.
    """

    def __init__(self, planner: Planner, facts: Facts, steps: StepRunner, options: EngineOptions) -> None:
        self.planner = planner
        self.facts = facts
        self.steps = steps
        self.options = options
        self.stop = steps.processes.stop
        self.interrupted_by = ""
        self.outcome = Outcome()
        self._timed_out = False
        self._began = time.monotonic()
        self._spent_s: float = steps.journal.recall("spent_s", 0.0)

    def run(self) -> Outcome:
        """Do what is not done yet; what a profile, a host or a workload can do wrong is in the outcome."""
        outcome = self.outcome
        try:
            with self._signals():
                self._run_dependencies()
                if not self.options.only_dependencies:
                    self._run_actions()
        except VcagentError as error:
            outcome.error = error
        except (OSError, sqlite3.Error) as error:
            outcome.error = HostError(
                f"a file of the run cannot be used: {error}",
                where=str(self.steps.run_dir),
                remedy="see whether the disk is full or read-only, then go on with vcagent resume",
            )
        finally:
            self.steps.processes.stop_all()
        self._judge()
        return outcome

    def _judge(self) -> None:
        outcome, validities = self.outcome, set()
        try:
            self.steps.recorder.feed()
            validities = {case["validity"] for case in self.steps.journal.cases()}
        except (OSError, sqlite3.Error) as error:
            outcome.warnings.append(f"the journal could not be read at the end: {error}")
        outcome.warnings += self.steps.recorder.failures
        if isinstance(outcome.error, InterruptedRunError):
            outcome.exit_code = ExitCode.INTERRUPTED
        elif outcome.error:
            outcome.exit_code = outcome.error.exit_code
        elif outcome.failures:
            outcome.exit_code = outcome.failures[0][1].exit_code
        elif "FAILED" in validities:
            outcome.exit_code = ExitCode.ACTION_FAILED
        elif "INVALID" in validities:
            outcome.exit_code = ExitCode.RESULT_INVALID

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def interrupt(number: int, _frame: object) -> None:
            self.interrupted_by = signal.Signals(number).name
            self.stop.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise InterruptedRunError("the run was told to stop")

    def _interruption(self) -> InterruptedRunError:
        run_id = self.steps.run_dir.name
        by = f" by {self.interrupted_by}" if self.interrupted_by else ""
        return InterruptedRunError(f"interrupted{by}", remedy=f"go on with: vcagent resume {run_id}")

    def _run_dependencies(self) -> None:
        try:
            for element in leaves(self.planner.profile.dependencies):
                self._check_stop()
                self._run_leaf(element, "")
        except InterruptedRunError as error:
            raise self._interruption() from error

    def _run_actions(self) -> None:
        steps = self.steps
        monitors = list(leaves(self.planner.profile.monitors))
        with monitors_beside(
            monitors,
            planner=self.planner,
            facts=self.facts,
            processes=steps.processes,
            recorder=steps.recorder,
            run_dir=steps.run_dir,
        ) as notes:
            watchdog = self._watchdog()
            try:
                self._run_rounds()
            except InterruptedRunError as error:
                if self.interrupted_by or not self._timed_out:
                    raise self._interruption() from error
                self.stop.clear()
            finally:
                watchdog.cancel()
                steps.journal.remember(spent_s=self._elapsed_s())
        self.outcome.warnings += notes

    def _run_rounds(self) -> None:
        timeout = self.options.timeout
        number = 0
        while True:
            number += 1
            try:
                self._run_round(number)
            except InterruptedRunError as error:
                if self._timed_out and not self.interrupted_by:
                    self._time_cut(number, error)
                raise
            if timeout is None:
                if number >= (self.options.iterations or 1):
                    return
            elif self._time_is_up():
                return

    def _run_round(self, number: int) -> None:
        profile, timeout = self.planner.profile, self.options.timeout
        for position, element in enumerate(profile.actions, 1):
            self._check_stop()
            started = time.monotonic()
            self._run_element(element, f"{number}:")
            self.steps.journal.remember(spent_s=self._elapsed_s())
            if timeout and timeout.scope is TimeoutScope.ACTION and self._time_is_up():
                if number == 1 and position < len(profile.actions):
                    self.outcome.warnings.append(
                        f"the timeout ended the run after {position} of {len(profile.actions)} actions"
                    )
                return
            left_s = (profile.minimum_execution_interval_s or 0.0) - (time.monotonic() - started)
            if left_s > 0:
                self.stop.wait(left_s)

    def _watchdog(self) -> threading.Timer:
        """A timer that stops the run at once when its time is up, if that is what was asked for."""
        timeout = self.options.timeout
        at_once = timeout and timeout.duration_s is not None and timeout.scope is TimeoutScope.NOTHING

        def expire() -> None:
            self._timed_out = True
            self.stop.set()

        left_s = max(0.0, timeout.duration_s - self._elapsed_s()) if timeout and timeout.duration_s else 0.0
        watchdog = threading.Timer(min(left_s, threading.TIMEOUT_MAX), expire)
        watchdog.daemon = True
        if at_once:
            watchdog.start()
        return watchdog

    def _time_cut(self, number: int, error: InterruptedRunError) -> None:
        """The time was over in the middle of a round: of the first one, nothing whole is left."""
        text = f"the timeout ended round {number} of the actions before it was complete"
        if number > 1:
            self.outcome.warnings.append(text)
            return
        self.stop.clear()
        raise ActionFailedError(
            text, remedy="allow more time, or let the running action end: --timeout …,deterministic"
        ) from error

    def _elapsed_s(self) -> float:
        return self._spent_s + time.monotonic() - self._began

    def _time_is_up(self) -> bool:
        timeout = self.options.timeout
        return bool(timeout and timeout.duration_s is not None and self._elapsed_s() >= timeout.duration_s)

    def _run_element(self, element: Element, scope: str) -> None:
        if is_group(element):
            self._run_group(element, scope)
            return
        try:
            self._run_leaf(element, scope)
        except (InterruptedRunError, RebootPendingError):
            raise
        except VcagentError as error:
            self._check_stop()
            self.outcome.failures.append((f"{scope}{element.key}", error))
            if self.options.fail_fast:
                raise

    def _run_group(self, group: Element, scope: str) -> None:
        values = resolve(group, self.planner.profile, self.planner.variables)
        parameters = GroupParameters.model_validate({canonical(key): value for key, value in values.items()})

        def once(child: Element, loop: int = 0) -> None:
            self._check_stop()
            self._run_element(child, f"{scope}{group.key}@{loop}:" if loop else scope)

        def looping(child: Element) -> None:
            until = time.monotonic() + parse_timespan(parameters.duration)
            loop = 0
            while loop < parameters.minimumiterations or time.monotonic() < until:
                loop += 1
                once(child, loop)

        match canonical(group.type):
            case "sequentialexecution":
                for loop in range(1, parameters.loopcount + 1):
                    for child in group.components:
                        once(child, loop)
            case "parallelexecution":
                _in_parallel(once, group.components)
            case _:
                _in_parallel(looping, group.components)

    def _run_leaf(self, element: Element, scope: str) -> None:
        planned = self.planner.plan(element, self.facts.fresh())
        if planned.error:
            raise of_kind(planned.error, element)
        component_key = f"{scope}{element.key}"
        known = [row for row in self.steps.journal.steps() if row.component == component_key]
        if planned.plan is None:
            self.steps.log.info(
                "no steps",
                component=component_key,
                type=element.type,
                why=planned.standing.value,
                note=planned.note,
            )
            for row in known:
                if row.status is not StepStatus.DONE:  # cut after its work was done, before that was noted
                    self.steps.journal.end_step(
                        row.key, StepStatus.DONE, message=f"found done: {planned.note}"
                    )
            if not known:
                self.steps.progress.note(f"{title_of(element)}: {planned.standing.value}: {planned.note}")
            return
        component = self.planner.build(element)
        facts = self.facts.fresh()
        for step in planned.plan.steps:
            self._check_stop()
            self.steps.run(element, component, step, facts, f"{component_key}/{step.name}")
        if not isinstance(component, Action):
            again = self.planner.plan(element, self.facts.fresh())
            if again.plan or again.error:
                left = "; ".join(step.reason for step in again.plan.steps) if again.plan else again.note
                raise DependencyFailedError(
                    f"{title_of(element)} ran, but the host is not as it should be: {left}",
                    where=str(element.location),
                    remedy=f"see the logs in {self.steps.run_dir / 'logs'}",
                )


def _in_parallel(call: Callable[[Element], None], elements: Sequence[Element]) -> None:
    """Call for all elements at once and wait for all; an interruption is raised before any other error."""
    errors: list[BaseException] = []

    def guarded(element: Element) -> None:
        try:
            call(element)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(element,), daemon=True) for element in elements]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
    if errors:
        raise next((error for error in errors if isinstance(error, InterruptedRunError)), errors[0])
