"""The controller as users call it, with a separate home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["DEADLINE_S", "Controller", "await_"]

DEADLINE_S = 240
_LIMIT_S = 580


def await_(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    wait_for(condition, limit_s=DEADLINE_S, every_s=0.3)


@dataclass(frozen=True)
class Controller:
    """A controller that calls ``vcagent fleet``.

    Args:
        folder: its home and its working folder.
        key: the private key for the hosts.
        wheels: the wheels for the bundle.
        kept: the folder in which the bundle is kept across tests.
        environment: variables for all calls, in addition to those of a call.
    """

    folder: Path
    key: Path
    wheels: Path
    kept: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def known_hosts(self) -> Path:
        """The controller's file of host keys."""
        return self.folder / "known_hosts"

    def write_inventory(
        self, hosts: Mapping[str, Mapping[str, Any]], name: str = "hosts.yaml", **more: str
    ) -> str:
        """Write an inventory in which every host is reached with the key; more variables apply to all."""
        variables = {"user": "root", "identity_file": str(self.key), **more}
        (self.folder / name).write_text(yaml.safe_dump({"variables": variables, "hosts": dict(hosts)}))
        return name

    def write_profile(
        self,
        command: str,
        *,
        dependencies: tuple[Mapping[str, Any], ...] = (),
        parameters: Mapping[str, str] | None = None,
    ) -> str:
        """Write a profile that runs a shell script."""
        profile = {
            "description": "A test.",
            "parameters": {"Word": "none", **(parameters or {})},
            "dependencies": list(dependencies),
            "actions": [{"type": "ExecuteCommand", "parameters": {"scenario": "act", "command": command}}],
        }
        (self.folder / "P.yaml").write_text(yaml.safe_dump(profile))
        return "P.yaml"

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start ``vcagent fleet``."""
        command = [sys.executable, "-m", "agent", "fleet", *arguments]
        if arguments[0] == "run":
            command += [f"--known-hosts={self.known_hosts}", f"--wheels={self.wheels}"]
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR") if name in os.environ}
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={
                **kept,
                "HOME": str(self.folder),
                "VCAGENT_PACKAGE_DIR": str(self.kept / "packages"),
                **self.environment,
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """End the processes that a failed test has left."""
        for process in self.started:
            process.kill()
            process.communicate()

    def fleet(self, *arguments: str, exit_code: int, **environment: str) -> dict[str, Any]:
        """Call ``vcagent fleet … --json``; return the hosts by name, and the rest of the output.

        Raises:
            AssertionError: if it ends with another exit code.
        """
        process = self.start(*arguments, "--json", **environment)
        out, err = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == exit_code, f"{process.returncode}\n{out[-6000:]}\n{err[-3000:]}"
        return self._by_name(out)

    def refused(self, *arguments: str, exit_code: int) -> str:
        """Return the error message of a call that is refused."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == exit_code, f"{process.returncode}\n{out}\n{err}"
        return err

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the status of the hosts of the latest fleet run, while another controller works on it."""
        process = self.start("status", "--json")
        out, _ = process.communicate(timeout=_LIMIT_S)
        hosts: dict[str, dict[str, Any]] = self._by_name(out)["hosts"] if process.returncode == 0 else {}
        return hosts

    @staticmethod
    def _by_name(text: str) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(text)
        return {**values, "hosts": {host["name"]: host for host in values["hosts"]}}
