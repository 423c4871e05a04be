"""Shows the progress of a fleet run: a live table on a terminal, plain lines everywhere else."""

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
from agent.fleet.reasons import FAILED_PHASES, reason_groups
from agent.fleet.status import HostPhase, HostStatus
from agent.store.journal import now

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import Group
    from rich.text import Text
    from typing_extensions import Self

    from agent.fleet.reasons import ReasonGroup

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
_RANKS = {
    HostPhase.FAILED: 0,
    HostPhase.UNREACHED: 0,
    HostPhase.LOST: 1,
    HostPhase.REBOOTING: 1,
    HostPhase.RUNNING: 2,
    HostPhase.GATHERING: 2,
    HostPhase.PREPARING: 3,
    HostPhase.CONNECTING: 4,
    HostPhase.QUEUED: 5,
    HostPhase.WAITING: 5,
    HostPhase.SKIPPED: 6,
    HostPhase.DONE: 7,
}
"""The order of the phases in the table."""

_SOON_S = 0.5
_NOW_AND_THEN_S = 10.0


class FleetDisplay:
    """The display of a fleet run; this base class shows nothing. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.hosts: dict[str, HostStatus] = {}

    def __enter__(self) -> Self:
        """Start the display."""
        return self

    def __exit__(self, *_: object) -> None:
        """Clean up the screen."""

    def expect(self, hosts: Iterable[HostStatus]) -> None:
        """Register the hosts of the run."""
        with self._lock:
            self.hosts.update((host.name, host) for host in hosts)

    def update(self, host: HostStatus) -> None:
        """Show the new status of a host."""
        with self._lock:
            before = self.hosts.get(host.name)
            self.hosts[host.name] = host
            self._changed(host, before)

    def note(self, text: str) -> None:
        """Show a message immediately."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Free the screen for another use, such as a question."""
        yield

    def _changed(self, host: HostStatus, before: HostStatus | None) -> None: ...


class PlainLines(FleetDisplay):
    """Prints a line whenever a host's phase or step changes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._begun = time.monotonic()

    @override
    def note(self, text: str) -> None:
        moment = duration(time.monotonic() - self._begun)
        with self._lock, suppress(OSError, ValueError):  # the stream is closed: the fleet run continues
            print(printable(f"[{moment:>9}] {text}"), file=self._stream, flush=True)

    def _changed(self, host: HostStatus, before: HostStatus | None) -> None:
        if before and (before.phase, before.step) == (host.phase, host.step):
            return
        if host.phase in (HostPhase.CONNECTING, HostPhase.WAITING):
            return
        ended = f" ({counted(self.hosts.values())})" if host.phase.is_final else ""
        self.note(f"{host.name}: {host.phase.value}{_detail(host)}{ended}")


class LiveTable(FleetDisplay):
    """A table of the hosts, failed ones first; it shows as many as fit on the screen."""

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
        """Redraw soon after a change, but the elapsed times less often: drawing a large table is costly."""
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

    def _render(self) -> Group:
        with self._lock:
            hosts = dict(self.hosts)
        return host_table(hosts, self._console.height - 4, expand=True)


def host_table(hosts: Mapping[str, HostStatus], most_rows: int | None = None, *, expand: bool) -> Group:
    """Return a table of hosts: phase, elapsed time, and the current step with its last message, or the error.

    Failed hosts come first, then unreachable ones, then running ones, the slowest first.

    Args:
        hosts: the status of each host.
        most_rows: the maximum number of rows. If there are more hosts, failed hosts with equal reasons share
            a line above the table; these lines take at most half of the rows. None for one row per host.
        expand: whether the table is as wide as the console, so that only reasons are cut.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, expand=expand, pad_edge=False, caption=counted(hosts.values()), caption_justify="left"
    )
    table.add_column("host", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("elapsed", no_wrap=True, justify="right")
    table.add_column("step, or reason", ratio=1, no_wrap=True, overflow="ellipsis")
    shown = sorted(hosts.values(), key=lambda host: (_RANKS[host.phase], host.started or "9"))
    lines: list[Text] = []
    domain = ""
    if most_rows is not None and len(shown) > most_rows:
        groups = [group for group in reason_groups(shown) if group.phase in FAILED_PHASES]
        lines = [_failed_line(group) for group in groups[: max(1, most_rows // 2)]]
        others = [host for host in shown if host.phase not in FAILED_PHASES]
        shown = others[: max(0, most_rows - len(lines))]
        domain = _common_domain(host.name for host in shown)
    for host in shown:
        table.add_row(
            Text(host.name.removesuffix(domain)),
            Text(host.phase.value, style=_STYLES.get(host.phase, "cyan")),
            _elapsed(host),
            Text(" ".join(_told(host).split())),
        )
    return Group(*lines, table)


def _failed_line(group: ReasonGroup) -> Text:
    from rich.text import Text

    is_one = len(group.hosts) == 1
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(group.hosts[0] if is_one else f"{len(group.hosts):,} hosts", style="bold")
    text.append(f" {group.phase.value} ", style=_STYLES[group.phase])
    text.append(" ".join(group.brief.split()) + ("" if is_one else f" ({', '.join(group.hosts)})"))
    return text


def _common_domain(names: Iterable[str]) -> str:
    """Return the domain that all names end with, such as ``.cluster.example``; empty if they differ."""
    domains = {name[name.index(".") :] if "." in name and not name[0].isdigit() else "" for name in names}
    return domains.pop() if len(domains) == 1 else ""


def _told(host: HostStatus) -> str:
    """Return one line about a host: its verdict, or its step with the last message or the error."""
    if host.phase is HostPhase.DONE:
        return "; ".join(filter(None, (host.verdict, host.warning)))
    reason = host.reason.splitlines()[0] if host.reason else host.message or host.warning
    if host.phase.is_final and not reason and host.exit_code:
        reason = f"exit code {host.exit_code}"
    return ": ".join(filter(None, (host.step, reason)))


def counted(hosts: Iterable[HostStatus]) -> str:
    """Return the number of hosts in each phase: ``12 running, 3 done, 1 failed``."""
    counts = Counter(host.phase for host in hosts)
    return ", ".join(f"{counts[phase]} {phase.value}" for phase in HostPhase if counts[phase])


def _detail(host: HostStatus) -> str:
    if host.phase is HostPhase.DONE:
        return f", {host.verdict}" if host.verdict else ""
    if host.phase.is_final or host.phase in (HostPhase.LOST, HostPhase.QUEUED):
        return f": {(host.reason or host.message).splitlines()[0]}" if host.reason or host.message else ""
    return f": {host.step}" if host.step else ""


def _elapsed(host: HostStatus) -> str:
    if host.duration_s is not None:
        return duration(host.duration_s)
    if not host.started:
        return ""
    end = datetime.fromisoformat(host.ended) if host.ended else now()
    return duration((end - datetime.fromisoformat(host.started)).total_seconds())


def fleet_display(
    stream: TextIO | None = None, *, quiet: bool = False, verbose: bool = False
) -> FleetDisplay:
    """Return the display that suits the stream (default: standard error); lines if verbose."""
    stream = stream or sys.stderr
    if quiet:
        return FleetDisplay()
    return LiveTable(stream) if stream.isatty() and not verbose else PlainLines(stream)
