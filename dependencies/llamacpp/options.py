"""Determines CMake's options for llama.cpp from the host's facts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent.core.errors import HostError, LiftedBy
from agent.facts.compute_capabilities import COMPUTE_CAPABILITIES
from agent.facts.cuda_toolkits import CUDA_TOOLKITS
from agent.facts.gpus import DRIVER_VERSION, GPUS
from agent.facts.linux import ARCHITECTURE
from agent.facts.memory import MEMORY
from agent.facts.processor import PROCESSOR
from dependencies.nvidia.cuda_versions import compatible_driver, compiles_for, driver_key, needed_driver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.facts import Facts
    from agent.facts.cuda_toolkits import CudaToolkit

Backend = Literal["auto", "cpu", "cuda"]
_MEMORY_BYTES = {"cpu": 1 << 30, "cuda": 3 << 30}
"""The maximum memory of one compiler process, by backend."""

_COMMON = (
    # Only the programs and no extras: no download of the web page, no HTTPS library.
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_CURL=OFF",
)


@dataclass(frozen=True)
class _InstructionSet:
    """An option of ggml, and the flags in /proc/cpuinfo that it needs (ggml/src/ggml-cpu/CMakeLists.txt)."""

    option: str
    flags: frozenset[str]


_X86 = (
    _InstructionSet("GGML_AVX", frozenset({"avx"})),
    _InstructionSet("GGML_AVX2", frozenset({"avx2"})),
    _InstructionSet("GGML_FMA", frozenset({"fma"})),
    _InstructionSet("GGML_F16C", frozenset({"f16c"})),
    _InstructionSet("GGML_BMI2", frozenset({"bmi2"})),
    _InstructionSet("GGML_AVX_VNNI", frozenset({"avx_vnni"})),
    _InstructionSet("GGML_AVX512", frozenset({"avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"})),
    _InstructionSet("GGML_AVX512_VNNI", frozenset({"avx512f", "avx512_vnni"})),
    _InstructionSet("GGML_AVX512_BF16", frozenset({"avx512f", "avx512_bf16"})),
)
_AMX = (
    _InstructionSet("GGML_AMX_TILE", frozenset({"amx_tile"})),
    _InstructionSet("GGML_AMX_INT8", frozenset({"amx_int8"})),
    _InstructionSet("GGML_AMX_BF16", frozenset({"amx_bf16"})),
)


def processor_options(facts: Facts, *, amx: bool = False) -> list[str]:
    """Return the options for the instruction sets of the processor, each named explicitly.

    ``GGML_NATIVE`` would use AMX wherever it is advertised, but some virtual machines advertise it and trap.
    Other architectures do not have that problem, and the compiler chooses.

    Args:
        facts: the host.
        amx: whether to use AMX if it is advertised.
    """
    if facts[ARCHITECTURE] not in {"x86_64", "amd64"}:
        return ["-DGGML_NATIVE=ON"]
    flags = facts[PROCESSOR].flags
    sets = [*_X86, *(_AMX if amx else ())]
    chosen = [f"-D{one.option}={'ON' if one.flags <= flags else 'OFF'}" for one in sets]
    return ["-DGGML_NATIVE=OFF", *chosen]


def wanted_backend(facts: Facts, asked: Backend) -> Literal["cpu", "cuda"]:
    """Return the backend to build; ``auto`` means CUDA if a GPU answers and a toolkit suits it."""
    if asked != "auto":
        return asked
    capabilities = facts[COMPUTE_CAPABILITIES]
    return "cuda" if capabilities and _toolkit(facts, _architectures(capabilities))[0] else "cpu"


def passed_over(facts: Facts, asked: Backend) -> str:
    """Return which GPU ``auto`` does not build for, and why; empty if it ignores none."""
    if asked != "auto" or not facts[GPUS] or wanted_backend(facts, asked) == "cuda":
        return ""
    names = ", ".join(sorted({gpu.name or "an NVIDIA GPU" for gpu in facts[GPUS]}))
    capabilities = facts[COMPUTE_CAPABILITIES]
    why = _toolkit(facts, _architectures(capabilities))[1] if capabilities else "no driver answers for it"
    return f"for the CPU alone, {names} is passed over: {why}"


def _architectures(capabilities: tuple[str, ...]) -> list[str]:
    return [one.replace(".", "") for one in capabilities]


def _toolkit(facts: Facts, architectures: Sequence[str]) -> tuple[CudaToolkit | None, str]:
    """Return the toolkit to compile with, or the reason why none is suitable.

    Only toolkits that support the architectures and run with the driver count. The newest that the driver was
    made for is preferred, otherwise the newest.
    """
    toolkits = [toolkit for toolkit in facts[CUDA_TOOLKITS] if toolkit.complete]
    if not toolkits:
        return None, "no CUDA toolkit with nvcc is in /usr/local or on PATH"
    driver = facts[DRIVER_VERSION]
    faults = {toolkit: _unfit(toolkit.version, architectures, driver) for toolkit in toolkits}
    fitting = [toolkit for toolkit, fault in faults.items() if not fault]
    if not fitting:
        return None, "; ".join(f"CUDA {toolkit.version} {fault}" for toolkit, fault in faults.items())

    def rank(toolkit: CudaToolkit) -> tuple[bool, tuple[int, ...]]:
        needed = needed_driver(toolkit.version)
        made_for = not (driver and needed) or driver_key(driver) >= driver_key(needed)
        return made_for, tuple(map(int, toolkit.version.split(".")))

    return max(fitting, key=rank), ""


def _unfit(cuda: str, architectures: Sequence[str], driver: str | None) -> str:
    """Return the reason why a toolkit is not suitable, or nothing; a missing driver is not a reason."""
    numbers = [int(match.group()) for one in architectures if (match := re.match(r"\d+", one))]
    if unknown := [str(number) for number in numbers if not compiles_for(cuda, number)]:
        return f"does not compile for {', '.join(unknown)}"
    oldest = compatible_driver(cuda)
    if driver and oldest and driver_key(driver) < driver_key(oldest):
        return f"needs driver {oldest} or newer, and {driver} is loaded"
    return ""


def cuda_options(facts: Facts, architectures: Sequence[str] = ()) -> list[str]:
    """Return the options of a CUDA build: the newest suitable toolkit, and the architectures of the GPUs.

    Args:
        facts: the host.
        architectures: the architectures to compile for instead, as CMake names them: ``90`` for 9.0.

    Raises:
        HostError: if no toolkit is suitable, or the architectures are unknown.
    """
    chosen = list(architectures) or _architectures(facts[COMPUTE_CAPABILITIES])
    toolkit, fault = _toolkit(facts, chosen)
    if toolkit is None:
        raise HostError(
            f"llama.cpp cannot be built for CUDA: {fault}",
            remedy="add an NvidiaCudaInstallation with a toolkit that fits to the dependencies, or ask for "
            "the backend cpu",
            lifted_by=LiftedBy.DRIVER,
        )
    if not chosen:
        raise HostError(
            "no GPU answers, so that nobody knows what to compile for",
            remedy="give cudaArchitectures, such as 90 for H100 and H200, 80 for A100, 100 for B200",
            lifted_by=LiftedBy.DRIVER,
        )
    return [
        "-DGGML_CUDA=ON",
        f"-DCMAKE_CUDA_COMPILER={toolkit.path}/bin/nvcc",
        f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(chosen)}",
    ]


def all_options(facts: Facts, backend: Backend, *, amx: bool, architectures: Sequence[str] = ()) -> list[str]:
    """Return all CMake options except those for folders and the version."""
    cuda = cuda_options(facts, architectures) if wanted_backend(facts, backend) == "cuda" else []
    return [*_COMMON, *processor_options(facts, amx=amx), *cuda]


def job_count(facts: Facts, backend: Literal["cpu", "cuda"]) -> int:
    """Return the number of parallel compilers: one per core, limited by the memory."""
    available = facts[MEMORY].available_bytes or facts[MEMORY].total_bytes
    return max(1, min(facts[PROCESSOR].logical_cores, available // _MEMORY_BYTES[backend]))
