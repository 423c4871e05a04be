"""Fixtures and hooks for all tests."""

from __future__ import annotations

import gc
import itertools
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.lab.container_engine import container_engine
from tests.lab.environment import accuracy_python, bench_python, locust_environment
from tests.lab.nvml.nvml_stand_in import nvml_library, nvml_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "accuracy_python",
    "bench_python",
    "container_engine",
    "locust_environment",
    "nvml_library",
    "nvml_stand_in",
    "shared",
]

_GROUPS = {
    "bench_python": "engine",
    "llamacpp": "engine",
    "ssh_base": "fleet",
    "docker_engine": "hosts",
    "container_engine": "containers",
    "slurm_session": "slurm",
}
"""Fixtures whose tests run one after the other: they load the machine, or start a lab for a whole session.

A test's first such fixture decides. Different groups run in parallel.
"""
_LONGEST = ("engine", "fleet", "hosts", "root", "containers", "slurm")
"""Groups that start first: the longest ones decide when the last worker finishes."""
_LONG_TEXT = 1000
_number = itertools.count()

settings.register_profile("busy-host", deadline=None)  # slowness does not count as a failure
settings.load_profile("busy-host")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return other projects' profiles and logs: VCAGENT_SHARED, a folder beside the repository, or skip."""
    folder = Path(os.environ.get("VCAGENT_SHARED") or Path(__file__).parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip("no folder of other projects' profiles and logs (VCAGENT_SHARED)")
    return folder


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty folder. pytest's own fixture looks through the folders of all tests before it."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}{next(_number)}", numbered=False)


@pytest.fixture(autouse=True)
def _cpu_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    marker, before_s = request.node.get_closest_marker("cpu_limit"), time.process_time()
    yield
    assert not marker or time.process_time() - before_s < marker.args[0]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the name of a test of a very long text; lists of tests and logs repeat the name."""
    if isinstance(val, (str, bytes)) and len(val) > _LONG_TEXT:
        return f"{val[:20]!r} and {len(val) - 20} more"
    return None


@pytest.hookimpl(wrapper=True)  # before xdist, which reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tests that a worker runs one after the other, and give slow fixtures more time.

    A test without a group goes to any free worker.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if group := _group(item, fixtures):
            item.add_marker(pytest.mark.xdist_group(group))
        if any(item.get_closest_marker(marker) for marker in ("engine", "lab", "root")):
            # The first test waits until its environment, programs or image exist.
            # make lab builds kernel modules and compiles, also on a busy machine.
            item.add_marker(pytest.mark.timeout(3600 if os.environ.get("VCAGENT_LAB") == "all" else 1200))
    if hasattr(config, "workerinput"):
        items.sort(key=_place)
    return (yield)


def pytest_collection_finish() -> None:
    """Spare garbage collections the tests, which all stay until the end."""
    gc.collect()
    gc.freeze()


def _place(item: pytest.Item) -> int:
    """Return a test's place in the order of groups; all others come last."""
    marker = item.get_closest_marker("xdist_group")
    group = marker.args[0] if marker else ""
    if group in _LONGEST:
        return _LONGEST.index(group)
    return len(_LONGEST) + (not group)


def _group(item: pytest.Item, fixtures: Sequence[str]) -> str | None:
    """Return the group of a test, or None if it can run in parallel with all others.

    The tests of an engine, of a lab, of this host's packages and disks (root), and of a file whose fixtures
    live as long as the file run one after the other.
    """
    for fixture, group in _GROUPS.items():
        if fixture in fixtures:
            return group
    if item.get_closest_marker("root"):
        return "root"
    definitions = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    lives = {definition.scope for found in definitions for definition in found}
    return str(item.path) if lives & {"module", "class"} or item.get_closest_marker("lab") else None
