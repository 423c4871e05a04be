"""A stand-in for libnvidia-ml, written in C, that nvidia-ml-py loads instead of NVIDIA's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["NvmlStandIn", "nvml_library", "nvml_stand_in"]

SOURCE = Path(__file__).with_name("libnvidia_ml.c")


class NvmlStandIn:
    """The library's values, which can be set while others read them.

    Args:
        library: the library.
        state: the file that it reads.
    """

    def __init__(self, library: Path, state: Path) -> None:
        self.library = library
        self.state = state
        self._values = {
            "gpus": 2,
            "events": 0,
            "gone": 0,
            "lost": -1,
            "old": 0,
            "ecc": 0,
            "clock": 1755,
            "watts": 0,
            "time": -1,
        }
        self.set()

    def set(self, **values: int) -> None:
        """Change the state, all values at once."""
        self._values |= values
        part = self.state.with_suffix(".part")
        part.write_text("".join(f"{name} {value}\n" for name, value in self._values.items()))
        part.replace(self.state)

    def environment(self) -> dict[str, str]:
        """Return the variables with which a process loads this library."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML_STATE": str(self.state)}


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library, built once."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the stand-in for libnvidia-ml needs a C compiler")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE, "-lm"], check=True
    )
    return library


@pytest.fixture
def nvml_stand_in(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStandIn:
    """Load the library into this process instead of NVIDIA's."""
    import pynvml

    stand_in = NvmlStandIn(nvml_library, tmp_path / "nvml_state")
    monkeypatch.setenv("FAKE_NVML_STATE", str(stand_in.state))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(nvml_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return stand_in
