"""The names of values from the host or the run, and how to read them."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "LogDir": "folder of logs",
        "StateDir": "folder of the agent's state",
        "TempDir": "folder for temporary files",
        "ScriptDir": "folder of scripts",
        "Platform": "operating system and architecture: linux-x64, linux-arm64",
        "OS": "operating system: linux",
        "Architecture": "x64 or arm64",
        "LogicalCoreCount": "processors that the system schedules on",
        "PhysicalCoreCount": "cores",
        "SystemMemoryBytes": "memory in bytes",
        "SystemMemoryKilobytes": "memory in units of 1024 bytes",
        "SystemMemoryMegabytes": "memory in units of 1024² bytes",
        "SystemMemoryGigabytes": "memory in units of 1024³ bytes",
        "ExperimentId": "identifier of the experiment",
        "ClientId": "name of this host in the records",
        "ExecutionSystem": "the system that started the run",
        "GpuCount": "number of GPUs",
        "GpuName": "name of the first GPU",
        "GpuMemoryMiB": "memory of the first GPU in MiB",
        "DriverVersion": "version of the loaded NVIDIA driver",
        "CudaVersion": "newest CUDA that the loaded driver supports",
        "SelectedScenarios": "scenarios that --scenarios names, separated by commas; empty for all",
    }
)
"""The variables with their descriptions. All except the last six are VirtualClient's."""

LOOKUPS: Mapping[str, str] = MappingProxyType(
    {
        "PackageDir": "folder of the named package",
        "PackageDir/Platform": "the folder for this platform within the named package",
        "ScriptDir": "folder of the named scripts",
        "EnvironmentVariable": "a variable of the agent's environment; empty if it is not set",
    }
)
"""Lookups by a name after a colon, as in ``{PackageDir:mlperf}``."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "LogPath": "LogDir",
        "StatePath": "StateDir",
        "TempPath": "TempDir",
        "ScriptPath": "ScriptDir",
        "PackagePath": "PackageDir",
        "PackagePath/Platform": "PackageDir/Platform",
        "PlatformArchitecture": "Platform",
        "LogicalProcessorCount": "LogicalCoreCount",
        "PhysicalProcessorCount": "PhysicalCoreCount",
        "AgentId": "ClientId",
    }
)
"""Other spellings in VirtualClient, with the name of each."""


class VariableUnavailableError(ProfileError):
    """The host does not have the value of a variable now: no GPU, no driver yet."""


class Variables:
    """Values of variables by name, read on demand.

    Args:
        values: a callable for each variable; it returns None if the host has no value. Names beyond
            ``VARIABLES`` are allowed.
        lookups: a callable for each name of ``LOOKUPS``; it takes the text after the colon, and returns None
            if it does not exist.
    """

    def __init__(
        self,
        values: Mapping[str, Callable[[], Any]] | None = None,
        lookups: Mapping[str, Callable[[str], Any]] | None = None,
    ) -> None:
        self._values = {_key(name): read for name, read in (values or {}).items()}
        self._lookups = {_key(name): read for name, read in (lookups or {}).items()}
        self._names = _spellings(values or {}, VARIABLES)
        self._lookup_names = _spellings(lookups or {}, LOOKUPS)

    @classmethod
    def of(cls, **values: Any) -> Variables:
        """Return variables with fixed values."""
        return cls({name: partial(_same, value) for name, value in values.items()})

    def __contains__(self, name: str) -> bool:
        """Return True if a name is a variable's, available or not."""
        return canonical(name) in self._names

    def __iter__(self) -> Iterator[str]:
        """Return an iterator over the names of all variables."""
        return iter(self._names.values())

    def value(self, name: str) -> Any:
        """Return the value of a variable.

        Raises:
            VariableUnavailableError: if the host does not have it now.
        """
        read = self._values.get(_key(name))
        value = read() if read else None
        if value is None:
            raise VariableUnavailableError(
                f"{{{name}}} ({_MEANINGS.get(_key(name), 'a variable')}) has no value on this host now",
                remedy="set the parameter that uses it with --parameters, or run where the host has it",
            )
        return value

    def is_lookup(self, head: str) -> bool:
        """Return True if ``{head:name}`` is a lookup."""
        return canonical(head) in self._lookup_names

    @property
    def lookup_names(self) -> list[str]:
        """Return the heads of lookups."""
        return list(self._lookup_names.values())

    def look_up(self, head: str, name: str) -> Any:
        """Return the value of ``{head:name}``.

        Raises:
            VariableUnavailableError: if it does not exist on this host now.
        """
        read = self._lookups.get(_key(head))
        value = read(name) if read else None
        if value is None:
            raise VariableUnavailableError(
                f"{{{head}:{name}}}: there is no '{name}' on this host now",
                remedy=f"add the dependency that installs '{name}', or correct the name",
            )
        return value


def _same(value: Any) -> Any:
    return value


def _spellings(given: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Return all accepted names, aliases included, by their canonical form."""
    names = {canonical(name): name for name in (*known, *given)}
    aliases = {canonical(alias): alias for alias, name in ALIASES.items() if canonical(name) in names}
    return {**aliases, **names}


def _key(name: str) -> str:
    """Return the canonical name for a spelling."""
    return _ALIAS_KEYS.get(canonical(name), canonical(name))


_ALIAS_KEYS = {canonical(alias): canonical(name) for alias, name in ALIASES.items()}
_MEANINGS = {canonical(name): meaning for name, meaning in VARIABLES.items()}
