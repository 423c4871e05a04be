"""Signals that ask a run to end, as an event that steps and processes check."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interruption:
    """State of a run's request to end, and its cause.

    Attributes:
        stop: set when the run is to end.
        by: the signal's name; empty if it was no signal.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.by = ""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle SIGINT, SIGTERM and SIGHUP while the context is open; repeated signals have no effect.

        A signal that was ignored when the agent started, as with ``nohup``, stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, _frame: object) -> None:
            self.by = signal.Signals(number).name
            self.stop.set()

        before = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
