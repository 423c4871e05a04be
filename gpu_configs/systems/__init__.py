"""Settings of NVIDIA's MLPerf harness for each system: YAML, one file per system, each value with its source.

A host is matched by its GPUs (name, memory and number), and by its vendor if a system names one. If no system
matches, the nearest one of the same GPU family is scaled and reported as a starting point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent.core.errors import HostError
from agent.core.yaml_data import yaml_data

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
"""Most that a driver's reported memory may be below the GPU's nominal memory."""

PER_GPU = ("offline_expected_qps", "server_target_qps")
"""Settings for all GPUs together, which therefore grow with the number of GPUs."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Gpu(_Model):
    """The GPUs of a system."""

    names: tuple[str, ...] = Field(min_length=1, description="Names that the driver reports.")
    memory_gib: float = Field(gt=0, description="The nominal memory of one GPU, in GiB.")
    count: int = Field(ge=1)
    known_as: str = Field(description="The KnownGPU of NVIDIA's code.")


class Section(_Model):
    """The settings of one benchmark in one scenario."""

    benchmark: str
    scenario: str
    rounds: tuple[str, ...] = Field(min_length=1, description="MLPerf rounds, such as v4.1, newest first.")
    source: str = Field(min_length=1, description="Source of the values.")
    default: dict[str, Any] = Field(description="For config_ver default: 99 % of the reference accuracy.")
    high_accuracy: dict[str, Any] | None = Field(
        None, description="Differences for config_ver high_accuracy (99.9 %); absent if not supported."
    )


class System(_Model):
    """A kind of host."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="Also its name in NVIDIA's code.")
    description: str = ""
    vendor: str = Field("", description="DMI's sys_vendor, if it distinguishes systems with the same GPUs.")
    gpu: Gpu
    like: str = Field("", description="System that supplies the sections missing here.")
    sections: tuple[Section, ...] = ()

    @field_validator("sections")
    @classmethod
    def _no_doubles(cls, sections: tuple[Section, ...]) -> tuple[Section, ...]:
        seen: set[tuple[str, str, str]] = set()
        for section in sections:
            for number in section.rounds:
                key = (section.benchmark, section.scenario, number)
                if key in seen:
                    raise ValueError(f"{' '.join(key)} occurs twice")
                seen.add(key)
        return sections


@dataclass(frozen=True)
class GpuSet:
    """The GPUs of a host that a harness may use.

    Args:
        name: the name that the driver reports.
        memory_mib: the memory of one GPU.
        count: the number of GPUs.
        vendor: DMI's sys_vendor of the host; empty if unknown.
        pci_id: its PCI device number, such as ``0x2330``; None if unknown.
    """

    name: str
    memory_mib: int
    count: int
    vendor: str = ""
    pci_id: str | None = None

    def __str__(self) -> str:
        """Return a readable form: ``8 x NVIDIA H100 80GB HBM3 (81559 MiB)``."""
        return f"{self.count} x {self.name} ({self.memory_mib} MiB)"

    @property
    def memory_gib(self) -> float:
        """The memory of one GPU, in GiB."""
        return self.memory_mib / 1024

    @property
    def family(self) -> str:
        """The word for the GPU family: ``H100`` in ``NVIDIA H100 80GB HBM3``."""
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
        settings: the settings under the names of NVIDIA's fields.
        source: the source of the settings.
        caveats: reasons why they are only a starting point; empty if made for this very system and round.
    """

    settings: dict[str, Any]
    source: str
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Match:
    """The system that is used for a host.

    Args:
        name: the host's name in NVIDIA's code.
        system: the system.
        factor: number of this host's GPUs for each GPU of the system; 1 if equal.
        caveats: differences between host and system.
    """

    name: str
    system: System
    factor: float = 1.0
    caveats: tuple[str, ...] = ()
    systems: tuple[System, ...] = ()

    def tuned(self, benchmark: str, scenario: str, config_ver: str, mlperf_round: str) -> Tuned | None:
        """Return the settings for a run, or None if the system has none.

        Args:
            benchmark: the benchmark, such as ``bert``.
            scenario: LoadGen's scenario.
            config_ver: ``default`` or ``high_accuracy``.
            mlperf_round: the repository's round, such as ``v4.1``.
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
        return System.model_validate(yaml_data(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise HostError(f"{path} cannot be read: {error.strerror}", remedy="correct the path") from error
    except (ValidationError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise HostError(
            f"{path} is not a system: {error}", remedy="write it like the files in gpu_configs/systems"
        ) from error


def shipped_systems() -> tuple[System, ...]:
    """Return the systems in this folder, by name."""
    return tuple(load_system(path) for path in sorted(_FOLDER.glob("*.yaml")))


def match_system(gpus: GpuSet, systems: Sequence[System]) -> Match | None:
    """Return the system of a host, or the nearest one of its GPU family, or None.

    Args:
        gpus: the host's GPUs.
        systems: the known systems; one of the host's own vendor is preferred.
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
    """Return a system that the user named, scaled with a caveat if the host has another number of GPUs."""
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
    """Return a sort key: the same GPU first; then no more memory; then the nearest memory and number."""
    more = system.gpu.memory_gib > gpus.memory_gib * (1 + _MEMORY_TOLERANCE)
    apart = abs(system.gpu.memory_gib - gpus.memory_gib) + abs(system.gpu.count - gpus.count)
    return not _same_gpu(system, gpus), more, apart, bool(system.vendor)
