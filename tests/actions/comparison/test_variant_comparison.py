"""Comparison of a run's records of three variants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from actions.comparison.variant_comparison import VariantComparison, VariantComparisonParameters
from agent.core.errors import ActionFailedError
from agent.core.records import Metric, ParsedOutput, Validity
from agent.facts import Facts
from agent.store.exhibits import Exhibits, read_exhibits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.component.component import StepContext

WHEN = "2026-04-01T12:00:00+00:00"
NUMBERS = {
    "F16": {
        "size": 1000.0,
        "accuracy": 0.75,
        "perplexity": 10.0,
        "generation": 20.0,
        "generation_stddev": 1.0,
        "load": {1: 18.0, 8: 60.0},
    },
    "Q4_K_M": {
        "size": 300.0,
        "accuracy": 0.72,
        "perplexity": 10.5,
        "generation": 40.0,
        "generation_stddev": 4.0,
        "load": {1: 36.0, 8: 90.0},
    },
    "Q4_0": {"size": 280.0, "accuracy": 0.4, "perplexity": 14.0, "generation": 44.0, "load": {1: 40.0}},
}


def record(variant: str, what: str, metric: str, value: float, unit: str) -> dict[str, Any]:
    return {
        "record_id": 1, "timestamp": WHEN, "experiment_id": "e", "run_id": "r", "client_id": "h",
        "profile": "p", "tool_name": "t", "tool_version": "",
        "scenario": f"m/{variant}/{what}", "scenario_start": WHEN,
        "scenario_end": WHEN, "metric": metric, "value": value, "unit": unit, "relativity": "Undefined",
        "metadata": {"model": "m", "variant": variant},
    }  # fmt: skip


def records(variant: str, numbers: dict[str, Any]) -> list[dict[str, Any]]:
    found = [
        record(variant, "quantize", "model_size", numbers["size"], "bytes"),
        record(variant, "mmlu", "mmlu_accuracy", numbers["accuracy"], "ratio"),
        record(variant, "mmlu", "mmlu_accuracy_stderr", 0.04, "ratio"),
        record(variant, "mmlu", "prompt_tokens_per_second", 1.0, "tokens/s"),  # from another tool than bench
        record(variant, "perplexity", "perplexity", numbers["perplexity"], "perplexity"),
        record(variant, "bench/tg128", "generation_tokens_per_second", numbers["generation"], "tokens/s"),
        record(variant, "bench/tg512", "generation_tokens_per_second", 1.0, "tokens/s"),  # another length
    ]
    if "generation_stddev" in numbers:
        name, deviation = "generation_tokens_per_second_stddev", numbers["generation_stddev"]
        found.append(record(variant, "bench/tg128", name, deviation, "tokens/s"))
        found.append(record(variant, "bench/tg512", name, 100.0, "tokens/s"))
    for users, rate in numbers["load"].items():
        found.append(record(variant, f"load-{users}", "output_tokens_per_second", rate, "tokens/s"))
        if users == 8:
            name = "output_tokens_per_second_stderr"
            found.append(record(variant, f"load-{users}", name, rate / 20, "tokens/s"))
        found.append(record(variant, f"load-{users}", "ttft_mean", 0.1 * users, "seconds"))
    return found


@pytest.fixture
def measured(context: StepContext) -> Path:
    """Return a run's folder in its state before the comparison."""
    context.run_dir.mkdir()
    lines = [json.dumps(entry) for name, numbers in NUMBERS.items() for entry in records(name, numbers)]
    other = {**record("F16", "mmlu", "mmlu_accuracy", 0.1, "ratio"), "metadata": {"model": "other"}}
    (context.run_dir / "metrics.jsonl").write_text("\n".join([*lines, json.dumps(other)]) + "\n")
    return context.run_dir


def case(
    run_dir: Path, scenario: str, validity: str = "VALID", answers: Sequence[bool] = (), **details: Any
) -> None:
    folder = run_dir / "tool" / scenario.replace("/", "-")
    folder.mkdir(parents=True)
    summary = {"scenario": scenario, "verdict": {"validity": validity}, "details": details}
    (folder / "summary.json").write_text(json.dumps(summary))
    if answers:
        rows = [{"question": f"q{number}", "right": right} for number, right in enumerate(answers)]
        (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def compare(context: StepContext, **parameters: Any) -> tuple[ParsedOutput, Exhibits]:
    asked = VariantComparisonParameters.model_validate({"model": "m", **parameters})
    (step,) = VariantComparison(asked).plan(Facts(modelled={})).steps
    outcome = step.run(context)
    assert outcome is not None
    (output,) = outcome.outputs
    return output, read_exhibits(outcome.case_dir)


def metrics(output: ParsedOutput, variant: str) -> dict[str, Metric]:
    return {metric.name: metric for metric in output.metrics if metric.scenario == f"m/{variant}/comparison"}


@pytest.mark.usefixtures("measured")
def test_each_variant_is_held_to_the_baseline(context: StepContext) -> None:
    output, exhibits = compare(context)
    assert output.validity is Validity.VALID
    found = metrics(output, "Q4_K_M")
    assert found["size_ratio"].value == pytest.approx(0.3)
    assert found["perplexity_ratio"].value == pytest.approx(1.05)
    assert found["generation_speedup"].value == pytest.approx(2)
    spread = 2 * (0.05**2 + 0.1**2) ** 0.5
    assert found["generation_speedup_stddev"].value == pytest.approx(spread)
    table = exhibits.tables[0]
    place = [column.title for column in table.columns].index("Generation, F16 = 1")
    cells = {row.name: row.cells[place] for row in table.rows}
    assert cells["Q4_K_M"].error == pytest.approx(spread)
    assert (cells["Q4_0"].value is not None, cells["Q4_0"].error) == (True, None)
    assert "generation_speedup_stddev" not in metrics(output, "Q4_0")
    assert found["load_1_speedup"].value == pytest.approx(2)
    assert found["load_8_speedup"].value == pytest.approx(1.5)
    assert found["load_8_speedup_stderr"].value == pytest.approx(1.5 * 2**0.5 / 20)
    assert "load_1_speedup_stderr" not in found, "without the error of a rate there is none"
    place = [column.title for column in table.columns].index("8 users, F16 = 1")
    assert table.rows[1].cells[place].error == pytest.approx(1.5 * 2**0.5 / 20)
    assert found["mmlu_accuracy_difference"].value == pytest.approx(-0.03)
    assert found["mmlu_accuracy_difference"].metadata["larger_than_noise"] is False
    assert "two-proportion" in str(found["mmlu_accuracy_difference"].metadata["test"])
    assert metrics(output, "Q4_0")["mmlu_accuracy_difference"].metadata["larger_than_noise"] is True
    assert not metrics(output, "F16")
    assert "load_8_speedup" not in metrics(output, "Q4_0")
    assert "prompt_speedup" not in found


def test_other_questions_than_mmlu_have_their_own_name(context: StepContext, measured: Path) -> None:
    text = (measured / "metrics.jsonl").read_text()
    (measured / "metrics.jsonl").write_text(text.replace("mmlu", "questions"))
    output, _ = compare(context)
    found = metrics(output, "Q4_K_M")
    assert found["questions_accuracy_difference"].value == pytest.approx(-0.03)
    assert not [name for name in found if "mmlu" in name]


def test_what_the_importance_matrix_changes_is_a_table(context: StepContext, measured: Path) -> None:
    numbers = {**NUMBERS["Q4_K_M"], "perplexity": 30.0}
    with (measured / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(entry) + "\n" for entry in records("Q4_K_M-PLAIN", numbers))
    case(measured, "m/Q4_K_M/mmlu", answers=[True] * 78 + [False] * 22)
    case(measured, "m/Q4_K_M-PLAIN/mmlu", answers=[True] * 70 + [False] * 30)
    output, exhibits = compare(context)
    found = metrics(output, "Q4_K_M")
    change = NUMBERS["Q4_K_M"]["perplexity"] - 30.0
    assert found["imatrix_perplexity_difference"].value == pytest.approx(change)
    assert found["imatrix_accuracy_difference"].value == pytest.approx(0.08)
    assert "imatrix_perplexity_difference" not in metrics(output, "Q4_0")
    table = exhibits.tables[1]
    assert table.title == "What the importance matrix changes"
    (row,) = table.rows
    assert row.name == "Q4_K_M"
    cells = {column.title: cell for column, cell in zip(table.columns, row.cells, strict=True)}
    assert cells["Perplexity, change"].value == pytest.approx(change)
    assert "larger than the noise" in cells["Right answers, change"].note


def test_answers_question_by_question_are_paired(context: StepContext, measured: Path) -> None:
    case(measured, "m/F16/mmlu", answers=[True] * 78 + [False] * 22)
    case(measured, "m/Q4_K_M/mmlu", answers=[True] * 70 + [False] * 30)
    case(measured, "m/Q4_0/mmlu", answers=[True] * 9)  # from other questions
    output, exhibits = compare(context)
    difference = metrics(output, "Q4_K_M")["mmlu_accuracy_difference"]
    assert difference.value == pytest.approx(-0.08)
    assert "McNemar" in str(difference.metadata["test"])
    assert difference.metadata["larger_than_noise"] is True
    assert "two-proportion" in str(metrics(output, "Q4_0")["mmlu_accuracy_difference"].metadata["test"])
    assert "McNemar's exact test, question by question and two-proportion z test" in exhibits.tables[0].note


@pytest.mark.parametrize("answers", [(), (True,) * 9])
def test_other_questions_are_not_compared(
    answers: Sequence[bool], context: StepContext, measured: Path
) -> None:
    case(measured, "m/F16/mmlu", answers=answers, tasks_sha256="one")
    case(measured, "m/Q4_K_M/mmlu", answers=answers, tasks_sha256="two")
    case(measured, "m/Q4_0/mmlu", answers=answers, tasks_sha256="one")
    output, exhibits = compare(context)
    assert "mmlu_accuracy_difference" not in metrics(output, "Q4_K_M")
    assert "mmlu_accuracy_difference" in metrics(output, "Q4_0")
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    assert [reason.message for reason in output.verdict.reasons] == [
        "Q4_K_M and F16 did not take the same test: mmlu differs in tasks_sha256"
    ]
    titles = [column.title for column in exhibits.tables[0].columns]
    cell = dict(zip(titles, exhibits.tables[0].rows[1].cells, strict=True))["Difference to F16"]
    assert (cell.value, cell.note) == (None, "")


def test_another_text_or_other_lengths_make_a_comparison_invalid(
    context: StepContext, measured: Path
) -> None:
    for variant, chunks, tokens in (("F16", 100, 768), ("Q4_K_M", 2, 768), ("Q4_0", 100, 16)):
        case(measured, f"m/{variant}/perplexity", text_sha256="t", context=512, chunks=chunks)
        case(measured, f"m/{variant}/load-1", input_tokens=2560, output_tokens=tokens)
    output, _ = compare(context)
    assert output.verdict is not None
    assert [reason.message.partition(": ")[2] for reason in output.verdict.reasons] == [
        "perplexity differs in chunks",
        "load-1 differs in output_tokens",
    ]


@pytest.mark.usefixtures("measured")
def test_the_table_has_a_row_for_each_and_only_columns_with_numbers(context: StepContext) -> None:
    _, exhibits = compare(context)
    (table,) = exhibits.tables
    assert [row.name for row in table.rows] == ["F16", "Q4_K_M", "Q4_0"]
    titles = [column.title for column in table.columns]
    assert "Prompt, engine alone" not in titles
    cell = dict(zip(titles, table.rows[1].cells, strict=True))
    assert cell["8 users, F16 = 1"].value == pytest.approx(1.5)
    assert cell["Right answers"].error == 0.04
    assert cell["Difference to F16"].note.startswith("within the noise")
    assert dict(zip(titles, table.rows[2].cells, strict=True))["8 users, output"].value is None
    names = [chart.title for chart in exhibits.charts]
    assert names == [
        "Right answers against speed",
        "Perplexity against speed",
        "Output tokens against users",
        "Time to first token against users",
    ]
    loads = {
        series.name: [(point.x, point.y) for point in series.points] for series in exhibits.charts[2].series
    }
    assert loads["Q4_K_M"] == [(1, 36.0), (8, 90.0)]


@pytest.mark.usefixtures("measured")
def test_another_baseline(context: StepContext) -> None:
    output, exhibits = compare(context, baseline="q4_0")
    assert exhibits.tables[0].rows[0].name == "Q4_0"
    assert metrics(output, "F16")["generation_speedup"].value == pytest.approx(20 / 44)


def test_what_does_not_count_does_not_count_side_by_side(context: StepContext, measured: Path) -> None:
    case(measured, "m/Q4_K_M/load-8", "INVALID")
    case(measured, "x/Q4_K_M/load-8", "INVALID")
    output, _ = compare(context)
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    assert [reason.message for reason in output.verdict.reasons] == [
        "m/Q4_K_M/load-8 is INVALID, but is part of the comparison"
    ]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("parameters", [{"model": "unknown"}, {"baseline": "Q8_0"}])
def test_nothing_to_compare_is_a_clear_error(parameters: dict[str, str], context: StepContext) -> None:
    with pytest.raises(ActionFailedError, match="there is nothing to compare") as failure:
        compare(context, **parameters)
    assert failure.value.remedy
