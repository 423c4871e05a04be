"""``vcagent query`` and ``vcagent runs --where``: table, JSON, CSV; what the page says holds."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ExitCode
from agent.query.tables import TABLES
from tests.agent.query.written_runs import LATER, ORDER, line, write_run

pytest.importorskip("duckdb", minversion="2")

PAGE = Path(__file__).parents[3] / "docs" / "query.md"
FINISHED = Path(__file__).parents[1] / "report" / "finished_run"
Caller = Any


@pytest.fixture
def vcagent(vcagent: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Caller:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: vcagent(*arguments, "--index-dir", "index")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs of this host, and one of a fleet run's host."""
    write_run(tmp_path / "results", "good", "VALID", 1.5, 2.5)
    write_run(tmp_path / "results", "bad", "INVALID", 9.5)
    write_run(tmp_path / "results" / "fleet" / "f" / "hosts", "h1", "VALID", 4.5)
    return tmp_path / "results"


def test_a_table_for_people(vcagent: Caller, results: Path) -> None:
    sql = (
        "SELECT run_id, verdict, reasons, 1e9 + 0.25 AS big, NULL AS nothing, end_time FROM cases ORDER BY 1"
    )
    code, out, err = vcagent("query", sql)
    assert (code, err) == (0, "")
    titles, rule, *rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert titles == ["run_id", "verdict", "reasons", "big", "nothing", "end_time"]
    assert set("".join(rule)) == {"─"}
    assert [row[:2] for row in rows] == [["bad", "INVALID"], ["good", "VALID"], ["h1", "VALID"]]
    assert rows[0][2:] == ["too slow\\x1b[2J", "1000000000", "2026-04-01 12:00:30"]


def test_rows_that_a_terminal_is_too_narrow_for_are_shown_value_by_value(
    vcagent: Caller, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = vcagent("query", "SELECT * FROM runs ORDER BY run_id")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("row ")] == ["row 1", "row 2", "row 3"]
    values = dict(line.split(None, 1) for line in out.splitlines() if len(line.split(None, 1)) == 2)
    assert {"run_id", "profile", "start_time"} <= set(values)
    assert values["run_id"] == "h1"


def test_json_has_plain_values(vcagent: Caller, results: Path) -> None:
    sql = (
        "SELECT parameters, end_time, 1.50::DECIMAL(9, 2) AS price, sum(exit_code) OVER () AS sum, "
        "'nan'::DOUBLE AS none, [verdict] AS list, {'a': INTERVAL 1 DAY} AS part, true AS yes "
        "FROM runs WHERE run_id = 'good'"
    )
    code, out, err = vcagent("query", sql, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [
        {"parameters": {"Samples": 10}, "end_time": LATER, "price": 1.5, "sum": 0, "none": None,
         "list": ["VALID"], "part": {"a": "1 day, 0:00:00"}, "yes": True}
    ]  # fmt: skip
    assert json.loads(vcagent("query", "SELECT * FROM runs WHERE false", "--json")[1]) == []


def test_csv_is_text_for_a_spreadsheet_and_a_terminal(vcagent: Caller, results: Path) -> None:
    sql = "SELECT reasons[1] AS reason, '=1+1' AS formula, -1.5 AS number, NULL AS none FROM cases ORDER BY 1"
    code, out, _ = vcagent("query", sql, "bad", "--csv")
    assert code == 0
    assert list(csv.reader(io.StringIO(out))) == [
        ["reason", "formula", "number", "none"], ["too slow\\x1b[2J", "'=1+1", "-1.5", ""]
    ]  # fmt: skip
    assert vcagent("query", "SELECT run_id FROM runs WHERE false", "--csv")[1] == "run_id\n"


def test_a_long_answer_is_cut_in_a_table_only(vcagent: Caller, results: Path) -> None:
    sql = "SELECT range AS n FROM range(1001)"
    _, out, err = vcagent("query", sql)
    assert len(out.splitlines()) == 2 + 1000
    assert "1000" not in out.split()
    assert "first 1,000 rows" in err
    _, out, err = vcagent("query", sql, "--csv")
    assert (out.split()[-1], err) == ("1000", "")


def test_runs_are_named_as_elsewhere(vcagent: Caller, results: Path) -> None:
    def names(*runs: str) -> list[str]:
        return vcagent("query", "SELECT run_id FROM runs ORDER BY 1", *runs, "--csv")[1].split()[1:]

    assert names() == ["bad", "good", "h1"]
    assert names("good") == ["good"]
    assert names("results/b*", "results/good") == ["bad", "good"]
    assert names("results/fleet/f/hosts") == ["h1"]
    code, _, err = vcagent("query", "SELECT 1", "missing")
    assert (code, "there is no run 'missing'" in err) == (ExitCode.USAGE, True)
    code, _, err = vcagent("query", "SELECT 1", "--results-dir", "nowhere")
    assert (code, "there are no runs" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no question"),
        (["SELECT 1", "--csv", "--json"], "exclude each other"),
        (["SELECT nothing FROM runs"], "vcagent query --tables"),
        (["SELECT \x1b[2J FROM runs"], "\\x1b"),
        (["SELECT error(run_id) FROM runs", "--csv"], "cannot be answered"),
    ],
)
def test_errors_are_no_tracebacks(vcagent: Caller, results: Path, arguments: list[str], message: str) -> None:
    code, out, err = vcagent("query", *arguments)
    assert code == ExitCode.USAGE
    assert message in err
    assert "Traceback" not in err
    assert "\x1b[2J" not in out + err


def test_runs_where(vcagent: Caller, results: Path) -> None:
    def listed(condition: str) -> list[str]:
        code, out, _ = vcagent("runs", "--json", "--where", condition)
        assert code == 0
        return [row["run_id"] for row in json.loads(out)["runs"]]

    assert listed("verdict = 'INVALID'") == ["bad"]
    assert listed("run_id IN (SELECT run_id FROM metrics WHERE metric = 'ttft_p99' AND value < 2)") == [
        "good"
    ]
    assert listed("true -- all") == ["bad", "good"]
    assert listed("false") == []
    assert "no run in results fits" in vcagent("runs", "--where", "false")[1]
    code, _, err = vcagent("runs", "--where", "verdit = 'VALID'")
    assert code == ExitCode.USAGE
    assert "verdict" in err


def test_the_tables_are_shown_and_on_the_page(vcagent: Caller) -> None:
    code, out, _ = vcagent("query", "--tables")
    assert code == 0
    columns = json.loads(vcagent("query", "--tables", "--json")[1])
    assert {column["table"] for column in columns} == set(TABLES)
    page = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        assert re.search(rf"^{name} ", out, re.MULTILINE)
        _, _, part = page.partition(f"### {name}\n")
        rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", part.partition("\n#")[0], re.MULTILINE)
        assert rows == [(column.name, column.type, column.meaning) for column in table.columns]


def test_the_page_s_examples_are_answered(vcagent: Caller, results: Path) -> None:
    run = results / "20260401T120000Z-perf-gpu-mlperf-3fa9"
    run.mkdir()
    for name in ("run.json", "metrics.jsonl"):
        (run / name).write_bytes((FINISHED / name).read_bytes())
    with (run / "metrics.jsonl").open("a") as file:
        file.write(line(run.name, tool_name="NvidiaSmiMonitor", metric="gpu0_power_draw_instant", value=700))
    (run / "journal.sqlite").touch()
    examples = re.findall(
        r"^vcagent .+?(?<!\\)$", _shell(PAGE.read_text(encoding="utf-8")), re.MULTILINE | re.DOTALL
    )
    assert len(examples) >= 8
    for example in examples:
        words = shlex.split(re.sub(r" > \S+\.csv$", "", example.replace("\\\n", "")))
        code, out, err = vcagent(*words[1:])
        assert (code, err) == (0, ""), example
        assert ORDER not in out
        if "--csv" in words:
            assert len(out.splitlines()) > 1, example


def _shell(page: str) -> str:
    return "".join(re.findall(r"```sh\n(.+?)```", page, re.DOTALL))
