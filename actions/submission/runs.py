"""Find the tests of runs from which a submission can be built: cases of LoadGen with verdicts and logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import UsageError
from agent.core.mlperf import TESTS_RUN
from agent.store.documents import CasePart, RunDocument
from parsers.loadgen import DETAIL_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")
MODES = ("performance", "accuracy", *TESTS_RUN)


@dataclass(frozen=True)
class Case:
    """One test of a run.

    Args:
        run_dir: the run's folder.
        run: the run.
        part: the run's document of the test.
        logs: the folder with LoadGen's logs.
        model: the model's name in the run.
        scenario: the scenario's name, Interactive included.
        mode: performance, accuracy, or the name of a compliance test.
    """

    run_dir: Path
    run: RunDocument
    part: CasePart
    logs: Path
    model: str
    scenario: str
    mode: str

    @property
    def name(self) -> str:
        """Return a name that identifies the test and its run."""
        return f"{self.part.scenario} of run {self.run.run_id}"


def cases_of(run_dirs: Iterable[Path]) -> list[Case]:
    """Return the LoadGen tests of runs, in order.

    Raises:
        UsageError: if a folder is not a run, or no run has a LoadGen test.
    """
    found = [case for run_dir in run_dirs for case in _cases(run_dir)]
    if not found:
        raise UsageError(
            "these runs contain no LoadGen test",
            remedy="run a profile with LoadGenExecutor or MLPerfExecutor first",
        )
    return found


def _cases(run_dir: Path) -> Iterator[Case]:
    run = RunDocument.read(run_dir)
    for part in run.cases:
        model, scenario, mode = ["", "", "", *part.scenario.rsplit("/", 2)][-3:]
        if not model or scenario not in SCENARIOS or mode not in MODES or not part.case_dir:
            continue
        logs = _logs(run_dir / part.case_dir, model, scenario)
        if logs is not None:
            yield Case(run_dir, run, part, logs, model, scenario, mode)


def _logs(case_dir: Path, model: str, scenario: str) -> Path | None:
    """Return the folder of a case's logs: its own, or one that a harness made below it."""
    folders = sorted(path.parent for path in case_dir.rglob(DETAIL_NAME))
    if len(folders) > 1:
        folders = [path for path in folders if path.name == scenario and path.parent.name.startswith(model)]
    return folders[0] if len(folders) == 1 else None
