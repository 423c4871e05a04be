"""An accuracy run scored by ROUGE, from LoadGen to the verdict; the engine repeats the prompt's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.executor import LoadGenExecutor
from actions.loadgen.parameters import LoadGenParameters
from agent.core.records import ParsedOutput, Validity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.component.component import StepContext

pytestmark = pytest.mark.engine


@pytest.fixture
def run(
    accuracy_python: Path, context: StepContext, mock_server: Callable[..., str], tmp_path: Path
) -> Callable[..., ParsedOutput]:
    news = tmp_path / "news.jsonl"
    rows = [
        {"id": str(number), "prompt": "alpha beta gamma delta", "reference": "Alpha beta gamma. Omega!"}
        for number in range(8)
    ]
    news.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run_with(**parameters: Any) -> ParsedOutput:
        asked = {
            "model": "llama3.1-8b", "loadgen_scenario": "Offline", "mode": "accuracy", "dataset": str(news),
            "environment": accuracy_python.parent.parent, "endpoint": mock_server(model="llama3.1-8b"),
            "max_output_tokens": 4, "warmup_samples": 0, **parameters,
        }  # fmt: skip
        (step,) = LoadGenExecutor(LoadGenParameters.model_validate(asked)).plan(context.facts).steps
        outcome = step.run(context)
        assert outcome is not None
        (output,) = outcome.outputs
        return output

    return run_with


def test_fewer_samples_than_mlperfs_are_scored_and_not_judged(run: Callable[..., ParsedOutput]) -> None:
    output = run()
    assert output.verdict is not None
    assert output.verdict.validity is Validity.NOT_APPLICABLE
    assert "8 samples were scored, but MLPerf's target for llama3.1-8b is for 13368" in str(
        output.verdict.warnings
    )
    found = {metric.name: metric.value for metric in output.metrics}
    assert (found["rouge1"], found["rouge2"]) == pytest.approx((3 / 4, 2 / 3), abs=1e-6)
    assert found["gen_len"] == 8 * len("alpha beta gamma delta")


@pytest.mark.parametrize(("expected", "validity"), [(75, Validity.VALID), (76, Validity.INVALID)])
def test_they_are_judged_by_what_the_profile_expects(
    run: Callable[..., ParsedOutput], expected: float, validity: Validity
) -> None:
    output = run(accuracy_reference={"rouge1": expected}, accuracy_threshold=1)
    assert output.verdict is not None
    assert output.verdict.validity is validity
