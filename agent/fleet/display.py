"""Shows a fleet at work: a live table on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

from typing_extensions import override

from agent.core.progress import duration
from agent.core.terminal import printable, safe_console
from agent.fleet.status import HostPhase, HostStatus
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.table import Table
    from typing_extensions import Self

_STYLES = {
    HostPhase.DONE: "green",
    HostPhase.FAILED: "red",
    HostPhase.UNREACHED: "red",
    HostPhase.SKIPPED: "yellow",
    HostPhase.LOST: "yellow",
    HostPhase.REBOOTING: "yellow",
    HostPhase.WAITING: "dim",
    HostPhase.QUEUED: "dim",
}
_ORDER = (
    *(HostPhase.LOST, HostPhase.REBOOTING, HostPhase.RUNNING, HostPhase.GATHERING, HostPhase.PREPARING),
    *(
        HostPhase.CONNECTING,
        HostPhase.QUEUED,
        HostPhase.FAILED,
        HostPhase.UNREACHED,
        HostPhase.SKIPPED,
        HostPhase.WAITING,
    ),
    HostPhase.DONE,
)


_SOON_S = 0.5
_NOW_AND_THEN_S = 10.0


class FleetDisplay:
    """What is shown of a fleet; this base class shows nothing. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.hosts: dict[str, HostStatus] = {}

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the screen tidy."""

    def expect(self, hosts: Iterable[HostStatus]) -> None:
        """Tell which hosts there are."""
        with self._lock:
            self.hosts.update((host.name, host) for host in hosts)

    def update(self, host: HostStatus) -> None:
        """A host's standing has changed."""
        with self._lock:
            before = self.hosts.get(host.name)
            self.hosts[host.name] = host
            self._changed(host, before)

    def note(self, text: str) -> None:
        """Something that people should read now."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the screen to somebody else, such as a question."""
        yield

    def _changed(self, host: HostStatus, before: HostStatus | None) -> None: ...


class PlainLines(FleetDisplay):
    """A line whenever a host's phase or step changes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._begun = time.monotonic()

    @override
    def note(self, text: str) -> None:
        moment = duration(time.monotonic() - self._begun)
        with self._lock, suppress(OSError, ValueError):  # nobody reads any more: the fleet goes on
            print(printable(f"[{moment:>9}] {text}"), file=self._stream, flush=True)

    def _changed(self, host: HostStatus, before: HostStatus | None) -> None:
        if before and (before.phase, before.step) == (host.phase, host.step):
            return
        if host.phase in (HostPhase.CONNECTING, HostPhase.WAITING):
            return
        ended = f" ({counted(self.hosts.values())})" if host.phase.is_final else ""
        self.note(f"{host.name}: {host.phase.value}{_detail(host)}{ended}")


class LiveTable(FleetDisplay):
    """A table of the hosts, those at work first; as many as the screen holds."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        from rich.live import Live

        self._console = safe_console(file=stream)
        self._live = Live(
            console=self._console, get_renderable=self._render, auto_refresh=False, transient=True
        )
        self._is_stale = True
        self._ended = threading.Event()
        self._drawing = threading.Thread(target=self._draw, name="fleet table", daemon=True)

    @override
    def __enter__(self) -> Self:
        self._live.start()
        self._drawing.start()
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._drawing.join()
        self._live.stop()

    def _draw(self) -> None:
        """Draw what has changed soon, the time that passed now and then: a large table is costly."""
        drawn = 0.0
        while not self._ended.wait(_SOON_S):
            if self._live.is_started and (self._is_stale or time.monotonic() - drawn > _NOW_AND_THEN_S):
                self._is_stale = False
                self._live.refresh()
                drawn = time.monotonic()

    def _changed(self, host: HostStatus, before: HostStatus | None) -> None:  # noqa: ARG002
        self._is_stale = True

    @contextmanager
    @override
    def paused(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    @override
    def note(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def _render(self) -> Table:
        with self._lock:
            hosts = dict(self.hosts)
        return host_table(hosts, self._console.height - 5)


def host_table(hosts: Mapping[str, HostStatus], most_rows: int = 10_000) -> Table:
    """A table of hosts: phase, step, elapsed time, last message, verdict.

    Args:
        hosts: their standings.
        most_rows: how many are shown; those at work come first, and the rest is counted.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=True, caption=counted(hosts.values()), caption_justify="left")
    for name in ("host", "phase", "step", "elapsed"):
        table.add_column(name, no_wrap=True)
    table.add_column("last message", ratio=1, no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    shown = list(hosts.values())
    if len(shown) > most_rows:
        shown = sorted(shown, key=lambda host: _ORDER.index(host.phase))[: max(1, most_rows)]
    for host in shown:
        table.add_row(
            Text(host.name),
            Text(host.phase.value, style=_STYLES.get(host.phase, "cyan")),
            Text(host.step),
            _elapsed(host),
            Text(" ".join((host.reason or host.message).split())),
            host.verdict or (f"exit code {host.exit_code}" if host.exit_code else ""),
        )
    return table


def counted(hosts: Iterable[HostStatus]) -> str:
    """How many hosts are in which phase: ``12 running, 3 done, 1 failed``."""
    counts = Counter(host.phase for host in hosts)
    return ", ".join(f"{counts[phase]} {phase.value}" for phase in HostPhase if counts[phase])


def _detail(host: HostStatus) -> str:
    if host.phase is HostPhase.DONE:
        return f", {host.verdict}" if host.verdict else ""
    if host.phase.is_final or host.phase in (HostPhase.LOST, HostPhase.QUEUED):
        return f": {(host.reason or host.message).splitlines()[0]}" if host.reason or host.message else ""
    return f": {host.step}" if host.step else ""


def _elapsed(host: HostStatus) -> str:
    if not host.started:
        return ""
    end = datetime.fromisoformat(host.ended) if host.ended else now()
    return duration((end - datetime.fromisoformat(host.started)).total_seconds())


def fleet_display(stream: TextIO | None = None, *, quiet: bool = False) -> FleetDisplay:
    """The display that suits the stream (default: standard error)."""
    stream = stream or sys.stderr
    if quiet:
        return FleetDisplay()
    return LiveTable(stream) if stream.isatty() else PlainLines(stream)
