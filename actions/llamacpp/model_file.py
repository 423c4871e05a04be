"""Where a GGUF model is: a file, or inside a Python package of the benchmark environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from agent.host.processes import ProcessRunner

PACKAGE_PREFIX = "package:"
_MAGIC = b"GGUF"

# The package is found, not imported: a package that only carries a model may ask for modules nobody needs.
_FIND = """\
import importlib.util, pathlib, sys
found = importlib.util.find_spec(sys.argv[1])
for folder in (found.submodule_search_locations or []) if found else []:
    for path in sorted(pathlib.Path(folder).rglob("*.gguf")):
        print("gguf:" + str(path))
sys.exit(0 if found else 3)
"""
_NO_SUCH_PACKAGE = 3


def locate_model(spec: str, *, python: Path, processes: ProcessRunner, log: Path) -> Path:
    """The GGUF file that a profile's ``model`` means.

    Args:
        spec: a path, or ``package:<module>``, a Python package that carries exactly one ``.gguf`` file.
        python: the interpreter of the environment that has the package.
        processes: runs the interpreter.
        log: gets its output.

    Raises:
        ActionFailedError: if there is no such package or file, or it is no GGUF file.
    """
    path = (
        _in_package(spec[len(PACKAGE_PREFIX) :], python, processes, log)
        if spec.startswith(PACKAGE_PREFIX)
        else Path(spec)
    )
    require_gguf(path)
    return path


def require_gguf(path: Path) -> None:
    """Make sure that a file is a GGUF model.

    Raises:
        ActionFailedError: if it is not.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ActionFailedError(
            f"the model {path} cannot be read: {error.strerror}",
            remedy="name a GGUF file, or package:<module>",
        ) from error
    if magic != _MAGIC:
        raise ActionFailedError(
            f"the model {path} is no GGUF file",
            remedy="llama.cpp reads GGUF; a Git LFS pointer is a file that was never downloaded",
        )


def _in_package(module: str, python: Path, processes: ProcessRunner, log: Path) -> Path:
    result = processes.run([str(python), "-c", _FIND, module], log=log, timeout_s=60, check=False)
    if result.exit_code == _NO_SUCH_PACKAGE:
        raise ActionFailedError(
            f"the environment of {python} has no package {module}, which should carry the model",
            remedy="add its distribution to the environment's requirements",
        )
    lines = result.stdout.splitlines()
    files = [line.removeprefix("gguf:") for line in lines if line.startswith("gguf:")]
    if result.exit_code != 0 or len(files) != 1:
        raise ActionFailedError(
            f"the package {module} carries {len(files)} GGUF files; it should carry one",
            remedy="name the file itself" if files else "name another package or a file",
            details=tuple(files) or tuple(result.stderr.splitlines()[-5:]),
        )
    return Path(files[0])
