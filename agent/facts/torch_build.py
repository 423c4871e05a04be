"""The torch of a Python environment: its version, and the ROCm that it is built for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_S = 60
_PROGRAM = """\
from importlib.util import find_spec
from pathlib import Path
found = find_spec("torch")
print(Path(found.origin).with_name("version.py").read_text() if found and found.origin else "")
"""
"""Program for the environment's interpreter: prints torch's version.py, without importing torch."""
_VALUE = r"^{}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]"


@dataclass(frozen=True)
class TorchBuild:
    """An environment's torch.

    Args:
        version: torch's version, such as ``2.11.0+rocm7.1``; empty if torch is not installed.
        hip: the version of ROCm's HIP that it is built for; empty if it is built for other devices.
    """

    version: str = ""
    hip: str = ""


def torch_build_of(text: str) -> TorchBuild:
    """Return what torch's ``version.py`` says (torch, tools/generate_torch_version.py)."""
    version, hip = (re.search(_VALUE.format(name), text, re.MULTILINE) for name in ("__version__", "hip"))
    return TorchBuild(version[1] if version else "", hip[1] if hip else "")


def torch_build(environment: Path) -> Fact[TorchBuild | None]:
    """Return the fact of an environment's torch; its value is None if the interpreter does not run."""
    command = [str(environment / "bin" / "python"), "-I", "-c", _PROGRAM]

    def read(host: Host) -> TorchBuild | None:
        text = host.output(command, timeout_s=_TIMEOUT_S)
        return None if text is None else torch_build_of(text)

    return Fact(f"torch_build[{environment}]", f"{command[0]} -c …", read)
