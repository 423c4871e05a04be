"""The choice of a scorer for a run, and refusals before the run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.sample_sets import open_sample_set
from actions.loadgen.scorers import score_run
from agent.core.errors import HostError
from agent.core.records import Validity

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import StepContext


def asked(**parameters: Any) -> LoadGenParameters:
    given = {
        "model": "llama3.1-8b", "loadgen_scenario": "Offline", "mode": "accuracy", "environment": "/env",
        "endpoint": "http://127.0.0.1:1", **parameters,
    }  # fmt: skip
    return LoadGenParameters.model_validate(given)


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """Return the path of a set whose samples have reference texts."""
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps({"prompt": "a", "reference": "b"}) + "\n")
    return path


@pytest.mark.parametrize("name", ["simple-facts", "short-prompts", "compared"])
def test_random_weights_are_never_scored(
    name: str, compared: Path, context: StepContext, tmp_path: Path
) -> None:
    samples = open_sample_set(str(compared) if name == "compared" else name)
    result = {"engine": {"load_format": "dummy"}, "asked": {}, "data_encoding": "int32"}
    accuracy = score_run(asked(), samples, result, tmp_path, model_sha256="", context=context)
    assert accuracy is not None
    assert accuracy.verdict.validity is Validity.NOT_APPLICABLE
    assert "weights are random" in accuracy.verdict.warnings[0]
    assert accuracy.metrics == ()


def test_samples_that_nothing_is_known_of_are_not_scored(context: StepContext, tmp_path: Path) -> None:
    samples = open_sample_set("short-prompts")
    assert score_run(asked(), samples, {"asked": {}}, tmp_path, model_sha256="", context=context) is None


def test_what_is_expected_must_fit_the_set(compared: Path, context: StepContext) -> None:
    with pytest.raises(HostError, match="is scored by ROUGE"):
        LoadGenExecutor(asked(dataset=str(compared), accuracy_reference=0.5)).plan(context.facts)
    with pytest.raises(HostError, match="has no reference texts"):
        LoadGenExecutor(asked(dataset="simple-facts", accuracy_reference={"rouge1": 38})).plan(context.facts)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"accuracy_reference": {"rouge7": 38}}, "rouge7: 38 is not a score"),
        ({"accuracy_reference": {"rouge1": 101}}, "rouge1: 101 is not a score"),
        ({"mlperf_round": "v9"}, "v9 is not one of the rounds v3.1"),
    ],
)
def test_scores_and_rounds_that_do_not_exist_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        asked(**parameters)
