"""The journal stores events completely or not at all."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from agent.core.errors import UsageError
from agent.core.records import MetricRecord, Relativity
from agent.store.journal import (
    Journal,
    StepRow,
    StepStatus,
    is_on_network,
    record_from_json,
    record_to_json,
)

MOMENT = datetime(2026, 4, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def record(value: float = 1.5, record_id: int = 0) -> MetricRecord:
    return MetricRecord(
        record_id=record_id,
        timestamp=MOMENT,
        experiment_id="e",
        run_id="r",
        client_id="host",
        profile="P",
        tool_name="LoadGen",
        tool_version="6.0",
        scenario="m/Server/performance",
        scenario_start=MOMENT,
        scenario_end=MOMENT,
        metric="ttft_p99",
        value=value,
        unit="seconds",
        relativity=Relativity.LOWER,
        tags=("a", "b"),
        metadata={"gpu": 0, "note": 'say "hi", twice'},
    )


def row(key: str = "actions[0]/go") -> StepRow:
    return StepRow(
        key=key,
        component=key.rpartition("/")[0],
        type="T",
        kind="action",
        name="go",
        reason="because",
        command="true",
        log="logs/go.log",
    )


def test_a_record_survives_its_way_through_json() -> None:
    assert record_from_json(7, record_to_json(record())) == record(record_id=7)


def test_a_record_is_what_json_makes_of_it() -> None:
    odd = replace(
        record(1e300),
        description='5 °C "hot"\n',
        scenario="\\",
        metadata={"a": True, "b": 1, "c": 1.0, "d\t": 'é"', "e": -0.5, "f": False},
    )
    for one in (
        odd,
        replace(odd, metadata={"a": 1, "b": 1.0, "c": True}),
        replace(odd, metadata={}, tags=()),
    ):
        text = record_to_json(one)
        assert text == json.dumps(json.loads(text))
        assert record_from_json(0, text) == one
        assert [type(value) for value in json.loads(text)["metadata"].values()] == [
            type(value) for value in one.metadata.values()
        ]


def test_what_was_just_kept_is_what_the_file_has(journal: Journal) -> None:
    for number in range(3):
        journal.add_records(record(float(number * 1000 + value)) for value in range(400))
    with Journal(journal.path) as again:
        for after, limit in ((0, 5000), (150, 10), (250, 5000), (1190, 5000), (1200, 5000)):
            found, wanted = journal.records_after(after, limit), again.records_after(after, limit)
            assert found == wanted
            assert [one.stored for one in found] == [one.stored for one in wanted]
        assert len(again.records_after(0)) == 1200


def test_a_step_is_found_again_after_the_file_is_opened_anew(journal: Journal) -> None:
    journal.start_step(row())
    journal.end_step(
        "actions[0]/go", StepStatus.DONE, message="ok", cases=[{"scenario": "s"}], records=[record()]
    )
    journal.close()

    again = Journal(journal.path)
    step = again.step("actions[0]/go")
    assert step is not None
    assert (step.status, step.message, step.attempts) == (StepStatus.DONE, "ok", 1)
    assert again.cases() == [{"scenario": "s", "step": "actions[0]/go"}]
    assert again.records_after(0) == [record(record_id=1)]
    assert again.records_after(1) == []
    again.close()


def test_a_second_attempt_is_counted(journal: Journal) -> None:
    journal.start_step(row())
    journal.end_step("actions[0]/go", StepStatus.FAILED, message="no")
    journal.start_step(row())
    step = journal.step("actions[0]/go")
    assert step is not None
    assert (step.status, step.attempts, step.ended, step.message) == (StepStatus.STARTED, 2, None, "")


def test_an_end_that_fails_halfway_leaves_nothing(journal: Journal) -> None:
    journal.start_step(row())

    def cut() -> object:
        yield record()
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        journal.end_step("actions[0]/go", StepStatus.DONE, records=cut())  # type: ignore[arg-type]
    step = journal.step("actions[0]/go")
    assert step is not None
    assert step.status is StepStatus.STARTED
    assert journal.records_after(0) == []


def test_what_is_remembered_is_recalled(journal: Journal) -> None:
    journal.remember(options={"iterations": 3}, names=["a"])
    journal.remember(names=["b"])
    assert journal.recall("options") == {"iterations": 3}
    assert journal.recall("names") == ["b"]
    assert journal.recall("nothing", "default") == "default"


def test_a_file_that_is_no_journal_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_text("this is not SQLite, but long enough to be looked at as a header" * 40)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="cannot be read as a journal"):
        Journal(path)
    assert path.read_bytes() == before


def test_sqlite_is_left_in_write_ahead_mode(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:45 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
41 40 8:2 / /home/local rw - xfs /dev/sdb1 rw
42 22 0:46 / /my\\040share rw - fuse.sshfs a:/ rw
"""


@pytest.mark.parametrize(
    ("path", "is_network"),
    [("/home/a/journal", True), ("/home/local/journal", False), ("/homes/a", False), ("/my share/a", True)],
)
def test_network_file_systems_are_known(tmp_path: Path, path: str, is_network: bool) -> None:  # noqa: FBT001
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert is_on_network(Path(path), tmp_path / "mountinfo") == is_network


@pytest.mark.parametrize(("is_network", "mode"), [(True, "delete"), (False, "wal")])
def test_a_journal_on_a_network_file_system_needs_no_shared_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_network: bool,  # noqa: FBT001
    mode: str,
) -> None:
    monkeypatch.setattr("agent.store.journal.is_on_network", lambda _: is_network)
    with Journal(tmp_path / "j.sqlite") as journal:
        journal.remember(a=1)
        assert journal._rows("PRAGMA journal_mode")[0][0] == mode
        with Journal(tmp_path / "j.sqlite") as other:
            assert other.recall("a") == 1
