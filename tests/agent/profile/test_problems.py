"""Problems of a profile are reported with file, line, key and the nearest known name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ExitCode, ProfileError
from agent.profile import check, load
from agent.profile.yaml_text import read_yaml

CASES = Path(__file__).parent / "cases"


def cases(file: str) -> list[Any]:
    data = read_yaml((CASES / file).read_text(encoding="utf-8")).data
    return [pytest.param(case, id=case["case"]) for case in data]


def told(error: ProfileError, folder: Path) -> list[str]:
    return str(error).replace(f"{folder}/", "").splitlines()


def compare(lines: list[str], problems: list[str]) -> None:
    text = "\n".join(lines).replace("\n  → ", "; ")
    for problem in problems:
        assert problem in text
    if problems[0].endswith("problems"):
        assert len(lines) == len(problems)


@pytest.mark.parametrize("case", cases("errors.yaml"))
def test_a_broken_profile(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / case.get("name", "profile.yaml")
    file.write_text(case["text"], encoding="utf-8")
    with pytest.raises(ProfileError) as caught:
        load([str(file)])
    compare(told(caught.value, tmp_path), case["problems"])
    assert "hunter2" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.PROFILE_INVALID


def test_no_error_is_longer_than_a_screen_or_two(tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text("Description: d\nActions: [" + "x, " * 200 + "]\n", encoding="utf-8")
    with pytest.raises(ProfileError, match="200 problems") as caught:
        load([str(file)])
    assert caught.value.details[-1] == "… and 150 more"
    assert len(caught.value.details) == 51


@pytest.mark.parametrize("case", cases("unresolvable.yaml"))
def test_check(case: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "profile.yaml"
    file.write_text(case["text"], encoding="utf-8")
    profile = load([str(file)])
    if not case["problems"]:
        check(profile)
        return
    with pytest.raises(ProfileError) as caught:
        check(profile)
    compare(told(caught.value, tmp_path), case["problems"])
