"""What the programs beside the harness share: a JSON file in, progress lines, and a result out.

The other side of it is the agent's ``agent/component/environment_script.py``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["needed", "run", "tell"]


def tell(message: str, done: float | None = None, total: float | None = None) -> None:
    """Write a line of progress."""
    line = {"event": "progress", "message": message, "done": done, "total": total}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def needed(module: str, distribution: str, what_for: str) -> HarnessError:
    """The error of a module that this environment lacks."""
    return HarnessError(
        "dependency",
        f"this environment lacks {module}, which {what_for}",
        f"add {distribution} to the environment's requirements",
    )


def run(program: Callable[[Mapping[str, Any]], Mapping[str, Any]], arguments: list[str]) -> int:
    """Run a program on the configuration that the only argument names; return the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m harness.PROGRAM config.json\n")
        return 2
    config = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    try:
        result: dict[str, Any] = {"status": "completed", **program(config)}
    except HarnessError as error:
        sys.stderr.write(f"{error.kind}: {error.message} → {error.remedy}\n")
        result = {"status": "failed", "error": error.as_json()}
    Path(config["result"]).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if result["status"] == "completed" else 1
