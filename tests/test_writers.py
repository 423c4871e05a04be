"""Every file that vcagent writes is opened in a way that does not follow planted links.

The agent's code writes through ``agent.core.safe_files``. Exceptions are listed here, each with its reason.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path
    for top in ("agent", "actions", "dependencies", "parsers", "gpu_configs")
    for path in (ROOT / top).rglob("*.py")
)
COPIES = {"copyfile", "copy", "copy2", "copytree", "move"}

ALLOWED = {
    "agent/core/safe_files.py": "this is the door",
    "agent/fleet/bundle.py": "in a TemporaryDirectory, which is private to its owner",
    "agent/sinks/remote_files.py": "an object store, opened by fsspec; local files are written by safe_files",
    "actions/submission/building.py": "in a folder of mkdtemp, which is private to its owner",
    "dependencies/python/environment_image/building.py": "in a TemporaryDirectory, private to its owner",
    "dependencies/llamacpp/image.py": "in a TemporaryDirectory, which is private to its owner",
    "dependencies/llamacpp/installation.py": "in a folder that was just made below the package folder, "
    "which root uses only if nobody else may write to it",
    "dependencies/packages/system_file.py": "the copy of a system's file, beside it, under a new name",
    "actions/commands/outputs.py": "copytree makes its target, and refuses one that is there",
    "actions/nvidia_harness/scratch.py": "renames within the harness's own scratch space",
}


def unsafe(text: str) -> Iterator[tuple[int, str]]:  # noqa: C901 - there are as many ways to write
    """Yield the calls in a module that may write through a link: their lines and functions."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if name in {"write_text", "write_bytes"}:
            yield node.lineno, name
        elif owner == "shutil" and name in COPIES:
            yield node.lineno, f"shutil.{name}"
        elif owner == "os" and name == "open":
            flags = ast.unparse(node.args[1])
            if "O_CREAT" in flags and not {"os.O_NOFOLLOW", "os.O_EXCL"} & set(flags.split(" | ")):
                yield node.lineno, "os.open without O_NOFOLLOW"
        elif name == "open":
            modes = [
                *node.args[0 if owner else 1 : 2],
                *(word.value for word in node.keywords if word.arg == "mode"),
            ]
            constants = [one.value for one in modes if isinstance(one, ast.Constant)]
            # A new file ("x") never replaces a link's target; a descriptor was opened elsewhere.
            if owner in {"", "io"} and isinstance(node.args[0], ast.Call):
                continue
            if any(word.arg == "fileobj" for word in node.keywords):  # tarfile and gzip write into it
                continue
            for mode in constants:
                if isinstance(mode, str) and set(mode) & set("wa+") and set(mode) <= set("wart+b"):
                    yield node.lineno, f"open with {mode!r}"


def test_no_module_writes_through_a_link() -> None:
    found = [
        f"{name}:{line}: {what}"
        for name, text in ((file.relative_to(ROOT).as_posix(), file.read_text("utf-8")) for file in FILES)
        if name not in ALLOWED
        for line, what in unsafe(text)
    ]
    assert found == []


def test_the_exceptions_are_needed() -> None:
    idle = [name for name in ALLOWED if not list(unsafe((ROOT / name).read_text(encoding="utf-8")))]
    assert idle == []


@pytest.mark.parametrize(
    "line",
    [
        "path.write_text('x')", "path.write_bytes(b'x')", "path.open('w')", "path.open(mode='ab')",
        "open(path, 'w')", "open(path, mode='a')", "path.open('r+')", "shutil.copyfile(a, b)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)", "with gzip.open(path, 'wb') as file: pass",
    ],
)  # fmt: skip
def test_a_writer_is_found(line: str) -> None:
    assert list(unsafe(line))


@pytest.mark.parametrize(
    "line",
    [
        "path.open()", "path.open('rb')", "open(path)", "path.open('x')", "open(os.open(path, flags), 'w')",
        "os.open(path, os.O_RDONLY)", "os.open(path, os.O_CREAT | os.O_NOFOLLOW)", "text.replace('w', 'a')",
    ],
)  # fmt: skip
def test_a_reader_is_none(line: str) -> None:
    assert not list(unsafe(line))
