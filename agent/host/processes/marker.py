"""A record of a command's end, written by its own shell, in case the agent is killed meanwhile."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.safe_files import make_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# A record is written unless the agent died first and the command then failed: a closed pipe can make a
# command fail, so such a command must run again.
_WRAPPER = """\
"$@"
code=$?
if [ "$code" -eq 0 ] || kill -0 "$PPID" 2>/dev/null; then
  rm -f "$0.part"
  set -C # never through a link that somebody put there
  printf '%s %s\\n' "$code" "$VCAGENT_MARK" > "$0.part" && mv -f "$0.part" "$0"
fi
exit "$code"
"""


@dataclass(frozen=True)
class Ended:
    """Result of a command.

    Args:
        exit_code: its exit code; 128 plus the number for a signal, as in shells.
        duration_s: wall-clock seconds.
    """

    exit_code: int
    duration_s: float


def fingerprint(argv: Sequence[str], cwd: Path | None) -> str:
    """Return the identity of a command; a marker counts only for exactly the same command.

    The environment does not count: a resume, such as the one after a reboot, has another PATH.
    """
    return hashlib.sha256("\0".join((*argv, str(cwd or ""))).encode()).hexdigest()[:32]


def wrapped(argv: Sequence[str], marker: Path, mark: str) -> tuple[list[str], dict[str, str]]:
    """Return the command in a shell that writes the marker, and the variables for this shell."""
    make_folder(marker.parent)
    return (
        ["/bin/sh", "-c", _WRAPPER, str(marker.resolve()), *argv],
        {"VCAGENT_MARK": f"{mark} {time.time():.3f}"},
    )


def read_marker(marker: Path, mark: str) -> Ended | None:
    """Return the marker's content, or None if it is missing, incomplete or from another command."""
    try:
        code, found, started = marker.read_text(encoding="ascii").split()
        ended = marker.stat().st_mtime
        return Ended(int(code), max(0.0, ended - float(started))) if found == mark else None
    except (OSError, ValueError):
        return None
