"""Servers for tests of sinks: real ones, started and killed on request."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.lab.debian_packages import unpack
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Self

__all__ = ["Server", "free_port", "in_the_whole_lab"]

in_the_whole_lab = pytest.mark.skipif(
    os.environ.get("VCAGENT_LAB") != "all", reason="fetches servers: make lab runs it"
)
_DEBIAN = ("victoria-metrics", "prometheus", "prometheus-node-exporter", "prometheus-pushgateway")
_SUITE = "trixie"
_AZURITE = "azurite@3.35.0"
_MOTO = "moto[server,s3]==5.2.5"
_STARTED_WITHIN_S = 240.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def of_debian(program: str) -> str:
    """Return a program of Debian trixie, whose packages are unpacked once."""
    try:
        folder = cached_folder(
            "telemetry-debian", fingerprint(_DEBIAN, _SUITE), lambda path: unpack(path, _SUITE, _DEBIAN)
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no packages of Debian: {error}")
    return str(folder / "usr" / "bin" / program)


def azurite() -> str:
    """Return Azure's own emulator of blob storage, from npm."""
    if not shutil.which("npm"):
        pytest.skip("no npm")

    def make(folder: Path) -> None:
        quiet = ["--no-audit", "--no-fund", "--silent"]
        subprocess.run(["npm", "install", "--prefix", str(folder), *quiet, _AZURITE], check=True)

    folder = cached_folder("telemetry-azurite", fingerprint(_AZURITE), make)
    return str(folder / "node_modules" / ".bin" / "azurite-blob")


def moto() -> str:
    """Make an S3 server, in its own environment, because it would force another botocore on s3fs."""

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", _MOTO], check=True)

    return str(
        cached_folder("telemetry-moto", fingerprint(_MOTO, sys.version_info[:2]), make) / "bin" / "python"
    )


class Server:
    """A server with its own port, which stays the same over restarts.

    Args:
        command: the command that starts it; ``PORT`` stands for its port.
        log: the file for its output.
        health: a path that answers when it is ready; empty to wait for the port alone.
    """

    def __init__(self, command: Sequence[str], log: Path, health: str = "") -> None:
        self.port = free_port()
        self._command = [part.replace("PORT", str(self.port)) for part in command]
        self._log = log
        self._health = health
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:  # noqa: S310 - http
            return str(answer.read().decode())

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + _STARTED_WITHIN_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            with suppress(OSError):
                if self._health:
                    self.get(self._health)
                else:
                    socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.05)
        raise AssertionError(f"{self._command[0]} does not answer: {self._log.read_text()[-2000:]}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, how)
            self._process.wait(30)
