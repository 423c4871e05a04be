"""Delivers records, during and after a run, to sinks that may be slow, down, full or wrong.

The journal is the spool: it holds each record once, for any number of sinks and any length of outage, and
notes each sink's position. A sink that is behind needs no further disk space, and memory for only one batch.
Each sink has its own thread with a low priority, so that it slows neither the benchmark nor other sinks.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agent.core.counts import count_of
from agent.sinks.base import EntriesRefusedError, RecordsRefusedError, SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.sinks.base import Piece, Sink
    from agent.store.journal import Journal

FINISH_WAIT_S = 30.0
"""Seconds that the end of a run waits for sinks that take records; a sink that fails is not waited for."""

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_LONGEST_ASKED_WAIT_S = 600.0
_NICE = 10
_ENTRY = ", entry "
"""Between the name of a piece and the number of one of its entries."""


class Delivery:
    """Delivers records to one sink, in order.

    Args:
        journal: the run's journal.
        sink: the sink.
    """

    def __init__(self, journal: Journal, sink: Sink) -> None:
        self.journal = journal
        self.sink = sink
        self._limit = sink.batch
        self._started = False

    def step(self) -> bool:
        """Deliver the next batch; return False if the sink has all records.

        Raises:
            Exception: any exception of the sink; the sink keeps its position.
        """
        journal, sink = self.journal, self.sink
        if not self._started:
            sink.start()
            self._started = True
        record_id, position = journal.sink_position(sink.name)
        if record_id and not sink.intact(position):
            record_id, position = 0, 0
        records = journal.records_after(record_id, self._limit)
        if not records:
            return False
        try:
            position = sink.write(records, position)
        except RecordsRefusedError as error:
            if len(records) > 1:
                self._limit = max(1, len(records) // 2)
                return True
            journal.refuse(sink.name, [records[0].record_id], str(error))
        else:
            self._limit = min(sink.batch, 2 * self._limit)
        journal.move_sink(sink.name, records[-1].record_id, position)
        journal.note_delivery(sink.name)
        return True

    def leave(self, mask: Callable[[str], str] = str, *, refused: bool = False) -> None:
        """Deliver the pieces of the run besides its records; a refused one does not stop the rest.

        Args:
            mask: takes secrets out of a text.
            refused: whether to send again the pieces that the sink refused before.

        Raises:
            Exception: any other exception of the sink; pieces already sent or refused are noted.
        """
        journal, name = self.journal, self.sink.name
        before = journal.refused_pieces(name)
        for piece in self.sink.pieces():
            if not journal.has_piece(name, piece.name):
                if refused or piece.name not in before:
                    self._send(piece, piece.send, mask)
            elif refused and piece.send_some and (again := _entries_of(piece, before)):
                self._send(piece, partial(piece.send_some, again), mask, again)

    def _send(
        self,
        piece: Piece,
        send: Callable[[], None],
        mask: Callable[[str], str],
        again: frozenset[int] = frozenset(),
    ) -> None:
        """Send a piece, or again some of its entries, and note what the sink refuses."""
        journal, name = self.journal, self.sink.name
        refused: dict[int, str] = {}
        try:
            send()
        except EntriesRefusedError as error:
            refused = error.entries
        except RecordsRefusedError as error:
            if not again:
                journal.refuse_piece(name, piece.name, mask(_told(error)))
                return
            refused = dict.fromkeys(again, _told(error))
        # First what is missing: if the process dies here, the piece is sent again.
        for number, reason in refused.items():
            journal.refuse_piece(name, _entry_name(piece, number), mask(reason))
        for number in sorted(again - refused.keys()):
            journal.add_piece(name, _entry_name(piece, number))
        journal.add_piece(name, piece.name)

    def send_refused(self) -> int:
        """Deliver once more the records that were refused before; return how many are still refused."""
        left = 0
        for record, _ in self.journal.refused(self.sink.name):
            _, position = self.journal.sink_position(self.sink.name)
            try:
                self.sink.write([record], position)
            except RecordsRefusedError:
                left += 1
            else:
                self.journal.accept(self.sink.name, [record.record_id])
        return left


def flush(
    journal: Journal,
    sink: Sink,
    *,
    wait_s: float,
    refused: bool = False,
    mask: Callable[[str], str] = str,
) -> str:
    """Deliver everything that a sink does not have yet; return the reason if that failed, else an empty text.

    Args:
        journal: the journal of a run that has ended.
        sink: the sink.
        wait_s: how long to keep trying.
        refused: whether to send again the records and pieces that it refused.
        mask: takes secrets out of a text.
    """
    delivery, until, wait = Delivery(journal, sink), time.monotonic() + wait_s, _FIRST_WAIT_S
    try:
        while True:
            try:
                while delivery.step():
                    pass
                if refused:
                    delivery.send_refused()
                delivery.leave(mask, refused=refused)
            except Exception as error:  # noqa: BLE001 - a sink is foreign code
                reason = mask(_told(error))
                journal.note_delivery(sink.name, reason)
                if time.monotonic() + wait > until:
                    return reason
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)
            else:
                journal.note_delivery(sink.name)
                return ""
    finally:
        with suppress(Exception):
            sink.close()


class Delivering:
    """Delivers records to all sinks of a run during the run.

    Args:
        journal: the run's journal.
        sinks: the sinks; none of them is called from the thread that runs the benchmark.
        mask: takes secrets out of a text.
    """

    def __init__(self, journal: Journal, sinks: Sequence[Sink], mask: Callable[[str], str] = str) -> None:
        self._workers = [_Worker(journal, sink, mask) for sink in sinks]

    def start(self) -> None:
        """Start to deliver."""
        for worker in self._workers:
            worker.start()

    def wake(self) -> None:
        """Notify the sinks of new records."""
        for worker in self._workers:
            worker.woken.set()

    def finish(self, *, complete: bool, wait_s: float = FINISH_WAIT_S) -> list[str]:
        """Deliver the rest; return the undelivered records, one line for each sink.

        Args:
            complete: whether the run has ended, so that its files and its trace are sent too.
            wait_s: the longest time to wait for sinks that take records.
        """
        for worker in self._workers:
            worker.end(complete=complete)
        until = time.monotonic() + wait_s
        for worker in self._workers:
            worker.join(max(0.0, until - time.monotonic()))
        return [told for worker in self._workers if (told := worker.left())]


class _Worker(threading.Thread):
    def __init__(self, journal: Journal, sink: Sink, mask: Callable[[str], str]) -> None:
        super().__init__(name=f"sink {sink.name}", daemon=True)
        self.woken = threading.Event()
        self._delivery = Delivery(journal, sink)
        self._mask = mask
        self._ending = threading.Event()
        self._complete = False
        self._failures = 0
        self._error = ""
        self._done = False

    def end(self, *, complete: bool) -> None:
        self._complete = complete
        self._ending.set()
        self.woken.set()

    def left(self) -> str:
        """Return a line about what the sink does not have; empty if it has everything."""
        journal, name = self._delivery.journal, self._delivery.sink.name
        refused = _refused(journal, name)
        if self._done:
            return f"the sink {name} refused {refused}" if refused else ""
        more = f"; it refused {refused}" if refused else ""
        count = journal.last_record_id() - journal.sink_position(name)[0]
        why = self._error or "it was too slow"
        what = (
            f"{count_of(count, 'record')} {'is' if count == 1 else 'are'}"
            if count
            else "the run's log, outcomes or files are"
        )
        return f"{what} not delivered to the sink {name} yet: {why}{more}"

    def run(self) -> None:
        with suppress(OSError, AttributeError):  # the benchmark has priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            while not self._round():
                pass
        except sqlite3.Error:  # the journal was closed: the run has ended without this sink
            return
        finally:
            with suppress(Exception):
                self._delivery.sink.close()

    def _round(self) -> bool:
        """Deliver the available records, then wait; return True at the end."""
        self.woken.clear()  # before delivering: a later notification is not missed
        ending = self._ending.is_set()
        wait_s = self._delivery.sink.interval_s
        try:
            while self._delivery.step():
                self._succeeded()
            if ending and self._complete:
                self._delivery.leave(self._mask)
            self._succeeded()
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - a sink is foreign code
            wait_s = self._failed(error)
            if ending:
                return True
        else:
            if ending:
                self._done = True
                return True
        self._ending.wait(wait_s)
        if not self._failures:
            self.woken.wait()
        return False

    def _succeeded(self) -> None:
        self._failures, self._error = 0, ""

    def _failed(self, error: Exception) -> float:
        """Note a failure; return the seconds until the next attempt."""
        self._failures += 1
        self._error = self._mask(_told(error))
        self._delivery.journal.note_delivery(self._delivery.sink.name, self._error)
        wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(self._failures - 1, 10))
        asked_s = error.retry_after_s or 0.0 if isinstance(error, SinkUnavailableError) else 0.0
        wait_s *= random.uniform(0.5, 1)  # noqa: S311 - spreads the attempts; no secret
        return max(min(_LONGEST_ASKED_WAIT_S, asked_s), wait_s)


def _entry_name(piece: Piece, number: int) -> str:
    return f"{piece.name}{_ENTRY}{number}"


def _entries_of(piece: Piece, names: Iterable[str]) -> frozenset[int]:
    """Return the numbers of a piece's entries that are among names."""
    start = f"{piece.name}{_ENTRY}"
    return frozenset(int(one.removeprefix(start)) for one in names if one.startswith(start))


def _refused(journal: Journal, name: str) -> str:
    """Return what a sink refused, in words; empty if it refused nothing."""
    told = []
    if records := len(journal.refused(name)):
        told.append(count_of(records, "record"))
    if pieces := journal.refused_pieces(name):
        first, reason = next(iter(pieces.items()))
        others = f" and {count_of(len(pieces) - 1, 'other')}" if len(pieces) > 1 else ""
        told.append(f"{first}{others} ({reason})")
    return " and ".join(told)


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    kind = type(error).__name__
    plain = isinstance(error, (OSError, SinkUnavailableError, RecordsRefusedError))
    return text if plain and text else f"{kind}: {text}" if text else kind
