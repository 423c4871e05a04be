"""Code for a benchmark's own environment does not import the agent, which is not installed there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
OURS = {"actions", "agent", "dependencies", "gpu_configs", "parsers", "profiles"}
DEPENDENCIES = {"docker", "jinja2", "pydantic", "rich", "typer", "yaml"}
FOLDERS = sorted(path for top in OURS for path in (ROOT / top).rglob("in_environment"))
FILES = [file for folder in FOLDERS for file in sorted(folder.rglob("*.py"))]


def imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def test_there_is_such_code() -> None:
    owners = {folder.parent.relative_to(ROOT).as_posix() for folder in FOLDERS}
    assert {"actions/loadgen", "actions/llamacpp", "actions/locust", "actions/lm_eval"} <= owners


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_it_imports_nothing_of_the_agent(file: Path) -> None:
    assert not set(imported(file.read_text(encoding="utf-8"))) & (OURS | DEPENDENCIES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_relative_imports_stay_inside(file: Path) -> None:
    (folder,) = (folder for folder in FOLDERS if folder in file.parents)
    depth = len(file.relative_to(folder).parts) - 1
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.ImportFrom) or node.level <= depth


def test_an_import_of_the_agent_is_found() -> None:
    assert set(imported("import agent.core\nfrom yaml import load\nfrom .x import y")) == {"agent", "yaml"}
