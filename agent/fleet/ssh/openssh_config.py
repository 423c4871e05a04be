"""Reads the options of a host with ``ssh -G``, which supports all files and features of OpenSSH."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

_ASK_S = 30.0
"""Seconds for one host: canonical names are looked up, and a Match may run a program."""
_AT_ONCE = 8
_LOOP = "jumphost loop"
_INVALID = "contains invalid characters"
_NO_SSHD = 1
"""A port that no jump host listens on."""
_LISTS = ("identityfile", "certificatefile")

_Asked = tuple[str, "str | None", "int | None"]


class OpenSshOptions:
    """The options of hosts as ``ssh -G`` prints them; each host is asked for once.

    Args:
        program: the path of ssh.
        path: a configuration file; None for the user's own and the system's.
    """

    def __init__(self, program: str, path: Path | None) -> None:
        self._command = [program, "-G"] + (["-F", str(path)] if path else [])
        self._path = path or Path("~/.ssh/config").expanduser()
        self._without = [program, "-G", "-F", os.devnull]
        self._found: dict[_Asked, dict[str, object] | UsageError] = {}
        self._default_files = lru_cache(maxsize=1)(self._files_without_configuration)

    def prepare(self, asked: Iterable[_Asked]) -> None:
        """Ask for many hosts in parallel; an error is raised later, when the host is used.

        Args:
            asked: the name, user and port of each host, as ``of`` takes them.
        """
        missing = [one for one in dict.fromkeys(asked) if one not in self._found]
        if len(missing) > 1:
            self._default_files()
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="ssh -G") as pool:
                self._found.update(zip(missing, pool.map(lambda one: self._read(*one), missing), strict=True))

    def of(self, name: str, user: str | None, port: int | None) -> dict[str, object]:
        """Return the options of a host, by their names in lower case.

        Args:
            name: the host name as typed.
            user: the user if it is given elsewhere; it takes precedence.
            port: the port if it is given elsewhere; it takes precedence.

        Raises:
            UsageError: if OpenSSH cannot read its files.
        """
        asked = name, user, port
        if asked not in self._found:
            self._found[asked] = self._read(name, user, port)
        found = self._found[asked]
        if isinstance(found, UsageError):
            raise found
        return found

    def _read(self, name: str, user: str | None, port: int | None) -> dict[str, object] | UsageError:
        jump: object = None
        try:
            done = self._asked(name, user, port)
            if done.returncode and _LOOP in done.stderr:
                # ssh applies a jump host to all hosts, itself included, and then fails; here the route ends
                # there. With another port it does not take the two for the same.
                jump = read_options(self._asked(name, user, _NO_SSHD).stdout).get("proxyjump")
                done = self._asked(name, user, port, "-o", "ProxyJump=none")
        except subprocess.TimeoutExpired:
            return UsageError(
                f"ssh -G {name} did not answer within {_ASK_S:g} s",
                where=str(self._path),
                remedy="check Match exec and CanonicalizeHostname, or name another file with --ssh-config",
            )
        if done.returncode and _INVALID in done.stderr:
            return UsageError(
                f"ssh refuses {f'{user}@' if user else ''}{name}: {done.stderr.strip()}",
                remedy="correct the address or the user in the inventory",
            )
        if done.returncode:
            return UsageError(
                f"the SSH configuration cannot be read: ssh -G {name} says: {done.stderr.strip()}",
                where=str(self._path),
                remedy="correct it, or name another file with --ssh-config",
            )
        found = read_options(done.stdout)
        if found["identityfile"] == self._default_files():  # none is configured
            found["identityfile"] = []
        return {**found, "proxyjump": jump} if jump else found

    def _asked(
        self, name: str, user: str | None, port: int | None, *more: str
    ) -> subprocess.CompletedProcess[str]:
        options = [*(("-l", user) if user else ()), *(("-p", str(port)) if port else ()), *more]
        return subprocess.run(
            [*self._command, *options, "--", name],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_ASK_S, check=False,
        )  # fmt: skip

    def _files_without_configuration(self) -> object:
        done = subprocess.run(
            [*self._without, "--", "localhost"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S, check=False,
        )  # fmt: skip
        return read_options(done.stdout)["identityfile"]


def read_options(text: str) -> dict[str, object]:
    """Return the options that ``ssh -G`` prints: one per line, first the name in lower case."""
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    options: dict[str, object] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.lower() in lists:
            lists[name.lower()].append(value)
        else:
            options.setdefault(name.lower(), value)
    return {**options, **lists}


def openssh_options(path: Path) -> OpenSshOptions | None:
    """Return the reader of a configuration; None if OpenSSH is not installed.

    Args:
        path: the file; for the user's own file, the system's file applies as well, as with ssh.
    """
    program = shutil.which("ssh")
    if program is None:
        return None
    own = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh/config"
    if path == own:
        return OpenSshOptions(program, None)
    return OpenSshOptions(program, path if path.exists() else Path(os.devnull))
