"""A git repository of static files, cloned by the real git (gitprotocol-http(5), dumb clients)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab.harness import nvidia_harness
from tests.lab.harness.nvidia_harness import LOG_CASES, LOGS, REPOSITORY, write_repository

__all__ = ["SOURCES", "write_results_repository"]

SOURCES = (
    Path(nvidia_harness.__file__),
    *(path for path in REPOSITORY.rglob("*") if path.is_file() and "__pycache__" not in path.parts),
    *(path for case in LOG_CASES.values() for path in LOGS.joinpath(case).glob("mlperf_log_*")),
)
"""The source folder of the repository."""

_DETECTED = {"cpu": "AMD EPYC 7V12 64-Core Processor", "gpu": "A100_SXM4_40GB", "count": "8"}
"""The host that its code detects: of a kind that NVIDIA's code does not know."""


def write_results_repository(folder: Path) -> None:
    """Write the stand-in for mlcommons/inference_results_v4.1, bare, for a file server."""
    with TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        write_repository(tree, "v4.1")
        for wish, value in _DETECTED.items():
            (tree / "closed" / "NVIDIA" / "standin" / wish).write_text(f"{value}\n")
        identity = ("-c", "user.name=lab", "-c", "user.email=lab@localhost")
        for command in (
            ("init", "--quiet", "--initial-branch=main"),
            ("add", "--all", "--force"),
            (*identity, "commit", "--quiet", "--message=The round's results"),
        ):
            subprocess.run(["git", "-C", tree, *command], check=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--bare", tree, folder], check=True)
        subprocess.run(["git", "-C", folder, "update-server-info"], check=True)
