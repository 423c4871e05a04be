"""How llama.cpp is compiled on a host: CMake's options, from what the host is."""

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
"""What one compiler process needs at most, by backend."""

_COMMON = (
    # Only what is built on purpose: no download of a page for the browser, no library for HTTPS.
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
    """An option of ggml and the flags of /proc/cpuinfo that it needs (ggml/src/ggml-cpu/CMakeLists.txt)."""

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
    """The instruction sets to compile for: those that the processor has, named one by one.

    ``GGML_NATIVE`` would take AMX wherever it is advertised, and some virtual machines advertise it and trap.
    On other architectures there is no such trap, and the compiler chooses.

    Args:
        facts: the host.
        amx: whether AMX is used where it is advertised.
    """
    if facts[ARCHITECTURE] not in {"x86_64", "amd64"}:
        return ["-DGGML_NATIVE=ON"]
    flags = facts[PROCESSOR].flags
    sets = [*_X86, *(_AMX if amx else ())]
    chosen = [f"-D{one.option}={'ON' if one.flags <= flags else 'OFF'}" for one in sets]
    return ["-DGGML_NATIVE=OFF", *chosen]


def wanted_backend(facts: Facts, asked: Backend) -> Literal["cpu", "cuda"]:
    """The backend to build: for ``auto`` CUDA where a GPU answers and a toolkit is installed that fits it."""
    if asked != "auto":
        return asked
    capabilities = facts[COMPUTE_CAPABILITIES]
    return "cuda" if capabilities and _toolkit(facts, _architectures(capabilities))[0] else "cpu"


def passed_over(facts: Facts, asked: Backend) -> str:
    """Which GPU of the host ``auto`` does not build for, and why; nothing where none is passed over."""
    if asked != "auto" or not facts[GPUS] or wanted_backend(facts, asked) == "cuda":
        return ""
    names = ", ".join(sorted({gpu.name or "an NVIDIA GPU" for gpu in facts[GPUS]}))
    capabilities = facts[COMPUTE_CAPABILITIES]
    why = _toolkit(facts, _architectures(capabilities))[1] if capabilities else "no driver answers for it"
    return f"for the CPU alone, {names} is passed over: {why}"


def _architectures(capabilities: tuple[str, ...]) -> list[str]:
    return [one.replace(".", "") for one in capabilities]


def _toolkit(facts: Facts, architectures: Sequence[str]) -> tuple[CudaToolkit | None, str]:
    """The toolkit to compile with, or why none will do.

    Of those that know the architectures and that the driver runs: the newest that the driver was made for,
    else the newest.
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
    """Why a toolkit will not do, or nothing; a driver that is not loaded is not judged."""
    numbers = [int(match.group()) for one in architectures if (match := re.match(r"\d+", one))]
    if unknown := [str(number) for number in numbers if not compiles_for(cuda, number)]:
        return f"does not compile for {', '.join(unknown)}"
    oldest = compatible_driver(cuda)
    if driver and oldest and driver_key(driver) < driver_key(oldest):
        return f"needs driver {oldest} or newer, and {driver} is loaded"
    return ""


def cuda_options(facts: Facts, architectures: Sequence[str] = ()) -> list[str]:
    """The options of a CUDA build: the newest toolkit that fits, the architectures of the GPUs that answer.

    Args:
        facts: the host.
        architectures: what to compile for instead, as CMake names it: ``90`` for compute capability 9.0.

    Raises:
        HostError: if no toolkit will do, or nobody tells what to compile for.
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
    """All of CMake's options but those that name folders and the version."""
    cuda = cuda_options(facts, architectures) if wanted_backend(facts, backend) == "cuda" else []
    return [*_COMMON, *processor_options(facts, amx=amx), *cuda]


def job_count(facts: Facts, backend: Literal["cpu", "cuda"]) -> int:
    """How many compilers run at once: one for each core, as far as the memory goes."""
    available = facts[MEMORY].available_bytes or facts[MEMORY].total_bytes
    return max(1, min(facts[PROCESSOR].logical_cores, available // _MEMORY_BYTES[backend]))
