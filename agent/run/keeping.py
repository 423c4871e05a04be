"""Starts a service of a run again, so that it keeps running after the run (--keep-serving)."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.core.safe_files import append_to
from agent.store.serving import Serving

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from agent.component.component import Service

_LIMIT_S = 1800.0
"""Longest time for a server to start: a model of hundreds of GB is read from disk."""
_POLL_S = 0.1
_REPLY_S = 5.0
_OWN_VARIABLES = "VCAGENT_"
_STAYING: list[subprocess.Popen[bytes]] = []
"""Servers that keep running. They are referenced here because Python warns if a process object is deleted
while its process runs."""


def keep_serving(service: Service, run_dir: Path, stop: threading.Event) -> Serving:
    """Start a service that outlives the run, wait until it answers, and note it in the run's folder.

    Args:
        service: a service that was stopped and has ``relaunch``, the way to start it again.
        run_dir: the run's folder.
        stop: set when the run is asked to stop.

    Raises:
        ActionFailedError: if the server ends, or does not answer within half an hour.
        InterruptedRunError: if the run is stopped meanwhile; the server is then ended too.
    """
    assert service.relaunch is not None  # noqa: S101 - the caller has checked
    again, url = service.relaunch, str(service.values["url"])
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
        _wait(process, url, path, stop)
        created_s = psutil.Process(process.pid).create_time()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    _STAYING.append(process)
    model = str(service.values.get("model", ""))
    serving = Serving(service.name, url, model, process.pid, created_s, str(path))
    serving.write(run_dir)
    return serving


def _wait(process: subprocess.Popen[bytes], url: str, log: Path, stop: threading.Event) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not _answers(url):
        if (code := process.poll()) is not None:
            raise ActionFailedError(
                f"the server that was to stay ended with exit code {code}", remedy=f"its output is in {log}"
            )
        if time.monotonic() > deadline:
            raise ActionFailedError(
                f"the server that was to stay did not answer at {url} within {_LIMIT_S:g} s",
                remedy=f"its output is in {log}",
            )
        if stop.wait(_POLL_S):
            raise InterruptedRunError("the run was stopped while the server that is to stay was starting")


def _answers(url: str) -> bool:
    """Return True if a server answers at /health with another status than 503 (still loading)."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_REPLY_S)
    try:
        connection.request("GET", "/health", headers={"Connection": "close"})
        return connection.getresponse().status != http.client.SERVICE_UNAVAILABLE
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
