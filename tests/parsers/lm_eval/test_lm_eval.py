"""lm-eval's results: real files of 0.4.13, the forms of older versions, and broken files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity, Validity
from parsers.lm_eval import PARSER

HERE = Path(__file__).parent


def metrics(name: str) -> dict[tuple[str | None, str], Metric]:
    (output,) = PARSER.parse(HERE / name)
    return {(metric.scenario, metric.name): metric for metric in output.metrics}


@pytest.mark.parametrize("path", sorted(HERE.glob("*.json")), ids=lambda path: path.stem)
def test_every_version_is_recognised(path: Path) -> None:
    assert PARSER.recognise(path)


def test_a_group_stands_for_its_tasks() -> None:
    found = metrics("v0_4_13_group.json")
    group = found["local_knowledge", "acc"]
    assert (group.value, group.unit, group.relativity) == (17 / 18, "ratio", Relativity.HIGHER)
    assert group.metadata["samples"] == 18
    assert group.metadata["stderr"] == pytest.approx(0.0556, abs=1e-4)
    assert (group.verbosity, found["local_geography", "acc"].verbosity) == (1, 2)
    assert found["local_geography", "acc"].metadata["few_shot"] == 2
    assert found["local_arithmetic", "acc_stderr"].value == pytest.approx(1 / 6)
    assert {name for _, name in found} == {"acc", "acc_stderr"}
    (output,) = PARSER.parse(HERE / "v0_4_13_group.json")
    assert (output.tool_version, output.details["limit"]) == ("0.4.13", 6)
    assert output.start is not None


def test_vllm_in_lm_evals_own_process() -> None:
    found = metrics("v0_4_13_vllm.json")
    assert (found["local_knowledge", "acc"].value, found["local_knowledge", "acc"].metadata["samples"]) == (
        1 / 3,
        6,
    )
    (output,) = PARSER.parse(HERE / "v0_4_13_vllm.json")
    assert (output.details["model"], output.scenario) == ("vllm", "/models/tiny")


def test_without_a_number_there_is_none() -> None:
    found = metrics("v0_4_0_na.json")
    assert ("gsm8k", "exact_match_strict-match_stderr") in found
    assert ("gsm8k", "exact_match_flexible-extract_stderr") not in found
    assert found["gsm8k", "exact_match_flexible-extract"].value == 0.03
    assert ("wikitext", "bits_per_byte") not in found
    assert found["wikitext", "word_perplexity"].relativity is Relativity.LOWER
    assert found["wikitext", "word_perplexity"].unit == "perplexity"
    assert "task_version" not in found["mmlu", "acc"].metadata
    assert "samples" not in found["mmlu", "acc"].metadata


def test_metrics_without_a_filter_are_of_version_0_3() -> None:
    found = metrics("v0_3_0_tasks.json")
    assert found["hellaswag", "acc_norm"].metadata["stderr"] == 0.0046
    assert found["wikitext", "bits_per_byte"].unit == "bits/byte"


def test_a_folder_holds_them_in_one_of_the_models_name(tmp_path: Path) -> None:
    (tmp_path / "org__model").mkdir()
    text = (HERE / "v0_4_13_group.json").read_text()
    (tmp_path / "org__model" / "results_2026-11-28T04-42-32.370218.json").write_text(text)
    assert PARSER.recognise(tmp_path)
    assert len(PARSER.parse(tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"results": {"mmlu": {"acc,none": 0.2', "incomplete"),
        ("[]", "has no results"),
        ('{"results": {}}', "holds no score"),
        ('{"results": {"mmlu": {"alias": "mmlu", "acc,none": "N/A"}}}', "holds no score"),
        ('{"results": {"mmlu": {"acc,none": NaN}}}', "holds no score"),
    ],
)
def test_output_without_numbers_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "results_1.json"
    path.write_text(text)
    with pytest.raises(ParseError, match=message):
        PARSER.parse(path)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    assert not PARSER.recognise(tmp_path)
    with pytest.raises(ParseError, match="no results"):
        PARSER.parse(tmp_path)


def results(tmp_path: Path, scores: dict[str, object], name: str = "results_1.json", **more: object) -> Path:
    path = tmp_path / name
    path.write_text(json.dumps({"results": {"task": {"alias": "task", **scores}}, **more}))
    return path


def test_the_minus_one_of_a_length_that_was_not_asked_is_absent(tmp_path: Path) -> None:
    path = results(tmp_path, {"4096,none": 1.0, "8192,none": -1, "16384,none": -1.0, "mcc,none": -1})
    (output,) = PARSER.parse(path)
    assert {metric.name: metric.value for metric in output.metrics} == {"4096": 1.0, "mcc": -1}
    with pytest.raises(ParseError, match="holds no score"):
        PARSER.parse(results(tmp_path, {"8192,none": -1}))


def test_a_share_below_0_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"acc is -0\.25, which is below 0"):
        PARSER.parse(results(tmp_path, {"acc,none": -0.25, "f1,none": 0.5}))
    (output,) = PARSER.parse(results(tmp_path, {"mcc,none": -0.25, "bleurt,none": -0.5}))
    assert sorted(metric.value for metric in output.metrics) == [-0.5, -0.25]


def test_a_share_above_1_has_a_unit_of_its_own(tmp_path: Path) -> None:
    (output,) = PARSER.parse(results(tmp_path, {"f1,none": 76.5, "exact_match,none": 0.5}))
    assert {metric.name: metric.unit for metric in output.metrics} == {"f1": "score", "exact_match": "ratio"}


@pytest.mark.parametrize("date", [1e300, -1, "x", 10**400, float("inf")])
def test_a_time_that_cannot_be_is_absent(date: object, tmp_path: Path) -> None:
    (output,) = PARSER.parse(results(tmp_path, {"acc,none": 0.5}, date=date))
    assert output.start is None


def test_a_number_without_end_is_no_score(tmp_path: Path) -> None:
    (output,) = PARSER.parse(
        results(tmp_path, {"acc,none": 0.5, "em,none": 10**400}, config={"limit": 10**400})
    )
    assert {metric.name for metric in output.metrics} == {"acc"}


def test_one_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    results(tmp_path, {"acc,none": 0.5}, model_name="m")
    (tmp_path / "results_2.json").write_text('{"results": {"task": {"alias": "t", "acc,none": 0.')
    found = {output.scenario: output.validity for output in PARSER.parse(tmp_path)}
    assert found == {"results_1.json/m": None, "results_2.json": Validity.FAILED}


TABLE = HERE / "tables" / "two-filters.txt"


def test_the_table_that_it_prints_is_read() -> None:
    assert PARSER.recognise(TABLE)
    (output,) = PARSER.parse(TABLE)
    found = {metric.name: metric for metric in output.metrics}
    assert found["exact_match_flexible-extract"].value == 0.3813
    assert found["exact_match_strict-match"].scenario == "gsm8k"
    assert found["exact_match_strict-match"].relativity is Relativity.HIGHER
    assert found["exact_match_strict-match_stderr"].value == 0.0134
    assert (found["word_perplexity"].unit, found["word_perplexity"].relativity) == (
        "perplexity",
        Relativity.LOWER,
    )
    assert "word_perplexity_stderr" not in found


@pytest.mark.parametrize(
    ("old", "new"),
    [("0.3813", "0,3813"), ("|0.3813|", "|0.3813|7|"), ("|0.0134|", "|-0.0134|"), ("|gsm8k|", "||")],
)
def test_a_table_that_does_not_fit_its_header_is_refused(old: str, new: str, tmp_path: Path) -> None:
    text = TABLE.read_text()
    assert old in text
    (tmp_path / "table.txt").write_text(text.replace(old, new))
    with pytest.raises(ParseError):
        PARSER.parse(tmp_path / "table.txt")


def test_two_tables_with_two_results_are_refused(tmp_path: Path) -> None:
    text = TABLE.read_text()
    (tmp_path / "table.txt").write_text(text + text.replace("0.3813", "0.4"))
    with pytest.raises(ParseError, match="twice"):
        PARSER.parse(tmp_path / "table.txt")


def test_a_log_with_the_table_beside_the_results_is_not_a_second_result(tmp_path: Path) -> None:
    results(tmp_path, {"acc,none": 0.5})
    (tmp_path / "lm_eval.log").write_text(TABLE.read_text())
    (output,) = PARSER.parse(tmp_path)
    assert output.metrics[0].value == 0.5


def test_a_score_without_a_name_is_left_out(tmp_path: Path) -> None:
    results(tmp_path, {"acc,none": 0.5, ",none": 0.25})
    (output,) = PARSER.parse(tmp_path)
    assert [metric.value for metric in output.metrics] == [0.5]
