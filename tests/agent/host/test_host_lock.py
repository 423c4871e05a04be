"""Two agents on one host: one waits until the other has finished its change."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from agent.component.component import StepContext
from agent.core.errors import DependencyFailedError, InterruptedRunError
from agent.facts import Facts
from agent.host.host_lock import HOST_LOCK, host_for_itself
from agent.host.processes import LocalProcesses
from agent.run.step_runner import StepRunner
from dependencies.docker.installation import DockerInstallation
from dependencies.nvidia.cuda_installation import NvidiaCudaInstallation
from dependencies.python.environment_installation import PythonEnvironmentInstallation
from dependencies.sources.git_repo_clone import GitRepoClone
from tests.dependencies.conftest import Messages

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "host.lock"
    monkeypatch.setenv(HOST_LOCK, str(path))
    return path


def test_the_second_one_waits_for_the_first(lock: Path) -> None:
    stop, inside, leave = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with host_for_itself(stop, Messages()):
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    messages = Messages()
    with (
        pytest.raises(DependencyFailedError, match=f"process {os.getpid()}"),
        host_for_itself(stop, messages, patience_s=0),
    ):
        pytest.fail("it was not alone")
    leave.set()
    thread.join()
    with host_for_itself(stop, messages):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_a_run_that_is_told_to_stop_does_not_wait() -> None:
    stop, other = threading.Event(), threading.Event()
    with host_for_itself(other, Messages()):
        stop.set()
        with pytest.raises(InterruptedRunError), host_for_itself(stop, Messages()):
            pytest.fail("it was not alone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes a host")
def test_a_step_that_changes_the_host_has_it_for_itself(lock: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    context = StepContext(
        facts=Facts(None, {}),
        processes=LocalProcesses("test-lock", stop=stop),
        progress=Messages(),
        stop=stop,
        run_dir=tmp_path,
        package_dir=tmp_path,
        log=tmp_path / "step.log",
    )
    parameters = {"LinuxDriverVersion": "550"}
    driver = NvidiaCudaInstallation(NvidiaCudaInstallation.Parameters.model_validate(parameters))
    with StepRunner._alone(driver, context):
        stop.set()
        with pytest.raises(InterruptedRunError), host_for_itself(stop, Messages()):
            pytest.fail("it was not alone")
    clone = GitRepoClone.Parameters.model_validate({"RepoUri": "https://x.example/y", "PackageName": "y"})
    lock.unlink()
    with StepRunner._alone(GitRepoClone(clone), context):
        assert not lock.exists()


def test_whose_steps_change_what_is_shared() -> None:
    assert NvidiaCudaInstallation.changes_host
    assert DockerInstallation.changes_host
    assert not PythonEnvironmentInstallation.changes_host
