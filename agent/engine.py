"""Carries a plan out: dependencies, then monitors beside the actions; every step through the journal."""

from __future__ import annotations

import re
import signal
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from agent.component import Action, Component, Monitor, MonitorContext, Step, StepContext, StepOutcome
from agent.errors import (
    ActionFailedError,
    DependencyFailedError,
    ExitCode,
    HostError,
    InterruptedRunError,
    ProfileError,
    VcagentError,
)
from agent.journal import Journal, StepRow, StepStatus, now
from agent.names import canonical
from agent.planning import Planner, Standing, is_group, leaves
from agent.profile import Element, Timeout, parse_timespan, resolve
from agent.records import Metric

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from agent.facts import Facts
    from agent.processes import LocalProcesses
    from agent.progress import RunProgress
    from agent.recorder import Recorder

__all__ = ["Engine", "EngineOptions", "Outcome"]

_KIND_ERROR: dict[str, type[VcagentError]] = {"dependency": DependencyFailedError, "action": ActionFailedError}


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
    """How a run ended."""

    exit_code: ExitCode = ExitCode.OK
    error: VcagentError | None = None
    failures: list[tuple[str, VcagentError]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class _GroupParameters(BaseModel):
    """Parameters of SequentialExecution, ParallelExecution and ParallelLoopExecution."""

    model_config = ConfigDict(extra="ignore")

    loopcount: int = Field(1, ge=1)
    duration: str | float | None = None
    minimumiterations: int = Field(1, ge=1)


class Engine:
    """One execution, or continued execution, of a profile.

    Args:
        planner: builds and plans the profile's components.
        facts: the host.
        journal: the run's journal; steps that it calls done are not done again.
        recorder: takes records.
        processes: runs commands; its ``stop`` event ends them.
        progress: shows what happens.
        run_dir: the run's folder.
        package_dir: where environments and downloads are kept.
        options: how often and how long.
        log: the structured log.
    """

    def __init__(
        self,
        *,
        planner: Planner,
        facts: Facts,
        journal: Journal,
        recorder: Recorder,
        processes: LocalProcesses,
        progress: RunProgress,
        run_dir: Path,
        package_dir: Path,
        options: EngineOptions,
        log: FilteringBoundLogger,
    ) -> None:
        self.planner = planner
        self.facts = facts
        self.journal = journal
        self.recorder = recorder
        self.processes = processes
        self.progress = progress
        self.run_dir = run_dir
        self.package_dir = package_dir
        self.options = options
        self.log = log
        self.stop = processes.stop
        self.interrupted_by = ""
        self.timed_out = False
        self.outcome = Outcome()
        self._began = time.monotonic()
        self._spent_s: float = journal.recall("spent_s", 0.0)

    def run(self) -> Outcome:
        """Do what is not done yet; never raises for what a profile, a host or a workload can do wrong."""
        try:
            with self._signals():
                self._run_dependencies()
                if not self.options.only_dependencies:
                    with self._monitors():
                        self._run_iterations()
        except InterruptedRunError as error:
            self.outcome.error = error
        except VcagentError as error:
            self.outcome.error = error
        except (OSError, sqlite3.Error) as error:
            self.outcome.error = HostError(
                f"the run's folder or another file cannot be used: {error}",
                where=str(self.run_dir),
                remedy="see whether the disk is full or read-only, then go on with vcagent resume",
            )
        finally:
            self.processes.stop_all()
        self._judge()
        return self.outcome

    def _judge(self) -> None:
        outcome = self.outcome
        try:
            self.recorder.feed()
            cases = self.journal.cases()
        except (OSError, sqlite3.Error) as error:
            outcome.warnings.append(f"the journal could not be read at the end: {error}")
            cases = []
        outcome.warnings += self.recorder.failures
        if self.interrupted_by or isinstance(outcome.error, InterruptedRunError):
            outcome.exit_code = ExitCode.INTERRUPTED
        elif outcome.error:
            outcome.exit_code = outcome.error.exit_code
        elif outcome.failures:
            outcome.exit_code = outcome.failures[0][1].exit_code
        elif any(case["validity"] == "FAILED" for case in cases):
            outcome.exit_code = ExitCode.ACTION_FAILED
        elif any(case["validity"] == "INVALID" for case in cases):
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
            raise InterruptedRunError(
                f"interrupted by {self.interrupted_by}" if self.interrupted_by else "interrupted",
                remedy=f"go on with: vcagent resume {self.run_dir.name}",
            )

    def _run_dependencies(self) -> None:
        for element in leaves(self.planner.profile.dependencies):
            self._check_stop()
            self._run_leaf(element, "")

    def _run_iterations(self) -> None:
        iterations, timeout = self.options.iterations, self.options.timeout
        profile = self.planner.profile
        watchdog = self._watchdog()
        number = 0
        try:
            while True:
                number += 1
                for element in profile.actions:
                    self._check_stop()
                    started = time.monotonic()
                    self._run_element(element, f"{number}:")
                    self.journal.remember(spent_s=self._elapsed_s())
                    if timeout and timeout.wait_for == "action" and self._elapsed_s() >= timeout.seconds:
                        self.timed_out = True
                        return
                    least = profile.minimum_execution_interval_s
                    if least and (left := least - (time.monotonic() - started)) > 0:
                        self.stop.wait(left)
                if timeout is None:
                    if number >= (iterations or 1):
                        return
                elif self._elapsed_s() >= timeout.seconds:
                    self.timed_out = True
                    return
        except InterruptedRunError as error:
            if not self.timed_out or self.interrupted_by:
                raise
            self._note_timeout(number, error)
        finally:
            watchdog.cancel()

    def _watchdog(self) -> threading.Timer:
        timeout = self.options.timeout
        seconds = max(0.0, timeout.seconds - self._elapsed_s()) if timeout and timeout.wait_for is None else None

        def expire() -> None:
            self.timed_out = True
            self.stop.set()

        watchdog = threading.Timer(min(seconds or 0.0, threading.TIMEOUT_MAX), expire)
        watchdog.daemon = True
        if seconds is not None:
            watchdog.start()
        return watchdog

    def _note_timeout(self, iteration: int, error: InterruptedRunError) -> None:
        self.stop.clear()
        text = f"the timeout ended iteration {iteration} before it was complete"
        if iteration > 1:
            self.outcome.warnings.append(text)
            return
        raise ActionFailedError(
            text, remedy="allow more time, or let the current action finish: --timeout …,deterministic"
        ) from error

    def _elapsed_s(self) -> float:
        return self._spent_s + time.monotonic() - self._began

    def _run_element(self, element: Element, scope: str) -> None:
        if not is_group(element):
            try:
                self._run_leaf(element, scope)
            except InterruptedRunError:
                raise
            except VcagentError as error:
                if self.stop.is_set():
                    self._check_stop()
                self.outcome.failures.append((f"{scope}{element.key}", error))
                if self.options.fail_fast:
                    raise
            return
        values = resolve(element, self.planner.profile, self.planner.variables)
        parameters = _GroupParameters.model_validate({canonical(key): value for key, value in values.items()})
        match canonical(element.type):
            case "sequentialexecution":
                for loop in range(1, parameters.loopcount + 1):
                    for child in element.components:
                        self._check_stop()
                        self._run_element(child, _loop_scope(scope, element, loop, parameters.loopcount))
            case "parallelexecution":
                self._in_parallel([lambda child=child: self._run_element(child, scope) for child in element.components])
            case _:
                self._in_parallel(
                    [lambda child=child: self._loop(child, scope, element, parameters) for child in element.components]
                )

    def _loop(self, child: Element, scope: str, group: Element, parameters: _GroupParameters) -> None:
        seconds = parse_timespan(parameters.duration) if parameters.duration is not None else 0.0
        until = time.monotonic() + seconds
        loop = 0
        while loop < parameters.minimumiterations or time.monotonic() < until:
            self._check_stop()
            loop += 1
            self._run_element(child, _loop_scope(scope, group, loop, None))

    def _in_parallel(self, calls: Sequence[Callable[[], None]]) -> None:
        errors: list[BaseException] = []

        def guarded(call: Callable[[], None]) -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
        if errors:
            raise next((error for error in errors if isinstance(error, InterruptedRunError)), errors[0])

    def _run_leaf(self, element: Element, scope: str) -> None:
        facts = self.facts.fresh()
        planned = self.planner.plan(element, facts)
        if planned.error:
            raise _as_kind(planned.error, element)
        if planned.plan is None:
            self.log.info("no steps", component=element.key, type=element.type, standing=planned.standing.value,
                          note=planned.note)  # fmt: skip
            if not (planned.standing is Standing.NOTHING_TO_DO and self._was_done(element, scope)):
                self.progress.note(f"{_title(element)}: {planned.standing.value}: {planned.note}")
            return
        component = self.planner.build(element)
        repeatable = not isinstance(component, Action)
        for step in planned.plan.steps:
            self._check_stop()
            self._run_step(element, component, step, facts, f"{scope}{element.key}/{step.name}", redo=repeatable)
        if repeatable:
            again = self.planner.plan(element, self.facts.fresh())
            if again.plan or again.error:
                left = "; ".join(step.reason for step in again.plan.steps) if again.plan else again.note
                raise DependencyFailedError(
                    f"{_title(element)} ran, but the host is not as it should be: {left}",
                    where=str(element.location),
                    remedy=f"see the logs in {self.run_dir / 'logs'}",
                )

    def _was_done(self, element: Element, scope: str) -> bool:
        return any(row.component == f"{scope}{element.key}" for row in self.journal.steps())

    def _run_step(
        self, element: Element, component: Component, step: Step, facts: Facts, key: str, *, redo: bool
    ) -> None:
        before = self.journal.step(key)
        if before and before.status is StepStatus.DONE and not redo:
            return
        log = self.run_dir / "logs" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', key)}.log"
        title = f"{_title(element)} {step.name}"
        shown = self.progress.start(title, step.estimate_s)
        started = now()
        self.journal.start_step(
            StepRow(
                key=key,
                component=key.rpartition("/")[0],
                type=element.type,
                kind=element.kind,
                name=step.name,
                reason=self.processes.secrets.mask(step.reason),
                command=self.processes.secrets.mask(step.command),
                log=str(log.relative_to(self.run_dir)),
            )
        )
        context = StepContext(
            facts=facts, processes=self.processes, progress=shown, stop=self.stop, run_dir=self.run_dir,
            package_dir=self.package_dir, log=log, key=key,
        )  # fmt: skip
        self.log.info("step started", step=key, reason=step.reason)
        try:
            outcome = self._attempt(step, context, before)
            message = outcome.message or "done"
            if outcome.case_dir:
                from agent.report.case_summary import write_case_summary

                for output in outcome.outputs:
                    write_case_summary(outcome.case_dir, output)
            parameters = component.parameters
            self.recorder.finish_step(
                key, outcome.outputs, started=started, message=message, case_dir=outcome.case_dir,
                scenario=parameters.scenario or element.type, tags=parameters.tags,
                filters=parameters.metric_filters,
            )  # fmt: skip
        except VcagentError as error:
            interrupted = isinstance(error, InterruptedRunError) or self.stop.is_set()
            status = StepStatus.INTERRUPTED if interrupted else StepStatus.FAILED
            self.journal.end_step(key, status, message=self.processes.secrets.mask(str(error)))
            self.progress.finish(shown, f"{status.value}: {error.message.splitlines()[0]}")
            self.log.error("step ended", step=key, status=status.value, error=str(error))
            if interrupted:
                self._check_stop()
                raise
            raise _as_kind(error, element) from error
        self.progress.finish(shown, message)
        self.log.info("step ended", step=key, status="done", message=message)

    def _attempt(self, step: Step, context: StepContext, before: StepRow | None) -> StepOutcome:
        if before and before.status is StepStatus.FAILED:
            context.log.with_suffix(".exit").unlink(missing_ok=True)
        try:
            outcome = step.run(context) or StepOutcome()
            if step.holds and not step.holds(self.facts.fresh()):
                raise DependencyFailedError(
                    f"{step.name} ended, but what it is for does not hold: {step.reason}",
                    remedy=f"see {context.log}",
                )
        except VcagentError:
            raise
        except OSError as error:
            raise HostError(f"{step.name}: {error}", remedy="see whether the disk is full or read-only") from error
        except Exception as error:
            context.log.parent.mkdir(parents=True, exist_ok=True)
            with context.log.open("a", encoding="utf-8") as file:
                file.write(self.processes.secrets.mask(traceback.format_exc()))
            raise VcagentError(
                f"unexpected {type(error).__name__} in {step.name}: {self.processes.secrets.mask(str(error))}",
                remedy=f"this is a defect of vcagent; please report it with {context.log}",
            ) from None
        return outcome

    @contextmanager
    def _monitors(self) -> Iterator[None]:
        ended = threading.Event()
        threads = []
        for element in leaves(self.planner.profile.monitors):
            if reason := self.planner.skipped(element, self.facts):
                self.progress.note(f"{_title(element)}: skipped: {reason}")
                continue
            monitor = self.planner.build(element)
            if not isinstance(monitor, Monitor):
                raise ProfileError(f"{element.type} is no monitor", where=str(element.location))
            threads.append(threading.Thread(target=self._watch, args=(element, monitor, ended), daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(timeout=10)

    def _watch(self, element: Element, monitor: Monitor, ended: threading.Event) -> None:
        parameters = monitor.parameters

        def emit(metrics: Sequence[Metric]) -> None:
            self.recorder.emit(
                element.type, parameters.scenario or element.type, parameters.tags, parameters.metric_filters, metrics
            )

        log = self.run_dir / "logs" / f"{element.key.replace('[', '-').replace(']', '')}.log"
        context = MonitorContext(emit=emit, stop=ended, facts=self.facts, processes=self.processes, log=log)
        try:
            monitor.watch(context)
        except Exception as error:  # noqa: BLE001 - a monitor never ends a run, but its end is told
            self.log.error("monitor ended", component=element.key, error=traceback.format_exc())
            self.outcome.warnings.append(f"{_title(element)} ended early: {error}")


def _title(element: Element) -> str:
    scenario = next(
        (value for key, value in element.parameters.items() if canonical(key) == "scenario" and _plain(value)), None
    )
    return f"{element.type} ({scenario})" if scenario else element.type


def _plain(value: Any) -> bool:
    return isinstance(value, str) and not value.startswith("$") and "{" not in value


def _loop_scope(scope: str, group: Element, loop: int, loops: int | None) -> str:
    return scope if loops == 1 else f"{scope}{group.key}@{loop}:"


def _as_kind(error: VcagentError, element: Element) -> VcagentError:
    """The same error with the exit code of the phase it stopped; refusals keep their own."""
    kind = _KIND_ERROR.get(element.kind)
    if kind is None or isinstance(error, (HostError, ProfileError, InterruptedRunError, kind)):
        return error
    return kind(error.message, where=error.where, remedy=error.remedy, details=error.details)
