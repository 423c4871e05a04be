"""The index has what the runs' files have, now; nothing else of the host can be read through it."""

from __future__ import annotations

import os
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import HostError, UsageError
from agent.query.asking import ask
from agent.query.index import Index
from agent.query.tables import TABLES
from tests.agent.query.written_runs import line
from tests.agent.query.written_runs import write_run as written

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("duckdb", minversion="2")

Ask = Any


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    def write(run_id: str, verdict: str = "VALID", *values: float, folder: str = "results") -> Path:
        return written(tmp_path / folder, run_id, verdict, *values)

    return write


@pytest.fixture
def answer(tmp_path: Path) -> Ask:
    def asked(sql: str, *run_dirs: Path) -> list[Any]:
        with ask(sql, run_dirs, Index(tmp_path / "index")) as found:
            return list(found.rows)

    return asked


def test_each_table_has_what_the_files_have(answer: Ask, write_run: Callable[..., Path]) -> None:
    run = write_run("a", "INVALID", 1.5)
    assert answer("SELECT profile, verdict, duration_s, parameters->>'Samples', folder FROM runs", run) == [
        ("P", "INVALID", 30.5, "10", str(run))
    ]
    assert answer("SELECT verdict, reasons, warnings, start_time, complete FROM cases", run) == [
        ("INVALID", ["too slow\x1b[2J"], [], datetime(2026, 4, 1, 12), True)  # noqa: DTZ001 - UTC, without zone
    ]
    assert answer(
        "SELECT value, tags, scenario_end, metadata_host->>'gpuName' FROM metrics JOIN contexts USING "
        "(run_id, context_id)",
        run,
    ) == [(1.5, ["a"], datetime(2026, 4, 1, 12, 0, 30, 500000), "H200")]  # noqa: DTZ001 - as above
    assert answer("SELECT key, type, attempts, duration_s FROM steps", run) == [("k", "T", 2, None)]


def test_times_of_another_zone_are_in_utc(answer: Ask, write_run: Callable[..., Path]) -> None:
    run = write_run("a")
    (run / "metrics.jsonl").write_text(line("a", timestamp="2026-04-01T14:00:00+02:00"))
    assert answer("SELECT hour(timestamp) FROM metrics", run) == [(12,)]


def test_new_changed_and_gone_runs(answer: Ask, write_run: Callable[..., Path]) -> None:
    first = write_run("a", "VALID", 1.0)
    values = "SELECT run_id, value FROM metrics ORDER BY ALL"
    assert answer(values, first) == [("a", 1.0)]
    second = write_run("b", "VALID", 2.0)
    assert answer(values, first, second) == [("a", 1.0), ("b", 2.0)]
    with (first / "metrics.jsonl").open("a") as file:
        file.write(line("a", value=3.0))
    assert answer(values, first, second) == [("a", 1.0), ("a", 3.0), ("b", 2.0)]
    assert answer(values, first) == [("a", 1.0), ("a", 3.0)]
    shutil.rmtree(second)
    write_run("a", "VALID", 1.0, 4.0)
    assert answer("SELECT count(*) FROM idx.folders", first) == [(1,)]


def test_a_run_in_two_folders_counts_once(answer: Ask, write_run: Callable[..., Path]) -> None:
    runs = [write_run("a", "VALID", 1.0, folder=folder) for folder in ("x", "y")]
    assert answer("SELECT count(*) FROM metrics JOIN cases USING (run_id)", *runs) == [(1,)]


def test_broken_lines_and_documents_spoil_nothing(answer: Ask, write_run: Callable[..., Path]) -> None:
    good, cut, binary, odd = (write_run(name, "VALID", 1.0) for name in "abcd")
    with (cut / "metrics.jsonl").open("a") as file:
        file.write('[1]\nnull\n{"metric": "x"}\n' + line("b", value="much") + line("b")[:100])
    (cut / "run.json").write_text('{"run_id": ')
    (binary / "run.json").write_bytes(b"\xff\xfe")
    (binary / "metrics.jsonl").write_bytes(b"\x00\xff\n" + line("c", value=7).encode())
    (odd / "run.json").write_text('{"profile": 7, "cases": {"a": 1}, "steps": [null, 3], "start": "soon"}')
    (odd / "contexts.jsonl").unlink()
    runs = (good, cut, binary, odd)
    assert answer("SELECT run_id, profile FROM runs ORDER BY ALL", *runs) == [
        ("a", "P"), ("b", None), ("c", None), ("d", None)
    ]  # fmt: skip
    assert answer("SELECT run_id, value FROM metrics ORDER BY ALL", *runs) == [
        ("a", 1.0), ("b", 1.0), ("c", 7.0), ("d", 1.0)
    ]  # fmt: skip


def test_names_with_signs_of_patterns_and_quotes(tmp_path: Path, write_run: Callable[..., Path]) -> None:
    runs = [write_run("a", "VALID", 1.0, folder="o'[1]*"), write_run("b", "VALID", 1.0, folder="o'1x")]
    with ask("SELECT run_id FROM metrics", runs[:1], Index(tmp_path / "i'x")) as found:
        assert list(found.rows) == [("a",)]


def test_links_and_pipes_are_not_read(answer: Ask, write_run: Callable[..., Path], tmp_path: Path) -> None:
    run = write_run("a", "VALID", 1.0)
    secret = tmp_path / "secret.jsonl"
    secret.write_text(line("a", metric="secret"))
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(secret)
    (run / "contexts.jsonl").unlink()
    os.mkfifo(run / "contexts.jsonl")
    assert answer("SELECT (SELECT count(*) FROM metrics), (SELECT count(*) FROM contexts)", run) == [(0, 0)]


@pytest.mark.parametrize("content", [b"", b"no database", b"\0" * 20_000])
def test_a_damaged_index_is_made_again(
    content: bytes, answer: Ask, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = write_run("a", "VALID", 1.0)
    answer("SELECT 1", run)
    (file,) = (tmp_path / "index").glob("*.duckdb")
    file.write_bytes(content)
    (tmp_path / "index" / "runs-0-0.1.duckdb").write_text("of another version")
    assert answer("SELECT value FROM metrics", run) == [(1.0,)]
    assert list((tmp_path / "index").glob("*.duckdb")) == [file]


def test_work_that_takes_seconds_is_announced(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.query.index._SLOW_BYTES", 1)
    told: list[str] = []
    index, runs = Index(tmp_path / "index", told.append), [write_run("a"), write_run("b")]
    for _ in range(2):
        with ask("SELECT 1", runs, index):
            pass
    assert told == ["reading 2 new or changed runs, 0 MB …"]


def test_runs_are_read_in_batches(
    answer: Ask, write_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.query.index._BATCH_RUNS", 2)
    runs = [write_run(str(number), "VALID", number) for number in range(5)]
    assert answer("SELECT run_id::INTEGER, value FROM metrics ORDER BY ALL", *runs) == [
        (number, number) for number in range(5)
    ]


def test_what_a_killed_process_spilled_is_removed(
    answer: Ask, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    left_behind = tmp_path / "index" / "spill-7"
    left_behind.mkdir(parents=True)
    answer("SELECT 1", write_run("a"))
    assert not left_behind.exists()


def test_an_index_that_others_can_write_to_is_refused(
    answer: Ask, write_run: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index").chmod(0o777)
    with pytest.raises(HostError, match="others may write"):
        answer("SELECT 1", write_run("a"))


def test_an_index_that_cannot_be_made(write_run: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "index").write_text("")
    with pytest.raises(HostError), ask("SELECT 1", [write_run("a")], Index(tmp_path / "index")):
        pass


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "no files"),
        ("SELECT * FROM read_text('{run}/run.json')", "no files"),
        ("SELECT * FROM glob('/*')", "no files"),
        ("SELECT * FROM '/etc/passwd'", "does not exist"),
        ("SELECT * FROM secret", "does not exist"),
        ("COPY runs TO '{run}/out.csv'", "COPY is not a SELECT"),
        ("ATTACH '{run}/x.duckdb'", "ATTACH is not a SELECT"),
        ("SET enable_external_access = true", "is not a SELECT"),
        ("INSTALL httpfs", "is not a SELECT"),
        ("DELETE FROM idx.metrics", "DELETE is not a SELECT"),
        ("SELECT 1; DROP VIEW runs", "not 2"),
        ("", "not 0"),
        ("SELEC", "syntax error"),
        ("SELECT value FROM runs", "not found"),
        ("SELECT run_id::INTEGER FROM runs", "Conversion Error"),
    ],
)
def test_what_is_not_a_question_about_runs(
    sql: str, message: str, answer: Ask, write_run: Callable[..., Path]
) -> None:
    secret = [("a", 1)]  # DuckDB could read a Python variable by its name
    run = write_run("a", "VALID", 1.0)
    with pytest.raises(UsageError, match=message) as found:
        answer(sql.replace("{run}", str(run)), run)
    assert found.value.remedy
    assert sorted(path.name for path in run.iterdir()) == [
        ".vcagent-run", "contexts.jsonl", "journal.sqlite", "metrics.jsonl", "run.json"
    ]  # fmt: skip
    assert secret


def test_the_configuration_is_locked(answer: Ask, write_run: Callable[..., Path]) -> None:
    sql = "SELECT name, value FROM duckdb_settings()"
    assert set(answer(sql, write_run("a"))) >= {
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
        ("python_enable_replacements", "false"),
    }


def test_forms_of_a_question(answer: Ask, write_run: Callable[..., Path]) -> None:
    run = write_run("a", "VALID", 1.0)
    assert answer("FROM metrics SELECT value", run) == [(1.0,)]
    assert answer("WITH x AS (SELECT value FROM metrics) SELECT sum(value) FROM x;", run) == [(1.0,)]
    assert answer("PIVOT metrics ON metric USING max(value) GROUP BY run_id", run) == [("a", 1.0)]
    assert [row[0] for row in answer("DESCRIBE runs", run)] == [one.name for one in TABLES["runs"].columns]
    assert answer("EXPLAIN SELECT 1", run)


def test_equal_names_of_columns_are_told_apart(write_run: Callable[..., Path], tmp_path: Path) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_2"
    with ask(sql, [write_run("a")], Index(tmp_path / "index")) as found:
        assert len(set(found.columns)) == 3
        assert found.columns[0] == "a"


def test_without_duckdb_the_pip_command_is_named(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(sys, "version_info", (3, 11))
    with (
        pytest.raises(UsageError, match=r"pip install '\.\[query\]'"),
        ask("SELECT 1", [write_run("a")], Index(tmp_path / "index")),
    ):
        pass
    assert not Path(tmp_path / "index").exists()


def test_an_old_duckdb_is_refused(
    write_run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    monkeypatch.setattr(duckdb, "__version__", "1.3.2")
    with (
        pytest.raises(UsageError, match=r"need DuckDB 2, not 1\.3\.2"),
        ask("SELECT 1", [write_run("a")], Index(tmp_path / "index")),
    ):
        pass
