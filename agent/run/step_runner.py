"""Runs one step: notes its start in the journal, and commits its records together with its end."""

from __future__ import annotations

import errno
import os
import re
import traceback
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from agent.component.component import (
    Action,
    Component,
    ComponentParameters,
    Dependency,
    Service,
    ServiceAction,
    Step,
    StepContext,
    StepOutcome,
)
from agent.component.handover import Handover
from agent.core.errors import (
    ActionFailedError,
    DependencyFailedError,
    HostError,
    InterruptedRunError,
    ProfileError,
    RebootPendingError,
    VcagentError,
    unexpected,
)
from agent.core.names import canonical
from agent.core.safe_files import append_text
from agent.host.host_lock import host_for_itself
from agent.run.case_secrets import hide_secrets
from agent.run.reboot import requested
from agent.run.remedies import names_of, with_user_settings
from agent.store.journal import Journal, StepRow, StepStatus, now

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from agent.core.logs import AgentLog
    from agent.core.progress import RunProgress
    from agent.facts import Facts
    from agent.host.processes import LocalProcesses
    from agent.profile import Element
    from agent.run.recorder import Recorder

_HOST_ERRNOS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a file that cannot be written because of the host's disk."""

_KIND_ERROR: dict[str, type[VcagentError]] = {
    "dependency": DependencyFailedError,
    "action": ActionFailedError,
}


class StepRunner:
    """Runs steps of a run.

    Args:
        journal: the run's journal.
        recorder: records what the steps return.
        processes: runs commands; its ``stop`` event ends them.
        progress: shows what happens.
        run_dir: the run's folder.
        package_dir: where environments and downloads are kept.
        log: the structured log.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        recorder: Recorder,
        processes: LocalProcesses,
        progress: RunProgress,
        run_dir: Path,
        package_dir: Path,
        log: AgentLog,
    ) -> None:
        self.journal = journal
        self.recorder = recorder
        self.processes = processes
        self.progress = progress
        self.run_dir = run_dir
        self.package_dir = package_dir
        self.log = log
        self.count = 0
        """Number of steps that this process has started."""
        self.services: dict[str, Service] = {}
        """Services that run now, by name."""
        self.handover = Handover()
        """Holds anything that a step left running for the next one."""

    def run(
        self, element: Element, component: Component, step: Step, facts: Facts, key: str
    ) -> Service | None:
        """Run a step, unless the journal says that it is done; return the service that it left running.

        A dependency's step runs again in any case: it was planned again because the host is not as it should
        be, whatever the journal says. A service's step runs again too, because the service no longer runs.

        Args:
            element: the profile's element.
            component: the element's component.
            step: the step.
            facts: the host as it was when the component was planned.
            key: the step's key in the journal.

        Raises:
            InterruptedRunError: if the run was asked to stop.
            RebootPendingError: if the step is done, and asks for a reboot before the next step.
            VcagentError: if the step failed; the class fits the element's kind.
        """
        before = self.journal.step(key)
        done = before and before.status is StepStatus.DONE and isinstance(component, Action)
        if done and not isinstance(component, ServiceAction):
            return None
        if not step.takes_over:
            self.handover.end()
        mask = self.processes.secrets.mask
        log = self.run_dir / "logs" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', key)}.log"
        if before and before.status is StepStatus.FAILED:
            log.with_suffix(".exit").unlink(missing_ok=True)
        title = mask(_step_title(element, component.parameters, step))
        shown = self.progress.start(title, step.estimate_s)
        self.progress.detail(f"      {mask(step.reason)}")
        if step.command:
            self.progress.detail(f"      $ {mask(step.command)}")
        context = StepContext(
            facts=facts,
            processes=self.processes.for_step(key),
            progress=shown,
            stop=self.processes.stop,
            run_dir=self.run_dir,
            package_dir=self.package_dir,
            log=log,
            key=key,
            services={name: service.values for name, service in self.services.items()},
            handover=self.handover,
        )
        started = now()
        self.count += 1
        self.journal.start_step(
            StepRow(
                key=key,
                component=key.rpartition("/")[0],
                type=element.type,
                kind=element.kind,
                name=step.name,
                reason=mask(step.reason),
                command=mask(step.command),
                log=str(log.relative_to(self.run_dir)),
            ),
            undo=self.processes.secrets.mask_value(step.undo) if step.undo is not None else None,
            title=title,
        )
        self.log.info("step started", step=key, reason=step.reason)
        try:
            with self._alone(component, context):
                outcome = self._attempt(step, context)
            self._commit(component.parameters, element, step, key, outcome=outcome, started=started, log=log)
        except VcagentError as error:
            names_of(element, component.parameters).in_error(error)
            interrupted = isinstance(error, InterruptedRunError) or self.processes.stop.is_set()
            status = StepStatus.INTERRUPTED if interrupted else StepStatus.FAILED
            self.journal.end_step(key, status, message=mask(str(error)))
            self.progress.finish(shown, f"{status.value}: {mask(error.message).splitlines()[0]}")
            self.log.warning("step ended", step=key, status=status.value, error=str(error))
            if interrupted:
                raise InterruptedRunError(f"{step.name} was interrupted") from error
            raise of_kind(error, element) from error
        self.progress.finish(shown, mask(outcome.message) or "done")
        self.log.info("step ended", step=key, status="done", message=outcome.message)
        if outcome.reboot:
            raise RebootPendingError(f"the host must be rebooted: {outcome.reboot}")
        return outcome.service

    @staticmethod
    def _alone(component: Component, context: StepContext) -> AbstractContextManager[None]:
        """Keep other agents away while root changes something that all agents on the host share."""
        changes = isinstance(component, Dependency) and component.changes_host
        if not (changes and os.geteuid() == 0):
            return nullcontext()
        return host_for_itself(context.stop, context.progress)

    def _attempt(self, step: Step, context: StepContext) -> StepOutcome:
        is_running = False
        try:
            outcome = step.run(context) or StepOutcome()
            is_running = outcome.service is not None
            if step.holds and not step.holds(context.facts.fresh()):
                raise DependencyFailedError(
                    f"{step.name} ended, but did not have its effect: {step.reason}",
                    remedy=f"see {context.log}",
                )
        except VcagentError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _HOST_ERRNOS:
                raise HostError(
                    f"{step.name}: {error}", remedy="see whether the disk is full or read-only"
                ) from error
            append_text(context.log, self.processes.secrets.mask(traceback.format_exc()))
            raise unexpected(error, step.name) from error
        finally:
            if not is_running:  # a service continues to write
                self._hide_secrets(context)
        return outcome

    def _hide_secrets(self, context: StepContext) -> None:
        try:
            hide_secrets(self.run_dir, context.key, self.processes.secrets)
        except OSError as error:
            self.log.warning("secrets may remain", step=context.key, error=str(error))

    def _commit(
        self,
        parameters: ComponentParameters,
        element: Element,
        step: Step,
        key: str,
        *,
        outcome: StepOutcome,
        started: datetime,
        log: Path,
    ) -> None:
        try:
            self.recorder.finish_step(
                key,
                with_user_settings(outcome.outputs, element, parameters),
                started=started,
                message=outcome.message,
                case_dir=outcome.case_dir,
                scenario=parameters.scenario or element.type,
                tags=parameters.tags,
                filters=parameters.metric_filters,
                about={
                    "type": element.type,
                    **parameters.model_dump(mode="json", exclude_none=True),
                    "profileIteration": int(key.partition(":")[0]) if key[:1].isdigit() else None,
                    "command": step.command,
                },
                log=str(log),
                remember=requested(self.journal, key, self.processes.secrets.mask(outcome.reboot))
                if outcome.reboot
                else None,
            )
        except (TypeError, ValueError) as error:
            raise unexpected(error, f"what {key} returned") from error


def title_of(element: Element) -> str:
    """Return the title of an element for people: its type and its scenario."""
    scenario = _scenario_of(element)
    return f"{element.type} ({scenario})" if scenario else element.type


def _scenario_of(element: Element) -> str:
    scenario = next((value for key, value in element.parameters.items() if canonical(key) == "scenario"), "")
    return (
        scenario if isinstance(scenario, str) and not scenario.startswith("$") and "{" not in scenario else ""
    )


def _step_title(element: Element, parameters: ComponentParameters, step: Step) -> str:
    name = parameters.scenario or element.type
    return name if step.name == name else f"{name}: {step.name}"


def of_kind(error: VcagentError, element: Element) -> VcagentError:
    """Return the error as the class of the phase that it stopped; refusals keep their own class."""
    kind = _KIND_ERROR.get(element.kind)
    if kind is None or isinstance(
        error, (HostError, ProfileError, InterruptedRunError, RebootPendingError, kind)
    ):
        return error
    return kind(error.message, where=error.where, remedy=error.remedy, details=error.details)
