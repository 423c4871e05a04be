"""The pages are right: commands are parsed, profiles are checked, messages exist, JSON fits its schema."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main
import yaml

from actions.submission.commands import app as submission
from agent.cli.main import _OWN_OPTIONS, _arguments, app
from agent.cli.options import pairs
from agent.component.registry import component_class
from agent.core.names import canonical
from agent.planning.groups import GroupParameters
from agent.profile import GROUPS, load
from agent.profile.finding import Source
from agent.profile.structure import read_profile
from agent.store.command_documents import ErrorDocument

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agent.profile import Element

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:sudo )?vcagent [^`]+)`")
_PLACEHOLDER = re.compile(r"^[A-Z]+(?:\.\.\.|…)?$|…")
"""A word that the reader replaces: P, RUN, FILE, results/…"""

NEEDS_GPU = {
    "SETUP-GPU-NVIDIA",
    "SETUP-GPU-AMD",
    "PERF-GPU-MLPERF",
    "PERF-GPU-MLPERF-LLAMA3",
    "PERF-GPU-MLPERF-LLAMA2-70B",
}
"""Profiles that need a GPU, or a form of which does: their pages say so."""


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The place of the block."""
        return f"{self.page.name}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _FENCE.finditer(text):
            body = re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
            yield Block(page, text[: found.start()].count("\n") + 1, found[2], body)


def commands() -> Iterator[tuple[str, str]]:
    """Yield each line of the pages that calls vcagent, with its place."""
    for block in blocks():
        if block.language not in ("", "sh", "bash", "console"):
            continue
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            command = re.sub(r"\s+#.*", "", line).removeprefix("$ ")
            if re.match(r"(sudo )?(\.venv/bin/)?vcagent( |$)", command):
                yield block.name, command
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for found in _INLINE.finditer(text):
            yield page.name, " ".join(found[1].split())


COMMANDS = sorted(set(commands()))
FILES = {
    name: block.text
    for block in blocks()
    if block.language == "yaml" and block.page.name != "extending.md"
    for name in re.findall(r"\A# (\S+\.yaml)\n", block.text)
}
"""Profiles that a page has the reader write, by their names."""


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def _scenario(element: Element) -> str:
    return str(next((value for key, value in element.parameters.items() if canonical(key) == "scenario"), ""))


def parsed(command: str) -> Mapping[str, Any]:
    """Return the values of the options of the command that a line calls; none for an option such as -h.

    Raises:
        Exception: click's, if an option or a command does not exist.
    """
    words = shlex.split(command)
    words = _arguments(
        [
            word
            for word in words[[word.rpartition("/")[2] for word in words].index("vcagent") + 1 :]
            if word[:1] != "@"
        ]
    )
    at: Any = _program()
    while hasattr(at, "commands"):
        if not words or words[0] in _OWN_OPTIONS or _PLACEHOLDER.search(words[0]):
            return {}
        name, *words = words
        assert name in at.commands or name == "submission", f"{command}: there is no command {name}"
        at = typer.main.get_command(submission) if name == "submission" else at.commands[name]
        if "-h" in words:
            return {}
    try:
        return dict(at.make_context(at.name, words).params)
    except Exception as error:
        if type(error).__name__ == "MissingParameter":  # the page only mentions the command
            return {}
        raise


@pytest.mark.parametrize(("place", "command"), COMMANDS, ids=[f"{p} {c}"[:70] for p, c in COMMANDS])
def test_a_command_of_a_page_has_options_and_parameters_that_exist(
    place: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCAGENT_PACKAGE_DIR", str(tmp_path))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    values = parsed(command)
    names = [*(values.get("profiles") or ()), *(values.get("profile") or ())]
    if not names or any(_PLACEHOLDER.search(name) or "/" in name for name in names):
        return
    settings = [text.partition("=")[0].rpartition(".") for text in values.get("settings") or ()]
    sample_count = values.get("samples")
    profile = load(
        names,
        overrides=pairs(
            [*(values.get("parameters") or ()), *([f"Samples={sample_count}"] if sample_count else ())]
        ),
    )
    scenarios = {text for element in profile.elements() for text in (element.type, _scenario(element))}
    asked = [name.strip().removeprefix("-") for name in (values.get("scenarios") or "").split(",") if name]
    assert {*asked, *(scenario for scenario, _, _ in settings)} <= scenarios


def test_a_page_says_that_its_profile_needs_a_gpu() -> None:
    """Commands of such profiles are parsed here and are not run."""
    for block in blocks():
        if any(re.search(rf"{name}(?![\w-])", block.text) for name in NEEDS_GPU) and "vcagent" in block.text:
            assert "GPU" in block.page.read_text(encoding="utf-8"), block.name


def elements_of(value: Any) -> list[dict[str, Any]]:
    """Return the elements of a profile or a part of one; none for other YAML."""
    if isinstance(value, dict):
        lowered = {str(key).lower(): inner for key, inner in value.items()}
        kinds = (lowered.get(kind) or [] for kind in ("dependencies", "actions", "monitors", "components"))
        found = [element for kind in kinds for element in kind]
    else:
        found = value if isinstance(value, list) else []
    found = [element for element in found if isinstance(element, dict) and {"type", "Type"} & set(element)]
    return [*found, *(inner for element in found for inner in elements_of(element))]


YAML = [block for block in blocks() if block.language == "yaml" and block.page.name != "extending.md"]


@pytest.mark.parametrize("block", YAML, ids=[block.name for block in YAML])
def test_types_and_parameters_of_an_example_exist(block: Block) -> None:
    """Check all pages but extending.md, whose examples test_extending.py builds, installs and runs."""
    value = yaml.safe_load(block.text.replace("…", "more: true"))
    for element in elements_of(value):
        kind = element.get("type") or element["Type"]
        parameters = element.get("parameters") or element.get("Parameters") or {}
        model = GroupParameters if kind in GROUPS else component_class(kind).Parameters
        known = {canonical(name) for name in model.model_fields} | {"foreach"}
        assert {canonical(str(name)) for name in parameters if name != "more"} <= known, kind
    if (
        isinstance(value, dict)
        and {"Actions", "actions"} & set(value)
        and {"Description", "description"} & set(value)
    ):
        read_profile(Source("EXAMPLE", block.name, block.text, "yaml"))


def test_an_error_document_of_a_page_fits_its_model() -> None:
    samples = [json.loads(block.text) for block in blocks() if block.language == "json"]
    errors = [sample for sample in samples if "exit_code" in sample]
    assert errors
    for sample in errors:
        assert ErrorDocument.model_validate(sample).to_json() == sample


@cache
def _texts() -> str:
    """Return every text of the code, one a line; … stands for values in it."""
    texts = []
    for folder in ("agent", "actions", "dependencies", "parsers"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                    texts.append("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return "\n".join(texts)


MESSAGES = re.findall(
    r"^### `(.+)`$", (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_quoted_error_is_still_in_the_code(message: str) -> None:
    is_there = message in _texts()
    assert is_there, f"{message}: correct the page, or take it out"


def test_the_tutorial_profile_gives_its_results(tmp_path: Path) -> None:
    (tmp_path / "timeit.yaml").write_text(FILES["timeit.yaml"], encoding="utf-8")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, "-m", "agent", "--profile", "timeit.yaml", "--parameters", "Repeats=1"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "VCAGENT_PACKAGE_DIR": str(tmp_path / "packages"),
        }
        return subprocess.run(
            [*program, *options], check=False, capture_output=True, text=True, cwd=tmp_path, env=environment
        )

    valid = run()
    assert valid.returncode == 0, valid.stderr
    assert "✓ VALID" in valid.stdout
    assert "Time per loop" in valid.stdout
    invalid = run("--set", "timeit.expect=time_per_loop < 1e-9")
    assert invalid.returncode == 7
    assert "is expected, missed by" in invalid.stdout
