"""A run from its request to its report; a resumed one goes on from its journal."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import socket
import sqlite3
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import __version__
from agent.engine import Engine, EngineOptions, Outcome
from agent.errors import ExitCode, HostError, UsageError, VcagentError
from agent.facts import Facts, LocalHost, known_facts
from agent.facts.agent_paths import PACKAGE_DIR
from agent.facts.linux import PLATFORM
from agent.journal import Journal, now
from agent.logs import configure
from agent.planning import PlannedComponent, Planner, Standing, leaves
from agent.processes import LocalProcesses
from agent.profile import Profile, Source, Timeout, find, load_sources, parse_timeout, select
from agent.recorder import Recorder, RunContext, verdict_to_json
from agent.records import Reason, Validity, Verdict
from agent.results import JOURNAL, RUN_FILE, ResultsFolder, new_run_id, write_json
from agent.secrets import Secrets
from agent.sinks import CsvSink, JsonlSink, Sink
from agent.variables import run_variables

if TYPE_CHECKING:
    from agent.progress import RunProgress

__all__ = ["FinishedRun", "RunRequest", "plan", "resume", "start"]


@dataclass(frozen=True)
class RunRequest:
    """What the command line asks for.

    Args:
        profiles: names, paths or URIs; several are merged in order.
        parameters: overrides of the profile's parameters.
        metadata: what every record carries besides.
        scenarios: which elements to run: ``a,-b``.
        only_dependencies: whether to prepare the host and stop.
        iterations: rounds of all actions.
        timeout: as ``--timeout`` takes it.
        fail_fast: whether the first failed action ends the run.
        results_dir: the folder of all runs.
        package_dir: where environments and downloads are kept; None for the default.
        experiment_id: groups runs; made up if empty.
        client_id: this host's name in the records; the host name if empty.
    """

    profiles: tuple[str, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    scenarios: str = ""
    only_dependencies: bool = False
    iterations: int | None = None
    timeout: str = ""
    fail_fast: bool = False
    results_dir: Path = Path("results")
    package_dir: Path | None = None
    experiment_id: str = ""
    client_id: str = ""


@dataclass(frozen=True)
class FinishedRun:
    """What is left of a run: its folder, how it ended, and its report where one could be written."""

    run_dir: Path
    outcome: Outcome
    description: Mapping[str, Any]
    report: Path | None


def plan(request: RunRequest) -> tuple[Profile, list[PlannedComponent]]:
    """What a run would do on this host, changing nothing.

    Raises:
        ProfileError: if the profile cannot be used.
    """
    sources = [find(reference) for reference in request.profiles]
    profile = _profile(sources, request)
    facts = _facts(request.package_dir)
    planner = Planner(profile, run_variables(facts, Path(request.results_dir) / "run", "", _client_id(request)))
    planner.validate()
    return profile, planner.preview(facts, only_dependencies=request.only_dependencies)


def start(request: RunRequest, progress: RunProgress) -> FinishedRun:
    """Run a profile.

    Raises:
        ProfileError: if the profile cannot be used.
        HostError: if the host cannot run it; nothing was changed then.
    """
    sources = [find(reference) for reference in request.profiles]
    profile = _profile(sources, request)
    timeout = _timeout(request, profile)
    facts = _facts(request.package_dir)
    secrets = _secrets(profile, request)
    folder = ResultsFolder(request.results_dir)
    run_id = new_run_id(profile.name, now())
    context = RunContext(
        experiment_id=request.experiment_id or str(uuid.uuid4()),
        run_id=run_id,
        client_id=_client_id(request),
        profile=profile.name,
        metadata=dict(request.metadata),
    )
    run_dir = folder.path / run_id
    planner = Planner(profile, run_variables(facts, run_dir, context.experiment_id, context.client_id))
    planner.validate()
    preview = planner.preview(facts, only_dependencies=request.only_dependencies)
    _refuse(preview)
    folder.prepare()
    with folder.locked(run_id):
        folder.create(run_id)
        journal = Journal(run_dir / JOURNAL)
        stored = [source.stored(secrets.mask) for source in sources]
        journal.remember(
            request=secrets.mask_value(_request_to_json(request)),
            context=dataclasses.asdict(context),
            sources=[dataclasses.asdict(source) for source in stored],
            command_line=[secrets.mask(argument) for argument in sys.argv],
            versions=_versions(),
            started=now().isoformat(),
        )
        options = EngineOptions(request.iterations, timeout, request.fail_fast, request.only_dependencies)
        return _execute(planner, facts, journal, context, run_dir, secrets, options, progress, preview)


def resume(
    results_dir: Path, run: str | None, progress: RunProgress, parameters: Mapping[str, str] | None = None
) -> FinishedRun:
    """Go on with a run that was killed, interrupted, or failed.

    Args:
        results_dir: the folder of all runs.
        run: the run's id, a unique beginning of it, or its folder; None for the latest.
        progress: shows what happens.
        parameters: secrets that were given with ``--parameters`` and were not stored.

    Raises:
        UsageError: if there is no such run, or it is complete.
        HostError: if another agent is at it.
    """
    run_dir = ResultsFolder(results_dir).find(run)
    folder = ResultsFolder(run_dir.parent)
    folder.prepare()
    with folder.locked(run_dir.name):
        journal = Journal(run_dir / JOURNAL)
        if journal.recall("exit_code") == ExitCode.OK:
            raise UsageError(f"run {run_dir.name} is complete", remedy="start the profile anew for another result")
        if journal.recall("context") is None:
            raise UsageError(
                f"run {run_dir.name} was killed before it had begun", remedy="start the profile anew"
            )
        context = RunContext(**journal.recall("context"))
        request = _request_from_json(journal.recall("request"), parameters or {})
        sources = [Source(**source) for source in journal.recall("sources")]
        profile = _profile([source.restored() for source in sources], request)
        secrets = _secrets(profile, request)
        facts = _facts(request.package_dir)
        planner = Planner(profile, run_variables(facts, run_dir, context.experiment_id, context.client_id))
        planner.validate()
        journal.remember(resumed=[*journal.recall("resumed", []), now().isoformat()], exit_code=None)
        options = EngineOptions(
            request.iterations, _timeout(request, profile), request.fail_fast, request.only_dependencies
        )
        preview = planner.preview(facts, only_dependencies=request.only_dependencies)
        return _execute(planner, facts, journal, context, run_dir, secrets, options, progress, preview)


def _execute(
    planner: Planner,
    facts: Facts,
    journal: Journal,
    context: RunContext,
    run_dir: Path,
    secrets: Secrets,
    options: EngineOptions,
    progress: RunProgress,
    preview: Sequence[PlannedComponent],
) -> FinishedRun:
    package_dir = facts[PACKAGE_DIR]
    sinks: list[Sink] = [
        JsonlSink(run_dir / "metrics.jsonl"),
        CsvSink(run_dir / "metrics.csv", {"version": __version__, "platform": facts[PLATFORM]}),
    ]
    recorder = Recorder(journal, sinks, context, run_dir, secrets.mask)
    processes = LocalProcesses(secrets=secrets, run_id=context.run_id)
    processes.kill_leftovers()
    description = _describe(planner.profile, journal, context, facts, secrets)
    write_json(run_dir / RUN_FILE, description)
    with configure(run_dir / "logs" / "vcagent.jsonl", secrets) as log, progress:
        log.info("run started", run_id=context.run_id, profile=context.profile, version=__version__)
        progress.expect(_estimates(preview, journal, options))
        engine = Engine(
            planner=planner, facts=facts, journal=journal, recorder=recorder, processes=processes,
            progress=progress, run_dir=run_dir, package_dir=package_dir, options=options, log=log,
        )  # fmt: skip
        outcome = engine.run()
        log.info("run ended", exit_code=int(outcome.exit_code), error=str(outcome.error or ""))
    return _finish(planner.profile, journal, context, facts, secrets, run_dir, outcome)


def _finish(
    profile: Profile,
    journal: Journal,
    context: RunContext,
    facts: Facts,
    secrets: Secrets,
    run_dir: Path,
    outcome: Outcome,
) -> FinishedRun:
    from agent.report import write_report, write_rollup

    report = None
    description: dict[str, Any] = {}
    try:
        journal.remember(exit_code=int(outcome.exit_code), ended=now().isoformat())
        description = _describe(profile, journal, context, facts.fresh(), secrets, outcome)
        write_json(run_dir / RUN_FILE, description)
        write_rollup(run_dir)
        report = write_report(run_dir)
    except (OSError, sqlite3.Error) as error:
        outcome.warnings.append(f"the report could not be written: {error}")
        outcome.exit_code = outcome.exit_code or ExitCode.HOST_CANNOT_RUN
    finally:
        journal.close()
    return FinishedRun(run_dir, outcome, description, report)


def _describe(
    profile: Profile,
    journal: Journal,
    context: RunContext,
    facts: Facts,
    secrets: Secrets,
    outcome: Outcome | None = None,
) -> dict[str, Any]:
    """run.json: what was run, on what, and how it ended."""
    cases = journal.cases()
    verdict = _verdict(cases, outcome) if outcome else None
    return {
        "schema_version": 1,
        "run_id": context.run_id,
        "experiment_id": context.experiment_id,
        "client_id": context.client_id,
        "profile": {
            "name": profile.name,
            "description": profile.description,
            "sources": [secrets.mask(source) for source in profile.sources],
            "parameters": secrets.mask_value(dict(profile.parameters)),
        },
        "command_line": journal.recall("command_line", []),
        "versions": journal.recall("versions", {}),
        "metadata": dict(context.metadata),
        "facts": secrets.mask_value(_facts_to_json(facts)),
        "start": journal.recall("started"),
        "resumed": journal.recall("resumed", []),
        "end": journal.recall("ended") if outcome else None,
        "verdict": verdict_to_json(verdict, secrets.mask),
        "exit_code": int(outcome.exit_code) if outcome else None,
        "exit_reason": secrets.mask(str(outcome.error)) if outcome and outcome.error else "",
        "steps": [{**dataclasses.asdict(row), "status": row.status.value, "start": row.started, "end": row.ended}
                  for row in journal.steps()],
        "cases": cases,
    }  # fmt: skip


def _verdict(cases: Sequence[Mapping[str, Any]], outcome: Outcome) -> Verdict | None:
    reasons = [
        Reason(f"{case['scenario']}: {reason['message']}", reason["remedy"], reason["setting"], reason["value"],
               reason["code"])
        for case in cases
        for reason in case["reasons"]
    ]  # fmt: skip
    reasons += [Reason(f"{key}: {error.message}", error.remedy or "") for key, error in outcome.failures]
    if outcome.error and outcome.error not in [error for _, error in outcome.failures]:
        reasons.append(Reason(outcome.error.message, outcome.error.remedy or ""))
    warnings = (*outcome.warnings, *(f"{case['scenario']}: {text}" for case in cases for text in case["warnings"]))
    judged = {case["validity"] for case in cases} - {None}
    if outcome.exit_code is ExitCode.OK:
        if not judged:
            return None
        validity = Validity.VALID if "VALID" in judged else Validity.NOT_APPLICABLE
    elif outcome.exit_code is ExitCode.RESULT_INVALID:
        validity = Validity.INVALID
    else:
        validity = Validity.FAILED
    return Verdict(validity, tuple(reasons), warnings)


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
            f"the timeout of {timeout.duration_s:g} s is shorter than the {least:g} s that the profile requires",
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


def _secrets(profile: Profile, request: RunRequest) -> Secrets:
    secrets = Secrets(mappings=[os.environ, profile.parameters, request.parameters])
    for element in [*leaves(profile.dependencies), *leaves(profile.monitors), *leaves(profile.actions)]:
        secrets.add_from(element.parameters)
    return secrets


def _facts(package_dir: Path | None) -> Facts:
    return Facts(LocalHost(), {PACKAGE_DIR.name: package_dir.absolute()} if package_dir else None)


def _facts_to_json(facts: Facts) -> dict[str, Any]:
    values = {}
    for name, fact in known_facts().items():
        value = facts[fact]
        if value is not None and name not in {"installed_packages"}:
            values[name] = to_json(value)
    return values


def to_json(value: Any) -> Any:
    """A fact's value as JSON: data classes become objects, paths become text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _versions() -> dict[str, str]:
    return {"vcagent": __version__, "python": platform.python_version()}


def _client_id(request: RunRequest) -> str:
    return request.client_id or socket.gethostname()


def _request_to_json(request: RunRequest) -> dict[str, Any]:
    values = dataclasses.asdict(request)
    values["results_dir"] = str(Path(request.results_dir).absolute())
    values["package_dir"] = str(request.package_dir.absolute()) if request.package_dir else None
    return values


def _request_from_json(values: dict[str, Any], parameters: Mapping[str, str]) -> RunRequest:
    values = {
        **values,
        "profiles": tuple(values["profiles"]),
        "results_dir": Path(values["results_dir"]),
        "package_dir": Path(values["package_dir"]) if values["package_dir"] else None,
        "parameters": {**values["parameters"], **parameters},
    }
    return RunRequest(**values)


def _estimates(
    preview: Sequence[PlannedComponent], journal: Journal, options: EngineOptions
) -> list[float | None]:
    done = {row.key for row in journal.steps() if row.status.value == "done"}
    estimates: list[float | None] = []
    for component in preview:
        rounds = range(1, (options.iterations or 1) + 1) if component.element.kind == "action" else (None,)
        for number in rounds:
            scope = f"{number}:" if number else ""
            if component.standing is Standing.LATER:
                estimates.append(None)
            for step in component.plan.steps if component.plan else ():
                if f"{scope}{component.element.key}/{step.name}" not in done:
                    estimates.append(step.estimate_s)
    return estimates
