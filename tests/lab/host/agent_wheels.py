"""This repository as a wheel, and the wheels that it needs: a lab host installs them without a network."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.lab.host.cache import cached_folder, fingerprint

__all__ = ["agent_wheel", "dependency_wheels"]

_ROOT = Path(__file__).parents[3]
_PACKAGES = ("agent", "actions", "dependencies", "parsers", "profiles", "gpu_configs")
_FILES = ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "docs/vcagent.1")
_PYTHON = "3.11"
"""Python version of the lab host, Debian 12."""


def _pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


def dependency_wheels(python: str = _PYTHON) -> Path:
    """Return the folder of the wheels that setup.cfg requires, for a Python such as the lab host's."""
    setup = configparser.ConfigParser()
    setup.read(_ROOT / "setup.cfg")
    wanted = setup["options"]["install_requires"].split("\n")[1:]

    def download(folder: Path) -> None:
        _pip("download", "--python-version", python, "--only-binary", ":all:", "--dest", folder, *wanted)

    return cached_folder(f"wheels-py{python}", fingerprint(python, wanted), download)


def agent_wheel() -> Path:
    """Return the wheel of the repository in its current state."""
    sources = [_ROOT / name for name in _FILES]
    for package in _PACKAGES:
        files = (path for path in (_ROOT / package).rglob("*") if path.is_file())
        sources += sorted(path for path in files if "__pycache__" not in path.parts)
    names = [str(path.relative_to(_ROOT)) for path in sources]

    def build(folder: Path) -> None:
        # setuptools leaves build/ next to its sources, so it works on a copy.
        with TemporaryDirectory() as copy:
            for source, name in zip(sources, names, strict=True):
                (Path(copy) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, Path(copy) / name)
            _pip("wheel", "--no-deps", "--wheel-dir", folder, copy)

    return next(cached_folder("host-agent", fingerprint(names, *sources), build).glob("*.whl"))
