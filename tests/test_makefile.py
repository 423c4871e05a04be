from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")

STAND_IN = """\
#!/bin/sh
# A Python that makes virtual environments of stand-ins, and notes what it was asked.
echo "$*" >> calls
for last; do :; done
case "$*" in "-m venv "*)
  mkdir -p "$last/bin" && touch "$last/pyvenv.cfg" "$last/pip"
  cat > "$last/bin/python" <<END
#!/bin/sh
for asked; do :; done
[ "\\$asked" = --version ] || echo "\\$asked" >> installs
test -e "$last/pip"
END
  chmod +x "$last/bin/python";;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).parents[1] / "Makefile", tmp_path)
    for name in ("setup.cfg", "pyproject.toml"):
        (tmp_path / name).touch()
    (tmp_path / "python").write_text(STAND_IN)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(folder: Path, stamp: str = "installed") -> subprocess.CompletedProcess[str]:
    command = ["make", "PYTHON=./python", "VENV=venv", f"venv/{stamp}"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def made(folder: Path) -> int:
    return (folder / "calls").read_text().count("-m venv")


def test_a_virtual_environment_is_made_once(folder: Path) -> None:
    assert make(folder).returncode == 0
    (folder / "venv" / "installed").unlink()
    assert make(folder).returncode == 0
    assert made(folder) == 1


def test_one_that_was_cut_short_is_made_anew(folder: Path) -> None:
    make(folder)
    (folder / "venv" / "installed").unlink()
    (folder / "venv" / "pip").unlink()
    result = make(folder)
    assert result.returncode == 0, result.stderr
    assert made(folder) == 2


def test_another_folder_is_left_alone(folder: Path) -> None:
    (folder / "venv").mkdir()
    (folder / "venv" / "precious").touch()
    result = make(folder)
    assert result.returncode != 0
    assert "is not a virtual environment" in result.stderr
    assert (folder / "venv" / "precious").exists()


ASKED = {"installed": ".", "installed-test": ".[test]", "installed-dev": ".[dev]"}


@pytest.mark.parametrize("stamp", ASKED)
def test_what_has_more_stands_for_what_has_less(folder: Path, stamp: str) -> None:
    less = list(ASKED)[: list(ASKED).index(stamp)]
    for wanted in (stamp, *less):
        assert make(folder, wanted).returncode == 0
        assert (folder / "installs").read_text() == f"{ASKED[stamp]}\n"
