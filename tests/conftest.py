"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.lab.container_engine import container_engine
from tests.lab.environment import accuracy_python, bench_python, locust_environment
from tests.lab.nvml.nvml_stand_in import nvml_library, nvml_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "accuracy_python",
    "bench_python",
    "container_engine",
    "locust_environment",
    "nvml_library",
    "nvml_stand_in",
    "shared",
]

_GROUPS = {"lab": "lab", "root": "lab", "engine": "engine"}
settings.register_profile("busy-host", deadline=None)  # to be slow is no failure
settings.load_profile("busy-host")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Profiles and logs of other projects: VCAGENT_SHARED, or a folder beside the repository, or a skip."""
    folder = Path(os.environ.get("VCAGENT_SHARED") or Path(__file__).parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip("no folder of other projects' profiles and logs (VCAGENT_SHARED)")
    return folder


@pytest.hookimpl(wrapper=True)  # before xdist, which reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Give the making of environments, programs and images, which the first test waits for, its time.

    Of the tests that load the machine (engines) or share what there is once (labs, apt), no two run at once.
    """
    groups: dict[Path, str] = {}
    for item in items:
        found = [group for marker, group in _GROUPS.items() if item.get_closest_marker(marker)]
        groups.setdefault(item.path, str(item.path))
        if found:
            groups[item.path] = found[0]
        if found or "accuracy_python" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1200))
    for item in items:  # a file's tests stay together: some share what the first one makes
        item.add_marker(pytest.mark.xdist_group(groups[item.path]))
    return (yield)
