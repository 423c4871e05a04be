"""A note by the command's own shell of how it ended, for an agent that was killed meanwhile."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.safe_files import make_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# A note is made unless the agent died first and the command then failed: writing to a pipe that nobody
# reads any more is reason enough to fail, so that such a command has to be run again.
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
    """How a command ended.

    Args:
        exit_code: its exit code; 128 and the number for a signal, as shells tell it.
        duration_s: wall-clock seconds.
    """

    exit_code: int
    duration_s: float


def fingerprint(argv: Sequence[str], cwd: Path | None) -> str:
    """What tells one command from another; a marker counts for the very same command alone.

    The environment does not count: a resume, such as the one after a reboot, has another PATH.
    """
    return hashlib.sha256("\0".join((*argv, str(cwd or ""))).encode()).hexdigest()[:32]


def wrapped(argv: Sequence[str], marker: Path, mark: str) -> tuple[list[str], dict[str, str]]:
    """The command in a shell that writes the marker, and the variables that this shell needs."""
    make_folder(marker.parent)
    return (
        ["/bin/sh", "-c", _WRAPPER, str(marker.resolve()), *argv],
        {"VCAGENT_MARK": f"{mark} {time.time():.3f}"},
    )


def read_marker(marker: Path, mark: str) -> Ended | None:
    """What the marker says, or None where there is none, or it is torn or of another command."""
    try:
        code, found, started = marker.read_text(encoding="ascii").split()
        ended = marker.stat().st_mtime
        return Ended(int(code), max(0.0, ended - float(started))) if found == mark else None
    except (OSError, ValueError):
        return None
