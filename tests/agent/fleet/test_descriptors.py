"""File descriptors for the connections of a fleet."""

import errno
import os
import resource

import pytest

from agent.core.errors import HostError, unexpected
from agent.fleet.descriptors import make_room


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Replace the limits of this process; the last pair is in effect."""
    found = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: found.append(pair))
    return found


def test_a_small_fleet_leaves_the_limit_alone(limits: list[tuple[int, int]]) -> None:
    make_room(300, pytest.fail)
    assert limits == [(1024, 4096)]


def test_the_soft_limit_is_raised_to_the_hard_one(limits: list[tuple[int, int]]) -> None:
    make_room(1000, pytest.fail)
    assert limits[-1] == (4096, 4096)


def test_it_is_said_how_many_hosts_fit(limits: list[tuple[int, int]]) -> None:
    told: list[str] = []
    make_room(2000, told.append)
    assert limits[-1] == (4096, 4096)
    (line,) = told
    assert "may open 4096 files (ulimit -Hn): about 1344 hosts fit at the same time, these 2000 need" in line


def test_no_limit_is_enough(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, resource.RLIM_INFINITY))
    make_room(100_000, pytest.fail)
    assert limits[-1] == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_too_many_open_files_is_no_defect_of_vcagent(number: int) -> None:
    error = unexpected(OSError(number, "Too many open files"), "the controller")
    assert isinstance(error, HostError)
    assert "ran out of file descriptors" in str(error)
    assert "ulimit -n" in str(error)
    assert "defect" not in str(error)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_defect(number: int) -> None:
    error = unexpected(OSError(number, os.strerror(number), "/results/journal"), "the controller")
    assert "the disk is full: the controller cannot write /results/journal" in str(error)
    assert "defect" not in str(error)
