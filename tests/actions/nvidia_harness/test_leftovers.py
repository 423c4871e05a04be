"""Files that an earlier attempt or other code left are not used as this run's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actions.nvidia_harness.benchmarks import benchmark
from actions.nvidia_harness.layouts import LAYOUTS
from actions.nvidia_harness.preparation import wanted_clean
from actions.nvidia_harness.results import copy_logs
from actions.nvidia_harness.scratch import Scratch
from actions.nvidia_harness.workspace import BUILT, Workspace
from agent.facts.users import Account

if TYPE_CHECKING:
    from pathlib import Path


def test_a_cut_result_of_an_earlier_attempt_goes(tmp_path: Path) -> None:
    logs, target = tmp_path / "logs", tmp_path / "case" / "logs"
    for attempt, text in (("first", "{"), ("second", "{}")):
        (logs / attempt / attempt).mkdir(parents=True)
        (logs / attempt / attempt / "metadata.json").write_text(text)
        assert copy_logs(logs / attempt, target) == ()
    copied = [str(path.relative_to(target)) for path in target.rglob("*.json")]
    assert copied == ["second/metadata.json"]


@pytest.mark.parametrize(
    ("built", "why"),
    [
        ({"round": "v4.1", "commit": "abc"}, ""),
        ({"round": "v4.1"}, ""),  # a note that names no commit
        ({"round": "v4.0", "commit": "abc"}, "it came from v4.0"),
        ({"round": "v4.1", "commit": "012"}, "it came from commit 012"),
        ({"round": "v4.1", "commit": ""}, "it came from commit unknown"),
        ({}, "it came from another source or an interrupted build"),
    ],
)
def test_a_build_of_other_code_is_cleaned(tmp_path: Path, built: dict[str, str], why: str) -> None:
    workspace = Workspace(
        account=Account("me", 1, 1, "/"),
        as_root=False,
        joins_docker=False,
        folder=tmp_path,
        mlperf_round="v4.1",
        layout=LAYOUTS[1],
        scratch=Scratch(tmp_path / "scratch"),
        benchmark=benchmark("bert"),
        prepared=(),
        gpus=None,
    )
    assert wanted_clean(workspace, "abc") == "build/ did not exist"
    workspace.note(BUILT, built)
    assert wanted_clean(workspace, "abc") == why
