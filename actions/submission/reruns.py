"""Name the commands that run a submission's missing tests, from the profiles of the runs that exist."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical
from agent.profile import installed, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from actions.submission.runs import Case
    from agent.profile import Element
    from agent.store.documents import RunDocument

_LOADGEN = "LoadGenExecutor"
_PARAMETER = "$.Parameters."
_OPTIONS = ("--parameters", "--pm", "--samples")
_NAMES = re.compile(r"\$\.Parameters\.(\w+)|\{(\w+)\}")


@dataclass(frozen=True)
class Rerun:
    """One test that a profile can run.

    Args:
        profiles: the profile's arguments for the command line.
        options: the options with which it ran before.
        scenario: the name of the test's element.
        switches: parameters that switch the element on.
    """

    profiles: tuple[str, ...]
    options: tuple[str, ...]
    scenario: str
    switches: tuple[str, ...] = ()


def command_lines(reruns: Iterable[Rerun]) -> list[str]:
    """Return the command lines of tests; tests of one profile share a command line."""
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Rerun]] = {}
    for each in reruns:
        groups.setdefault((each.profiles, each.options), []).append(each)
    lines = []
    for (profiles, options), tests in groups.items():
        words = ["vcagent", *(word for name in profiles for word in ("--profile", name)), *options]
        switches = dict.fromkeys(name for test in tests for name in test.switches)
        words += [word for name in switches for word in ("--parameters", f"{name}=true")]
        names = dict.fromkeys(test.scenario for test in tests)
        lines.append(shlex.join([*words, "--scenarios", ",".join(names)]))
    return lines


@dataclass
class Reruns:
    """Finds the elements of the runs' profiles that run a test."""

    cases: Sequence[Case]
    _elements: dict[str, list[Element]] = field(default_factory=dict)

    def find(self, model: str, scenarios: Iterable[str], mode: str) -> Iterator[Rerun]:
        """Yield the test of a model in the first of these scenarios that a profile of its runs has.

        Args:
            model: the model's name in the runs.
            scenarios: LoadGen's scenarios, in order of preference.
            mode: performance, accuracy, or a compliance test.
        """
        runs = {case.run.run_id: case.run for case in self.cases if case.model == model}
        for scenario in scenarios:
            for run in reversed(runs.values()):
                for element in self._of(run):
                    told = {canonical(name): value for name, value in element.parameters.items()}
                    found = [_value(told.get(name), run) for name in ("model", "loadgenscenario", "mode")]
                    if found == [model, scenario, mode] and isinstance(told.get("scenario"), str):
                        yield _rerun(run, told)
                        return

    def _of(self, run: RunDocument) -> list[Element]:
        """Return the LoadGen tests of a run's profile; none if the profile cannot be read here."""
        if run.run_id not in self._elements:
            names = [_name(source) for source in run.profile.sources]
            try:
                actions = () if any("://" in name for name in names) or not names else load(names).actions
            except ProfileError:
                actions = ()
            found = [each for action in actions for each in action.walk() if each.type == _LOADGEN]
            self._elements[run.run_id] = found
        return self._elements[run.run_id]


def _rerun(run: RunDocument, told: Mapping[str, Any]) -> Rerun:
    values = {canonical(name): value for name, value in run.profile.parameters.items()}
    switches = [one or other for one, other in _NAMES.findall(str(told.get("enabled", "")))]
    off = [name for name in switches if str(values.get(canonical(name), "")).lower() == "false"]
    return Rerun(
        tuple(map(_name, run.profile.sources)), tuple(_options(run)), str(told["scenario"]), tuple(off)
    )


def _options(run: RunDocument) -> Iterator[str]:
    """Yield the options of the run's command line that change what is measured."""
    words = run.command_line
    for name, value in pairwise(words):
        if name in _OPTIONS:
            yield from (name, value)
    yield from (word for word in words if word.startswith(tuple(f"{name}=" for name in _OPTIONS)))


def _value(value: Any, run: RunDocument) -> str:
    text = str(value if value is not None else "performance")
    if not text.startswith(_PARAMETER):
        return text
    wanted = canonical(text.removeprefix(_PARAMETER))
    found = (told for name, told in run.profile.parameters.items() if canonical(name) == wanted)
    return str(next(found, text))


def _name(source: str) -> str:
    """Return a profile's shortest name: that of an installed profile, or its path."""
    known = {str(file): name for name, file in installed().items()}
    names = {name: name for name in known.values()}
    name = known.get(source) or ("" if Path(source).exists() else names.get(Path(source).name, ""))
    return PurePosixPath(name).stem if name else source
