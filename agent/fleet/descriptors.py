"""File descriptors: each connected host needs some, and the usual limit of a process is 1,024."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OF_CONTROLLER = 64
"""Descriptors for streams, the journal, a bundle being sent, and libraries; quiet runs used 9."""

_OF_HOST = 3
"""Descriptors per host: the connection and the pipe that wakes its thread, as counted with paramiko."""


def make_room(hosts: int, tell: Callable[[str], None]) -> None:
    """Raise the soft limit of file descriptors to the hard one if a fleet needs more; report a shortage.

    Args:
        hosts: the number of hosts that are connected at the same time.
        tell: called with a message if the limit is too low for all hosts.
    """
    needed = _OF_CONTROLLER + _OF_HOST * hosts
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _suffices(soft, needed):
        return
    with suppress(OSError, ValueError):  # some systems allow less than the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if not _suffices(soft, needed):
        fit = max(1, (soft - _OF_CONTROLLER) // _OF_HOST)
        tell(
            f"this process may open {soft} files (ulimit -Hn): about {fit} hosts fit at the same time, "
            f"these {hosts} need {needed}; raise the limit or use --batch"
        )


def _suffices(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
