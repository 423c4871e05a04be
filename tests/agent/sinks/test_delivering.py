"""With a sink that is slow, down, full or wrong, the run goes on, and no record is lost or doubled."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from agent.sinks import Delivering, Piece, RecordsRefusedError, Sink, SinkUnavailableError, flush
from agent.sinks.base import PieceRefusedError, send_apart
from agent.sinks.delivering import Delivery
from agent.store.journal import Journal
from tests.agent.store.test_journal import record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.core.records import MetricRecord

WITHIN_S = 30.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal.add_records(record(float(value)) for value in range(10))
        yield journal


class Store(Sink):
    """Keeps values; fails on request."""

    name = "store"
    interval_s = 0.0
    batch = 4

    def __init__(self) -> None:
        self.values: list[float] = []
        self.sizes: list[int] = []
        self.files: list[str] = []
        self.refused_files: frozenset[str] = frozenset()
        self.refused: frozenset[float] = frozenset()
        self.error: Exception | None = None
        self.gate: threading.Event | None = None

    def write(self, records: list[MetricRecord], position: int) -> int:
        if self.gate:
            assert self.gate.wait(WITHIN_S)
        if self.error:
            raise self.error
        self.sizes.append(len(records))
        if wrong := self.refused & {each.value for each in records}:
            raise RecordsRefusedError(f"too old: {sorted(wrong)}")
        self.values += [each.value for each in records]
        return position + len(records)

    def pieces(self) -> list[Piece]:
        return [Piece(name, partial(self.take, name)) for name in ("a", "b")]

    def take(self, name: str) -> None:
        if name in self.refused_files:
            raise RecordsRefusedError(f"{name} is too large, password=hunter22")
        self.files.append(name)


def test_a_slow_sink_holds_nobody_up(journal: Journal) -> None:
    slow, quick = Store(), Store()
    slow.name, slow.gate = "slow", threading.Event()
    of_slow, of_quick = Delivering(journal, [slow]), Delivering(journal, [quick])
    for delivering in (of_slow, of_quick):
        delivering.start()
        journal.add_records([record(10.0)])
        delivering.wake()
    assert of_slow.finish(complete=True, wait_s=0.1) == [
        "12 records are not delivered to the sink slow yet: it was too slow"
    ]
    assert of_quick.finish(complete=True, wait_s=WITHIN_S) == []
    assert quick.values == [*range(10), 10, 10]
    assert quick.files == ["a", "b"]
    slow.gate.set()


def test_all_is_there_when_the_run_has_ended(journal: Journal) -> None:
    store = Store()
    delivering = Delivering(journal, [store])
    delivering.start()
    for value in range(10, 40):
        journal.add_records([record(float(value))])
        delivering.wake()
    assert delivering.finish(complete=True, wait_s=WITHIN_S) == []
    assert store.values == list(range(40))
    assert store.files == ["a", "b"]


def test_files_wait_for_a_run_that_is_resumed(journal: Journal) -> None:
    store = Store()
    delivering = Delivering(journal, [store])
    delivering.start()
    assert delivering.finish(complete=False, wait_s=WITHIN_S) == []
    assert store.values == list(range(10))
    assert store.files == []


def test_a_refused_file_is_set_aside_and_told_once(journal: Journal) -> None:
    def mask(text: str) -> str:
        return text.replace("hunter22", "***")

    store = Store()
    store.refused_files = frozenset({"a"})
    delivering = Delivering(journal, [store], mask)
    delivering.start()
    assert delivering.finish(complete=True, wait_s=WITHIN_S) == [
        "the sink store refused a (a is too large, password=***)"
    ]
    assert store.files == ["b"]
    assert journal.refused_pieces("store") == {"a": "a is too large, password=***"}
    (noted,) = journal.deliveries()
    assert (noted.failures, noted.error) == (0, "")
    assert flush(journal, store, wait_s=0, refused=True, mask=mask) == ""
    assert list(journal.refused_pieces("store")) == ["a"]
    store.refused_files = frozenset()
    assert flush(journal, store, wait_s=0, refused=True) == ""
    assert store.files == ["b", "a"]
    assert journal.refused_pieces("store") == {}


def test_a_sink_that_takes_only_the_records_is_not_called_complete(journal: Journal) -> None:
    class RecordsAlone(Store):
        def pieces(self) -> list[Piece]:
            raise ConnectionRefusedError("no such hub")

    delivering = Delivering(journal, [RecordsAlone()])
    delivering.start()
    assert delivering.finish(complete=True, wait_s=WITHIN_S) == [
        "the run's log, outcomes or files are not delivered to the sink store yet: no such hub"
    ]


def test_a_sink_that_is_down_gets_the_rest_later(journal: Journal) -> None:
    store = Store()
    store.error = ConnectionRefusedError("Connection refused, password=hunter22")
    delivering = Delivering(journal, [store], lambda text: text.replace("hunter22", "***"))
    delivering.start()
    told = delivering.finish(complete=True, wait_s=WITHIN_S)
    assert told == ["10 records are not delivered to the sink store yet: Connection refused, password=***"]
    (noted,) = journal.deliveries()
    assert noted.failures > 0
    assert noted.error == "Connection refused, password=***"
    store.error = None
    assert flush(journal, store, wait_s=0) == ""
    assert flush(journal, store, wait_s=0) == ""
    assert store.values == list(range(10))
    assert store.files == ["a", "b"]
    (noted,) = journal.deliveries()
    assert (noted.record_id, noted.failures, noted.error) == (10, 0, "")


def test_only_the_wrong_record_is_refused_and_it_is_kept(journal: Journal) -> None:
    store = Store()
    store.refused = frozenset({2.0, 7.0})
    assert flush(journal, store, wait_s=0) == ""
    assert store.values == [0, 1, 3, 4, 5, 6, 8, 9]
    kept = journal.refused("store")
    assert [each.value for each, _ in kept] == [2.0, 7.0]
    assert kept[0][1] == "too old: [2.0]"
    assert max(store.sizes) == Store.batch
    store.refused = frozenset({7.0})
    assert flush(journal, store, wait_s=0, refused=True) == ""
    assert sorted(store.values) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [each.value for each, _ in journal.refused("store")] == [7.0]


def test_a_batch_whose_success_was_not_noted_comes_again_as_it_was(journal: Journal) -> None:
    class Killed(Store):
        def write(self, records: list[MetricRecord], position: int) -> int:
            super().write(records, position)
            raise KeyboardInterrupt

    killed, after = Killed(), Store()
    with pytest.raises(KeyboardInterrupt):
        Delivery(journal, killed).step()
    assert Delivery(journal, after).step()
    assert after.values == killed.values


def test_a_sink_that_asks_to_be_left_alone_is(journal: Journal) -> None:
    store = Store()
    store.error = SinkUnavailableError("HTTP 429", retry_after_s=3600)
    delivering = Delivering(journal, [store])
    delivering.start()
    worker = delivering._workers[0]
    assert 60 < worker._failed(store.error) <= 600
    assert 0.5 <= worker._failed(OSError("down")) <= 60
    assert delivering.finish(complete=True, wait_s=WITHIN_S) != []


def test_the_back_off_has_a_limit(journal: Journal) -> None:
    worker = Delivering(journal, [Store()])._workers[0]
    waits = [worker._failed(OSError("down")) for _ in range(30)]
    assert waits[0] <= 1.0
    assert all(30.0 <= wait <= 60.0 for wait in waits[10:])


class Lines(Store):
    """Sends a piece of five lines, some of which it refuses."""

    def __init__(self, *refused: int) -> None:
        super().__init__()
        self.refused_lines = set(refused)
        self.lines: list[int] = []
        self.sizes_of_calls: list[int] = []

    def pieces(self) -> list[Piece]:
        return [Piece("log", self.send, self.send), Piece("a", partial(self.take, "a"))]

    def send(self, only: frozenset[int] | None = None) -> None:
        chosen = [(number, number) for number in range(5) if only is None or number in only]
        send_apart(chosen, self.take_lines)

    def take_lines(self, lines: list[int]) -> None:
        self.sizes_of_calls.append(len(lines))
        if wrong := self.refused_lines & set(lines):
            raise RecordsRefusedError(f"too large: {sorted(wrong)}, password=hunter22")
        self.lines += lines


def test_only_the_refused_entry_of_a_piece_is_set_aside(journal: Journal) -> None:
    def mask(text: str) -> str:
        return text.replace("hunter22", "***")

    sink = Lines(3)
    assert flush(journal, sink, wait_s=0, mask=mask) == ""
    assert (sink.lines, sink.files) == ([0, 1, 2, 4], ["a"])
    assert journal.refused_pieces("store") == {"log, entry 3": "too large: [3], password=***"}
    # Nothing is sent twice: not on the next flush, and not with the refused one.
    assert flush(journal, sink, wait_s=0, mask=mask) == ""
    assert flush(journal, sink, wait_s=0, refused=True, mask=mask) == ""
    assert sink.lines == [0, 1, 2, 4]
    assert list(journal.refused_pieces("store")) == ["log, entry 3"]
    sink.refused_lines.clear()
    assert flush(journal, sink, wait_s=0, refused=True, mask=mask) == ""
    assert sink.lines == [0, 1, 2, 4, 3]
    assert journal.refused_pieces("store") == {}


def test_a_piece_without_any_good_entry_is_refused_as_a_whole(journal: Journal) -> None:
    sink = Lines(*range(5))
    assert flush(journal, sink, wait_s=0) == ""
    assert list(journal.refused_pieces("store")) == ["log"]
    assert sink.files == ["a"]


def test_many_refusals_end_the_search_and_a_kind_that_is_not_taken_starts_none() -> None:
    calls: list[int] = []

    def refuse(entries: list[int]) -> None:
        calls.append(len(entries))
        raise RecordsRefusedError("no")

    with pytest.raises(RecordsRefusedError):
        send_apart([(number, number) for number in range(4096)], refuse)
    assert len(calls) < 60
    calls.clear()

    def take_none(entries: list[int]) -> None:
        calls.append(len(entries))
        raise PieceRefusedError("no logs here")

    with pytest.raises(PieceRefusedError):
        send_apart([(number, number) for number in range(8)], take_none)
    assert calls == [8]
