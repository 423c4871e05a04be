"""Find llama.cpp's programs and run them, with their output kept whole."""

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
    "build llama.cpp with backend: cuda and a toolkit that the driver supports, and check that nvidia-smi "
    "lists the GPUs; or measure the CPU: gpuLayers 0"
)
"""Remedy if no GPU was used."""

_FOLDERS = ("bin", ".", "build/bin")
_MORE_RUNS = 2
"""The number of further attempts if a program writes no results."""
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
        "the model's file is truncated: make it again",
    ),
    (r"error while loading shared libraries: (\S+?):", "install the missing library"),
    (
        r"invalid argument|unknown argument|error: (argument|invalid parameter)",
        "correct arguments; see --help of the program",
    ),
    (
        r"[Ii]llegal instruction|signal 4\b|exit code 132",
        "it was compiled for another processor: build it on this host",
    ),
    (
        r"signal 9\b|exit code 137",
        "the host probably ran out of memory: lower the context, or choose a smaller variant",
    ),
)
_NEWER: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("-no-cnv",): (),
    ("--progress",): (),
    ("--output", "jsonl"): ("--output", "json"),
    ("--output-format", "jsonl"): (),
}
"""Options unknown to b3642 of August 2024, with its replacements: that build neither converses nor shows
progress by default, and its llama-batched-bench prints a table."""


def find_program(folder: Path, *names: str) -> Path:
    """Return the first of some programs that exists in a folder of llama.cpp.

    Searches ``bin``, the folder itself, and ``build/bin``.

    Args:
        folder: a folder of LlamaCppInstallation, or of llama.cpp's own build or release.
        names: names such as ``llama-completion``, followed by older names.

    Raises:
        ActionFailedError: if no program exists.
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
    """Run a program to its end, with all of its output in its own log, without output of an earlier attempt.

    Args:
        command: the command line for the newest build; unknown options are removed for older builds.
        context: the context of the step.
        log: gets the program's output.
        on_line: called with each line.
        has_results: returns True if an output has results. llama.cpp writes its log in a separate thread,
            and about one short program in a hundred, more on a busy host, ends with exit code 0 before that
            thread has written anything (build 11669). Such a program is run up to two more times.

    Raises:
        ActionFailedError: if the program fails, with a remedy if known.
        InterruptedRunError: if the run was asked to stop.
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
        for _ in range(_MORE_RUNS):
            if has_results is None or has_results(result):
                break
            context.progress.update(f"{Path(words[0]).name} ended without results: it runs again")
            result = context.processes.run(words, log=log, on_line=on_line, env=environment)
    except ActionFailedError as error:
        said = f"{error.message}\n{log.read_text(encoding='utf-8', errors='replace')}"
        remedy = remedy_for(said) or error.remedy
        raise ActionFailedError(error.message, remedy=remedy, details=error.details) from error
    return result


def has_final_line(result: ProcessResult) -> bool:
    """Return True if llama-perplexity wrote its last line: ``Final estimate: …`` or ``Final result: …``."""
    return "Final " in result.stdout + result.stderr


def fitted(command: Sequence[str], told: str) -> list[str]:
    """Return a command line without the options that its program does not know.

    Args:
        command: the command line for the newest build.
        told: the output of the program's ``--help``; if empty, no option is removed.
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
    """Return the remedy for a program's failure, from its end and its output; None if unknown."""
    return next((text for pattern, text in _REMEDIES if re.search(pattern, said)), None)


def program_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the programs' extra environment variables; the user's own values win.

    GPUs are numbered like nvidia-smi's. A CUDA error stays the last output: a backtrace after it, by gdb if
    installed, would hide it.

    Threads spin only briefly at OpenMP's barriers: if another process holds a core, spinning threads wait for
    a time slice at each step. Measured with llama-bench b11434, a model of 135 M parameters and two threads,
    on two cores kept busy by two other processes: 0.5 to 0.9 tokens/s with OpenMP's default spin count, 18 to
    23 with this one.
    """
    own = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "GGML_NO_BACKTRACE": "1"}
    if "OMP_WAIT_POLICY" not in environment:
        own["GOMP_SPINCOUNT"] = "300"
    return {name: environment.get(name, value) for name, value in own.items()}


def on_the_cpu(said: str) -> str:
    """Return the message that a program did not use the GPUs, with its own words."""
    return f"layers should be on a GPU, but all of them were computed on the CPU: {said}"


def listed_devices(program: Path, processes: ProcessRunner, log: Path) -> tuple[str, ...] | None:
    """Return the devices of a program besides the CPU; None if it does not list them."""
    asked = [str(program), "--list-devices"]
    result = processes.run(asked, log=log, timeout_s=60, check=False, env=program_environment(os.environ))
    return devices_of(result.stdout)


def computed_on(gpu_layers: int | None, devices: tuple[str, ...] | None) -> dict[str, str | int | float]:
    """Return details of a result about the devices used.

    Args:
        gpu_layers: the number of layers requested on GPUs; None if the program chose.
        devices: the devices available besides the CPU; None if unknown.
    """
    layers: dict[str, str | int | float] = {} if gpu_layers is None else {"gpu_layers": gpu_layers}
    return {**layers, "devices": ", ".join(devices)} if devices and gpu_layers != 0 else layers


def build_number(program: Path, context: StepContext) -> Build | None:
    """Return the build that a program reports."""
    result = context.processes.run([str(program), "--version"], log=context.log, timeout_s=60, check=False)
    return build_of(result.stdout + result.stderr)
