"""ExecuteCommand as a measurement: records, files, verdict, repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actions.commands.execute_command import ExecuteCommand, ExecuteCommandParameters
from agent.core.errors import ActionFailedError, ParseError
from agent.core.records import Validity
from agent.facts import Facts

if TYPE_CHECKING:
    from agent.component.component import StepContext, StepOutcome

SPEED = {"regex": r"speed (?P<value>[\d.]+)", "name": "speed", "unit": "tokens/s", "relativity": "higher"}


def run(context: StepContext, command: str, **parameters: Any) -> StepOutcome:
    asked = ExecuteCommandParameters.model_validate({"command": command, "scenario": "case", **parameters})
    (step,) = ExecuteCommand(asked).plan(Facts(None, {})).steps
    outcome = step.run(context)
    assert outcome is not None
    return outcome


def test_numbers_and_files_come_home(context: StepContext) -> None:
    command = "echo speed 5; echo careful >&2; mkdir out; echo 1 > out/a; echo 2 > b.log; echo 3 > c.log"
    outcome = run(context, command, metrics=[SPEED], outputs="out,*.log", tool_version="1.2")
    (output,) = outcome.outputs
    assert [(metric.name, metric.value, metric.unit) for metric in output.metrics] == [
        ("speed", 5.0, "tokens/s")
    ]
    assert (output.tool_name, output.tool_version, output.verdict) == ("echo", "1.2", None)
    assert outcome.case_dir == context.run_dir / "commands" / "case"
    texts = {
        str(path.relative_to(outcome.case_dir)): path.read_text()
        for path in outcome.case_dir.rglob("[!.]*")
        if path.is_file()
    }
    assert texts.pop("run.log") == context.log.read_text()
    assert texts == {
        "stdout.txt": "speed 5\n",
        "stderr.txt": "careful\n",
        "out/a": "1\n",
        "b.log": "2\n",
        "c.log": "3\n",
    }


def test_files_of_another_folder(context: StepContext) -> None:
    (context.run_dir / "work").mkdir()
    outcome = run(
        context,
        "echo '{\"v\": 4}' > result.json",
        working_directory=context.run_dir / "work",
        outputs=["*.json"],
        metrics=[{"json_path": "v", "name": "v", "unit": "count", "file": "result.json"}],
    )
    assert [metric.value for metric in outcome.outputs[0].metrics] == [4]


@pytest.mark.parametrize(
    ("expect", "validity"),
    [
        ("speed >= 5", Validity.VALID),
        ("speed > 5", Validity.INVALID),
        (["speed < 9", "speed != 5"], Validity.INVALID),
    ],
)
def test_what_is_expected_gives_a_verdict(context: StepContext, expect: Any, validity: Validity) -> None:
    outcome = run(context, "echo speed 5", metrics=[SPEED], expect=expect)
    verdict = outcome.outputs[0].verdict
    assert verdict is not None
    assert verdict.validity is validity
    if validity is Validity.INVALID:
        assert "speed is 5 tokens/s" in verdict.reasons[0].message
        assert "is expected" in verdict.reasons[0].message


def test_how_far_it_missed(context: StepContext) -> None:
    verdict = run(context, "echo speed 4", metrics=[SPEED], expect="speed >= 5").outputs[0].verdict
    assert verdict is not None
    assert verdict.reasons[0].message == "speed is 4 tokens/s; >= 5 is expected, missed by 20.0%"


def test_repeats_give_a_mean_and_its_spread(context: StepContext) -> None:
    counter = context.run_dir / "count"
    command = f"echo x >> {counter}; echo speed $(wc -l < {counter})"
    outcome = run(context, command, metrics=[SPEED], repeats=3, expect="speed == 2,speed_stddev < 2")
    (output,) = outcome.outputs
    mean, deviation = output.metrics
    assert (mean.name, mean.value, mean.metadata) == ("speed", 2, {"runs": 3, "minimum": 1, "maximum": 3})
    assert (deviation.name, deviation.value) == ("speed_stddev", 1)
    assert output.validity is Validity.VALID
    assert outcome.case_dir
    texts = [(outcome.case_dir / f"run-{number}" / "stdout.txt").read_text() for number in (1, 2, 3)]
    assert texts == ["speed 1\n", "speed 2\n", "speed 3\n"]


def test_a_run_without_one_of_the_metrics_is_an_error(context: StepContext) -> None:
    counter = context.run_dir / "count"
    rule = {**SPEED, "regex": r"(?P<name>\w+) (?P<value>\d+)", "name": ""}
    command = f"echo x >> {counter}; test $(wc -l < {counter}) = 2 || echo odd 1; echo speed 2"
    with pytest.raises(ParseError, match="run 2 of 2 has no odd"):
        run(context, command, metrics=[rule], repeats=2)


def test_a_rule_that_matches_nothing_fails_the_step_after_its_retries(context: StepContext) -> None:
    with pytest.raises(ParseError, match="matches nothing"):
        run(context, "echo nothing", metrics=[SPEED])
    counter = context.run_dir / "count"
    command = (
        f"echo x >> {counter}; test $(wc -l < {counter}) = 1 || echo speed 2; touch left-$(wc -l < {counter})"
    )
    outcome = run(context, command, metrics=[SPEED], max_retries=1, outputs="left-*")
    assert outcome.case_dir
    assert [path.name for path in outcome.case_dir.glob("left-*")] == ["left-2"]


def test_an_output_that_is_missing_fails_the_step(context: StepContext) -> None:
    with pytest.raises(ActionFailedError, match="the command left no result"):
        run(context, "true", outputs="result.json")


def test_expected_metrics_that_nothing_measured(context: StepContext) -> None:
    rule = {**SPEED, "regex": r"(?P<name>\w+) (?P<value>\d+)", "name": ""}
    with pytest.raises(ParseError, match="but sped"):
        run(context, "echo speed 5", metrics=[rule], expect="sped > 1")


def test_a_parser_by_its_name(context: StepContext) -> None:
    line = (
        "llama_print_timings: eval time = 1000.00 ms / 50 runs (20.00 ms per token, 50.00 tokens per second)"
    )
    outcome = run(
        context,
        f"echo '{line}'",
        metrics={"parser": "llamacpp", "file": "stdout"},
        expect="generation_tokens_per_second > 1",
    )
    assert {output.format for output in outcome.outputs} == {"llamacpp"}
    assert outcome.outputs[0].metrics
    assert outcome.outputs[0].validity is Validity.VALID


def test_secrets_are_masked_in_the_streams(context: StepContext) -> None:
    context.processes.secrets.add("hunter2hunter2")
    outcome = run(context, "echo hunter2hunter2 speed 5", metrics=[SPEED])
    assert outcome.case_dir
    assert "hunter2" not in (outcome.case_dir / "stdout.txt").read_text()
