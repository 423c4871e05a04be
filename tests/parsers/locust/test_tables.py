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
    # 2.20's writer ended with an error before the users had started: unknown, not 0.
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


def test_a_download_from_the_web_ui_is_read(tmp_path: Path) -> None:
    path = tmp_path / "requests_1764371000.123.csv"
    shutil.copy(TABLES / "2_20" / "locust_stats.csv", path)
    for place in (path, tmp_path):
        assert {output.scenario for output in parse_path(place)} == set(by_scenario(TABLES / "2_20"))


def changed(tmp_path: Path, old: str, new: str) -> Path:
    text = (TABLES / "2_20" / "locust_stats.csv").read_text()
    assert old in text
    path = tmp_path / "x_stats.csv"
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new"), [("\n,Aggregated", "\n,1,2,Aggregated"), ("Aggregated,", "Aggregated,x")]
)
def test_a_row_that_does_not_fit_its_header_is_refused(old: str, new: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError):
        PARSER.parse(changed(tmp_path, old, new))


def test_two_tables_in_one_file_are_refused(tmp_path: Path) -> None:
    text = (TABLES / "2_20" / "locust_stats.csv").read_text()
    (tmp_path / "x_stats.csv").write_text(text * 2)
    with pytest.raises(ParseError, match="two tables"):
        PARSER.parse(tmp_path / "x_stats.csv")


def test_a_field_of_any_length_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    path = changed(tmp_path, "Aggregated", "A" * 200_000)
    with pytest.raises(ParseError, match="field larger"):
        PARSER.parse(path)


def test_a_negative_time_is_left_out_and_told(tmp_path: Path) -> None:
    header, *rows = (TABLES / "2_20" / "locust_stats.csv").read_text().splitlines()
    cells = rows[-1].split(",")
    place = header.split(",").index("99%")
    cells[place] = "-5"
    path = tmp_path / "x_stats.csv"
    path.write_text("\n".join([header, *rows[:-1], ",".join(cells)]) + "\n")
    output = {output.scenario: output for output in PARSER.parse(path)}["Aggregated"]
    assert output.validity is Validity.INVALID
    assert output.verdict is not None
    assert [reason.code for reason in output.verdict.reasons] == ["below_0"]
    assert "response_time_p99" not in metrics(output)


def test_a_bad_table_beside_is_told_and_hides_nothing(tmp_path: Path) -> None:
    shutil.copytree(TABLES / "2_47_died", tmp_path / "x")
    (tmp_path / "x" / "locust_failures.csv").write_text("Method,Name,Error,Occurrences\na,b,c,d,e,f\n")
    outputs = by_scenario(tmp_path / "x")
    assert outputs["Aggregated"].verdict is not None
    assert "locust_failures.csv cannot be read" in outputs["Aggregated"].verdict.warnings[0]
