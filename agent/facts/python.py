"""Python interpreters and whether they can make virtual environments."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from agent.facts.base import Fact, Host

_TIMEOUT_S = 60
_QUESTION = """\
import importlib.util as u, json, os, platform, shutil, sys, sysconfig
print(json.dumps({
    "path": sys.executable,
    "version": platform.python_version(),
    "platform": sysconfig.get_platform(),
    "venv": u.find_spec("venv") is not None,
    "ensurepip": u.find_spec("ensurepip") is not None,
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "compiler": shutil.which("g++") is not None or shutil.which("c++") is not None,
}))
"""


@dataclass(frozen=True)
class PythonInterpreter:
    """A Python interpreter.

    Args:
        path: its program.
        version: such as ``3.11.2``.
        platform: such as ``linux-x86_64`` (sysconfig.get_platform).
        venv: whether it has the module venv.
        ensurepip: whether it has pip to put into an environment; Debian and Ubuntu keep it in a
            package of its own, ``python3-venv``.
        headers: whether its C headers are there, which distributions keep in a package of their own.
        compiler: whether a C++ compiler is on PATH.
    """

    path: str
    version: str
    platform: str
    venv: bool = True
    ensurepip: bool = True
    headers: bool = True
    compiler: bool = True


def interpreter_answer(text: str | None) -> PythonInterpreter | None:
    """Read an interpreter's answer to the question what it is; None where it gave none."""
    try:
        return PythonInterpreter(**json.loads(text or ""))
    except (ValueError, TypeError):
        return None


def interpreter(path: str) -> Fact[PythonInterpreter | None]:
    """The fact about one interpreter: a path, or a name that PATH finds."""

    def read(host: Host) -> PythonInterpreter | None:
        command = [path, "-I", "-c", _QUESTION]
        return interpreter_answer(host.output(command, timeout_s=_TIMEOUT_S, hang_is_error=True))

    return Fact(f"python[{path}]", f"{path} -c …", read)


# In a virtual environment the interpreter that it was made from; an environment made from an
# environment would vanish with it.
_BASE: str = getattr(sys, "_base_executable", sys.executable)

PYTHON: Fact[PythonInterpreter | None] = Fact("python", f"{_BASE} -c …", interpreter(_BASE).read)
