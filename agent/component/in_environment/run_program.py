"""Run a program with the Python of a benchmark's environment: JSON in, progress lines and a result out.

``python run_program.py MODULE CONFIG`` imports a module from PYTHONPATH and calls its function
``program(config, tell)``, which returns the result as a mapping. An exception with ``kind``, ``message`` and
``remedy`` becomes the result's error, and so does a missing module. The agent's side is
``agent/component/environment_script.py``.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def _tell(message: str, done: float | None = None, total: float | None = None) -> None:
    """Write a line of progress."""
    line = {"event": "progress", "message": message, "done": done, "total": total}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _error(error: Exception) -> dict[str, str] | None:
    """Return the error as the result holds it, or None for a defect of the program."""
    if isinstance(error, ModuleNotFoundError):
        return {
            "kind": "dependency",
            "message": f"this environment lacks {error.name}",
            "remedy": f"add {error.name} to the environment's requirements",
        }
    names = ("kind", "message", "remedy")
    return {name: str(getattr(error, name)) for name in names} if hasattr(error, "kind") else None


def main(arguments: list[str]) -> int:
    """Run the program; return the exit code."""
    if len(arguments) != 2:  # noqa: PLR2004 - as the usage says
        sys.stderr.write("usage: python run_program.py MODULE CONFIG\n")
        return 2
    config: dict[str, Any] = json.loads(Path(arguments[1]).read_text(encoding="utf-8"))
    try:
        result = {"status": "completed", **import_module(arguments[0]).program(config, _tell)}
    except Exception as failure:
        error = _error(failure)
        if error is None:
            raise
        sys.stderr.write("{kind}: {message} → {remedy}\n".format_map(error))
        result = {"status": "failed", "error": error}
    # The agent removed an older result: what stands in its place now, such as a link, is not written through.
    with open(config["result"], "x", encoding="utf-8") as file:  # noqa: PTH123
        file.write(json.dumps(result, indent=2) + "\n")
    return 0 if result["status"] == "completed" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
