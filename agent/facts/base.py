"""What a fact is, and the lazy store that reads each one once."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from typing_extensions import override

from agent.core.errors import HostError
from agent.facts.file_locks import record_lock_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


class Host(Protocol):
    """The door through which facts look at a host; reading only."""

    def output(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 10,
        env: Mapping[str, str] | None = None,
        hang_is_error: bool = False,
    ) -> str | None:
        """Standard output of a command (C locale), or None where it is missing, fails or hangs.

        Args:
            command: the program and its arguments; it has no terminal to ask on.
            timeout_s: seconds after which it counts as hanging, and is killed with its children.
            env: variables added to the agent's own; what must not stand in a process list.
            hang_is_error: whether to hang is to be told from to be absent.

        Raises:
            HostError: if it hangs and ``hang_is_error``.
        """

    def text(self, path: str) -> str | None:
        """A file's text, or None where it cannot be read."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty where it cannot be read."""

    def lock_holder(self, path: str) -> int | None:
        """The process whose record lock bars others from writing a file; None where nobody has one."""


class LocalHost(Host):
    """The host that the agent runs on."""

    @override
    def output(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 10,
        env: Mapping[str, str] | None = None,
        hang_is_error: bool = False,
    ) -> str | None:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C", **(env or {})},
                start_new_session=True,
            )
        except OSError:
            return None
        with process:
            try:
                output, _ = process.communicate(timeout=timeout_s)
            except BaseException as error:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                if hang_is_error:
                    raise HostError(
                        f"{command[0]} gave no answer for {timeout_s:.0f} s",
                        remedy="see whether this host is overloaded or one of its disks hangs, and run again",
                    ) from None
                return None
        return output if process.returncode == 0 else None

    @override
    def text(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    @override
    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
        except OSError:
            return []

    @override
    def lock_holder(self, path: str) -> int | None:
        return record_lock_holder(path)


@dataclass(frozen=True)
class Fact(Generic[T]):
    """Something that can be read from a host.

    Args:
        name: what ``vcagent facts`` calls it, such as ``distribution``.
        source: the command or file it comes from, for people.
        read: reads it; pairs one look at the host with a pure function over what was seen.
    """

    name: str
    source: str
    read: Callable[[Host], T]


class Facts:
    """What is known of a host; each fact is read when it is first asked for, and then kept.

    Args:
        host: where to look; None for a modelled host, of which nothing but ``modelled`` is known.
        modelled: values that stand for facts, by name: what the agent itself decides (its folders), or
            a whole host in a test.
    """

    def __init__(self, host: Host | None = None, modelled: Mapping[str, Any] | None = None) -> None:
        self._host = host
        self._modelled = dict(modelled or {})
        self._read: dict[str, Any] = {}
        self._lock = threading.RLock()

    def __getitem__(self, fact: Fact[T]) -> T:
        """The fact's value, read now if it was not read before.

        Raises:
            KeyError: if the host is modelled and nothing is said of this fact.
        """
        if fact.name in self._modelled:
            return cast("T", self._modelled[fact.name])
        with self._lock:
            if fact.name not in self._read:
                if self._host is None:
                    raise KeyError(f"the modelled host says nothing of {fact.name}")
                self._read[fact.name] = fact.read(self._host)
            return cast("T", self._read[fact.name])

    def fresh(self) -> Facts:
        """The same host with nothing read yet."""
        return Facts(self._host, self._modelled)
