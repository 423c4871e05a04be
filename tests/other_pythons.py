"""Chooses the tests that CI's further Pythons leave out: ``make other-pythons`` writes other_pythons.txt.

A test is left out if it is costly and if other tests, which stay, execute every line that it executes. All
others stay, because the same line can do something else with other data. A test that is not in the list runs
everywhere, so that the list may be older than the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet

_LIST = Path(__file__).with_name("other_pythons.txt")
_FOLDER = "VCAGENT_TEST_COSTS"
"""The variable that names the folder for what is measured."""
_COSTLY_S = 0.02
"""Processor seconds from which a test is costly, its processes included."""
_COVERAGE = """
[run]
source = agent, actions, dependencies, gpu_configs, parsers
parallel = true
patch = subprocess, _exit
sigterm = true
# The test whose process this is.
context = ${PYTEST_CURRENT_TEST-}
"""
_Line = tuple[str, int]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure the processor time of a test, and note its name beside the lines that it executes."""
    from coverage import Coverage

    if coverage := Coverage.current():
        coverage.switch_context(item.nodeid)
    before_s = sum(os.times()[:4])
    result = yield
    with Path(os.environ[_FOLDER], f"{os.getpid()}.costs").open("a", encoding="utf-8") as file:
        file.write(f"{sum(os.times()[:4]) - before_s:.2f} {item.nodeid}\n")
    return result


def measure(folder: Path) -> tuple[dict[str, float], dict[_Line, set[str]]]:
    """Run the tests that further Pythons run; one that fails counts like the others.

    Args:
        folder: an empty folder for what is measured.

    Returns:
        The processor seconds of each test, and the tests that execute each line.
    """
    from coverage import CoverageData

    settings = folder / "coveragerc"
    settings.write_text(f"{_COVERAGE}data_file = {folder / 'lines'}\n", encoding="utf-8")
    command = f"-m coverage run --rcfile={settings} -m pytest -p tests.other_pythons -q -n 2 --dist loadfile"
    chosen = ["--timeout", "2400", "-m", "not engine and not root and not lab"]
    environment = {**os.environ, _FOLDER: str(folder)}
    subprocess.run([sys.executable, *command.split(), *chosen], check=False, env=environment)
    costs = (
        line.split(" ", 1) for path in folder.glob("*.costs") for line in path.read_text("utf-8").splitlines()
    )
    cpu_s = {name: float(seconds) for seconds, name in costs}
    tests: dict[_Line, set[str]] = defaultdict(set)
    for path in folder.glob("lines.*"):
        data = CoverageData(str(path))
        data.read()
        # A worker of pytest imports modules outside any test; a process that knows no test is left aside.
        known = cpu_s.keys() | ({""} if len(data.measured_contexts()) > 1 else set())
        for file in data.measured_files():
            for line, names in data.contexts_by_lineno(file).items():
                # In a test's own processes: "tests/test_a.py::test_a (call)".
                tests[file, line] |= {name.rpartition(" (")[0] or name for name in names} & known
    return cpu_s, tests


def left_out(cpu_s: Mapping[str, float], tests: Mapping[_Line, AbstractSet[str]]) -> list[str]:
    """Return the costly tests that execute no line that no other test executes.

    Args:
        cpu_s: the processor seconds of each test.
        tests: the tests that execute each line.
    """
    costly = {test for test, seconds in cpu_s.items() if seconds >= _COSTLY_S}
    lines: dict[str, set[_Line]] = defaultdict(set)
    for line, names in tests.items():
        for test in names if names <= costly else ():
            lines[test].add(line)
    stay, missing = set(), set().union(*lines.values())
    while missing:
        best = max(lines, key=lambda test: len(lines[test] & missing) / cpu_s[test])
        stay.add(best)
        missing -= lines[best]
    left = costly - stay
    # pytest leaves out every test whose name begins so.
    return sorted(test for test in left if all(name in left for name in cpu_s if name.startswith(test)))


def main() -> None:
    """Measure, choose, and write the list as arguments of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        cpu_s, tests = measure(Path(folder))
    left = left_out(cpu_s, tests)
    _LIST.write_text("".join(f"--deselect={test}\n" for test in left), encoding="utf-8")
    saved_s, all_s = sum(cpu_s[test] for test in left), sum(cpu_s.values())
    sys.stdout.write(f"{len(left)} of {len(cpu_s)} tests are left out: {saved_s:.0f} of {all_s:.0f} CPU s\n")


if __name__ == "__main__":
    main()
