"""Shows that a run is alive: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from typing_extensions import override

from agent.core.safe_files import append_to
from agent.core.terminal import printable, safe_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID
    from typing_extensions import Self

PROGRESS_EVENT = '{"event": "progress"'
"""The beginning of a line by which a program reports progress to the agent; people see it as a bar."""
PLAIN_INTERVAL_S = 15.0
"""Seconds between lines about a running step if there is no terminal."""


class Progress(Protocol):
    """Shows that a step is alive; safe to call from any thread."""

    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        """Show the current activity; with ``done`` and ``total`` (any unit) also an estimate.

        An activity without a count has an unknown length. From then on only counts give an estimate.
        """


def duration(seconds: float) -> str:
    """Return seconds in a readable form: ``42 s``, ``3 min 05 s``, ``2 h 10 min``."""
    whole = max(0, round(seconds))
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    if whole < 3600:  # noqa: PLR2004
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@dataclass
class StepProgress(Progress):
    """One running step; the type of ``StepContext.progress``."""

    title: str
    estimate_s: float | None
    changed: Callable[[StepProgress], None]
    started: float = 0.0
    clock: Callable[[], float] = time.monotonic
    message: str = ""
    done: float | None = None
    total: float | None = None
    shown: str = ""
    """The last message shown by a verbose display."""
    _phase: tuple[float, float] | None = None
    """When the present count began, and its number then; None without a count."""

    @override
    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        if not total or done is None:
            self._phase = None
            self.estimate_s = None  # the usual duration says nothing about a wait of unknown length
        elif self._phase is None or total != self.total or done < (self.done or 0.0):
            self._phase = (self.clock(), done)
        self.message, self.done, self.total = message, done, total
        self.changed(self)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the step started."""
        return self.clock() - self.started

    @property
    def fraction(self) -> float | None:
        """Share that is done, 0 to 1: reported by the step, else estimated; None if unknown or overdue."""
        if self.total and self.done is not None:
            return min(1.0, self.done / self.total)
        if self.estimate_s and self.elapsed_s < self.estimate_s:
            return self.elapsed_s / self.estimate_s
        return None

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left, by the rate since the count began; None if unknown or overdue.

        A step has phases, such as loading an engine and then asking it: what came before a count says nothing
        about its rate.
        """
        if self._phase and self.total and self.done is not None:
            began, first = self._phase
            took_s = self.clock() - began
            if self.done > first and took_s > 0 and (self.done > 1 or self.total <= 1):  # one is too few
                return max(0.0, took_s * (self.total - self.done) / (self.done - first))
        if self.estimate_s and self.elapsed_s < self.estimate_s:
            return self.estimate_s - self.elapsed_s
        return None


class RunProgress:
    """The progress of a run; this base class counts and shows nothing.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._later_s = 0.0
        self._later_unknown = 0
        self._log: PlainProgress | None = None
        self.count = 0
        self.expected = 0
        self._round: Callable[[], str] | None = None
        self.verbose = False
        """True to show all details of a step, with its reason and command."""

    def __enter__(self) -> Self:
        """Start showing progress."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the screen tidy."""

    def expect(self, estimates_s: list[float | None]) -> None:
        """Set the durations of the coming steps in seconds; None if unknown."""
        with self._lock:
            self.expected += len(estimates_s)
            self._later_s += sum(filter(None, estimates_s))
            self._later_unknown += estimates_s.count(None)

    def in_round(self, number: int, left_s: Callable[[], float | None]) -> None:
        """Name the round of the actions beside each step from now on.

        Args:
            number: the round's number.
            left_s: returns the seconds for which rounds are repeated; None if they are not limited.
        """

        def text() -> str:
            left = left_s()
            return f"round {number}" + (f", {duration(left)} left" if left is not None else "")

        with self._lock:
            self._round = text
            if self._log:
                self._log._round = text  # noqa: SLF001 - the same display, on paper

    @property
    def round(self) -> str:
        """The round of the actions, such as ``round 7, 22 s left``; empty if there is only one."""
        return self._round() if self._round else ""

    @property
    def position(self) -> str:
        """The number of the step, and the number of all steps unless rounds are repeated for a time."""
        is_open = self._round is not None and "left" in self.round
        return str(self.count) if is_open else f"{self.count}/{self.expected}"

    def left_s(self, current: StepProgress) -> float | None:
        """Return the estimated seconds left of the whole run; None if unknown for this or a later step."""
        left = current.left_s
        return None if left is None or self._later_unknown else left + self._later_s

    def left(self, current: StepProgress) -> str:
        """Return the time left in words; empty if unknown for the current step."""
        whole, own = self.left_s(current), current.left_s
        if whole is not None:
            return f"about {duration(whole)} left in all"
        return "" if own is None else f"about {duration(own)} left in this step"

    def start(self, title: str, estimate_s: float | None = None) -> StepProgress:
        """Start a step."""
        with self._lock:
            self.count += 1
            self.expected = max(self.expected, self.count)
            self._later_s = max(0.0, self._later_s - (estimate_s or 0.0))
            if estimate_s is None:
                self._later_unknown = max(0, self._later_unknown - 1)
            step = StepProgress(title, estimate_s, self._update, self._clock(), self._clock)
            self._started(step)
            if self._log:
                self._log.count, self._log.expected = self.count, self.expected
                self._log._later_s, self._log._later_unknown = self._later_s, self._later_unknown  # noqa: SLF001
                self._log._started(step)  # noqa: SLF001 - the same display, on paper
            return step

    @contextmanager
    def logged(self, path: Path) -> Iterator[None]:
        """Write all that is shown to a file as well, as plain lines, while the context is open.

        Args:
            path: the file; appended to, its folder is made.
        """
        with append_to(path, errors="backslashreplace") as file:
            self._log = PlainProgress(file, self._clock)
            try:
                yield
            finally:
                self._log = None

    def finish(self, step: StepProgress, outcome: str) -> None:
        """End a step; ``outcome`` is a readable line."""
        with self._lock:
            self._finished(step, outcome)
            if self._log:
                self._log._finished(step, outcome)  # noqa: SLF001 - likewise

    def note(self, text: str) -> None:
        """Show a text that users should read now."""
        self._noted(text)
        if self._log:
            self._log.note(text)

    def detail(self, text: str) -> None:
        """Show a detail, only if verbose."""
        if self.verbose:
            self.note(text)

    def _update(self, step: StepProgress) -> None:
        if self.verbose and step.message and step.message != step.shown:
            step.shown = step.message
            self.note(f"      {step.message}")
        self._changed(step)
        if self._log and not self.verbose:
            self._log._changed(step)  # noqa: SLF001 - likewise

    def _noted(self, text: str) -> None: ...

    def _started(self, step: StepProgress) -> None: ...

    def _changed(self, step: StepProgress) -> None: ...

    def _finished(self, step: StepProgress, outcome: str) -> None: ...


class PlainProgress(RunProgress):
    """Prints a line when a step starts, now and then while it runs, and when it ends."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._next_line = 0.0
        self._begun = clock()

    def _noted(self, text: str) -> None:
        moment = duration(self._clock() - self._begun)
        with suppress(OSError, ValueError):  # the output is closed: the run continues
            print(printable(f"[{moment:>9}] {text}"), file=self._stream, flush=True)

    def _started(self, step: StepProgress) -> None:
        usual = f"usually {duration(step.estimate_s)}" if step.estimate_s else ""
        remarks = ", ".join(filter(None, (self.round, usual)))
        self._noted(f"{self.position} {step.title}" + (f" ({remarks})" if remarks else ""))
        self._next_line = self._clock() + PLAIN_INTERVAL_S

    def _changed(self, step: StepProgress) -> None:
        with self._lock:
            if self._clock() < self._next_line:
                return
            self._next_line = self._clock() + PLAIN_INTERVAL_S
            share = f" {step.fraction:.0%}" if step.fraction is not None else ""
            rest = self.round or self.left(step)
            self._noted(f"    {step.title}:{share} {step.message}".rstrip() + (f", {rest}" if rest else ""))

    def _finished(self, step: StepProgress, outcome: str) -> None:
        self._noted(f"    {step.title}: {outcome} ({duration(step.elapsed_s)})")


class LiveProgress(RunProgress):
    """Shows a bar for each running step, with activity and remaining time; finished steps stay as lines."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        self._console = safe_console(file=stream)
        self._bars: RichProgress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[share]:>4}", table_column=Column(min_width=4)),
            TimeElapsedColumn(table_column=Column(min_width=7)),
            TextColumn("[dim]{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True)),
            console=self._console,
            transient=True,
        )
        self._tasks: dict[int, TaskID] = {}

    @override
    def __enter__(self) -> Self:
        self._bars.start()
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _noted(self, text: str) -> None:
        from agent.core.layout import print_lines

        print_lines(self._console, text)

    def _started(self, step: StepProgress) -> None:
        from rich.markup import escape

        title = f"[bold]{self.position}[/] {escape(step.title)}"
        self._tasks[id(step)] = self._bars.add_task(title, total=None, share="", note="")
        self._changed(step)

    def _changed(self, step: StepProgress) -> None:
        from rich.markup import escape

        task = self._tasks.get(id(step))
        if task is None:
            return
        note = escape(step.message) + (f" · {rest}" if (rest := self.round or self.left(step)) else "")
        fraction = step.fraction
        self._bars.update(
            task,
            total=None if fraction is None else 1.0,
            completed=fraction or 0.0,
            share="" if fraction is None else f"{fraction:.0%}",
            note=note.removeprefix(" · "),
        )

    def _finished(self, step: StepProgress, outcome: str) -> None:
        self._bars.remove_task(self._tasks.pop(id(step)))
        self._noted(f"  {step.title}: {outcome} ({duration(step.elapsed_s)})")


def run_progress(stream: TextIO | None = None, *, quiet: bool = False, verbose: bool = False) -> RunProgress:
    """Return the display for a stream (default: standard error)."""
    stream = stream or sys.stderr
    if quiet:
        return RunProgress()
    progress = LiveProgress(stream) if stream.isatty() else PlainProgress(stream)
    progress.verbose = verbose
    return progress
