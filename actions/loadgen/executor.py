"""Run MLPerf Inference with LoadGen: one test, a scenario in a mode, against a server or an engine."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from actions.loadgen.compliance import AUDIT_SETTINGS, COMPLIANCE_TESTS, eos_token_ids, verify
from actions.loadgen.contained import in_container, key_inside
from actions.loadgen.engine import SMALLER
from actions.loadgen.engines import engine_name, open_engine
from actions.loadgen.harness_run import (
    CONFIG_NAME,
    harness_command,
    harness_config,
    remove_stale,
    run_harness,
)
from actions.loadgen.kept_engine import can_be_kept, engine_for
from actions.loadgen.load_trials import trial_metrics
from actions.loadgen.offline_tail import tail_metrics
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.result import Tested, merge
from actions.loadgen.sample_sets import SYNTHETIC, SampleSet, open_sample_set
from actions.loadgen.sample_sets.synthetic import SyntheticSamples
from actions.loadgen.scorers import check_reference, score_run
from agent.component.component import Action, ComponentParameters, Plan, Step, StepOutcome
from agent.component.environment_script import interpreter
from agent.core.errors import ActionFailedError, HostError, LiftedBy, refusals_lifted_by
from agent.core.quantities import metric_text
from agent.core.records import ParsedOutput, Validity
from agent.facts.agent_paths import lift_of_path
from agent.facts.visible_gpus import usable_gpus
from agent.store.exhibits import Exhibits, write_exhibits
from gpu_configs.model_identity import own_name
from gpu_configs.published import standing
from gpu_configs.roofline import gpus_used, limit_of, quantization_config
from parsers.loadgen import parse_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actions.loadgen.accuracy import Accuracy
    from actions.loadgen.engine import Engine
    from agent.component.component import StepContext
    from agent.core.records import MetadataValue
    from agent.facts import Facts

_SYNTHETIC_SAMPLES = 256
_OVERHEAD_S = 10.0
_LOADGEN_DURATION_S = 600.0
"""LoadGen's own min_duration (mlcommons/inference, loadgen/mlperf.conf)."""
_HEADLINES = 2


class LoadGenExecutor(Action):
    """Run LoadGen once and judge whether its result counts.

    Raises:
        TypeError: if the parameters are of another component.
    """

    Parameters: ClassVar[type[ComponentParameters]] = LoadGenParameters

    def __init__(self, parameters: ComponentParameters) -> None:
        super().__init__(parameters)
        self.asked = cast("LoadGenParameters", parameters)
        self.recorded = self.asked
        """The parameters with the name of the model that runs."""

    def uses_gpus(self, facts: Facts) -> bool:
        """Return True for vLLM, and for a llama.cpp server with layers on GPUs."""
        server = self.asked.server
        return super().uses_gpus(facts) or bool(self.asked.vllm or (server and server.gpu_layers))

    def plan(self, facts: Facts) -> Plan:
        """Plan one step; refuse errors that can be found in advance.

        The environment is not checked: a dependency may still have to create it.

        Raises:
            HostError: if the data set, user.conf or key cannot be read.
        """
        asked = self.asked
        self._check_files(facts)
        if asked.container:
            asked.container.require_inputs(facts)
        what = f"verifies {asked.mode}" if asked.mode in COMPLIANCE_TESTS else f"measures the {asked.mode}"
        where = f", in a container of {asked.container.image_name}" if asked.container else ""
        step = Step(
            name=f"{asked.loadgen_scenario}-{asked.mode}".lower(),
            reason=f"{what} of {asked.model} in LoadGen's {asked.loadgen_scenario} "
            f"scenario on {engine_name(asked, facts)}{where}",
            run=self._run,
            command=shlex.join(harness_command(asked, f"mlperf/{asked.case}/{CONFIG_NAME}")),
            estimate_s=self._estimate_s(),
            takes_over=can_be_kept(asked),
        )
        return Plan((step,))

    def _estimate_s(self) -> float | None:
        """Return the minimum duration in seconds; None for other modes, which end with their samples."""
        if self.asked.mode != "performance":
            return None
        asked_s = self.asked.min_duration
        return _OVERHEAD_S + (_LOADGEN_DURATION_S if asked_s is None else asked_s)

    def _check_files(self, facts: Facts) -> None:
        asked = self.asked
        if asked.dataset != SYNTHETIC:
            samples = self._open_set(facts)
            # A dependency that is still to run may make a data set of the package folder again.
            source = Path(asked.dataset)
            is_made_here = source.is_absolute() and lift_of_path(facts, source) is None
            lift = None if is_made_here else LiftedBy.NOTHING
            with refusals_lifted_by(lift):
                check_reference(asked, samples)
            if asked.samples and asked.samples > len(samples.ids):
                raise HostError(
                    f"{asked.samples} samples are requested, but {asked.dataset} has {len(samples.ids)}",
                    remedy="lower samples, or remove it to use all",
                    lifted_by=lift,
                )
            if samples.has_texts:
                self._check_texts()
        for name in ("user_conf", "api_key_file"):
            path = cast("Path | None", getattr(asked, name))
            if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
                raise HostError(
                    f"{name} {path} is not a readable file",
                    remedy="correct the path",
                    lifted_by=lift_of_path(facts, path),
                )
        if asked.api_key_env and asked.api_key_env not in os.environ:
            raise HostError(
                f"api_key_env names {asked.api_key_env}, which is not set",
                remedy=f"export {asked.api_key_env}=…",
                lifted_by=LiftedBy.NOTHING,
            )

    def _check_texts(self) -> None:
        """Refuse parameters that need token ids for a data set of texts."""
        asked = self.asked
        if asked.input_tokens_max is not None:
            raise HostError(
                f"input_tokens_max limits tokens, but a sample of {asked.dataset} is text",
                remedy="remove the limit, or give samples as token_ids (CnnDailyMailDataSet makes them)",
                lifted_by=LiftedBy.NOTHING,
            )
        if asked.vllm is not None and asked.vllm.llm_config.get("skip_tokenizer_init"):
            raise HostError(
                f"a sample of {asked.dataset} is text, but skip_tokenizer_init leaves out vLLM's tokenizer",
                remedy="use dataset synthetic, or a model with a tokenizer and without skip_tokenizer_init",
                lifted_by=LiftedBy.NOTHING,
            )

    def _open_set(self, facts: Facts) -> SampleSet:
        try:
            return open_sample_set(self.asked.dataset)
        except HostError as error:
            error.lifted_by = lift_of_path(facts, Path(self.asked.dataset))
            raise

    def _named_as_it_is(self) -> LoadGenParameters:
        """Return the parameters with the model's own name, if the folder holds another than the named model.

        LoadGen keeps the limits of the named model.
        """
        asked = self.asked
        name = own_name(asked.model, asked.vllm.model) if asked.vllm else asked.model
        if name == asked.model:
            return asked
        return asked.model_copy(update={"model": name, "loadgen_model": asked.name_in_loadgen})

    def _run(self, context: StepContext) -> StepOutcome:
        asked = self.asked
        recorded = self.recorded = self._named_as_it_is()
        python = interpreter(asked.environment)
        if asked.container is None and not python.exists():
            raise ActionFailedError(
                f"the environment {asked.environment} has no {python.name}",
                remedy="add a PythonEnvironmentInstallation to the dependencies, or correct environment",
            )
        if asked.mode in COMPLIANCE_TESTS:
            eos_token_ids(asked)  # before the run, not after it
        case_dir = context.case_dir("mlperf", asked.case)
        remove_stale(case_dir)
        samples = self._samples(case_dir)
        image: dict[str, MetadataValue] = {}
        with ExitStack() as stack:
            if asked.container is not None:
                context, image = stack.enter_context(
                    in_container(asked.container, asked, samples=samples, case_dir=case_dir, context=context)
                )
            engine = open_engine(asked, stack, context, case_dir)
            if asked.container is not None:
                engine = replace(engine, backend=key_inside(engine.backend))
            engine, result = self._test(engine, samples, case_dir, context)
            tested = Tested(
                parameters=recorded,
                samples=samples,
                samples_sha256=samples.sha256,
                result=result,
                exact_tokens=engine.exact_tokens,
                server=engine.facts,
                limit_samples_per_s=limit_of(
                    result,
                    usable_gpus(context.facts),
                    quantization=quantization_config(asked.vllm.model) if asked.vllm else None,
                ),
            )
            if asked.mode == "accuracy":
                tested = replace(tested, accuracy=self._accuracy(tested, case_dir, context))
        overridden = AUDIT_SETTINGS.get(asked.mode, {})
        settings = {name: value for name, value in result["asked"].items() if name not in overridden}
        if asked.mode in COMPLIANCE_TESTS:
            tested = replace(tested, compliance=verify(asked, case_dir))
        output = merge(parse_folder(case_dir, settings), tested)
        if recorded is not asked and output.verdict is not None:
            warning = f"the model in {asked.vllm and asked.vllm.model} is not {asked.model}: its sizes differ"
            warnings = (*output.verdict.warnings, warning)
            output = replace(output, verdict=replace(output.verdict, warnings=warnings))
        self._set_beside_published(output, result, case_dir, context.facts)
        more = [*trial_metrics(output.scenario, result, case_dir)]
        if (asked.loadgen_scenario, asked.mode) == ("Offline", "performance"):
            more += tail_metrics(result, case_dir)
        output = replace(
            output,
            metrics=(*output.metrics, *more),
            details={**output.details, **image},
        )
        return StepOutcome(_sentence(output), (output,), case_dir)

    def _set_beside_published(
        self, output: ParsedOutput, result: Mapping[str, Any], case_dir: Path, facts: Facts
    ) -> None:
        """Set the result of this host's GPUs beside published ones; an endpoint's GPUs are unknown."""
        if self.asked.mode != "performance" or self.asked.vllm is None:
            return
        names = [gpu.name for gpu in usable_gpus(facts)]
        used = names[: gpus_used(result.get("engine") or {})]
        table = standing(self.recorded.model, self.asked.loadgen_scenario, output.metrics, used)
        if table:
            write_exhibits(case_dir, Exhibits(tables=(table,)))

    def _test(
        self, engine: Engine, samples: SampleSet, case_dir: Path, context: StepContext
    ) -> tuple[Engine, dict[str, Any]]:
        """Run the test; repeat it with a smaller engine if the GPU's memory is too small."""
        try:
            return engine, self._run_harness(engine, samples, case_dir, context)
        except ActionFailedError as error:
            smaller = engine.after(error)
            if smaller is None:
                raise engine.explained(error) from error
            context.progress.update(f"out of GPU memory: retrying with {smaller.facts[SMALLER]}")
        return smaller, self._run_harness(smaller, samples, case_dir, context)

    def _run_harness(
        self, engine: Engine, samples: SampleSet, case_dir: Path, context: StepContext
    ) -> dict[str, Any]:
        config = harness_config(self.asked, engine, samples=samples, case_dir=case_dir)
        with engine_for(self.asked, config, samples=samples, context=context, case_dir=case_dir) as lent:
            result = run_harness(self.asked, lent.config, context=context, case_dir=case_dir)
        return {**result, "engine": {**(result.get("engine") or {}), **lent.facts}}

    def _samples(self, case_dir: Path) -> SampleSet:
        asked, path = self.asked, case_dir / "sample_set.jsonl"
        if asked.dataset == SYNTHETIC:
            longest = asked.input_tokens_max or asked.input_tokens
            count = asked.samples or _SYNTHETIC_SAMPLES
            SyntheticSamples(count, asked.input_tokens, longest, asked.seed).write(path)
            written = open_sample_set(str(path))
            return SampleSet(SYNTHETIC, path, written.ids)
        samples = open_sample_set(asked.dataset)
        if asked.samples or asked.input_tokens_max:
            return samples.first(asked.samples, path, longest=asked.input_tokens_max)
        return samples

    def _accuracy(self, tested: Tested, case_dir: Path, context: StepContext) -> Accuracy | None:
        return score_run(
            self.recorded,
            tested.samples,
            tested.result,
            case_dir,
            model_sha256=str(tested.server.get("model_sha256", "")),
            context=context,
        )


def _sentence(output: ParsedOutput) -> str:
    """Return the outcome in a line."""
    verdict = output.verdict
    assert verdict is not None  # noqa: S101 - merge always gives one
    shown = ", ".join(map(metric_text, output.metrics[:_HEADLINES]))
    why = (
        f" ({verdict.reasons[0].message})"
        if verdict.reasons and verdict.validity is not Validity.VALID
        else ""
    )
    return f"{output.scenario} {verdict.validity.value}{why}: {shown}"
