"""Locate a GGUF model: a file, or a file inside a Python package of the benchmark environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from agent.core.file_hash import sha256_of

if TYPE_CHECKING:
    from agent.host.processes import ProcessRunner

PACKAGE_PREFIX = "package:"
_MAGIC = b"GGUF"
_LONGEST_READ_S = 600.0

# Find the package without importing it: a package that only carries a model may import missing modules.
_FIND = """\
import importlib.util, pathlib, sys
found = importlib.util.find_spec(sys.argv[1])
for folder in (found.submodule_search_locations or []) if found else []:
    for path in sorted(pathlib.Path(folder).rglob("*.gguf")):
        print("gguf:" + str(path))
sys.exit(0 if found else 3)
"""
_NO_SUCH_PACKAGE = 3


def locate_model(
    spec: str, *, python: Path, processes: ProcessRunner, log: Path, contained: bool = False
) -> Path:
    """Return the GGUF file that a profile's ``model`` selects.

    Args:
        spec: a path, or ``package:<module>``, a Python package that contains exactly one ``.gguf`` file.
        python: the interpreter of the environment that has the package.
        processes: runs the interpreter.
        log: gets its output.
        contained: True if ``processes`` run in a container, whose image may have the file.

    Raises:
        ActionFailedError: if the package or file does not exist, or is not a GGUF file.
    """
    path = (
        _in_package(spec[len(PACKAGE_PREFIX) :], python, processes, log)
        if spec.startswith(PACKAGE_PREFIX)
        else Path(spec)
    )
    if contained and not path.exists():
        magic = _told(["head", "-c", str(len(_MAGIC)), str(path)], processes, log).encode()
        _require_magic(magic[: len(_MAGIC)], path)  # the runner adds a line end to output that has none
    else:
        require_gguf(path)
    return path


def require_gguf(path: Path) -> None:
    """Check that a file is a GGUF model.

    Raises:
        ActionFailedError: if the file is not a GGUF model.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ActionFailedError(
            f"the model {path} cannot be read: {error.strerror}",
            remedy="give a GGUF file, or package:<module>",
        ) from error
    _require_magic(magic, path)


def _require_magic(magic: bytes, path: Path) -> None:
    if magic != _MAGIC:
        raise ActionFailedError(
            f"the model {path} is not a GGUF file",
            remedy="llama.cpp reads GGUF; a Git LFS pointer is a file that was never downloaded",
        )


def model_sha256(path: Path, *, processes: ProcessRunner, log: Path, contained: bool = False) -> str:
    """Return the SHA-256 of a model's file, which may be in a container's image."""
    if contained and not path.exists():
        return _told(["sha256sum", str(path)], processes, log).partition(" ")[0]
    return sha256_of(path)


def _told(command: list[str], processes: ProcessRunner, log: Path) -> str:
    return processes.run(command, log=log, timeout_s=_LONGEST_READ_S).stdout


def _in_package(module: str, python: Path, processes: ProcessRunner, log: Path) -> Path:
    result = processes.run([str(python), "-c", _FIND, module], log=log, timeout_s=60, check=False)
    if result.exit_code == _NO_SUCH_PACKAGE:
        raise ActionFailedError(
            f"the environment of {python} does not have the package {module}, which should contain the model",
            remedy="add its distribution to the environment's requirements",
        )
    lines = result.stdout.splitlines()
    files = [line.removeprefix("gguf:") for line in lines if line.startswith("gguf:")]
    if result.exit_code != 0 or len(files) != 1:
        raise ActionFailedError(
            f"the package {module} contains {len(files)} GGUF files; it should contain one",
            remedy="name the file itself" if files else "name another package or a file",
            details=tuple(files) or tuple(result.stderr.splitlines()[-5:]),
        )
    return Path(files[0])
