"""The interface of a sink, and the feeding of sinks from the journal without lost or doubled records."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from agent.core.safe_files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agent.core.records import MetricRecord
    from agent.store.journal import Journal

_T = TypeVar("_T")
_HOPELESS = 16
"""Entries that are refused one by one, with none taken, before the whole piece counts as refused."""


class RecordsRefusedError(Exception):
    """The destination will never take these records, or this piece: too old, too large, or malformed.

    Delivery halves the batch until it has found the record at fault. It notes the record or the piece as
    refused, and goes on with the next.
    """


class EntriesRefusedError(Exception):
    """The destination has taken a piece, except these entries of it, which it will never take.

    Args:
        entries: the reasons, by the entries' numbers within the piece.
    """

    def __init__(self, entries: Mapping[int, str]) -> None:
        super().__init__(f"{len(entries)} refused: {next(iter(entries.values()), '')}")
        self.entries = dict(entries)


class PieceRefusedError(RecordsRefusedError):
    """The destination takes nothing of this kind, so that its parts need not be sent one by one."""


class SinkUnavailableError(Exception):
    """The destination takes nothing at the moment.

    Args:
        message: the reason.
        retry_after_s: seconds that the destination asked to wait; None if it did not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Piece:
    """Something to send besides a run's records, such as a file or the run's trace.

    Args:
        name: unique within the run; the journal notes under this name that the sink has the piece.
        send: sends the piece. If the note was lost, it is called again and must replace the earlier copy.
            It raises RecordsRefusedError if the destination will never take the piece, and
            EntriesRefusedError if it has taken all but some entries.
        send_some: sends only the entries with these numbers; None for a piece without entries.
    """

    name: str
    send: Callable[[], None]
    send_some: Callable[[frozenset[int]], None] | None = None


class Sink(ABC):
    """A destination that takes records in the order of their ids.

    Attributes:
        name: unique among the sinks of a run; the journal notes the sink's position under this name.
        interval_s: shortest time between two calls of ``write`` during the run.
        batch: the largest number of records in one call.
    """

    name: str
    interval_s: float = 1.0
    batch: int = 1000

    def start(self) -> None:  # noqa: B027 - most sinks have nothing to start
        """Start; called before the first record, in the sink's own thread."""

    def pieces(self) -> Iterable[Piece]:
        """Return the pieces to send after the run has ended and all records were taken."""
        return ()

    def close(self) -> None:  # noqa: B027 - or nothing to close
        """Close; no records follow."""

    def intact(self, position: int) -> bool:  # noqa: ARG002 - for sinks that can check it
        """Return True if all data up to the position exists; if not, all records are written again."""
        return True

    @abstractmethod
    def write(self, records: list[MetricRecord], position: int) -> int:
        """Write the records that follow those written so far; raise an exception if that is not possible.

        Args:
            records: the next records.
            position: the result of the last successful call, 0 at first. Data after this position was
                written by a call whose success was never noted, and must not count.

        Returns:
            The new position, in the sink's own unit.
        """


def numbered(entries: Iterable[_T], only: frozenset[int] | None) -> Iterator[tuple[int, _T]]:
    """Yield the entries of a piece with their numbers; those numbered in ``only`` alone if it is given."""
    return (one for one in enumerate(entries) if only is None or one[0] in only)


def send_apart(entries: Sequence[tuple[int, _T]], send: Callable[[list[_T]], None]) -> None:
    """Send entries together; if they are refused, send halves, until only the refused ones are left.

    Args:
        entries: the entries, with their numbers within the piece.
        send: sends some of them: all or none.

    Raises:
        EntriesRefusedError: if some are refused.
        RecordsRefusedError: if the destination takes none of them.
    """
    refused: dict[int, str] = {}
    waiting, taken = [list(entries)], False
    while waiting:
        part = waiting.pop()
        try:
            send([entry for _, entry in part])
        except PieceRefusedError:
            raise
        except RecordsRefusedError as error:
            if len(part) > 1:
                waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
                continue
            refused[part[0][0]] = str(error)
            if len(refused) == min(len(entries), _HOPELESS) and not taken:
                raise
        else:
            taken = True
    if refused:
        raise EntriesRefusedError(refused)


def writable(text: str) -> str:
    """Return a text that every format can hold: without halves of surrogate pairs."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@contextmanager
def refusing_unwritable() -> Iterator[None]:
    """Raise RecordsRefusedError if values cannot be written in a destination's format.

    Only the conversion belongs into this context, not the connection.
    """
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:  # with UnicodeError, and pyarrow's ArrowInvalid
        raise RecordsRefusedError(f"it cannot be written: {' '.join(str(error).split())}") from error


class FileSink(Sink):
    """A file that grows by complete records; its position is its size in bytes."""

    header = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @abstractmethod
    def line(self, record: MetricRecord) -> str:
        """Return a record as text, with its line end."""

    def intact(self, position: int) -> bool:
        """Return True if the file reaches the position: a crash of the host may have cut off its end."""
        return position == 0 or (self.path.is_file() and self.path.stat().st_size >= position)

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        with os.fdopen(open_file(self.path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            file.truncate(position)
            file.seek(position)
            if position == 0:
                file.write(self.header.encode())
            # Half of a surrogate pair, which JSON of a tool may have, cannot be encoded: "?" stands there.
            file.write("".join(map(self.line, records)).encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
            return file.tell()


def feed(journal: Journal, sinks: Iterable[Sink]) -> list[str]:
    """Bring every sink up to the journal's last record.

    A sink is foreign code: its exceptions are caught here, and the other sinks still get their records.

    Returns:
        One line for each sink that failed; a sink that fails keeps its position and is fed again next time.
    """
    failures = []
    read: dict[int, list[MetricRecord]] = {}
    for sink in sinks:
        try:
            _feed_one(journal, sink, read)
        except _SinkError as error:
            failures.append(str(error))
    return failures


class _SinkError(Exception):
    """A sink did not take its records; the message names the sink and the reason."""


def _feed_one(journal: Journal, sink: Sink, read: dict[int, list[MetricRecord]]) -> None:
    """Feed a sink.

    Args:
        journal: the run's journal; its own errors are passed on.
        sink: the sink.
        read: records that were already read for another sink with the same position.

    Raises:
        _SinkError: if the sink raised anything.
    """
    record_id, position = journal.sink_position(sink.name)
    if not _asked(sink, lambda: sink.intact(position)):
        record_id, position = 0, 0
    while True:
        records = read[record_id] if record_id in read else journal.records_after(record_id)
        if not read:
            read[record_id] = records
        if not records and position:
            return
        position = _asked(sink, lambda at=position, new=records: sink.write(new, at))  # type: ignore[misc]
        record_id = records[-1].record_id if records else record_id
        journal.move_sink(sink.name, record_id, position)
        if not records:
            return


def _asked(sink: Sink, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except OSError as error:
        raise _SinkError(f"records could not be written to {sink.name}: {error}") from error
    except Exception as error:
        raise _SinkError(
            f"records could not be written to {sink.name}: it raised {type(error).__name__}: {error}"
        ) from error
