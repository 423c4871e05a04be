"""A wheel file is checked before anything is installed: its name, its platform, its Python."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.core.errors import HostError
from agent.facts.base import Facts, LocalHost
from agent.facts.python import PythonInterpreter
from dependencies.python.environment_installation import PythonEnvironmentInstallationParameters
from dependencies.python.wheel_file import require_fit, wheel_requirement

PYTHON = PythonInterpreter("/usr/bin/python3.12", "3.12.3", "linux-x86_64")


def make(folder: Path, name: str, requires: str = "") -> Path:
    path = folder / name
    text = "Metadata-Version: 2.1\nName: engine\nVersion: 0.5.2\n"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(
            "engine-0.5.2.dist-info/METADATA", text + (f"Requires-Python: {requires}\n" if requires else "")
        )
    return path


def fits(path: Path, python: PythonInterpreter = PYTHON) -> None:
    require_fit(path, python, Facts(LocalHost()))


def test_a_name_becomes_a_requirement() -> None:
    path = Path("/w/engine_name-0.5.2+py3.12-py3-none-any.whl")
    assert wheel_requirement(path) == "engine-name @ file:///w/engine_name-0.5.2%2Bpy3.12-py3-none-any.whl"


@pytest.mark.parametrize("name", ["engine-0.5.2-py3-none.whl", "engine.whl", "engine-0.5.2.tar.gz"])
def test_another_name_is_refused_with_the_form_of_a_right_one(name: str) -> None:
    with pytest.raises(ValidationError, match=r"is not the name of a wheel.*engine-1.0-py3-none-any.whl"):
        PythonEnvironmentInstallationParameters.model_validate({"packageName": "e", "wheels": f"/w/{name}"})


@pytest.mark.parametrize(
    ("tags", "python"),
    [
        ("py3-none-any", PYTHON),
        ("cp312-cp312-manylinux_2_17_x86_64", PYTHON),
        ("cp310-abi3-manylinux2014_x86_64", PYTHON),
        ("cp310-cp310-linux_x86_64", PythonInterpreter("/p", "3.10.14", "linux-x86_64")),
    ],
)
def test_wheels_that_fit(tmp_path: Path, tags: str, python: PythonInterpreter) -> None:
    if "x86_64" in tags and not _is_x86():
        pytest.skip("the wheel is for x86-64")
    fits(make(tmp_path, f"engine-0.5.2-{tags}.whl", ">=3.9"), python)


def _is_x86() -> bool:
    import platform

    return platform.machine() == "x86_64"


@pytest.mark.parametrize(
    "tags",
    ["cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-win_amd64", "cp313-abi3-any", "py2-none-any"],
)
def test_a_wheel_for_another_python_or_platform_is_refused(tmp_path: Path, tags: str) -> None:
    with pytest.raises(HostError, match=r"is for .*; this is Python 3.12.3 on linux-x86_64") as caught:
        fits(make(tmp_path, f"engine-0.5.2-{tags}.whl"))
    assert "parameter python" in caught.value.remedy


def test_what_the_metadata_ask_of_python_counts_too(tmp_path: Path) -> None:
    path = make(tmp_path, "engine-0.5.2+py3.12-py3-none-any.whl", "==3.12.*")
    fits(path)
    with pytest.raises(HostError, match=r"needs Python ==3.12.\*; /usr/bin/python3.13 is 3.13.1"):
        fits(path, PythonInterpreter("/usr/bin/python3.13", "3.13.1", "linux-x86_64"))


def test_a_missing_and_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "engine-0.5.2-py3-none-any.whl"
    with pytest.raises(HostError, match="is not there"):
        fits(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(HostError, match="cannot be read as a wheel"):
        fits(path)


def test_empty_values_mean_no_wheel() -> None:
    asked = PythonEnvironmentInstallationParameters.model_validate(
        {"packageName": "e", "requirements": ["x"], "wheels": ""}
    )
    assert asked.wheels == ()
    with pytest.raises(ValidationError, match="name what to install"):
        PythonEnvironmentInstallationParameters.model_validate({"packageName": "e", "wheels": ""})


def test_metadata_without_an_end_are_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "engine-0.5.2-py3-none-any.whl"
    head = b"Metadata-Version: 2.1\nRequires-Python: >=3.9\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("engine-0.5.2.dist-info/METADATA", head + b"\n" + b"x" * (64 << 20))
    sizes: list[int | None] = []
    read = zipfile.ZipExtFile.read

    def noting(file: zipfile.ZipExtFile, size: int | None = -1) -> bytes:
        sizes.append(size)
        return read(file, size)

    monkeypatch.setattr(zipfile.ZipExtFile, "read", noting)
    fits(path)
    assert sizes == [1 << 20]


@pytest.mark.parametrize("damage", ["encrypted", "unknown compression", "broken data"])
def test_a_wheel_that_cannot_be_read_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "engine-0.5.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("engine-0.5.2.dist-info/METADATA", "Requires-Python: >=3.9\n" * 50)
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    if damage == "encrypted":
        data[6] |= 1
        data[central + 8] |= 1
    elif damage == "unknown compression":
        data[8] = data[central + 10] = 99
    else:
        data[70:90] = bytes(20)
    path.write_bytes(data)
    with pytest.raises(HostError, match="cannot be read as a wheel"):
        fits(path)
