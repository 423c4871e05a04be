"""Runs a profile: first the dependencies, then rounds of actions while the monitors run."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.component.component import Action, ServiceAction
from agent.core.errors import (
    ActionFailedError,
    DependencyFailedError,
    ExitCode,
    HostError,
    InterruptedRunError,
    RebootPendingError,
    VcagentError,
    unexpected,
)
from agent.core.names import canonical
from agent.planning.groups import GroupParameters, is_group
from agent.planning.planner import Planner, leaves
from agent.planning.services import GroupServices, is_service
from agent.run.clock import RunClock
from agent.run.keeping import keep_serving
from agent.run.monitoring import monitors_beside
from agent.run.outcome import Outcome
from agent.run.step_runner import StepRunner, of_kind, title_of
from agent.store.journal import StepStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.component.component import Service
    from agent.core.interruption import Interruption
    from agent.facts import Facts
    from agent.profile import Element, Timeout


@dataclass(frozen=True)
class EngineOptions:
    """How often and how long a profile is run.

    Args:
        iterations: rounds of all actions; None for one round, or for as many as fit into ``timeout``.
        timeout: when to stop, and what may still finish then.
        fail_fast: whether the first failed action ends the run; dependencies always do.
        only_dependencies: whether to leave monitors and actions out.
        keep_serving: whether the last server of the actions keeps running after the run.
    """

    iterations: int | None = None
    timeout: Timeout | None = None
    fail_fast: bool = False
    only_dependencies: bool = False
    keep_serving: bool = False


class Engine:
    """One execution of a profile, from the beginning or from the point where it stopped.

    A resumed run first goes through everything in the journal, whatever the clock says: it skips what is done
    and repeats what failed or was cut short.

    Args:
        planner: builds and plans the profile's components.
        facts: the host.
        steps: runs steps.
        options: how often and how long the profile is run.
        interruption: says whether the run was asked to stop.
    """

    def __init__(
        self,
        planner: Planner,
        facts: Facts,
        steps: StepRunner,
        options: EngineOptions,
        interruption: Interruption,
    ) -> None:
        self.planner = planner
        self.facts = facts
        self.steps = steps
        self.options = options
        self.interruption = interruption
        self.stop = interruption.stop
        self.outcome = Outcome()
        self._clock = RunClock(options.timeout, steps.journal, self.stop)
        self._known = {row.component for row in steps.journal.steps() if row.kind == "action"}
        self._ended_early = threading.Event()
        self._not_before = 0.0
        self._last_service: Service | None = None

    def run(self) -> Outcome:
        """Do everything that is not done yet, and return the outcome, with all errors in it."""
        outcome = self.outcome
        try:
            self._run_dependencies()
            if not self.options.only_dependencies:
                self._run_actions()
            if self.options.keep_serving:
                self._keep_serving()
        except InterruptedRunError:
            by = f" by {self.interruption.by}" if self.interruption.by else ""
            outcome.error = InterruptedRunError(
                f"interrupted{by}", remedy=f"go on with: vcagent resume {self.steps.run_dir.name}"
            )
        except VcagentError as error:
            outcome.error = error
        except (OSError, sqlite3.Error) as error:
            outcome.error = HostError(
                f"a file of the run cannot be used: {error}",
                where=str(self.steps.run_dir),
                remedy="see whether the disk is full or read-only, then go on with vcagent resume",
            )
        except Exception as error:
            self.steps.log.exception("the engine failed")
            outcome.error = unexpected(error, "the engine")
        finally:
            self.steps.processes.stop_all()
        self._judge()
        return outcome

    def _keep_serving(self) -> None:
        """Start the last server of the actions again, as a process that outlives the run."""
        if self._last_service is None:
            self.outcome.warnings.append(
                "--keep-serving: no server of this run can stay; a test's own container stays with keep: true"
            )
            return
        self.steps.progress.note(f"starting {self._last_service.name} again, to stay")
        try:
            serving = keep_serving(self._last_service, self.steps.run_dir, self.stop, self.steps.processes)
        except InterruptedRunError:
            raise
        except VcagentError as error:
            self.outcome.failures.append(("keep-serving", error))
            return
        what = f"{serving.model} of {serving.name}" if serving.model else serving.name
        self.steps.progress.note(f"{what} stays at {serving.url}; stop it: {serving.how_to_stop}")

    def _judge(self) -> None:
        outcome, validities = self.outcome, set()
        try:
            self.steps.recorder.feed()
            validities = {case["validity"] for case in self.steps.journal.cases()}
            if outcome.error is None:
                self._take_over_failures()
        except (OSError, sqlite3.Error) as error:
            outcome.warnings.append(f"the journal could not be read at the end: {error}")
        outcome.warnings += [*self.steps.recorder.warnings, *self.steps.recorder.failures]
        if outcome.error:
            outcome.exit_code = outcome.error.exit_code
        elif outcome.failures:
            outcome.exit_code = outcome.failures[0][1].exit_code
        elif "FAILED" in validities:
            outcome.exit_code = ExitCode.ACTION_FAILED
        elif "INVALID" in validities:
            outcome.exit_code = ExitCode.RESULT_INVALID

    def _take_over_failures(self) -> None:
        """Add an earlier process's failures to the outcome, unless this process repeated those steps."""
        told = {key for key, _ in self.outcome.failures}
        for row in self.steps.journal.steps():
            if row.status not in (StepStatus.DONE, StepStatus.CUT) and row.component not in told:
                kind = DependencyFailedError if row.kind == "dependency" else ActionFailedError
                message = row.message or "it was cut short"
                self.outcome.failures.append((row.component, kind(message, remedy=f"see {row.log}")))

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise InterruptedRunError("the run was asked to stop")

    def _run_dependencies(self) -> None:
        for element in leaves(self.planner.profile.dependencies):
            self._check_stop()
            self._run_leaf(element, "", GroupServices({}))

    def _run_actions(self) -> None:
        steps = self.steps
        if steps.recorder.contexts:
            steps.recorder.contexts.settle()
        monitors = monitors_beside(
            list(leaves(self.planner.profile.monitors)),
            planner=self.planner,
            facts=self.facts.fresh(),
            processes=steps.processes,
            recorder=steps.recorder,
            run_dir=steps.run_dir,
            notes=self.outcome.warnings,
        )
        with monitors, self._clock.running():
            self._run_rounds()

    def _run_rounds(self) -> None:
        known = max((int(component.partition(":")[0]) for component in self._known), default=0)
        number = 0
        while True:
            number += 1
            self._check_stop()
            before = self.steps.count
            self._show_round(number)
            try:
                self._run_round(number)
            except InterruptedRunError as error:
                if not self._clock.timed_out or self.interruption.by:
                    raise
                self._time_cut(number, error)
                return
            if number < known:
                continue
            if self.options.timeout is None:
                if number >= (self.options.iterations or 1):
                    return
            elif self._clock.is_up or self._ended_early.is_set():
                return
            elif self.steps.count == before and number > known:  # no action runs on this host; monitors may
                if self.planner.profile.monitors:
                    self.stop.wait(self._clock.left_s)
                return

    def _show_round(self, number: int) -> None:
        if self.options.timeout is not None or (self.options.iterations or 1) > 1:
            self.steps.progress.in_round(number, lambda: self._clock.left_s)

    def _run_round(self, number: int) -> None:
        with self._services() as services:
            self._run_top(number, services)

    def _run_top(self, number: int, services: GroupServices) -> None:
        actions = self.planner.profile.actions
        least_s = self.planner.profile.minimum_execution_interval_s or 0.0
        for position, element in enumerate(actions, 1):
            if (wait_s := self._not_before - time.monotonic()) > 0:
                self.stop.wait(wait_s)
            self._check_stop()
            if self._clock.ends_between_actions and not self._known:
                if number == 1:
                    text = f"the timeout ended the run after {position - 1} of {len(actions)} actions"
                    self.outcome.warnings.append(text)
                return
            started, before = time.monotonic(), self.steps.count
            going_on = self._run_member(element, actions[position:], f"{number}:", services)
            self._clock.save()
            if self.steps.count > before:
                self._not_before = started + least_s
            if not going_on:
                return

    def _time_cut(self, number: int, error: InterruptedRunError) -> None:
        """End a round that the timeout cut short; in the first round this is an error."""
        self.stop.clear()
        text = f"the timeout ended round {number} of the actions before it was complete"
        if number == 1:
            raise ActionFailedError(
                text, remedy="allow more time, or let the running action end: --timeout …,deterministic"
            ) from error
        self.steps.journal.mark_cut()
        self.outcome.warnings.append(text)

    @contextmanager
    def _services(self) -> Iterator[GroupServices]:
        """Provide the services of a group and stop them at its end; a service that died fails its action.

        Anything that its last step left running for another step ends too.
        """
        services = GroupServices(self.steps.services)
        try:
            yield services
        finally:
            self.steps.handover.end()
            self._last_service = services.last or self._last_service
            dead = services.end()
            for component_key, error in dead:
                for row in self.steps.journal.steps_of(component_key):
                    self.steps.journal.end_step(row.key, StepStatus.FAILED, message=str(error))
        self.outcome.failures += dead
        if dead and self.options.fail_fast:
            self._ended_early.set()
            raise dead[0][1]

    def _run_member(
        self, element: Element, rest: Sequence[Element], scope: str, services: GroupServices
    ) -> bool:
        """Run one of several elements in order; return False if the service that the rest needs failed."""
        if is_group(element) or not is_service(element):
            self._run_element(element, scope, services)
            return True
        recall = self.steps.journal.recall
        if rest and all(recall(f"done {scope}{leaf.key}") for leaf in leaves(tuple(rest))):
            self._known.discard(f"{scope}{element.key}")
            return True
        failures = len(self.outcome.failures)
        self._run_element(element, scope, services)
        if len(self.outcome.failures) > failures and rest:
            self.steps.progress.note(f"{title_of(element)} failed: the rest of its group is left out")
            return False
        return True

    def _run_element(self, element: Element, scope: str, services: GroupServices) -> None:
        if is_group(element):
            self._run_group(element, scope)
            return
        try:
            self._run_leaf(element, scope, services)
        except (InterruptedRunError, RebootPendingError):
            raise
        except VcagentError as error:
            self._check_stop()
            self.outcome.failures.append((f"{scope}{element.key}", error))
            if self.options.fail_fast:
                self._ended_early.set()
                raise

    def _run_group(self, group: Element, scope: str) -> None:
        if reason := self.planner.skipped(group, self.facts):
            self.steps.progress.note(f"{title_of(group)}: skipped: {reason}")
            return
        parameters = self.planner.group_parameters(group)
        match canonical(group.type):
            case "sequentialexecution":
                for loop in range(1, parameters.loop_count + 1):
                    self._run_sequence(group.components, f"{scope}{group.key}@{loop}:")
            case "parallelexecution":
                with self._services() as services:
                    _in_parallel(lambda child: self._run_beside(child, scope, services), group.components)
            case _:
                with self._services() as services:
                    key = f"{scope}{group.key}"
                    self._run_loops(
                        key,
                        group,
                        parameters,
                        lambda child, loop: self._run_beside(child, f"{key}@{loop}:", services),
                    )

    def _run_sequence(self, elements: Sequence[Element], scope: str) -> None:
        with self._services() as services:
            for position, element in enumerate(elements, 1):
                self._check_stop()
                if self._ended_early.is_set() or not self._run_member(
                    element, elements[position:], scope, services
                ):
                    return

    def _run_beside(self, child: Element, scope: str, services: GroupServices) -> None:
        self._check_stop()
        if not self._ended_early.is_set():
            self._run_element(child, scope, services)

    def _run_loops(
        self, key: str, group: Element, parameters: GroupParameters, once: Callable[[Element, int], None]
    ) -> None:
        """Repeat each component for the group's duration; a resumed run uses the time that is left."""
        journal = self.steps.journal
        spent_s, ended = journal.recall(f"loop {key}", (0.0, False))
        until = time.monotonic() + (0.0 if ended else parameters.duration - spent_s)
        known = self._known_loops(key)

        def looping(child: Element) -> None:
            loop = 0
            while loop < max(parameters.minimum_iterations, known) or time.monotonic() < until:
                if self._ended_early.is_set():
                    return
                loop += 1
                once(child, loop)
                left_s = max(0.0, until - time.monotonic())
                journal.remember(**{f"loop {key}": (parameters.duration - left_s, ended)})

        _in_parallel(looping, group.components)
        journal.remember(**{f"loop {key}": (parameters.duration, True)})

    def _known_loops(self, key: str) -> int:
        """Return how many loops of a group the journal has."""
        loops = [component[len(key) + 1 :] for component in self._known if component.startswith(f"{key}@")]
        return max((int(loop.partition(":")[0]) for loop in loops), default=0)

    def _run_leaf(self, element: Element, scope: str, services: GroupServices) -> None:
        component_key = f"{scope}{element.key}"
        steps, journal = self.steps, self.steps.journal
        try:
            if element.kind == "action" and journal.recall(f"done {component_key}"):
                return
            planned = self.planner.plan(element, self.facts.fresh())
            if planned.error:
                raise of_kind(planned.error, element)
            if planned.plan is None or planned.component is None:
                self._tell_nothing_to_do(element, component_key, f"{planned.standing.value}: {planned.note}")
                return
            for step in planned.plan.steps:
                self._check_stop()
                service = steps.run(
                    element,
                    planned.component,
                    step,
                    planned.facts or self.facts,
                    f"{component_key}/{step.name}",
                )
                if service:
                    services.add(component_key, service)
            if not isinstance(planned.component, Action):
                self._check_effect(element)
                self._settle(component_key, "the host is as it should be")
            if not isinstance(planned.component, ServiceAction):
                journal.remember(**{f"done {component_key}": True})
        finally:
            self._known.discard(component_key)

    def _tell_nothing_to_do(self, element: Element, component_key: str, why: str) -> None:
        self.steps.log.info("no steps", component=component_key, type=element.type, why=why)
        if not self.steps.journal.steps_of(component_key):
            self.steps.progress.note(f"{title_of(element)}: {why}")
        self._settle(component_key, why)

    def _settle(self, component_key: str, why: str) -> None:
        """Mark unfinished steps as done if the host is as it should be or does not need the dependency."""
        for row in self.steps.journal.steps_of(component_key):
            if row.kind == "dependency" and row.status is not StepStatus.DONE:
                self.steps.journal.end_step(row.key, StepStatus.DONE, message=f"found done: {why}")

    def _check_effect(self, element: Element) -> None:
        """Plan a dependency again, and raise an error if the host is still not as it should be.

        Commands that returned 0 do not prove that a dependency is installed; the host's facts do.
        """
        again = self.planner.plan(element, self.facts.fresh())
        if again.plan or again.error:
            left = "; ".join(step.reason for step in again.plan.steps) if again.plan else again.note
            raise DependencyFailedError(
                f"{title_of(element)} ran, but the host is not as it should be: {left}",
                where=str(element.location),
                remedy=f"see the logs in {self.steps.run_dir / 'logs'}",
            )


def _in_parallel(call: Callable[[Element], None], elements: Sequence[Element]) -> None:
    """Call a function for all elements in parallel and wait; an interruption is raised before any error."""
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
