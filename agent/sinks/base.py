"""What a sink is, and how the journal feeds it so that no record is lost or doubled."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from agent.core.safe_files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.core.records import MetricRecord
    from agent.store.journal import Journal

_T = TypeVar("_T")


class RecordsRefusedError(Exception):
    """The destination will never take records as they are: they are too old, too large, or wrong.

    Delivery halves the batch until it knows which record it is, notes it as refused and goes on.
    """


class SinkUnavailableError(Exception):
    """The destination takes nothing now.

    Args:
        message: why.
        retry_after_s: how long it asked to be left alone; None if it did not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Piece:
    """Something that a run leaves besides its records, such as a file or its trace.

    Args:
        name: unique within the run; the journal notes under it that the sink has the piece.
        send: sends it; may be called again if the note was lost, and must then replace what is there.
    """

    name: str
    send: Callable[[], None]


class Sink(ABC):
    """Takes records in the order of their ids.

    Attributes:
        name: unique among the sinks of a run; the journal notes under it how far the sink has come.
        interval_s: shortest time between two calls of ``write`` while the run goes on.
        batch: the most records in one call.
    """

    name: str
    interval_s: float = 1.0
    batch: int = 1000

    def start(self) -> None:  # noqa: B027 - most sinks have nothing to begin
        """Begin; called before the first record, in the sink's own thread."""

    def pieces(self) -> Iterable[Piece]:
        """Return what is sent when the run has ended and all records were taken."""
        return ()

    def close(self) -> None:  # noqa: B027 - or to end
        """End; nothing is written any more."""

    def intact(self, position: int) -> bool:  # noqa: ARG002 - for sinks that can tell
        """Return True if everything up to the position is there; if not, all records are written again."""
        return True

    @abstractmethod
    def write(self, records: list[MetricRecord], position: int) -> int:
        """Write records that follow those written so far; raise an exception if that is not possible.

        Args:
            records: the next records.
            position: what the last successful call returned, 0 at first. What lies behind it was
                written by a call whose success was never noted, and must not count.

        Returns:
            The new position, of the sink's own meaning.
        """


class FileSink(Sink):
    """A file that grows by whole records; its position is its size in bytes."""

    header = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @abstractmethod
    def line(self, record: MetricRecord) -> str:
        """A record as text, with its line end."""

    def intact(self, position: int) -> bool:
        """See Sink; a crash of the host may have taken the end of the file."""
        return position == 0 or (self.path.is_file() and self.path.stat().st_size >= position)

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        with os.fdopen(open_file(self.path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            file.truncate(position)
            file.seek(position)
            if position == 0:
                file.write(self.header.encode())
            file.write("".join(map(self.line, records)).encode())
            file.flush()
            os.fsync(file.fileno())
            return file.tell()


def feed(journal: Journal, sinks: Iterable[Sink]) -> list[str]:
    """Bring every sink up to the journal's last record.

    A sink is foreign code: whatever it raises stays here, and the other sinks get their records.

    Returns:
        What went wrong, one line for each sink; a sink that fails keeps its place and is fed again next time.
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
    """A sink did not take its records; says which and why."""


def _feed_one(journal: Journal, sink: Sink, read: dict[int, list[MetricRecord]]) -> None:
    """Feed a sink.

    Args:
        journal: the run's journal; its own errors pass through.
        sink: the sink.
        read: records that were read for another sink that is equally far.

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
