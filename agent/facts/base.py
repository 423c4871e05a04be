"""Facts, and the store that reads each of them once, on demand."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from typing_extensions import override

from agent.core.errors import HostError
from agent.facts.file_locks import record_lock_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


class Host(Protocol):
    """Read-only access of facts to a host."""

    def output(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 10,
        env: Mapping[str, str] | None = None,
        hang_is_error: bool = False,
    ) -> str | None:
        """Return the standard output of a command (C locale), or None if it is missing, fails or hangs.

        Args:
            command: the program and its arguments; it does not get a terminal.
            timeout_s: seconds after which it counts as hanging, and is killed with its children.
            env: additional variables, for values that must not appear in a process list.
            hang_is_error: True to raise an error if the command hangs.

        Raises:
            HostError: if it hangs and ``hang_is_error``.
        """

    def text(self, path: str) -> str | None:
        """Return a file's text, or None if it cannot be read."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty if it cannot be read."""

    def lock_holder(self, path: str) -> int | None:
        """Return the process whose record lock prevents others from writing a file, or None."""


class LocalHost(Host):
    """The host that the agent runs on.

    Args:
        environment: variables that commands get in addition to the agent's own.
    """

    _environment: Mapping[str, str] = MappingProxyType({})

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        if environment:
            self._environment = dict(environment)

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
                env={**os.environ, "LC_ALL": "C", **self._environment, **(env or {})},
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


class _SingleReading(LocalHost):
    """A host that runs each command once, for all facts that are read from it.

    Args:
        host: the host that answers.
    """

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._outputs: dict[tuple[object, ...], str | None] = {}

    @override
    def output(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = 10,
        env: Mapping[str, str] | None = None,
        hang_is_error: bool = False,
    ) -> str | None:
        key = (tuple(command), timeout_s, frozenset((env or {}).items()), hang_is_error)
        if key not in self._outputs:
            self._outputs[key] = self._host.output(
                command, timeout_s=timeout_s, env=env, hang_is_error=hang_is_error
            )
        return self._outputs[key]

    @override
    def text(self, path: str) -> str | None:
        return self._host.text(path)

    @override
    def names(self, folder: str) -> list[str]:
        return self._host.names(folder)

    @override
    def lock_holder(self, path: str) -> int | None:
        return self._host.lock_holder(path)


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value that can be read from a host.

    Args:
        name: its name in ``vcagent facts``, such as ``distribution``.
        source: the command or file that it comes from, for display.
        read: reads it: combines access to the host with a pure function over the output.
    """

    name: str
    source: str
    read: Callable[[Host], T]


class Facts:
    """Facts of a host; each is read on first use and then cached. Facts from one command run it once.

    Args:
        host: the host; None for a modelled host, which only has ``modelled``.
        modelled: values that replace facts, by name: the agent's own choices (its folders), or a whole host
            in a test.
    """

    def __init__(self, host: Host | None = None, modelled: Mapping[str, Any] | None = None) -> None:
        self._host = host
        self._reading = _SingleReading(host) if isinstance(host, LocalHost) else host
        self._modelled = dict(modelled or {})
        self._read: dict[str, Any] = {}
        self._lock = threading.RLock()

    def __getitem__(self, fact: Fact[T]) -> T:
        """Return the fact's value; read it on first use.

        Raises:
            KeyError: if the host is modelled without this fact.
        """
        if fact.name in self._modelled:
            return cast("T", self._modelled[fact.name])
        with self._lock:
            if fact.name not in self._read:
                if self._reading is None:
                    raise KeyError(f"the modelled host does not have the fact {fact.name}")
                self._read[fact.name] = fact.read(self._reading)
            return cast("T", self._read[fact.name])

    def given(self, name: str) -> Any:
        """Return a value that was given in place of a fact; None if there is none. Nothing is read."""
        return self._modelled.get(name)

    def fresh(self) -> Facts:
        """Return the facts of the same host, with nothing read yet."""
        return Facts(self._host, self._modelled)
