"""Starts a service of a run again, so that it keeps running after the run (--keep-serving), and ends it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from agent.component.component import RelaunchInContainer
from agent.core.errors import ActionFailedError, ContainerError, HostError, InterruptedRunError
from agent.core.safe_files import append_to, written_by_root
from agent.host.processes.tree import end_found
from agent.store.serving import SERVING_FILE, Serving, still_serving

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from agent.component.component import Relaunch, Service
    from agent.host.containers.container import Container
    from agent.host.processes import ProcessRunner

_LIMIT_S = 1800.0
"""Longest time for a server to start: a model of hundreds of GB is read from disk."""
_POLL_S = 0.1
_REPLY_S = 5.0
_GRACE_S = 10.0
"""Time for a server to end by itself, before its processes are killed."""
_OWN_VARIABLES = "VCAGENT_"
_STAYING: list[subprocess.Popen[bytes]] = []
"""Servers that keep running. They are referenced here because Python warns if a process object is deleted
while its process runs."""


def keep_serving(service: Service, run_dir: Path, stop: threading.Event, processes: ProcessRunner) -> Serving:
    """Start a service that outlives the run, wait until it answers, and note it in the run's folder.

    Args:
        service: a service that was stopped and has ``relaunch``, the way to start it again.
        run_dir: the run's folder.
        stop: set when the run is asked to stop.
        processes: those of the run.

    Raises:
        ActionFailedError: if the server ends, or does not answer within half an hour.
        ContainerError: if the container engine does not answer.
        InterruptedRunError: if the run is stopped meanwhile; the server is then ended too.
    """
    assert service.relaunch is not None  # noqa: S101 - the caller has checked
    if isinstance(service.relaunch, RelaunchInContainer):
        serving = _in_container(service, service.relaunch, run_dir, stop, processes)
    else:
        serving = _on_host(service, service.relaunch, run_dir, stop)
    serving.write(run_dir)
    return serving


def kept_servers(runs: Iterable[Path]) -> list[tuple[Path, Serving]]:
    """Return the servers that runs left and that still run, with the folders of their runs.

    For root, only a note that root alone could write names a process to end.
    """
    trusted = [run for run in runs if os.geteuid() != 0 or written_by_root(run / SERVING_FILE)]
    return [(run, serving) for run in trusted if (serving := still_serving(run))]


def end_serving(run_dir: Path) -> None:
    """End the server that a run left, if it still runs: its container, or its process and all in its session.

    Raises:
        HostError: if the process does not end, such as one of another user.
        ContainerError: if the container engine does not remove its container.
    """
    found = kept_servers([run_dir])
    if not found:
        return
    ((_, serving),) = found
    if serving.container:
        from agent.host.containers.engine import remove_containers

        remove_containers(run_dir.name, kept_too=True, name=serving.container)
    else:
        end_found(lambda: _session_of(serving), _GRACE_S)
    if still_serving(run_dir):
        raise HostError(
            f"the server {serving.shown} of {run_dir.name} did not end",
            remedy=f"end it: {serving.how_to_stop}",
        )
    (run_dir / SERVING_FILE).unlink(missing_ok=True)


def _session_of(serving: Serving) -> list[psutil.Process]:
    """Return the processes of a server: those of its session, and its descendants elsewhere.

    Linux gives the number of a session to no other process while the session has members.
    """
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == serving.pid and process.create_time() >= serving.created_s:
                found.add(process)
    for process in tuple(found):
        with suppress(psutil.Error):
            found |= set(process.children(recursive=True))
    return list(found)


def _in_container(
    service: Service,
    again: RelaunchInContainer,
    run_dir: Path,
    stop: threading.Event,
    processes: ProcessRunner,
) -> Serving:
    from agent.component.container_engine import engine_of_run

    url, model = str(service.values["url"]), str(service.values.get("model", ""))
    with engine_of_run(processes, run_dir, stop) as engine:
        try:
            container = engine.ensure_running(again.spec)
        except ContainerError as error:
            raise ActionFailedError(error.message, remedy=error.remedy, details=error.details) from error
        log = f"docker logs {container.name}"
        try:
            _wait(lambda: _ended(container), url, f"see its output: {log}", stop)
            if (pid := container.first_process()) is None:
                raise ActionFailedError(f"the container {container.name} ended", remedy=f"see {log}")
            created_s = psutil.Process(pid).create_time()
        except psutil.Error as error:
            container.remove()
            raise ActionFailedError(
                f"the first process of the container {container.name} is not on this host: {error}",
                remedy="let Docker run on this host itself, not in a virtual machine or on another host",
            ) from error
        except BaseException:
            container.remove()
            raise
    return Serving(service.name, url, model, pid, created_s, log, container=container.name)


def _ended(container: Container) -> str | None:
    """Describe how a container's first process ended; return None while it runs."""
    if (code := container.exit_code()) is None:
        return None
    return "\n".join([f"ended with exit code {code}", *container.last_output()])


def _on_host(service: Service, again: Relaunch, run_dir: Path, stop: threading.Event) -> Serving:
    url, model = str(service.values["url"]), str(service.values.get("model", ""))
    path = run_dir / "logs" / "serving.log"
    # Without the variables by which a run finds the processes to end.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OWN_VARIABLES)}
    with append_to(path) as log:
        process = subprocess.Popen(
            list(again.command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**environment, **again.environment},
            cwd=again.cwd,
            start_new_session=True,
        )
    try:
        _wait(lambda: _exit_code(process), url, f"its output is in {path}", stop)
        created_s = psutil.Process(process.pid).create_time()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    _STAYING.append(process)
    return Serving(service.name, url, model, process.pid, created_s, str(path))


def _exit_code(process: subprocess.Popen[bytes]) -> str | None:
    return None if (code := process.poll()) is None else f"ended with exit code {code}"


def _wait(death: Callable[[], str | None], url: str, remedy: str, stop: threading.Event) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not _answers(url):
        if how := death():
            first, *rest = how.splitlines()
            raise ActionFailedError(
                f"the server that was to stay {first}", remedy=remedy, details=tuple(rest)
            )
        if time.monotonic() > deadline:
            raise ActionFailedError(
                f"the server that was to stay did not answer at {url} within {_LIMIT_S:g} s", remedy=remedy
            )
        if stop.wait(_POLL_S):
            raise InterruptedRunError("the run was stopped while the server that is to stay was starting")


def _answers(url: str) -> bool:
    """Return True if a server answers at /health with another status than 503 (still loading).

    Return True for another protocol than HTTP if the port is open.
    """
    address = urlsplit(url)
    if address.scheme not in {"http", "https"}:
        try:
            socket.create_connection((address.hostname or "", address.port or 0), _REPLY_S).close()
        except OSError:
            return False
        return True
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_REPLY_S)
    try:
        connection.request("GET", "/health", headers={"Connection": "close"})
        return connection.getresponse().status != http.client.SERVICE_UNAVAILABLE
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
