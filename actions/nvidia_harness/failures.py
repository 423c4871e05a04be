"""Recognise failures in the output of NVIDIA's code, even with exit code 0, and suggest remedies."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from agent.host.containers.failures import known_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SILENT = (
    r"Detected system did not match any known systems",
    r"No registered config for \S+",
    r"Dataset cannot be downloaded directly",
    r"is NOT downloaded! Exiting",
    r"Detected system is a deprecated system",
    r"download is not automatable",
    r"model is not copied",
)
"""Output of runs that did nothing but end with 0 (code/main.py, code/*/tensorrt/download_*.sh)."""

_GIVEN_UP = (
    r"Could not resolve host|unable to resolve host address|unable to access"
    r"|Unable to establish SSL connection|Giving up\.|ERROR \d{3}:"
)
"""Last output of git and wget when they give up."""

_UNREACHED = (
    _GIVEN_UP + r"|Temporary failure in name resolution|Name or service not known"
    r"|Connection timed out|Connection refused|Network is unreachable"
)
"""Messages of failed downloads, including those after which another attempt or address may still succeed."""

_REMEDIES = (
    (
        r"did not match any known systems|deprecated system",
        "let vcagent add the system: remove RequireCustomSystemSupport, and see the step system",
    ),
    (
        r"No registered config",
        "add scenario and config_ver to the system's YAML in gpu_configs/systems, or set SystemFile",
    ),
    (
        r"cannot be downloaded directly|NOT downloaded|not automatable|is not copied",
        "this data has a licence to agree to: put it where the log says, below the scratch space, and resume",
    ),
    (r"No space left on device", "free some space on the scratch space's disk or Docker's, and resume"),
    (
        r"UID 0 \(root\)|must not be run as root",
        "set Username to an ordinary account",
    ),
    (
        r"unauthorized|denied: |authentication required",
        "log in to NVIDIA's registry as that account: docker login nvcr.io ($oauthtoken and an NGC key)",
    ),
    (
        r"permission denied while trying to connect to the Docker daemon",
        "add the account to the group docker: usermod -aG docker NAME",
    ),
    (
        r"out of memory|OutOfMemory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "lower gpu_batch_size (RunArgs; SystemFile for an added system); check who else uses the GPUs",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "systemd took the GPUs from the container (daemon-reload): vcagent resume replaces it",
    ),
    (
        # Makefile.const parses the version from nvidia-smi's output, and takes an empty one for an old
        # driver.
        r"operator expected\s[\s\S]*Driver Version >= ",
        "nvidia-smi fails, so make does not know the driver: run it on the host to see why, then resume",
    ),
    (
        r"Driver Version >= (\d+)",
        "install a driver of branch {0} or newer: NvidiaCudaInstallation",
    ),
    (
        _UNREACHED,
        "check that this host can reach that address; a proxy goes into ~/.docker/config.json, under proxies",
    ),
    (
        r"File .*\.plan does not exist|Cannot find engine",
        "the engine is missing: run generate_engines for this config_ver and scenario again",
    ),
    (r"No rule to make target '([^']+)'", "this repository has no target {0}: check that it is complete"),
)


_SURE = {"driver_mismatch", "driver_not_loaded", "no_buildx"}
"""Failures of the engine with unique messages."""


def silent_failure(line: str, *, download: bool = False) -> str | None:
    """Return the complaint in a line of a run that may still end with 0; None if there is none.

    Args:
        line: the line of output.
        download: True for a script that continues if an address cannot be reached.
    """
    patterns = (*_SILENT, _UNREACHED) if download else _SILENT
    return line.strip() if any(re.search(pattern, line) for pattern in patterns) else None


def remedy_for(text: str, log: object, *, of_engine: bool = False) -> str:
    """Return the remedy for a command's output; if unknown, a reference to the log.

    Args:
        text: the output, or its end.
        log: the path of the whole output.
        of_engine: True if only the docker command can fail; otherwise only its messages about the driver
            count, since programs use its other messages too.
    """
    known = known_failure(text)
    if known and known[0] in _SURE:
        return known[1]
    for pattern, remedy in _REMEDIES:
        if match := re.search(pattern, text):
            return remedy.format(*match.groups())
    if known and of_engine:
        return known[1]
    return f"all of its output is in {log}; after fixing the cause, vcagent resume continues here"


@contextmanager
def explained(
    title: str,
    log: object,
    complaints: Sequence[str] = (),
    lacking: Callable[[], str | None] = lambda: None,
    *,
    of_engine: bool = False,
) -> Iterator[None]:
    """Turn a command's failure, or a complaint of one that ended with 0, into the stage's with a remedy.

    Args:
        title: the stage, for people.
        log: the path of the whole output.
        complaints: the complaints so far; read at the end of the command.
        lacking: description of missing files; empty if none are missing, and then no complaint
            counts; None if unknown, and then complaints count unless they were overcome.
        of_engine: see ``remedy_for``.
    """
    try:
        yield
    except ActionFailedError as error:
        remedy = remedy_for("\n".join((*complaints, *error.details)), log, of_engine=of_engine)
        message = f"{title} failed: {error.message}"
        raise ActionFailedError(message, remedy=remedy, details=error.details) from error
    lacks = lacking()
    if lacks is None:
        final = "|".join((*_SILENT, _GIVEN_UP))
        lacks = next((complaint for complaint in complaints if re.search(final, complaint)), "")
    if lacks:
        raise ActionFailedError(
            f"{title} did not do its work: {lacks}",
            remedy=remedy_for("\n".join(complaints), log),
            details=tuple(complaints),
        )
