"""llama.cpp's programs: where they are, and running one with its output kept whole."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from parsers.llamacpp.build import build_of
from parsers.llamacpp.devices import devices_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agent.component.component import StepContext
    from agent.host.processes import ProcessResult, ProcessRunner
    from parsers.llamacpp.build import Build

GPU_REMEDY = (
    "build llama.cpp with backend: cuda and a toolkit that the driver supports, and see that nvidia-smi "
    "lists the GPUs; or measure the CPU: gpuLayers 0"
)
"""What to do where no GPU is used."""

_FOLDERS = ("bin", ".", "build/bin")
_REMEDIES = (
    (
        r"no kernel image is available|has no device code compatible|PTX was compiled with an unsupported",
        "it was compiled for other GPUs or a newer driver: build it on this host, or give cudaArchitectures",
    ),
    (
        r"No space left on device|basic_ios::clear: iostream error",
        "the disk of the models is probably full: free some space, and resume",
    ),
    (
        r"unknown model architecture|unknown pre-tokenizer type|wrong number of tensors",
        "this build of llama.cpp does not know the model: install a newer version",
    ),
    (
        r"out of memory|failed to allocate|unable to allocate|cannot allocate|resource allocation failed",
        "lower gpuLayers or the context, or choose a smaller variant",
    ),
    (
        r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        "the NVSwitches are not set up: start nvidia-fabricmanager, of the driver's full version",
    ),
    ("CUDA error: ", "see the kernel's log (dmesg) for Xid errors of the GPU, and vcagent doctor"),
    (
        r"invalid magic|failed to read magic|tensor data is not within",
        "the model's file is cut: make it again",
    ),
    (r"error while loading shared libraries: (\S+?):", "install the library that it names"),
    (
        r"invalid argument|unknown argument|error: (argument|invalid parameter)",
        "correct arguments; see --help of the program",
    ),
    (
        r"[Ii]llegal instruction|signal 4\b|exit code 132",
        "it was compiled for another processor: make it on this host",
    ),
    (
        r"signal 9\b|exit code 137",
        "the host had probably no memory left: lower the context, or choose a smaller variant",
    ),
)
_NEWER: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("-no-cnv",): (),
    ("--progress",): (),
    ("--output", "jsonl"): ("--output", "json"),
    ("--output-format", "jsonl"): (),
}
"""Options that b3642 of August 2024 does not know, and what stands for them there: without being asked to, it
neither converses nor shows progress, and llama-batched-bench prints a table."""


def find_program(folder: Path, *names: str) -> Path:
    """The first of some programs that is in a folder of llama.cpp: ``bin``, itself, or ``build/bin``.

    Args:
        folder: as LlamaCppInstallation makes it, or as llama.cpp's own build and releases have it.
        names: such as ``llama-completion``, and what it was called before.

    Raises:
        ActionFailedError: if none is there.
    """
    places = [folder / below / name for name in names for below in _FOLDERS]
    for place in places:
        if place.is_file():
            return place
    raise ActionFailedError(
        f"{folder} has no {' or '.join(names)}",
        remedy="add a LlamaCppInstallation with this tool to the dependencies, or correct llamacpp",
    )


def run_program(
    command: Sequence[str | Path],
    context: StepContext,
    log: Path,
    *,
    on_line: Callable[[str], None] | None = None,
    has_results: Callable[[ProcessResult], bool] | None = None,
) -> ProcessResult:
    """Run a program to its end; all of its output is in a log of its own, without that of an earlier try.

    Args:
        command: as the newest build has it; an older one gets what it knows.
        context: the step's.
        log: gets the output.
        on_line: gets each line.
        has_results: tells whether an output has the results. llama.cpp writes its log in a thread of its own,
            and about one short program in a hundred ends with exit code 0 before that thread has written
            anything (build 11669). A program without results is run once more.

    Raises:
        ActionFailedError: if it fails, with what to do about it where that is known.
        InterruptedRunError: if the run was told to stop.
    """
    log.unlink(missing_ok=True)
    words = [str(part) for part in command]
    if any(option[0] in words for option in _NEWER):
        help_log = log.with_suffix(".help")
        asked = context.processes.run([words[0], "--help"], log=help_log, timeout_s=60, check=False)
        words = fitted(words, asked.stdout + asked.stderr)
    environment = program_environment(os.environ)
    try:
        result = context.processes.run(words, log=log, on_line=on_line, env=environment)
        if has_results is None or has_results(result):
            return result
        context.progress.update(f"{Path(words[0]).name} ended without its results: it runs again")
        return context.processes.run(words, log=log, on_line=on_line, env=environment)
    except ActionFailedError as error:
        said = f"{error.message}\n{log.read_text(encoding='utf-8', errors='replace')}"
        remedy = remedy_for(said) or error.remedy
        raise ActionFailedError(error.message, remedy=remedy, details=error.details) from error


def has_final_line(result: ProcessResult) -> bool:
    """Whether llama-perplexity wrote its last line: ``Final estimate: …`` or ``Final result: …``."""
    return "Final " in result.stdout + result.stderr


def fitted(command: Sequence[str], told: str) -> list[str]:
    """A command line without what its program does not know.

    Args:
        command: as the newest build has it.
        told: what the program's ``--help`` says; nothing is taken away where it says nothing.
    """
    known = set(re.findall(r"[\w-]+", told))
    words = list(command)
    for newer, older in _NEWER.items():
        size = len(newer)
        places = [at for at in range(len(words)) if tuple(words[at : at + size]) == newer]
        if known and places and not known.issuperset(newer):
            words[places[0] : places[0] + size] = older
    return words


def remedy_for(said: str) -> str | None:
    """What to do about how a program ended and what it said before; None where nothing is known of it."""
    return next((text for pattern, text in _REMEDIES if re.search(pattern, said)), None)


def program_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the programs get beside the user's environment, which wins.

    GPUs are counted as nvidia-smi does. A CUDA error is the last thing said: a backtrace after it, by gdb
    where that is installed, would hide it.

    Threads spin little at OpenMP's barriers: where another process holds a core, those that spin wait for a
    time slice at each step. Measured with llama-bench b11434, a model of 135 M parameters and two threads, on
    two cores that two other processes kept busy: 0.5 to 0.9 tokens/s with OpenMP's own count of spins, 18 to
    23 with this one.
    """
    own = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GGML_NO_BACKTRACE": "1"}
    if "OMP_WAIT_POLICY" not in environment:
        own["GOMP_SPINCOUNT"] = "300"
    return {name: environment.get(name, value) for name, value in own.items()}


def on_the_cpu(said: str) -> str:
    """How it is told that a program passed the GPUs over, from what it said itself."""
    return f"layers were to be on a GPU, and all of them were computed on the CPU: {said}"


def listed_devices(program: Path, processes: ProcessRunner, log: Path) -> tuple[str, ...] | None:
    """What a program can compute on beside the CPU; None where it does not tell."""
    asked = [str(program), "--list-devices"]
    result = processes.run(asked, log=log, timeout_s=60, check=False, env=program_environment(os.environ))
    return devices_of(result.stdout)


def computed_on(gpu_layers: int | None, devices: tuple[str, ...] | None) -> dict[str, str | int | float]:
    """What a result tells of where it was computed.

    Args:
        gpu_layers: how many layers were to be on GPUs; None where the program chose.
        devices: what it could compute on beside the CPU; None where that is not known.
    """
    layers: dict[str, str | int | float] = {} if gpu_layers is None else {"gpu_layers": gpu_layers}
    return {**layers, "devices": ", ".join(devices)} if devices and gpu_layers != 0 else layers


def build_number(program: Path, context: StepContext) -> Build | None:
    """The build that a program says that it is."""
    result = context.processes.run([str(program), "--version"], log=context.log, timeout_s=60, check=False)
    return build_of(result.stdout + result.stderr)
