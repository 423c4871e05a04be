"""Run the official submission checker of mlcommons/inference from a checkout, and parse its output."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CHECKOUT_VARIABLE = "MLPERF_INFERENCE_REPO"
PACKAGE = "mlperf-inference"
"""Folder of the checkout in the package folder, as SUBMISSION-CHECKER.yaml sets it."""
PROFILE = "SUBMISSION-CHECKER.yaml"
_TOOLS = Path("tools/submission")
_PACKAGE_FORM = _TOOLS / "submission_checker" / "main.py"
_SCRIPT_FORM = _TOOLS / "submission_checker.py"
_TIMEOUT_S = 1800.0
_LEVEL = r"(?:{0}:main:|\[[^\]]* {0}\] )"
"""Start of a line: ``ERROR:main:``, or ``[2026-01-01 12:00:00,000 submission_checker.py:1983 ERROR] ``."""
_SAID = re.compile(
    _LEVEL.format("(?:INFO|ERROR)") + r"(?P<what>Results|NoResults) (?P<place>\S+)(?: (?P<value>\S+))?"
)
_ERROR = re.compile(_LEVEL.format("(?:ERROR|WARNING)") + r"(?P<text>.*)")
_SUMMARY = re.compile(r"SUMMARY: (?P<text>.*)")
_SHOWN = 5
_MOST_COLUMNS = 300


@dataclass(frozen=True)
class OfficialVerdict:
    """Verdict of the official checker on a tree.

    Args:
        checkout: the checkout from which it was run.
        has_passed: True if its exit code was 0.
        summary: its last line.
        results: its figure for each result that it passed, None for each that it did not; by folder, such as
            ``closed/ORG/results/SYSTEM/bert-99/Offline``.
        errors: its error messages, in order.
        has_crashed: True if it ended without a summary.
    """

    checkout: Path
    has_passed: bool
    summary: str
    results: Mapping[str, float | None] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    has_crashed: bool = False

    def of(self, folder: str) -> float | bool | None:
        """Return its figure for a result; None if it rejected the result, False if it does not mention it."""
        found = [
            value
            for place, value in self.results.items()
            if f"{place}/".replace("/measurements/", "/results/", 1).startswith(f"{folder}/")
        ]
        if not found:
            return False
        return None if None in found else found[0]

    def errors_of(self, parts: Iterable[str]) -> tuple[str, ...]:
        """Return its error messages that contain all of these folder names."""
        wanted = list(parts)
        named = [text for text in self.errors if all(part in text for part in wanted)]
        return tuple(dict.fromkeys(named))[:_SHOWN]


def find_checkout(package_dir: Path) -> Path | None:
    """Return the checkout of mlcommons/inference: the variable's, or the fetched one; None if neither exists.

    Args:
        package_dir: the package folder.

    Raises:
        UsageError: if the variable is set to a folder without a checker.
    """
    chosen = os.environ.get(CHECKOUT_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser()
        if not _has_checker(path):
            raise UsageError(
                f"{CHECKOUT_VARIABLE} is {path}, which has no submission checker",
                remedy="set it to a checkout of https://github.com/mlcommons/inference",
            )
        return path
    path = package_dir / PACKAGE
    return path if _has_checker(path) else None


def _has_checker(path: Path) -> bool:
    return (path / _PACKAGE_FORM).is_file() or (path / _SCRIPT_FORM).is_file()


def run_checker(
    checkout: Path, root: Path, round_name: str, *, submitters: Sequence[str] = ()
) -> OfficialVerdict:
    """Run the official checker on a tree; the tree is not changed.

    A single file that it cannot read ends it. In this case it runs again for each submitter, so that the
    others get their verdict.

    Args:
        checkout: a checkout of mlcommons/inference; of the round's tag for rounds before v5.0.
        root: the tree.
        round_name: such as ``v6.1``.
        submitters: the tree's submitters; a single one is checked on its own.
    """
    whole = _run(checkout, root, round_name, submitters[0] if len(submitters) == 1 else "")
    if not whole.has_crashed or len(submitters) < 2:  # noqa: PLR2004
        return whole
    each = [_run(checkout, root, round_name, name) for name in submitters]
    results = {place: value for verdict in each for place, value in verdict.results.items()}
    errors = tuple(text for verdict in each for text in verdict.errors)
    return replace(whole, results=results, errors=errors)


def _run(checkout: Path, root: Path, round_name: str, submitter: str) -> OfficialVerdict:
    tools = (checkout / _TOOLS).resolve()
    is_package = (checkout / _PACKAGE_FORM).is_file()
    program = ["-m", "submission_checker.main"] if is_package else [str(tools / _SCRIPT_FORM.name)]
    with TemporaryDirectory(prefix="vcagent-submission-") as scratch:
        folder = Path(scratch)
        command = [sys.executable, *program, "--input", str(root.resolve()), "--version", round_name]
        command += ["--csv", str(folder / "summary.csv"), *(("--submitter", submitter) if submitter else ())]
        streams = {"stderr": folder / "said.txt"}
        ended = LocalProcesses("submission-check").run(
            command,
            log=folder / "checker.log",
            timeout_s=_TIMEOUT_S,
            env={"PYTHONPATH": str(tools), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=folder if is_package else root,
            check=False,
            copies=streams,
        )
        said = streams["stderr"].read_text(encoding="utf-8", errors="replace")
    return read_words(said, checkout=checkout, root=root, has_passed=ended.exit_code == 0)


def read_words(said: str, *, checkout: Path, root: Path, has_passed: bool) -> OfficialVerdict:
    """Parse the checker's output.

    Args:
        said: the checker's standard error.
        checkout: the checkout from which it was run.
        root: the tree; paths in the output begin with it.
        has_passed: True if its exit code was 0.
    """
    beginning = f"{root.resolve()}/"
    text = said.replace(beginning, "")
    results: dict[str, float | None] = {}
    for match in _SAID.finditer(text):
        try:
            value = float(match["value"]) if match["what"] == "Results" and match["value"] else None
        except ValueError:
            value = None
        results[match["place"]] = value
    errors = tuple(
        match["text"][:_MOST_COLUMNS]
        for match in _ERROR.finditer(text)
        if not match["text"].startswith(("NoResults", "SUMMARY", "Execution of check"))
    )
    summaries = _SUMMARY.findall(text)
    last = text.strip().splitlines()[-1:] or ["it printed nothing"]
    summary = summaries[-1] if summaries else last[0][:_MOST_COLUMNS]
    return OfficialVerdict(checkout, has_passed, summary, results, errors, has_crashed=not summaries)
