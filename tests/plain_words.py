"""Checks the language of docstrings, comments, messages and pages: ``python -m tests.plain_words [FOLDER…]``.

Two rules: the docstring of a function begins with a verb in the imperative (a property's may be a noun
phrase). No text has one of the phrases that readers had to read twice.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
_NO_VERBS = frozenset(
    re.findall(
        r"\w+",
        """a about after all also an another any anything as at because before both by each
        eight every everything for from how if in its itself it nobody none nothing no of on one
        only other our same see several some somebody something that the their there these this
        those to two up values what when where whether which who whose why with without you""",
    )
)
_PHRASES = {
    r"\banew\b": "again, or new",
    r"\b(?:is|are|was|were|be|been|being) told\b": "is reported, or shown",
    r"\btold (?:as|of|apart|in|by)\b": "reported, distinguished, described",
    r"\btells? of\b": "describes",
    r"\bbut for\b": "except",
    r"\bas far as it (?:is|was)\b": "name the part that is meant",
    r"\b(?:it|that|which|host|run|file) has not\b(?! (?:yet )?(?:been|\w+ed|begun)\b)": "does not have",
    r"(?<!there )\b(?:is|are) no (?!longer\b|more\b|less\b|one\b|other\b|\w+er than\b)(?=\w)": "is not a …",
    r"\bwhere (?:there is|it has) (?:one|none|no)\b": "if",
    r"\bthere is (?:one|none) (?:here|there)\b": "name it",
}
"""Regular expressions, each with what to write instead."""

_FOUND = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in _PHRASES.items()}


def main(folders: list[str]) -> int:
    """Print what breaks a rule; return the exit code."""
    found = [
        line
        for path in _files(folders)
        for line in check(path.relative_to(ROOT).as_posix(), path.read_text())
    ]
    for line in found:
        print(line)  # noqa: T201 - a command of the terminal
    return int(bool(found))


def check(name: str, text: str) -> Iterator[str]:
    """Yield what breaks a rule in a file: ``NAME:LINE: …``.

    Args:
        name: the file's path; its suffix decides how it is read.
        text: its content.
    """
    if name.endswith(".py"):
        yield from (f"{name}:{line}: {what}" for line, what in _openings(ast.parse(text)))
        parts = _texts(text)
    else:
        parts = enumerate(text.splitlines(), 1)
    for line, part in parts:
        for pattern, instead in _FOUND.items():
            if match := pattern.search(part):
                at = line + part.count("\n", 0, match.start())
                yield f"{name}:{at}: {match[0]!r}: write {instead}"


def _openings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_property(node):
            continue
        words = (ast.get_docstring(node) or "").split()
        if words and words[0].strip("`*,:").lower() in _NO_VERBS:
            yield node.body[0].lineno, f"{' '.join(words[:4])!r} does not begin with a verb"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(decorator).partition("(")[0].rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "fixture"})


def _texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each string and comment with the number of its first line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield token.start[0], token.string


def _files(folders: list[str]) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yaml"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    return [
        ROOT / name
        for name in names.splitlines()
        if (not folders or name.startswith(tuple(folders))) and not name.endswith("plain_words.py")
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
