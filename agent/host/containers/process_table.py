"""Finds the processes of a command in a container, from the host or from inside."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.host.processes.tree import PROCESS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

LISTING = f"""\
for folder in /proc/[0-9]*; do
  stat=$(cat "$folder/stat" 2>/dev/null) || continue
  case $(cat "$folder/environ" 2>/dev/null) in
    *{PROCESS_VARIABLE}=$1*) echo "+ $stat";;
    *{PROCESS_VARIABLE}=*) echo "? $stat";;
    *) echo "- $stat";;
  esac
done 2>/dev/null"""
"""Lists a container's processes from inside. Its first argument is the mark, or the beginning of marks. It
needs a shell and ``cat``. Each line begins with ``+`` for a process with that mark, ``?`` for one with
another, ``-`` for one without any (or one that may not be read)."""


@dataclass(frozen=True)
class Entry:
    """A process.

    Args:
        pid: its number.
        parent: its parent's number.
        session: its session's number.
        mark: ``+``, ``?`` or ``-``: see ``LISTING``.
        zombie: True if it has ended but its parent has not noticed.
    """

    pid: int
    parent: int
    session: int
    mark: str
    zombie: bool


def _entry(mark: str, stat: str) -> Entry | None:
    """Read ``/proc/<pid>/stat`` (proc(5)); a program's name may contain anything, even parentheses."""
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    try:
        pid, state, parent, session = int(head.split(" ", 1)[0]), fields[0], int(fields[1]), int(fields[3])
    except (ValueError, IndexError):
        return None
    return Entry(pid, parent, session, mark, state in "ZXx")


def read_listing(text: str) -> list[Entry]:
    """Read the output of ``LISTING``."""
    entries = (_entry(line[:1], line[2:]) for line in text.splitlines())
    return [entry for entry in entries if entry]


def host_entries(mark: str) -> list[Entry]:
    """Return the processes of this host, in the form of ``LISTING``."""
    entries = []
    wanted, other = f"{PROCESS_VARIABLE}={mark}".encode(), f"{PROCESS_VARIABLE}=".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text(errors="replace")
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it ended meanwhile, or is not readable for us
        sign = "+" if wanted in environment else "?" if other in environment else "-"
        if entry := _entry(sign, stat):
            entries.append(entry)
    return entries


def members(entries: Iterable[Entry], leaders: Iterable[int] = (), mark: str = "+") -> set[int]:
    """Return the living processes with the mark, their descendants, and all members of their sessions.

    Args:
        entries: all processes.
        leaders: processes that belong to it regardless of their mark.
        mark: the sign that counts.
    """
    entries = [entry for entry in entries if entry.pid not in (1, os.getpid())]
    found = {entry.pid for entry in entries if entry.mark == mark} | set(leaders)
    while more := {
        entry.pid
        for entry in entries
        if entry.pid not in found and (entry.parent in found or entry.session in found)
    }:
        found |= more
    return found & {entry.pid for entry in entries if not entry.zombie}
