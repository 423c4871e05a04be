"""The scratch space: complete parts, and remains of stages that were cut short."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actions.nvidia_harness.scratch import DataStage, Scratch, bytes_made
from agent.core.errors import HostError
from agent.facts import Facts, LocalHost
from agent.facts.users import Account

if TYPE_CHECKING:
    from agent.component.component import StepContext

NOBODY = Account("nobody", 65534, 65534, "/")
STAGE = DataStage("download_data", "data", "bert")


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    scratch = Scratch(tmp_path / "scratch")
    scratch.make(Account("me", os.getuid(), os.getgid(), "/"), as_root=False)
    return scratch


def put(scratch: Scratch, name: str, text: str) -> Path:
    path = scratch.path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_whole_stage_is_not_done_twice(scratch: Scratch) -> None:
    put(scratch, "other/set", "somebody's")
    assert scratch.why_due(STAGE, "v4.1") == "this stage never ran"
    scratch.begin(STAGE, "v4.1")
    put(scratch, "squad/dev-v1.1.json", "whole")
    record = scratch.end(STAGE, complete=True)
    assert (record["count"], record["bytes"]) == (1, 5)
    assert scratch.why_due(STAGE, "v4.1") == ""
    assert scratch.why_due(STAGE, "v5.1") == "it was run by the code of v4.1"


def test_what_is_recorded_as_complete_and_lacks_a_file_is_not_whole(scratch: Scratch) -> None:
    stage = DataStage("download_data", "data", "3d-unet")
    scratch.begin(stage, "v4.1")
    first = put(scratch, "KiTS19/kits19/data/case_00137/imaging.nii.gz", "whole")
    scratch.end(stage, complete=True)
    last = "KiTS19/kits19/data/case_00400/imaging.nii.gz"
    assert (
        scratch.why_due(stage, "v4.1")
        == f"below {scratch.path / 'data'}, this file is missing or incomplete: {last}"
    )
    # The script would take the first file for the whole of them.
    scratch.begin(stage, "v4.1")
    assert not (scratch.path / "data" / "KiTS19").exists()
    for name in (last, "KiTS19/inference_cases.json", "KiTS19/calibration_cases.json"):
        put(scratch, name, "whole")
    put(scratch, str(first.relative_to(scratch.path / "data")), "")
    assert scratch.lacking(stage) == (
        f"below {scratch.path / 'data'}, this file is missing or incomplete: "
        f"{first.relative_to(scratch.path / 'data')}"
    )
    first.write_text("whole")
    scratch.end(stage, complete=True)
    assert scratch.why_due(stage, "v4.1") == ""


def test_a_folder_that_nothing_is_left_in_goes_and_others_stay(scratch: Scratch) -> None:
    other = scratch.path / "data" / "GPTJ-6B" / "other"
    other.mkdir(parents=True)
    scratch.begin(STAGE, "v4.1")
    put(scratch, "GPTJ-6B/checkpoint-final/config.json", "half")
    scratch.begin(STAGE, "v4.1")
    assert not (scratch.path / "data/GPTJ-6B/checkpoint-final").exists()
    assert other.exists()


def test_only_of_a_benchmark_that_is_known_can_be_said_what_lacks(scratch: Scratch) -> None:
    assert scratch.lacking(DataStage("download_data", "data", "resnet50")) is None
    gptj = DataStage("download_model", "models", "gptj")
    assert scratch.lacking(gptj)
    (scratch.path / "models/GPTJ-6B/checkpoint-final").mkdir(parents=True)
    assert scratch.lacking(gptj)
    (scratch.path / "models/GPTJ-6B/checkpoint-final/config.json").write_text("{}")
    assert scratch.lacking(gptj) == ""


def test_a_file_that_is_gone_or_cut_is_noticed(scratch: Scratch) -> None:
    scratch.begin(STAGE, "v4.1")
    path = put(scratch, "squad/dev-v1.1.json", "whole")
    scratch.end(STAGE, complete=True)
    path.write_text("cut")
    assert scratch.why_due(STAGE, "v4.1") == f"{path} has 3 bytes instead of the original 5"
    path.unlink()
    assert scratch.why_due(STAGE, "v4.1") == f"{path} is gone"


def test_what_a_killed_stage_had_made_is_moved_aside(scratch: Scratch) -> None:
    kept = put(scratch, "other/set", "somebody's")
    scratch.begin(STAGE, "v4.1")
    half = put(scratch, "squad/dev-v1.1.json", "ha")
    assert scratch.why_due(STAGE, "v4.1") == "it was begun before but did not end"
    moved = scratch.begin(STAGE, "v4.1")
    assert moved.startswith("moved 1 file of an interrupted download_data to ")
    assert not half.exists()
    assert kept.read_text() == "somebody's"
    (aside,) = scratch.path.glob(".vcagent/incomplete/*/squad/dev-v1.1.json")
    assert aside.read_text() == "ha"


def test_what_was_put_there_by_hand_after_a_failure_stays(scratch: Scratch) -> None:
    scratch.begin(STAGE, "v4.1")
    half = put(scratch, "squad/dev-v1.1.json", "ha")
    scratch.end(STAGE, complete=False)
    by_hand = put(scratch, "kits/set", "by hand")
    scratch.begin(STAGE, "v4.1")
    assert not half.exists()
    assert by_hand.exists()


def test_what_a_repeated_stage_finds_there_is_of_it_still(scratch: Scratch) -> None:
    scratch.begin(STAGE, "v3.1")
    whole = put(scratch, "squad/dev-v1.1.json", "whole")
    scratch.end(STAGE, complete=True)
    scratch.begin(STAGE, "v4.1")  # killed
    scratch.begin(STAGE, "v4.1")
    put(scratch, "squad/vocabulary", "new")
    record = scratch.end(STAGE, complete=True)
    assert (record["count"], record["bytes"]) == (2, 8)
    whole.unlink()
    assert scratch.why_due(STAGE, "v4.1") == f"{whole} is gone"


def test_only_a_whole_stage_counts_as_there(scratch: Scratch) -> None:
    made = bytes_made(scratch.record_path(STAGE))
    assert Facts(LocalHost())[made] is None
    scratch.begin(STAGE, "v4.1")
    put(scratch, "squad/dev-v1.1.json", "whole")
    assert Facts(LocalHost())[made] is None
    scratch.end(STAGE, complete=True)
    assert Facts(LocalHost())[made] == 5


def test_a_broken_record_is_none(scratch: Scratch) -> None:
    scratch.record_path(STAGE).write_text("{")
    assert scratch.why_due(STAGE, "v4.1") == "this stage never ran"


@pytest.mark.root
def test_what_root_had_held_the_account_can_hold_itself(context: StepContext) -> None:
    if os.geteuid() != 0:
        pytest.skip("it needs root")
    folder = Path(tempfile.mkdtemp(prefix="vcagent-scratch-"))
    try:
        folder.chmod(0o755)
        scratch = Scratch(folder / "scratch")
        scratch.make(NOBODY, as_root=True)
        with scratch.locked(context, NOBODY, as_root=True):
            pass
        assert {path.stat().st_uid for path in scratch.path.rglob("*")} == {NOBODY.uid}
        os.seteuid(NOBODY.uid)
        with scratch.locked(context, NOBODY, as_root=False):
            pass
        os.seteuid(0)
        lock = scratch.path / ".vcagent" / "lock"
        os.chown(lock, 1, 1)
        os.seteuid(NOBODY.uid)
        with (
            pytest.raises(HostError, match="another account has used this scratch space") as refusal,
            scratch.locked(context, NOBODY, as_root=False),
        ):
            pass
        assert f"chown nobody {lock}" in str(refusal.value.remedy)
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)
