"""A run from its request to its report; a resumed one goes on from its journal."""

from __future__ import annotations

import dataclasses
import os
import platform
import sqlite3
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent import __version__
from agent.cleaning import own_package_dir
from agent.engine import Engine, EngineOptions, Outcome
from agent.errors import ExitCode, HostError, UsageError
from agent.facts import Facts, LocalHost
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.boot import REBOOTS
from agent.facts.linux import PLATFORM
from agent.journal import Journal, StepStatus, now
from agent.logs import configure
from agent.planning import PlannedComponent, Planner, Standing, leaves
from agent.processes import LocalProcesses
from agent.profile import Profile, Source, Timeout, find, load_sources, parse_timeout, select
from agent.reboot import RebootDoor, Reboots, SystemdDoor, allows_reboot
from agent.recorder import Recorder, RunContext
from agent.request import RunRequest, keep_sources, kept_sources
from agent.results import JOURNAL, RUN_FILE, ResultsFolder, new_run_id, write_json
from agent.run_description import describe
from agent.secrets import Secrets
from agent.sinks import CsvSink, JsonlSink, Sink
from agent.step_runner import StepRunner
from agent.variables import run_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agent.progress import RunProgress

__all__ = ["FinishedRun", "plan", "resume", "start"]


@dataclass(frozen=True)
class FinishedRun:
    """What is left of a run: its folder, how it ended, run.json, and its report if one could be written."""

    run_dir: Path
    outcome: Outcome
    description: Mapping[str, Any]
    report: Path | None


def plan(request: RunRequest) -> tuple[Profile, list[PlannedComponent]]:
    """What a run would do on this host, changing nothing.

    Raises:
        ProfileError: if the profile cannot be used.
    """
    profile = _profile([find(reference) for reference in request.profiles], request)
    context = _new_context(request, profile)
    session = _Session.of(request, profile, context, request.results_dir.absolute() / context.run_id)
    return profile, session.preview()


def start(request: RunRequest, progress: RunProgress, door: RebootDoor | None = None) -> FinishedRun:
    """Run a profile.

    Args:
        request: what to run, and how.
        progress: shows what happens.
        door: the way to the host's boots; by default this host's.

    Raises:
        ProfileError: if the profile cannot be used.
        HostError: if the host cannot run it; nothing was changed then.
        UsageError: if the timeout cannot be used.
    """
    sources = [find(reference) for reference in request.profiles]
    profile = _profile(sources, request)
    context = _new_context(request, profile)
    folder = ResultsFolder(request.results_dir)
    session = _Session.of(request, profile, context, folder.path / context.run_id)
    _refuse(session.preview())
    folder.prepare()
    with folder.locked(context.run_id):
        journal = Journal(folder.create(context.run_id) / JOURNAL)
        mask = session.secrets.mask
        journal.remember(
            request=session.secrets.mask_value(request.to_json()),
            context=session.secrets.mask_value(dataclasses.asdict(context)),
            sources=keep_sources(sources, mask),
            command_line=[mask(argument) for argument in sys.argv],
            versions={"vcagent": __version__, "python": platform.python_version()},
            started=now().isoformat(),
        )
        reboots = _reboots(journal, door, session.run_dir, request, profile)
        return session.execute(journal, progress, reboots)


def resume(
    results_dir: Path,
    run: str | None,
    progress: RunProgress,
    parameters: Mapping[str, str] | None = None,
    *,
    allow_reboot: bool = False,
    arm: bool = False,
    door: RebootDoor | None = None,
) -> FinishedRun:
    """Go on with a run that was killed, interrupted, or failed.

    Args:
        results_dir: the folder of all runs.
        run: the run's id, a unique beginning of it, or its folder; None for the latest.
        progress: shows what happens.
        parameters: secrets that were given with ``--parameters`` and were not kept.
        allow_reboot: whether the host may be rebooted, if that was not allowed from the start.
        arm: whether the run goes on by itself after a reboot that is left to the user, likewise.
        door: the way to the host's boots; by default this host's.

    Raises:
        UsageError: if there is no such run, or it is complete.
        HostError: if another agent is at it.
    """
    run_dir = ResultsFolder(results_dir).find(run)
    folder = ResultsFolder(run_dir.parent)
    folder.prepare()
    with folder.locked(run_dir.name):
        journal = Journal(run_dir / JOURNAL)
        if journal.recall("exit_code") in (ExitCode.OK, ExitCode.RESULT_INVALID):
            Reboots(journal, door or SystemdDoor(), run_dir).disarm()
            raise UsageError(
                f"run {run_dir.name} is complete", remedy="start the profile anew for another result"
            )
        if journal.recall("context") is None:
            raise UsageError(
                f"run {run_dir.name} was killed before it had begun", remedy="start the profile anew"
            )
        request = RunRequest.from_json(journal.recall("request"), parameters or {})
        profile = _profile(kept_sources(journal.recall("sources"), request.profiles), request)
        request = dataclasses.replace(
            request, allow_reboot=request.allow_reboot or allow_reboot, arm=request.arm or arm
        )
        reboots = _reboots(journal, door, run_dir, request, profile)
        context = RunContext(**journal.recall("context"))
        session = _Session.of(request, profile, context, run_dir, reboots.happened())
        journal.remember(resumed=[*journal.recall("resumed", []), now().isoformat()], exit_code=None)
        return session.execute(journal, progress, reboots)


@dataclass(frozen=True)
class _Session:
    """What one process needs to work on a run."""

    planner: Planner
    facts: Facts
    secrets: Secrets
    context: RunContext
    run_dir: Path
    options: EngineOptions

    @classmethod
    def of(
        cls,
        request: RunRequest,
        profile: Profile,
        context: RunContext,
        run_dir: Path,
        reboots: tuple[str, ...] = (),
    ) -> _Session:
        """Everything checked that can be checked without touching the host."""
        modelled: dict[str, Any] = {REBOOTS.name: reboots}
        if request.package_dir:
            modelled[PACKAGE_DIR.name] = request.package_dir.absolute()
        facts = Facts(LocalHost(), modelled)
        secrets = Secrets(mappings=[os.environ, profile.parameters, request.parameters])
        for element in [*leaves(profile.dependencies), *leaves(profile.monitors), *leaves(profile.actions)]:
            secrets.add_from(element.parameters)
        planner = Planner(profile, run_variables(facts, run_dir, context.experiment_id, context.client_id))
        planner.validate()
        options = EngineOptions(
            request.iterations, _timeout(request, profile), request.fail_fast, request.only_dependencies
        )
        return cls(planner, facts, secrets, context, run_dir, options)

    def preview(self) -> list[PlannedComponent]:
        """What would be done now."""
        return self.planner.preview(self.facts, only_dependencies=self.options.only_dependencies)

    def execute(self, journal: Journal, progress: RunProgress, reboots: Reboots) -> FinishedRun:
        """Do what is not done yet, then judge it and write everything down."""
        run_dir, secrets = self.run_dir, self.secrets
        processes = LocalProcesses(self.context.run_id, secrets=secrets)
        processes.kill_leftovers()
        own_package_dir(self.facts[PACKAGE_DIR])
        write_json(run_dir / RUN_FILE, self._describe(journal))
        host = {"version": __version__, "platform": self.facts[PLATFORM]}
        sinks: list[Sink] = [JsonlSink(run_dir / "metrics.jsonl"), CsvSink(run_dir / "metrics.csv", host)]
        with configure(run_dir / "logs" / "vcagent.jsonl", secrets) as log, progress:
            log.info(
                "run started", run_id=self.context.run_id, profile=self.context.profile, version=__version__
            )
            progress.expect(_estimates(self.preview(), journal, self.options))
            steps = StepRunner(
                journal=journal,
                recorder=Recorder(journal, sinks, self.context, run_dir, secrets.mask),
                processes=processes,
                progress=progress,
                run_dir=run_dir,
                package_dir=self.facts[PACKAGE_DIR],
                log=log,
            )
            if waiting := reboots.waiting():
                outcome = Outcome(waiting.exit_code, waiting)
            else:
                outcome = Engine(self.planner, self.facts, steps, self.options).run()
            reboots.arrange(outcome, secrets.mask)
            if reboots.goes_down:
                progress.note(str(outcome.error))
            log.info("run ended", exit_code=int(outcome.exit_code), error=str(outcome.error or ""))
        finished = self._finish(journal, outcome)
        reboots.conclude(outcome)
        return finished

    def _describe(self, journal: Journal, outcome: Outcome | None = None) -> dict[str, Any]:
        return describe(
            profile=self.planner.profile,
            journal=journal,
            context=self.context,
            facts=self.facts.fresh(),
            secrets=self.secrets,
            outcome=outcome,
        )

    def _finish(self, journal: Journal, outcome: Outcome) -> FinishedRun:
        from agent.report import write_report, write_rollup

        report, description = None, {}
        try:
            journal.remember(exit_code=int(outcome.exit_code), ended=now().isoformat())
            description = self._describe(journal, outcome)
            write_json(self.run_dir / RUN_FILE, description)
            write_rollup(self.run_dir)
            report = write_report(self.run_dir)
        except (OSError, sqlite3.Error) as error:
            outcome.warnings.append(f"the report could not be written: {error}")
            outcome.exit_code = outcome.exit_code or ExitCode.HOST_CANNOT_RUN
        finally:
            journal.close()
        return FinishedRun(self.run_dir, outcome, description, report)


def _reboots(
    journal: Journal, door: RebootDoor | None, run_dir: Path, request: RunRequest, profile: Profile
) -> Reboots:
    allowed = request.allow_reboot or allows_reboot(profile.metadata, profile.parameters)
    return Reboots(journal, door or SystemdDoor(), run_dir, allowed=allowed, arm=request.arm)


def _new_context(request: RunRequest, profile: Profile) -> RunContext:
    return RunContext(
        experiment_id=request.experiment_id or str(uuid.uuid4()),
        run_id=new_run_id(profile.name, now()),
        client_id=request.client(),
        profile=profile.name,
        metadata=dict(request.metadata),
    )


def _profile(sources: Sequence[Source], request: RunRequest) -> Profile:
    profile = load_sources(sources, overrides=request.parameters, metadata=request.metadata)
    return select(profile, request.scenarios) if request.scenarios else profile


def _timeout(request: RunRequest, profile: Profile) -> Timeout | None:
    if not request.timeout:
        return None
    if request.iterations is not None:
        raise UsageError(
            "--iterations and --timeout exclude each other",
            remedy="give the number of rounds, or the time that rounds are repeated for",
        )
    timeout = parse_timeout(request.timeout)
    least = profile.minimum_required_execution_time_s
    if least is not None and timeout.duration_s is not None and timeout.duration_s < least:
        raise UsageError(
            f"the timeout of {timeout.duration_s:g} s is shorter than the profile's least, {least:g} s",
            remedy=f"allow at least {least / 60:g} minutes, or leave --timeout out",
        )
    return timeout


def _refuse(preview: Sequence[PlannedComponent]) -> None:
    refused = [component for component in preview if component.error]
    if len(refused) == 1 and refused[0].error:
        raise refused[0].error
    if refused:
        raise HostError(
            f"this host cannot run {len(refused)} elements of the profile",
            details=tuple(line for component in refused for line in str(component.error).splitlines()),
            remedy="vcagent doctor --profile … lists everything that is in the way",
        )


def _estimates(
    preview: Sequence[PlannedComponent], journal: Journal, options: EngineOptions
) -> list[float | None]:
    done = {row.key for row in journal.steps() if row.status is StepStatus.DONE}
    estimates: list[float | None] = []
    for component in preview:
        rounds = range(1, (options.iterations or 1) + 1) if component.element.kind == "action" else (None,)
        for number in rounds:
            scope = f"{number}:" if number else ""
            if component.standing is Standing.LATER:
                estimates.append(None)
            steps = component.plan.steps if component.plan else ()
            key = f"{scope}{component.element.key}"
            estimates += [step.estimate_s for step in steps if f"{key}/{step.name}" not in done]
    return estimates
