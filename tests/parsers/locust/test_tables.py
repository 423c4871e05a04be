"""Locust's CSV files, written by real runs of 2.20 and 2.47 against llama.cpp's server."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from agent.core.records import Metric, ParsedOutput, Validity
from parsers.locust import PARSER

TABLES = Path(__file__).parent / "tables"


def by_scenario(folder: Path) -> dict[str, ParsedOutput]:
    return {output.scenario: output for output in PARSER.parse(folder)}


def metrics(output: ParsedOutput) -> dict[str, Metric]:
    return {metric.name: metric for metric in output.metrics}


@pytest.mark.parametrize("case", ["2_20", "2_47_died", "2_47_refused"])
def test_every_row_is_an_output_with_its_own_numbers(case: str) -> None:
    with (TABLES / case / "locust_stats.csv").open() as file:
        rows = list(csv.DictReader(file))
    outputs = by_scenario(TABLES / case)
    assert len(outputs) == len(rows)
    for row in rows:
        found = metrics(outputs[f"{row['Type']} {row['Name']}".strip()])
        assert found["request_count"].value == int(row["Request Count"])
        assert found["request_failures"].value == int(row["Failure Count"])
        assert found["response_time_mean"].value == pytest.approx(float(row["Average Response Time"]) / 1e3)
        assert found["response_time_p99_9"].value == pytest.approx(float(row["99.9%"]) / 1e3)
        assert found["response_time_p99"].unit == "seconds"
        assert found["response_time_p99"].metadata["locust_unit"] == "ms"


def test_a_run_without_failures_is_valid() -> None:
    outputs = by_scenario(TABLES / "2_20")
    assert {output.validity for output in outputs.values()} == {Validity.VALID}
    assert {"POST /completion", "TTFT /completion", "TPOT /completion"} <= outputs.keys()


def test_the_history_tells_the_users_at_once_where_it_was_written() -> None:
    assert metrics(by_scenario(TABLES / "2_47_died")["Aggregated"])["users"].value == 3
    # 2.20's writer ended with an error before the users were there: not 0, but unknown.
    assert "users" not in metrics(by_scenario(TABLES / "2_20")["Aggregated"])


def test_failures_spoil_the_result_and_are_counted_by_their_kind() -> None:
    output = by_scenario(TABLES / "2_47_died")["POST /completion"]
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    assert output.verdict.reasons[0].message.startswith("6 of 18 requests failed: 3 of ReplyError(")
    assert "IncompleteRead" in output.verdict.reasons[0].message


def test_a_run_in_which_every_request_failed_has_no_result() -> None:
    assert by_scenario(TABLES / "2_47_refused")["POST /completion"].validity is Validity.FAILED


def test_the_table_alone_is_enough(tmp_path: Path) -> None:
    table = shutil.copy(TABLES / "2_47_died" / "locust_stats.csv", tmp_path / "x_stats.csv")
    outputs = {output.scenario: output for output in parse_path(Path(table))}
    assert outputs["Aggregated"].validity is Validity.INVALID
    assert "users" not in metrics(outputs["Aggregated"])


def test_a_table_that_was_cut_is_marked_so(tmp_path: Path) -> None:
    text = (TABLES / "2_20" / "locust_stats.csv").read_text()
    table = tmp_path / "cut_stats.csv"
    for length in range(text.index("\n") + 1, len(text)):
        table.write_text(text[:length])
        try:
            outputs = PARSER.parse(table)
        except ParseError:
            continue
        assert not any(output.complete for output in outputs)
        assert all(output.validity is not None for output in outputs)


def test_a_table_without_requests_is_an_error(tmp_path: Path) -> None:
    header = (TABLES / "2_20" / "locust_stats.csv").read_text().splitlines()[0]
    (tmp_path / "none_stats.csv").write_text(f"{header}\n,Aggregated,0,0,N/A,0,0,0,0,0,0{',N/A' * 11}\n")
    with pytest.raises(ParseError, match="no request"):
        PARSER.parse(tmp_path)
