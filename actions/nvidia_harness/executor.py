"""Run NVIDIA's MLPerf harness like VirtualClient's MLPerfExecutor, with one step per stage."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from actions.nvidia_harness.benchmarks import benchmark
from actions.nvidia_harness.harness_container import harness_container, image_name
from actions.nvidia_harness.layouts import PREBUILD, ConfigStyle
from actions.nvidia_harness.parameters import MLPerfParameters
from actions.nvidia_harness.preparation import (
    check_links,
    give_folder,
    give_scratch,
    join_docker,
    prebuild,
    wanted_clean,
)
from actions.nvidia_harness.results import copy_logs, keep_logs, results_in
from actions.nvidia_harness.scratch import FOLDERS, DataStage
from actions.nvidia_harness.systems import SystemSections, own_system
from actions.nvidia_harness.workspace import BUILT, CONTAINER_FOLDER, SYSTEM, Test, Workspace, find_workspace
from agent.component.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.component.downloads import not_carried
from agent.core.errors import ActionFailedError
from agent.core.mlperf import NO_RESULT, NOT_VERIFIED, STANDING
from agent.core.quantities import metric_text
from agent.core.records import Validity
from agent.store.exhibits import Exhibits, write_exhibits
from gpu_configs.published import standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agent.component.component import StepContext
    from agent.component.downloads import Download
    from agent.core.records import ParsedOutput
    from agent.facts import Facts

_OFFICIAL_MINUTES = 12.0
_FAST_MINUTES = 4.0
_BUILD_MINUTES = 20.0
_PREBUILD_MINUTES = 30.0


class MLPerfExecutor(Action):
    """Run one benchmark of NVIDIA's closed-division code in its container.

    Raises:
        TypeError: if the parameters are of another component.
    """

    is_for_gpus = True
    Parameters: ClassVar[type[ComponentParameters]] = MLPerfParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("MLPerfParameters", parameters)

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Refuse: NVIDIA's makefiles fetch on the GPU host, and what they fetch depends on its GPUs.

        ``make build`` fetches MLPerf's repository each time, even into a clone that exists, then LoadGen's
        build tools from the package index, and on some GPUs further repositories; the container has the
        account of the host's user (Makefile.build and Makefile.docker of v4.1).
        """
        raise not_carried(
            "what NVIDIA's harness downloads: its make build fetches from GitHub and PyPI on the GPU host",
            "bundle the rest with --dependencies (driver, Docker, toolkit, NVIDIA's repository), and let the "
            "harness reach these servers, through a proxy if need be (HTTPS_PROXY)",
        )

    def plan(self, facts: Facts) -> Plan:
        """Plan a step for each stage: a resumed run continues after the last complete one.

        Raises:
            HostError: if the account, the repository, a GPU, the scratch space, enough free space or
                the system is missing.
        """
        own_system(self.asked)
        workspace = find_workspace(self.asked, facts)
        return Plan(tuple(self._steps(workspace)))

    @property
    def tests(self) -> tuple[Test, ...]:
        """Runs of the harness, in order."""
        scenarios = self.asked.loadgen_scenarios or benchmark(self.asked.model).scenarios
        return tuple(
            Test(config_ver, scenario, mode)
            for config_ver in self.asked.config_ver
            for mode in self.asked.modes
            for scenario in scenarios
        )

    def _steps(self, workspace: Workspace) -> Iterator[Step]:
        asked, name = self.asked, workspace.account.name
        scratch = workspace.scratch.path
        if workspace.joins_docker:
            yield Step(
                "docker-group",
                f"{name} is not a member of the group docker",
                lambda context: join_docker(workspace, context),
                command=f"usermod -aG docker {name}",
            )
        yield Step(
            "scratch",
            f"{', '.join(FOLDERS)} are below {scratch}",
            lambda context: give_scratch(workspace, context),
            command=f"mkdir -p {scratch}/{{{','.join(FOLDERS)}}}",
        )
        yield Step(
            "repository",
            f"{name} must be able to write to {workspace.folder}",
            lambda context: give_folder(workspace, context),
            command=f"chown -R {name} {workspace.folder}" if workspace.as_root else "",
        )
        if not asked.image:
            yield Step(
                "image",
                f"the harness runs in the image {image_name(workspace, asked)}",
                lambda context: prebuild(workspace, asked, context),
                command=" && ".join(f"make {' '.join(call)}" for call in PREBUILD),
                estimate_s=_PREBUILD_MINUTES * 60,
            )
        clean = "build/ must come only from this code"
        yield self._stage(workspace, "clean", clean, self._clean, "make clean")
        yield self._stage(
            workspace,
            "link-dirs",
            "build/ must lead to the scratch space",
            self._link_dirs,
            f"make link_dirs MLPERF_SCRATCH_PATH={scratch}",
        )
        yield self._stage(
            workspace,
            "known-system",
            "an unsupported host must be found before the downloads",
            self._known_system,
            "python3 -c 'from code.common.systems.system_list import …'",
        )
        for stage in workspace.data_stages:
            one = next(one for one in workspace.prepared if one.name == stage.benchmark)
            minutes = one.preprocess_minutes if stage.target == "preprocess_data" else one.download_minutes
            yield self._stage(
                workspace,
                stage.name,
                f"{stage.benchmark} needs {stage.folder}",
                partial(self._data, stage=stage, minutes=minutes),
                f"make {stage.target} BENCHMARKS={stage.benchmark}",
                minutes,
            )
        yield self._stage(
            workspace,
            "build",
            "plugins, LoadGen and the harness are compiled for this host",
            self._build,
            "make build",
            _BUILD_MINUTES,
        )
        yield self._stage(
            workspace,
            "system",
            "NVIDIA's code must know this host and have settings for it",
            self._system,
            "python3 -c 'from code.common.systems.system_list import …'",
        )
        yield from self._test_steps(workspace)

    def _test_steps(self, workspace: Workspace) -> Iterator[Step]:
        one = workspace.benchmark
        for test in dict.fromkeys(replace(test, mode="performance") for test in self.tests):
            arguments = self._run_args(workspace, replace(test, mode=""))
            yield self._stage(
                workspace,
                f"generate-engines-{test.config_ver}-{test.scenario.lower()}",
                f"{test.scenario} needs TensorRT engines built on these GPUs",
                partial(self._engines, test=test),
                f"make generate_engines RUN_ARGS={shlex.quote(arguments)}",
                one.engine_minutes,
            )
        for test in self.tests:
            yield self._stage(
                workspace,
                f"run-{test.config_ver}-{test.scenario.lower()}-{test.mode}",
                f"measures the {test.mode} of {one.name} in LoadGen's {test.scenario} scenario",
                partial(self._run, test=test),
                f"make run_harness RUN_ARGS={shlex.quote(self._run_args(workspace, test))}",
                self._test_minutes(workspace, test),
            )

    @staticmethod
    def _stage(  # noqa: PLR0917 - like a step
        workspace: Workspace,
        name: str,
        reason: str,
        run: Callable[[Workspace, StepContext], StepOutcome],
        command: str,
        minutes: float | None = None,
    ) -> Step:
        def locked(context: StepContext) -> StepOutcome:
            with workspace.locked(context):
                return run(workspace, context)

        estimate_s = minutes * 60 if minutes else None
        return Step(name, reason, locked, command=command, estimate_s=estimate_s)

    def _test_minutes(self, workspace: Workspace, test: Test) -> float:
        if test.mode == "accuracy":
            return workspace.benchmark.accuracy_minutes
        return _FAST_MINUTES if self.asked.test_run else _OFFICIAL_MINUTES

    def _run_args(self, workspace: Workspace, test: Test) -> str:
        asked, layout = self.asked, workspace.layout
        parts = [
            f"--benchmarks={asked.model}",
            f"--scenarios={test.scenario}",
            layout.configuration(test.config_ver),
        ]
        if test.mode:
            fast = asked.fast and layout.configs is ConfigStyle.CLASSES
            parts.append(f"--test_mode={test.test_mode}")
            parts += ["--fast"] * fast + ["--test_run"] * asked.test_run
        return " ".join([*parts, *([asked.run_args] if asked.run_args else [])])

    def _clean(self, workspace: Workspace, context: StepContext) -> StepOutcome:
        why = wanted_clean(workspace, workspace.commit(context.facts))
        if not why:
            return StepOutcome("build/ comes from this code, and is kept")
        kept = keep_logs(workspace.logs, workspace.folder / f"logs-before-clean-{time.time_ns()}")
        with harness_container(workspace, self.asked, context, enter=False) as harness:
            harness.make("clean")
        return StepOutcome(f"cleaned: {why}" + ("; its logs were moved beside it" if kept else ""))

    def _link_dirs(self, workspace: Workspace, context: StepContext) -> StepOutcome:
        with harness_container(workspace, self.asked, context, enter=False) as harness:
            harness.make("link_dirs")
        check_links(workspace)
        return StepOutcome(f"build/ leads to {workspace.scratch.path}")

    def _data(
        self, workspace: Workspace, context: StepContext, stage: DataStage, minutes: float
    ) -> StepOutcome:
        scratch = workspace.scratch
        why = scratch.why_due(stage, workspace.mlperf_round)
        if not why:
            return StepOutcome("it is complete, and is used again")
        with harness_container(workspace, self.asked, context, enter=False) as harness:
            harness.clone_reference()
            moved = scratch.begin(stage, workspace.mlperf_round)
            try:
                harness.make(
                    stage.target,
                    f"BENCHMARKS={stage.benchmark}",
                    title=f"{stage.target.replace('_', ' ')} for {stage.benchmark}",
                    usual_minutes=minutes,
                    lacking=partial(scratch.lacking, stage),
                )
            except ActionFailedError:
                scratch.end(stage, complete=False)
                raise
        record = scratch.end(stage, complete=True)
        made = f"{record['count']} files, {record['bytes'] / 1e9:.2f} GB"
        return StepOutcome("; ".join(filter(None, (made, why, moved))))

    def _build(self, workspace: Workspace, context: StepContext) -> StepOutcome:
        if workspace.noted(BUILT).get("round") == workspace.mlperf_round:
            with harness_container(workspace, self.asked, context):
                return StepOutcome("it is already built")
        with harness_container(workspace, self.asked, context, enter=False) as harness:
            harness.make("build", usual_minutes=_BUILD_MINUTES)
            harness.note_built()
        return StepOutcome("built")

    def _known_system(self, workspace: Workspace, context: StepContext) -> StepOutcome:
        with harness_container(workspace, self.asked, context, enter=False) as harness:
            sections = SystemSections(harness, workspace, self.asked, self.tests)
            if (detected := sections.told()) is None:
                return StepOutcome(
                    "NVIDIA's code cannot detect the host before it is built; the detection is repeated then"
                )
            return _called(*sections.ensure(detected))

    def _system(self, workspace: Workspace, context: StepContext) -> StepOutcome:
        with harness_container(workspace, self.asked, context) as harness:
            name, notes = SystemSections(harness, workspace, self.asked, self.tests).ensure()
        workspace.note(SYSTEM, {"name": name, "notes": notes})
        return _called(name, notes)

    def _engines(self, workspace: Workspace, context: StepContext, test: Test) -> StepOutcome:
        with harness_container(workspace, self.asked, context) as harness:
            harness.make(
                "generate_engines",
                f"RUN_ARGS={self._run_args(workspace, replace(test, mode=''))}",
                title=f"engines for {test.scenario} {test.config_ver}",
                usual_minutes=workspace.benchmark.engine_minutes,
                env=_system_env(workspace),
            )
        return StepOutcome("engines are built")

    def _run(self, workspace: Workspace, context: StepContext, test: Test) -> StepOutcome:
        asked = self.asked
        case = f"{asked.model}-{test.config_ver}-{test.scenario}-{test.mode}".lower()
        case_dir = context.case_dir("mlperf", case)
        folder = f"vcagent-{context.run_dir.name}-{case}-{time.time_ns()}"
        with harness_container(workspace, asked, context) as harness:
            harness.make(
                "run_harness",
                f"RUN_ARGS={self._run_args(workspace, test)}",
                f"LOG_DIR={CONTAINER_FOLDER}/build/logs/{folder}",
                title=f"{asked.model} {test.scenario} {test.config_ver}, {test.mode}",
                usual_minutes=self._test_minutes(workspace, test),
                env=_system_env(workspace),
            )
            image = harness.container.image
        large = copy_logs(workspace.logs / folder, case_dir / "logs")
        outputs = results_in(case_dir / "logs", test, asked.model)
        about = {
            "config_ver": test.config_ver,
            "mlperf_round": workspace.mlperf_round,
            "repository_commit": workspace.commit(context.facts),
            "image": image.reference,
            "image_id": image.identifier,
            "run_args": self._run_args(workspace, test),
            "gpus": str(workspace.gpus or ""),
            "left_in_place": ", ".join(large),
            "system": workspace.noted(SYSTEM).get("name"),
            STANDING: f"{NO_RESULT}: --test_run makes a run too short"
            if asked.test_run
            else f"Measured by NVIDIA's closed-division code; {NOT_VERIFIED}",
            "system_notes": "; ".join(workspace.noted(SYSTEM).get("notes", ())),
        }
        details = {key: value for key, value in about.items() if value}
        told = tuple(replace(output, details={**output.details, **details}) for output in outputs)
        if test.mode == "performance" and workspace.gpus is not None:
            _set_beside_published(outputs, [workspace.gpus.name] * workspace.gpus.count, case_dir)
        return StepOutcome(" · ".join(map(_sentence, told)), told, case_dir)


def _set_beside_published(outputs: Iterable[ParsedOutput], gpus: list[str], case_dir: Path) -> None:
    tables = []
    for output in outputs:
        benchmark_name, scenario, _ = output.scenario.rsplit("/", 2)
        tables.append(standing(benchmark_name, scenario, output.metrics, gpus))
    if shown := tuple(table for table in tables if table):
        write_exhibits(case_dir, Exhibits(tables=shown))


def _called(name: str, notes: list[str]) -> StepOutcome:
    return StepOutcome("; ".join([f"NVIDIA's code calls this host {name}", *notes]))


def _system_env(workspace: Workspace) -> dict[str, str] | None:
    """Return SYSTEM_NAME, if the code takes a host's name from it (v5.x)."""
    name = workspace.noted(SYSTEM).get("name")
    return {"SYSTEM_NAME": str(name)} if name and workspace.layout.configs is ConfigStyle.FILES else None


def _sentence(output: ParsedOutput) -> str:
    """Return a result in a few words."""
    verdict = output.verdict
    validity = verdict.validity.value if verdict else "no verdict"
    why = f" ({verdict.reasons[0].message})" if verdict and verdict.reasons else ""
    first = next((metric for metric in output.metrics if metric.verbosity == 1), None)
    number = f": {metric_text(first)}" if first else ""
    good = verdict is not None and verdict.validity is Validity.VALID
    return f"{output.scenario} {validity}{'' if good else why}{number}"
