"""A run from its request to its report; a resumed run continues from its journal."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agent import __version__
from agent.core.errors import ContainerError, ExitCode, HostError, UsageError, host_errors, masking
from agent.core.interruption import Interruption
from agent.core.logs import agent_log
from agent.core.safe_files import require_trust
from agent.core.secrets import Secrets
from agent.doctor.profile import unset_secrets
from agent.facts import Facts, LocalHost
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.boot import REBOOTS
from agent.facts.bundle import BUNDLE, bundle_of
from agent.facts.linux import PLATFORM
from agent.host.containers.records import container_records, has_containers
from agent.host.processes import LocalProcesses
from agent.planning.planner import PlannedComponent, Planner, Standing
from agent.planning.services import is_service
from agent.planning.variables import run_variables
from agent.profile import (
    Profile,
    Source,
    Timeout,
    find,
    load_sources,
    parse_timeout,
    repeat,
    select,
    set_parameters,
)
from agent.run.bundle_opening import check_bundle, open_bundle
from agent.run.cleaning import own_package_dir, package_dir_in_use
from agent.run.clock import HostClock
from agent.run.description import describe
from agent.run.engine import Engine, EngineOptions
from agent.run.outcome import Outcome
from agent.run.reboot import RebootDoor, Reboots, SystemdDoor, allows_reboot
from agent.run.record_context import RecordContexts
from agent.run.recorder import Recorder, RunContext
from agent.run.request import RunRequest, keep_sources, kept_sources
from agent.run.step_runner import StepRunner
from agent.sinks import (
    FINISH_WAIT_S,
    Delivering,
    SinkContext,
    add_sink_secrets,
    open_sinks,
    own_files,
)
from agent.store.journal import Journal, StepStatus, now
from agent.store.results import JOURNAL, REPORT_FILE, RUN_FILE, ResultsFolder, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.core.progress import RunProgress

_INTERRUPTED_WAIT_S = 5.0
"""Seconds that an interrupted run waits for sinks; the resumed run delivers the rest."""

TERMINAL_LOG = "run.log"
"""File in logs/ with the text that the terminal shows."""


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended: its folder, its outcome, run.json, and its report if one could be written."""

    run_dir: Path
    outcome: Outcome
    description: Mapping[str, Any]
    report: Path | None


@dataclass(frozen=True)
class PlannedRun:
    """A run before its start.

    Args:
        profile: its profile.
        components: the components with their plans, in order; secrets are masked.
        package_dir: the package folder.
        estimates_s: expected seconds of each step that the run counts; None if unknown.
        iterations: rounds of all actions.
        timeout: how long the actions are repeated; None for rounds.
    """

    profile: Profile
    components: list[PlannedComponent]
    package_dir: Path
    estimates_s: list[float | None]
    iterations: int = 1
    timeout: Timeout | None = None


def plan(request: RunRequest, *, folders: bool = True) -> PlannedRun:
    """Return what a run would do on this host; change nothing.

    Args:
        request: what to run, and how.
        folders: whether to check that root may write to the results folder and the package folder.

    Raises:
        ProfileError: if the profile cannot be used.
    """
    session = check(request)
    with masking(session.secrets.mask):
        if folders:
            session.require_trusted_folders()
        planned = session.preview()
    options = session.options
    return PlannedRun(
        session.planner.profile,
        [component.masked(session.secrets.mask) for component in planned],
        session.facts[PACKAGE_DIR],
        _estimates(planned, options),
        options.iterations or 1,
        options.timeout,
    )


def check(
    request: RunRequest, sources: Sequence[Source] = (), *, modelled: Mapping[str, Any] | None = None
) -> Session:
    """Check everything that can be checked without touching the host.

    Args:
        request: what to run, and how.
        sources: the texts of its profiles, if already loaded; otherwise they are looked up.
        modelled: the facts of another host that the profile is for; None for this one.

    Raises:
        ProfileError: if the profile cannot be used.
        UsageError: if the options contradict each other or the profile.
    """
    folder = ResultsFolder(request.results_dir)
    if request.run_id:
        folder.check_name(request.run_id)
    sources = sources or [find(reference) for reference in request.profiles]
    return _session(request, sources, None, folder, modelled=modelled)


def start(
    request: RunRequest,
    progress: RunProgress,
    door: RebootDoor | None = None,
    sources: Sequence[Source] = (),
) -> FinishedRun:
    """Run a profile.

    Args:
        request: what to run, and how.
        progress: shows what happens.
        door: the way to the host's boots; by default this host's.
        sources: the texts of its profiles, if already loaded.

    Raises:
        ProfileError: if the profile cannot be used.
        HostError: if the host cannot run it; nothing was changed.
        UsageError: if the options contradict each other or the profile.
    """
    session = check(request, sources)
    with masking(session.secrets.mask), host_errors("the run's folder"):
        session.require_trusted_folders()
        planned = session.preview()
        _refuse(planned)
        if bundle := bundle_of(session.facts):
            check_bundle(bundle)
        folder = ResultsFolder(request.results_dir)
        folder.prepare()
        own_package_dir(session.facts[PACKAGE_DIR])
        run_id = session.context.run_id
        with folder.locked(run_id), Journal(folder.create(run_id) / JOURNAL) as journal:
            secrets = session.secrets
            kept = dataclasses.replace(request, package_dir=session.facts[PACKAGE_DIR])
            journal.remember(
                request=secrets.mask_value(kept.to_json()),
                context=dataclasses.asdict(session.context),
                sources=keep_sources(session.sources, secrets.mask),
                command_line=[secrets.mask(argument) for argument in sys.argv],
                versions={"vcagent": __version__, "python": platform.python_version()},
                started=now().isoformat(),
            )
            reboots = _reboots(journal, door, session, request)
            return session.execute(journal, progress, reboots, planned)


def resume(
    results_dir: Path,
    run: str | None,
    progress: RunProgress,
    parameters: Mapping[str, str] | None = None,
    *,
    allow_reboot: bool = False,
    arm: bool = False,
    door: RebootDoor | None = None,
    sources: Sequence[Source] = (),
) -> FinishedRun:
    """Resume a run that was killed, interrupted, or failed; a complete run is returned as it ended.

    Args:
        results_dir: the folder of all runs.
        run: the run's id, a unique beginning of the id, or its folder; None for the latest.
        progress: shows what happens.
        parameters: secrets that were given with ``--parameters`` and were not stored.
        allow_reboot: whether the host may be rebooted, if that was not allowed from the start.
        arm: whether the run resumes by itself after a reboot that the user makes, if not set from the start.
        door: the way to the host's boots; by default this host's.
        sources: the texts of its profiles, if already loaded: those that hold a secret were not stored.

    Raises:
        UsageError: if the run does not exist, or a secret must be given again.
        HostError: if another agent is working on the run.
    """
    run_dir = ResultsFolder(results_dir).find(run)
    require_trust(run_dir, "run folder", "--results-dir, and start the profile again")
    folder = ResultsFolder(run_dir.parent)
    folder.prepare()
    with host_errors("the run's folder"), folder.locked(run_dir.name), Journal(run_dir / JOURNAL) as journal:
        if journal.recall("exit_code") in (ExitCode.OK, ExitCode.RESULT_INVALID):
            Reboots(journal, door or SystemdDoor(), run_dir).disarm()
            progress.note(f"run {run_dir.name} is complete; for another result start the profile again")
            return _finished(run_dir, ExitCode(journal.recall("exit_code")))
        if journal.recall("context") is None:
            raise UsageError(
                f"run {run_dir.name} was killed before it had begun", remedy="start the profile again"
            )
        request = RunRequest.from_json(journal.recall("request"), parameters or {})
        request = dataclasses.replace(
            request, allow_reboot=request.allow_reboot or allow_reboot, arm=request.arm or arm
        )
        sources = sources or kept_sources(journal.recall("sources"), request.profiles)
        context = RunContext(**journal.recall("context"))
        happened = Reboots(journal, door or SystemdDoor(), run_dir).happened()
        session = _session(request, sources, context, folder, happened)
        reboots = _reboots(journal, door, session, request)
        journal.remember(resumed=[*journal.recall("resumed", []), now().isoformat()], exit_code=None)
        with masking(session.secrets.mask):
            session.require_trusted_folders()
            return session.execute(journal, progress, reboots, session.preview())


def _finished(run_dir: Path, exit_code: ExitCode) -> FinishedRun:
    """Return a complete run as it ended."""
    description: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        description = json.loads((run_dir / RUN_FILE).read_text(encoding="utf-8"))
    report = run_dir / REPORT_FILE
    return FinishedRun(run_dir, Outcome(exit_code), description, report if report.is_file() else None)


@dataclass(frozen=True)
class Session:
    """Everything that one process needs to work on a run."""

    sources: tuple[Source, ...]
    planner: Planner
    facts: Facts
    secrets: Secrets
    context: RunContext
    run_dir: Path
    options: EngineOptions
    request: RunRequest

    def require_trusted_folders(self) -> None:
        """Check that root may write to the results folder, the package folder and this run's folder.

        Raises:
            HostError: if others may write to a folder, or it belongs to another account.
        """
        require_trust(self.run_dir.parent, "results folder", "--results-dir")
        require_trust(self.facts[PACKAGE_DIR], "package folder", "--package-dir or VCAGENT_PACKAGE_DIR")
        if self.run_dir.exists():
            require_trust(self.run_dir, "run folder", "--results-dir, and start the profile again")

    def preview(self) -> list[PlannedComponent]:
        """Return what the run would do now."""
        return self.planner.preview(self.facts, only_dependencies=self.options.only_dependencies)

    def execute(
        self, journal: Journal, progress: RunProgress, reboots: Reboots, planned: Sequence[PlannedComponent]
    ) -> FinishedRun:
        """Do everything that is not done yet, judge the results, and write the report.

        Args:
            journal: the run's journal.
            progress: shows what happens.
            reboots: the run's reboots.
            planned: what the run would do now, for the display.
        """
        progress.expect(_estimates(planned, self.options, journal))
        interruption = Interruption()
        clock = HostClock()
        with (
            interruption.listening(),
            package_dir_in_use(self.facts[PACKAGE_DIR]),
            progress.logged(self.run_dir / "logs" / TERMINAL_LOG),
        ):
            host = {"version": __version__, "platform": self.facts[PLATFORM], "system": self.request.system}
            context = SinkContext(
                self.run_dir,
                self.context.run_id,
                host,
                journal.context,
                self.secrets.mask,
                Path(journal.recall("sink_working_dir", Path.cwd())),
            )
            journal.remember(
                sink_host=host,
                sinks=self.secrets.mask_value(list(self.sinks)),
                sink_working_dir=str(context.working_dir),
            )
            delivering = Delivering(journal, open_sinks(self.sinks, context), self.secrets.mask)
            delivering.start()
            recorder = Recorder(
                journal,
                own_files(context),
                self.context,
                self.run_dir,
                self.secrets.mask,
                contexts=self._record_contexts(journal),
                delivering=delivering,
            )
            outcome = self._carry_out(journal, progress, interruption, reboots, recorder)
            if warning := clock.warning():
                outcome.warnings.append(warning)
            finished = self._finish(journal, outcome, delivering)
        reboots.conclude(outcome)
        return finished

    def _carry_out(
        self,
        journal: Journal,
        progress: RunProgress,
        interruption: Interruption,
        reboots: Reboots,
        recorder: Recorder,
    ) -> Outcome:
        run_dir, secrets = self.run_dir, self.secrets
        processes = LocalProcesses(self.context.run_id, secrets=secrets, stop=interruption.stop)
        processes.kill_leftovers(
            {
                row.key
                for row in journal.steps()
                if row.status not in (StepStatus.DONE, StepStatus.CUT)
                # A service's step is done as soon as the service is ready.
                or (row.kind == "action" and is_service(row))
            }
        )
        write_json(run_dir / RUN_FILE, self._describe(journal))
        level = self.request.log_level
        with agent_log(run_dir / "logs" / "vcagent.jsonl", secrets, level) as log, progress:
            log.info(
                "run started", run_id=self.context.run_id, profile=self.context.profile, version=__version__
            )
            steps = StepRunner(
                journal=journal,
                recorder=recorder,
                processes=processes,
                progress=progress,
                run_dir=run_dir,
                package_dir=self.facts[PACKAGE_DIR],
                log=log,
            )
            if waiting := reboots.waiting():
                outcome = Outcome(waiting.exit_code, waiting)
            else:
                unset = unset_secrets(self.planner.profile)
                for warning in unset:
                    progress.note(f"warning: {warning}")
                outcome = Engine(self.planner, self.facts, steps, self.options, interruption).run()
                outcome.warnings += unset
            self._remove_containers(outcome)
            reboots.arrange(outcome, secrets.mask)
            if reboots.goes_down:
                progress.note(str(outcome.error))
            log.info("run ended", exit_code=int(outcome.exit_code), error=str(outcome.error or ""))
        return outcome

    def _record_contexts(self, journal: Journal) -> RecordContexts:
        """Return the contexts of the run's records; the runtime's values have VirtualClient's names."""
        request, context = self.request, self.context
        run = {
            "experiment_id": context.experiment_id,
            "run_id": context.run_id,
            "client_id": context.client_id,
            "profile": context.profile,
            "system": request.system,
            "metadata": dict(context.metadata),
        }
        runtime: dict[str, Any] = {
            "profiles": [source.name for source in self.sources],
            "iterations": request.iterations,
            "timeout": request.timeout,
            "scenarios": request.scenarios,
            "executionArguments": " ".join(journal.recall("command_line", [])[1:]),
            "appVersion": __version__,
            "pythonVersion": platform.python_version(),
        }
        runtime = {key: value for key, value in runtime.items() if value not in (None, "")}
        return RecordContexts(
            journal,
            self.facts,
            run=run,
            runtime=runtime,
            mask=self.secrets.mask_value,
            run_dir=self.run_dir,
        )

    @property
    def sinks(self) -> tuple[str, ...]:
        """The sinks that the profile and the command line ask for."""
        return (*self.planner.profile.sinks, *self.request.sinks)

    def _remove_containers(self, outcome: Outcome) -> None:
        """Remove the run's containers, except those with ``keep``; a run that will be resumed keeps all."""
        if not has_containers(self.run_dir) or _going_on(outcome):
            return
        from agent.host.containers.engine import remove_containers

        try:
            remove_containers(self.context.run_id)
        except ContainerError as error:
            outcome.warnings.append(str(error))

    def _describe(self, journal: Journal, outcome: Outcome | None = None) -> dict[str, Any]:
        return describe(
            profile=self.planner.profile,
            variables=self.planner.variables,
            journal=journal,
            context=self.context,
            facts=self.facts.fresh(),
            secrets=self.secrets,
            containers=container_records(self.run_dir),
            outcome=outcome,
        )

    def _finish_sinks(self, delivering: Delivering, outcome: Outcome, description: dict[str, Any]) -> None:
        """Deliver the remaining records; records that a sink did not take stay in the journal."""
        going_on = _going_on(outcome)
        left = delivering.finish(
            complete=not going_on, wait_s=_INTERRUPTED_WAIT_S if going_on else FINISH_WAIT_S
        )
        if left:
            option = "--refused " if any(" refused " in line for line in left) else ""
            left[-1] += f"; deliver them with: vcagent telemetry flush {option}{self.run_dir.name}"
        outcome.warnings += left
        description["verdict"]["warnings"] += left

    def _finish(self, journal: Journal, outcome: Outcome, delivering: Delivering) -> FinishedRun:
        """Write the files of the finished run; the exit code comes last, when everything else is written."""
        from agent.report.html import write_report
        from agent.report.rollup import write_rollup

        report, description = None, {}
        try:
            journal.require_in_place()
            journal.remember(ended=now().isoformat())
            description = self._describe(journal, outcome)
            write_json(self.run_dir / RUN_FILE, description)
            write_rollup(self.run_dir)
            report = write_report(self.run_dir)
            self._finish_sinks(delivering, outcome, description)
            journal.remember(exit_code=int(outcome.exit_code))
        except Exception as error:  # noqa: BLE001 - the result is reported even if it cannot be written
            outcome.warnings.append(f"the report could not be written: {error}")
            if outcome.error is None:
                outcome.error = HostError(
                    f"the report could not be written: {error}",
                    where=str(self.run_dir),
                    remedy=f"see whether the disk is full, then: vcagent resume {self.run_dir.name}",
                )
            if outcome.exit_code in (ExitCode.OK, ExitCode.RESULT_INVALID):
                outcome.exit_code = ExitCode.HOST_CANNOT_RUN
            with suppress(Exception):  # the description agrees with the exit code
                description = self._describe(journal, outcome)
        finally:
            journal.close()
        return FinishedRun(self.run_dir, outcome, description, report)


def _going_on(outcome: Outcome) -> bool:
    """Return True if the run is to be resumed."""
    return outcome.exit_code in (ExitCode.INTERRUPTED, ExitCode.REBOOT_PENDING)


def _session(
    request: RunRequest,
    sources: Sequence[Source],
    context: RunContext | None,
    folder: ResultsFolder,
    reboots: tuple[str, ...] = (),
    *,
    modelled: Mapping[str, Any] | None = None,
) -> Session:
    profile = load_sources(sources, overrides=request.parameters, metadata=request.metadata)
    secrets = Secrets(mappings=[request.parameters, request.metadata], environment=os.environ)
    for reference in request.profiles:
        if "://" in reference:
            secrets.add(unquote(urlsplit(reference).password or ""), declared=True)
    for scope in profile.scopes:
        for parameters in (scope.parameters, *(condition.parameters for condition in scope.conditions)):
            secrets.add_from(parameters)
    add_sink_secrets(secrets, (*profile.sinks, *request.sinks))
    context = context or _new_context(request, profile, folder, secrets.mask)
    run_dir = folder.path / context.run_id
    facts = _this_host(request, reboots) if modelled is None else Facts(None, modelled)
    variables = run_variables(
        facts,
        run_dir,
        context.experiment_id,
        context.client_id,
        scenarios=request.scenarios,
        system=request.system,
    )
    context = dataclasses.replace(context, metadata=secrets.mask_value(context.metadata))
    with masking(secrets.mask):
        profile = set_parameters(repeat(profile, variables, secrets.mask), request.settings, variables)
        if request.scenarios:
            profile = select(profile, request.scenarios, variables)
        planner = Planner(profile, variables, secrets)
        planner.validate()
        planner.check_host(facts)
        options = EngineOptions(
            request.iterations,
            _timeout(request, profile),
            request.fail_fast,
            request.only_dependencies,
            request.keep_serving,
        )
        # Errors in sinks are reported before anything is changed.
        open_sinks((*profile.sinks, *request.sinks), SinkContext(run_dir, context.run_id))
    return Session(tuple(sources), planner, facts, secrets, context, run_dir, options, request)


def _this_host(request: RunRequest, reboots: tuple[str, ...]) -> Facts:
    """Return the facts of this host, with the folders and the bundle of a request."""
    modelled: dict[str, Any] = {REBOOTS.name: reboots}
    if request.package_dir:
        modelled[PACKAGE_DIR.name] = request.package_dir.absolute()
    # Links are resolved: root does not follow links when it writes.
    modelled[PACKAGE_DIR.name] = Facts(LocalHost(), modelled)[PACKAGE_DIR].resolve()
    if request.bundle is None:
        return Facts(LocalHost(), modelled)
    modelled[BUNDLE] = bundle = open_bundle(request.bundle, Facts(LocalHost(), modelled))
    return Facts(LocalHost(bundle.apt_environment), modelled)


def _reboots(journal: Journal, door: RebootDoor | None, session: Session, request: RunRequest) -> Reboots:
    profile = session.planner.profile
    allowed = request.allow_reboot or allows_reboot(profile.metadata, profile.parameters)
    return Reboots(journal, door or SystemdDoor(), session.run_dir, allowed=allowed, arm=request.arm)


def _new_context(
    request: RunRequest, profile: Profile, folder: ResultsFolder, mask: Callable[[str], str]
) -> RunContext:
    """Return the names of the run; secrets in them are masked before anything is named after them."""
    name = mask(profile.name)
    return RunContext(
        experiment_id=mask(request.experiment_id) or str(uuid.uuid4()),
        run_id=request.run_id or folder.new_run_id(name, now()),
        client_id=mask(request.client()),
        profile=name,
        metadata={
            name: str(value)
            for name, value in profile.metadata.items()
            if not isinstance(value, (dict, list))
        },
    )


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
            remedy="vcagent doctor --profile … lists all problems of this host",
        )


def _estimates(
    preview: Sequence[PlannedComponent], options: EngineOptions, journal: Journal | None = None
) -> list[float | None]:
    """Return the expected seconds of each step that is not done yet; None if unknown.

    A component that is planned later counts as one step. Of rounds within a timeout only the first counts.
    """
    done = {row.key for row in journal.steps() if row.status is StepStatus.DONE} if journal else set()
    estimates: list[float | None] = []
    for component in preview:
        scopes = [""]
        if component.element.kind == "action":
            scopes = [f"{number}:" for number in range(1, (options.iterations or 1) + 1)]
        for group in component.groups:
            scopes = [inner for scope in scopes for inner in group.scopes(scope)]
        for scope in scopes:
            if component.standing is Standing.LATER:
                estimates.append(None)
            steps = component.plan.steps if component.plan else ()
            key = f"{scope}{component.element.key}"
            estimates += [step.estimate_s for step in steps if f"{key}/{step.name}" not in done]
    return estimates
