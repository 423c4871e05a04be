"""Each error message of NVIDIA's code and of the docker command has its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from actions.nvidia_harness.failures import explained, remedy_for, silent_failure
from agent.core.errors import ActionFailedError

LOG = Path("logs/step.log")
# Messages of make with NVIDIA's own Makefile.const of v4.1, with and without a working nvidia-smi.
OLD_DRIVER = (
    "Makefile.const:179: *** MLPerf Inference v3.1 code requires NVIDIA Driver Version >= 515.xx.  Stop."
)
NO_ANSWER = f"/bin/bash: line 1: [: -ge: unary operator expected\n{OLD_DRIVER}"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (OLD_DRIVER, "install a driver of branch 515 or newer"),
        (NO_ANSWER, "nvidia-smi fails"),
        ("Failed to initialize NVML: Unknown Error", "vcagent resume replaces it"),
        ("Failed to initialize NVML: Driver/library version mismatch", "reboot the host"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "modprobe nvidia"),
        ("wget: unable to resolve host address 'zenodo.org'", "a proxy goes into ~/.docker/config.json"),
        ("fatal: unable to access 'https://github.com/x/': Could not resolve host", "check that this host"),
        ("The mixtral download is not automatable. Please run git clone", "put it where the log says"),
        ("something else", "all of its output is in logs/step.log"),
        # Words that other programs use too, and that do not concern the engine there.
        ("API rate limit exceeded", "all of its output is in logs/step.log"),
        ("OSError: operation not permitted", "all of its output is in logs/step.log"),
    ],
)
def test_what_is_said_in_the_container_has_its_remedy(said: str, remedy: str) -> None:
    assert remedy in remedy_for(said, LOG)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "Error response from daemon: manifest for nvcr.io/x:1 not found: manifest unknown",
            "correct its name",
        ),
        ("toomanyrequests: You have reached your pull rate limit.", "docker login"),
        (
            "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?",
            "systemctl start",
        ),
        ("ERROR: BuildKit is enabled but the buildx component is missing or broken.", "docker-buildx-plugin"),
        ("permission denied while trying to connect to the Docker daemon socket", "usermod -aG docker"),
        ("unauthorized: authentication required", "docker login nvcr.io"),
        ("something else", "all of its output is in logs/step.log"),
    ],
)
def test_what_the_docker_command_says_has_its_remedy(said: str, remedy: str) -> None:
    with pytest.raises(ActionFailedError) as error, explained("make prebuild", LOG, of_engine=True):
        raise ActionFailedError(
            "`make prebuild` ended with 2", details=(said, "make: *** [prebuild] Error 2")
        )
    assert remedy in str(error.value.remedy)


def test_what_is_not_reached_is_a_complaint_of_downloads_alone() -> None:
    line = "wget: unable to resolve host address 'zenodo.org'\n"
    assert silent_failure(line, download=True) == line.strip()
    assert silent_failure(line) is None


@pytest.mark.parametrize(
    ("complaints", "lacks", "told"),
    [
        ((), None, ""),
        ((), "", ""),
        # It is tried again, and then exists.
        (("Connection timed out",), "", ""),
        (("failed: Network is unreachable.",), None, ""),
        (("failed: Connection timed out.", "Giving up."), None, "did not do its work: Giving up."),
        (
            ("Connection timed out",),
            "below /s, this file is missing or incomplete: x",
            "check that this host can reach that address",
        ),
        (
            (),
            "below /s, this file is missing or incomplete: x",
            "did not do its work: below /s, this file is missing or incomplete: x",
        ),
        (
            ("ERROR 404: Not Found",),
            "below /s, this file is missing or incomplete: x",
            "check that this host can reach that address",
        ),
    ],
)
def test_what_is_there_decides(complaints: tuple[str, ...], lacks: str | None, told: str) -> None:
    said = ""
    try:
        with explained("download model", LOG, complaints, lambda: lacks):
            pass
    except ActionFailedError as error:
        said = f"{error.message}; {error.remedy}"
    assert told in said
    assert bool(told) is bool(said)
