"""A secret in any name that a profile can give appears in no file, name or line of a run."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.run.session import FinishedRun

    Run = Callable[..., FinishedRun]

PLANTED = "planted-word-7"
GIVEN = "$.Parameters.ApiToken"


def element(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"Type": kind, "Parameters": parameters}


def test_names_and_files_of_a_run_hold_no_secret(run_profile: Run, tmp_path: Path) -> None:
    finished = run_profile(
        {
            "Parameters": {"ApiToken": PLANTED},
            "Actions": [
                element("Measuring", Scenario=f"s-{GIVEN}", metric=f"m-{GIVEN}", tags=f"t-{GIVEN}"),
                element("Measuring", Scenario="B", api_key=GIVEN),
                element(
                    "ExecuteCommand",
                    Scenario=f"c-{GIVEN}",
                    Command=f"echo {GIVEN}; echo {GIVEN} >&2; echo x {GIVEN} >out-{GIVEN}.txt; "
                    f"mkdir d-{GIVEN}; echo {GIVEN} >d-{GIVEN}/f-{GIVEN}",
                    Outputs="out-*, d-*",
                    LogFileName=f"log-{GIVEN}.txt",
                    LogFolderName=f"folder-{GIVEN}",
                ),
                element(
                    "ExecuteCommand", Scenario="P", Command=f"printf %s {GIVEN} | base64 | fold -w 7; false"
                ),
            ],
        },
        metadata={f"k-{PLANTED}": f"v-{PLANTED}"},
    )
    assert finished.outcome.exit_code is not ExitCode.OK  # the last command fails
    found = []
    for path in sorted((tmp_path / "results").rglob("*")):
        name = str(path.relative_to(tmp_path))
        if PLANTED in name:
            found.append(f"name: {name}")
        if path.is_file() and PLANTED.encode() in path.read_bytes():
            found.append(f"content: {name}")
    with closing(sqlite3.connect(finished.run_dir / "journal.sqlite")) as database:
        found += [line for line in database.iterdump() if PLANTED in line]
    assert not found, "\n".join(found)


def test_a_planted_secret_is_in_no_file(run_profile: Run, tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"
    finished = run_profile(
        {
            "Parameters": {"ApiToken": ""},
            "Actions": [
                element(
                    "ExecuteCommand",
                    Scenario="leak",
                    Command="echo the token is $.Parameters.ApiToken; false",
                ),
                element("Measuring", Scenario="m $.Parameters.ApiToken", metric="x"),
            ],
        },
        parameters={"ApiToken": secret},
    )
    assert finished.outcome.exit_code is ExitCode.ACTION_FAILED
    files = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert len(files) > 8
    for path in files:
        assert secret.encode() not in path.read_bytes(), path
    assert "***" in json.dumps(finished.description)
    assert secret not in json.dumps(finished.description)


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        ({"Actions": [element("Measuring", ApiKey="$.Parameters.Login")], "Parameters": {"Login": ""}}, {}),
        (
            {
                "Actions": [element("Measuring", Scenario="a $.Parameters.ApiToken")],
                "Parameters": {"ApiToken": ""},
            },
            {},
        ),
        (
            {
                "Actions": [element("Measuring")],
                "Parameters": {
                    "ApiToken": "",
                    "Address": "https://me:{ApiToken}@host",
                    "Again": "{ApiToken}",
                },
            },
            {},
        ),
    ],
)
def test_secrets_that_only_resolving_shows_are_in_no_file(
    run_profile: Run, tmp_path: Path, profile: dict[str, Any], options: dict[str, Any]
) -> None:
    secret = "hunter2-correct-horse"
    name = next(iter(profile["Parameters"]))
    finished = run_profile(
        profile, parameters={name: secret}, metadata={"DbPassword": "planted-pass-42"}, **options
    )
    assert finished.outcome.exit_code is ExitCode.OK
    for path in (tmp_path / "results").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert secret.encode() not in content, path
            assert b"planted-pass-42" not in content, path
