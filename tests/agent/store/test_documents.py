"""Each document of a run has one schema, and docs/schemas has the current schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import UsageError
from agent.store.command_documents import schemas_of
from agent.store.documents import DOCUMENTS, RollupDocument, RunDocument, SummaryDocument, schemas

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.run.session import FinishedRun

ROOT = Path(__file__).parents[3]


def test_the_published_schemas_are_current() -> None:
    folder = ROOT / "docs/schemas"
    published = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.json")
    }
    assert published == schemas() | schemas_of(), "make schemas writes them"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_key_that_is_not_obvious_is_described(document: Any) -> None:
    assert document.__doc__.startswith(document.FILE)
    assert document.model_json_schema()["properties"]["schema_version"]["const"] == 1


def test_a_run_writes_documents_of_these_schemas(run_profile: Callable[..., FinishedRun]) -> None:
    finished = run_profile({"Actions": [{"Type": "Measuring", "Parameters": {"Scenario": "one"}}]})
    run, rollup = RunDocument.read(finished.run_dir), RollupDocument.read(finished.run_dir)
    assert run.run_id == rollup.run_id == finished.run_dir.name
    assert run.verdict.validity == rollup.verdict.validity == "VALID"
    assert [case.scenario for case in run.cases] == [case.scenario for case in rollup.cases]
    (case,) = run.cases
    assert case.case_dir
    summary = SummaryDocument.read(finished.run_dir / case.case_dir)
    assert [metric.name for metric in summary.metrics] == ["answer"]
    for document in (run, rollup, summary):  # the schema covers everything that is written
        assert not document.model_extra


def test_keys_of_a_newer_version_are_kept(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": 1, "run_id": "r", "added_later": {"a": 1}}')
    document = RunDocument.read(tmp_path)
    assert document.to_json()["added_later"] == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "valid dictionary"),
        ('{"schema_version": 2}', "schema_version"),
        ('{"steps": [{"attempts": "many"}]}', r"steps\.0\.attempts"),
        ('{"verdict": {"validity": "VALIDX"}}', r"verdict\.validity"),
        ('{"cases": [{"details": 5}]}', r"cases\.0\.details"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_does_not_have_the_schema_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        RunDocument.read(tmp_path)
    assert caught.value.where == str(tmp_path / "run.json")


def test_a_value_that_json_does_not_have_is_refused() -> None:
    values = {
        "scenario": "s",
        "tool": {},
        "metrics": [{"name": "m", "value": json.loads("NaN"), "unit": "count"}],
    }
    with pytest.raises(ValueError, match="finite"):
        SummaryDocument.model_validate(values)
