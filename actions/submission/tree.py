"""Locate the results of a submission's tree, and their files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actions.submission.rounds import Round

DIVISIONS = ("closed", "open", "network")
MODEL_MAPPING = "model_mapping.json"
_SCENARIOS = {
    name.lower(): name for name in ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")
}
ACCURACY_LOG = "mlperf_log_accuracy.json"
ACCURACY_TEXT = "accuracy.txt"


@dataclass(frozen=True)
class Submitter:
    """One submitter's folder in a division."""

    root: Path
    division: str
    name: str

    @property
    def folder(self) -> Path:
        """Return the submitter's folder."""
        return self.root / self.division / self.name

    @property
    def model_mapping(self) -> dict[str, str]:
        """Return the benchmark for which each own model of an open submission stands."""
        found = read_json(self.folder / MODEL_MAPPING) if self.division == "open" else None
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Place:
    """One result of a tree: a benchmark in a scenario on a system, with all of its paths."""

    submitter: Submitter
    round: Round
    system: str
    benchmark: str
    scenario: str

    @property
    def name(self) -> str:
        """Return the unique name of the result: division, submitter, system, benchmark and scenario."""
        whose = self.submitter
        return f"{whose.division}/{whose.name}/{self.system}/{self.benchmark}/{self.scenario}"

    @property
    def official_scenario(self) -> str:
        """Return the scenario in LoadGen's spelling; folder names may be in lower case."""
        return _SCENARIOS.get(self.scenario.lower(), self.scenario)

    @property
    def asked_tests(self) -> tuple[str, ...]:
        """Return the compliance tests that the round requires of the benchmark."""
        official = self.round.official_name(self.benchmark, self.submitter.model_mapping)
        asked = self.round.benchmarks.get(official)
        return asked.tests if asked else ()

    def _below(self, kind: str) -> Path:
        return self.submitter.folder / kind / self.system / self.benchmark / self.scenario

    @property
    def results(self) -> Path:
        """Return the folder of the result's runs."""
        return self._below("results")

    @property
    def performance(self) -> Path:
        """Return the folder of the performance run's logs."""
        return self.results / "performance" / "run_1"

    @property
    def accuracy(self) -> Path:
        """Return the folder of the accuracy run's logs."""
        return self.results / "accuracy"

    @property
    def measurements(self) -> Path:
        """Return the folder of measurements, user.conf and README.md."""
        return self.results if self.round.is_flat else self._below("measurements")

    @property
    def compliance(self) -> Path:
        """Return the folder with a folder for each compliance run."""
        return self.results if self.round.is_flat else self._below("compliance")

    @property
    def system_file(self) -> Path:
        """Return the system description."""
        return self.submitter.folder / "systems" / f"{self.system}.json"

    def measurements_file(self) -> Path | None:
        """Return the measurements file; None if it does not exist.

        Before v6.0 its name begins with the system's name; a file for the scenario takes precedence.
        """
        if self.round.is_flat:
            path = self.measurements / "measurements.json"
            return path if path.is_file() else None
        found = [name for name in _names(self.measurements, folders=False) if name.endswith(".json")]
        found = [name for name in found if name.startswith(self.system)]
        found.sort(key=lambda name: not name.endswith(f"_{self.scenario}.json"))
        return self.measurements / found[0] if found else None


def submitters(root: Path) -> list[Submitter]:
    """Return the submitters of a tree.

    Raises:
        UsageError: if the folder is not the root of a submission.
    """
    found = [
        Submitter(root, division, name)
        for division in DIVISIONS
        for name in _names(root / division, folders=True)
    ]
    if not found:
        raise UsageError(
            "it is not the root of a submission: closed/, open/ and network/ contain no submitter",
            where=str(root),
            remedy="give the folder that contains them",
        )
    return found


def places(submitter: Submitter, mlperf_round: Round) -> Iterator[Place]:
    """Yield the results of a submitter, in order."""
    results = submitter.folder / "results"
    for system in _names(results, folders=True):
        for benchmark in _names(results / system, folders=True):
            for scenario in _names(results / system / benchmark, folders=True):
                yield Place(submitter, mlperf_round, system, benchmark, scenario)


def bad_links(submitter: Submitter) -> Iterator[tuple[str, str]]:
    """Yield the links that would not arrive with the submission, and where each leads, in words."""
    root = submitter.root.resolve()
    for folder, folders, files in os.walk(submitter.folder):
        for path in (Path(folder, name) for name in sorted((*folders, *files))):
            if not path.is_symlink():
                continue
            if not path.exists():
                yield str(path.relative_to(submitter.root)), "to nothing"
            elif not path.resolve().is_relative_to(root):
                yield str(path.relative_to(submitter.root)), "that leads out of the submission"


def read_json(path: Path) -> Any:
    """Return a JSON file's content; None if it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None


def system_names(submitter: Submitter) -> Iterable[str]:
    """Return the systems that have a description."""
    names = _names(submitter.folder / "systems", folders=False)
    return [name.removesuffix(".json") for name in names if name.endswith(".json")]


def _names(folder: Path, *, folders: bool) -> list[str]:
    """Return the names in a folder, sorted, without hidden files."""
    if not folder.is_dir():
        return []
    return sorted(
        path.name
        for path in folder.iterdir()
        if not path.name.startswith(".") and (path.is_dir() if folders else path.is_file())
    )
