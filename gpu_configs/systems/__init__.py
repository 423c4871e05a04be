"""What NVIDIA's MLPerf harness is to use on a system: YAML, one a system, each value with its source.

A host is matched by its GPUs: their name, memory and number, and by its vendor where a system names one.
Where no system matches, the nearest one of the same GPU family gives a starting point, scaled and said to be
one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "GpuSet",
    "Match",
    "Section",
    "System",
    "Tuned",
    "chosen_system",
    "load_system",
    "match_system",
    "shipped_systems",
]

_FOLDER = Path(__file__).parent
_MEMORY_TOLERANCE = 0.06
"""A driver reports up to so much less memory than the GPU is called by."""

PER_GPU = ("offline_expected_qps", "server_target_qps")
"""Settings that are for all GPUs together, so that they grow with their number."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(_Model):
    """The GPUs of a system."""

    names: tuple[str, ...] = Field(min_length=1, description="As the driver calls them.")
    memory_gib: float = Field(gt=0, description="The memory of one, in GiB, as it is called.")
    count: int = Field(ge=1)
    known_as: str = Field(description="The KnownGPU of NVIDIA's code.")


class Section(_Model):
    """The settings of one benchmark in one scenario."""

    benchmark: str
    scenario: str
    rounds: tuple[str, ...] = Field(min_length=1, description="MLPerf rounds, such as v4.1, newest first.")
    source: str = Field(min_length=1, description="Where the values are from.")
    default: dict[str, Any] = Field(description="For config_ver default: 99 % of the reference accuracy.")
    high_accuracy: dict[str, Any] | None = Field(
        None, description="What differs for config_ver high_accuracy, 99.9 %; absent where there is none."
    )


class System(_Model):
    """A kind of host."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="Also its name in NVIDIA's code.")
    description: str = ""
    vendor: str = Field("", description="DMI's sys_vendor, where that tells it from others with these GPUs.")
    gpu: Gpu
    like: str = Field("", description="The system whose sections are used where this one has none.")
    sections: tuple[Section, ...] = ()

    @field_validator("sections")
    @classmethod
    def _no_doubles(cls, sections: tuple[Section, ...]) -> tuple[Section, ...]:
        seen: set[tuple[str, str, str]] = set()
        for section in sections:
            for number in section.rounds:
                key = (section.benchmark, section.scenario, number)
                if key in seen:
                    raise ValueError(f"{' '.join(key)} stands twice")
                seen.add(key)
        return sections


@dataclass(frozen=True)
class GpuSet:
    """The GPUs of a host that a harness may use.

    Args:
        name: as the driver calls them.
        memory_mib: the memory of one.
        count: how many.
        vendor: DMI's sys_vendor of the host; empty where nobody knows.
        pci_id: its PCI device number, such as ``0x2330``; None where nobody knows.
    """

    name: str
    memory_mib: int
    count: int
    vendor: str = ""
    pci_id: str | None = None

    def __str__(self) -> str:
        """For people: ``8 x NVIDIA H100 80GB HBM3 (81559 MiB)``."""
        return f"{self.count} x {self.name} ({self.memory_mib} MiB)"

    @property
    def memory_gib(self) -> float:
        """The memory of one, in GiB."""
        return self.memory_mib / 1024

    @property
    def family(self) -> str:
        """The model's word: ``H100`` in ``NVIDIA H100 80GB HBM3``."""
        match = re.search(r"\b([A-Z]{1,2}\d{2,3}S?)\b", self.name.replace("-", " "))
        return match.group(1) if match else self.name

    @property
    def identifier(self) -> str:
        """A name for a system of these GPUs that NVIDIA's code accepts."""
        words = re.sub(r"[^A-Za-z0-9]+", "_", self.name.removeprefix("NVIDIA ")).strip("_")
        return f"{words}x{self.count}"


@dataclass(frozen=True)
class Tuned:
    """The settings of one run of the harness.

    Args:
        settings: by the names of NVIDIA's fields.
        source: where they are from.
        caveats: why they are only a starting point; empty where they are for this very system and round.
    """

    settings: dict[str, Any]
    source: str
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Match:
    """The system that is taken for a host.

    Args:
        name: what the host is called in NVIDIA's code.
        system: the system.
        factor: this host's GPUs for each of the system's; 1 for the same.
        caveats: in what the host differs.
    """

    name: str
    system: System
    factor: float = 1.0
    caveats: tuple[str, ...] = ()
    systems: tuple[System, ...] = ()

    def tuned(self, benchmark: str, scenario: str, config_ver: str, mlperf_round: str) -> Tuned | None:
        """The settings for a run; None where the system has none.

        Args:
            benchmark: such as ``bert``.
            scenario: LoadGen's scenario.
            config_ver: ``default`` or ``high_accuracy``.
            mlperf_round: of the repository, such as ``v4.1``.
        """
        system: System | None = self.system
        visited: set[str] = set()
        while system is not None and system.name not in visited:
            visited.add(system.name)
            if found := _section(system, benchmark, scenario, config_ver, mlperf_round):
                section, settings = found
                caveats = list(self.caveats)
                if mlperf_round not in section.rounds:
                    caveats.append(f"the settings are those of {section.rounds[0]}, not of {mlperf_round}")
                scaled = {
                    key: _scaled(value, self.factor) if key in PER_GPU else value
                    for key, value in settings.items()
                }
                return Tuned(scaled, section.source, tuple(caveats))
            wanted = system.like
            system = next((other for other in self.systems if other.name == wanted), None)
        return None


def _section(
    system: System, benchmark: str, scenario: str, config_ver: str, mlperf_round: str
) -> tuple[Section, dict[str, Any]] | None:
    sections = [
        section
        for section in system.sections
        if section.benchmark == benchmark
        and section.scenario.lower() == scenario.lower()
        and (config_ver == "default" or section.high_accuracy is not None)
    ]
    if not sections:
        return None
    exact = [section for section in sections if mlperf_round in section.rounds]
    section = (exact or sorted(sections, key=lambda section: section.rounds[0]))[-1]
    extra = section.high_accuracy if config_ver == "high_accuracy" else None
    return section, {**section.default, **(extra or {})}


def _scaled(value: float, factor: float) -> float:
    scaled = round(value * factor, 3)
    return int(scaled) if scaled == int(scaled) else scaled


def load_system(path: Path) -> System:
    """Read one system.

    Raises:
        HostError: if the file cannot be read or is not a system.
    """
    try:
        return System.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise HostError(f"{path} cannot be read: {error.strerror}", remedy="correct the path") from error
    except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise HostError(
            f"{path} is no system: {error}", remedy="write it as those in gpu_configs/systems are"
        ) from error


def shipped_systems() -> tuple[System, ...]:
    """The systems in this folder, by name."""
    return tuple(load_system(path) for path in sorted(_FOLDER.glob("*.yaml")))


def match_system(gpus: GpuSet, systems: Sequence[System]) -> Match | None:
    """The system that a host is, or the nearest one of its GPU family; None where there is none.

    Args:
        gpus: the host's GPUs.
        systems: those that are known; one of the host's own vendor is preferred.
    """
    known = tuple(systems)
    own = [system for system in known if system.vendor in ("", gpus.vendor)]
    same = [system for system in own if _same_gpu(system, gpus) and system.gpu.count == gpus.count]
    if same:
        system = max(same, key=lambda system: bool(system.vendor))
        return Match(system.name, system, systems=known)
    candidates = [system for system in own if _family(system) == gpus.family]
    if not candidates:
        return None
    nearest = min(candidates, key=lambda system: _distance(system, gpus))
    factor = gpus.count / nearest.gpu.count
    caveats = (_scaled_from(nearest, gpus), *_memory(nearest, gpus))
    return Match(gpus.identifier, nearest, factor, caveats, known)


def chosen_system(system: System, gpus: GpuSet | None, systems: Sequence[System]) -> Match:
    """A system that the user names; where the host has another number of GPUs, it is scaled and says so."""
    if gpus is None or gpus.count == system.gpu.count:
        return Match(system.name, system, systems=tuple(systems))
    factor = gpus.count / system.gpu.count
    return Match(system.name, system, factor, (_scaled_from(system, gpus),), tuple(systems))


def _scaled_from(system: System, gpus: GpuSet) -> str:
    return f"a scaled starting point from {system.name}: this host has {gpus}"


def _memory(system: System, gpus: GpuSet) -> Iterable[str]:
    if gpus.memory_gib < system.gpu.memory_gib * (1 - _MEMORY_TOLERANCE):
        yield f"its GPUs have {system.gpu.memory_gib:g} GiB: lower gpu_batch_size if memory does not suffice"


def _same_gpu(system: System, gpus: GpuSet) -> bool:
    near = abs(gpus.memory_gib - system.gpu.memory_gib) <= _MEMORY_TOLERANCE * system.gpu.memory_gib
    return near and gpus.name in system.gpu.names


def _family(system: System) -> str:
    return GpuSet(system.gpu.names[0], 0, 1).family


def _distance(system: System, gpus: GpuSet) -> tuple[bool, bool, float, bool]:
    """Same GPU first; then one with no more memory; then the nearest memory and number."""
    more = system.gpu.memory_gib > gpus.memory_gib * (1 + _MEMORY_TOLERANCE)
    apart = abs(system.gpu.memory_gib - gpus.memory_gib) + abs(system.gpu.count - gpus.count)
    return not _same_gpu(system, gpus), more, apart, bool(system.vendor)
