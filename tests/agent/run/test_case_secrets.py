"""Files that programs wrote into a case's folder keep everything but the secrets."""

from __future__ import annotations

import base64
import os
import stat
from typing import TYPE_CHECKING

import pytest

from agent.component.component import CASE_OWNER
from agent.core.secrets import Secrets
from agent.run.case_secrets import hide_secrets

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = Secrets(mappings=[{"ApiKey": "planted-word-7"}])
WORD = b"planted-word-7"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    folder = tmp_path / "run/commands/case"
    folder.mkdir(parents=True)
    (folder / CASE_OWNER).write_text("a/run")
    return folder


def hide(case: Path, key: str = "a/run") -> None:
    hide_secrets(case.parents[1], key, SECRETS)


def test_texts_are_masked_and_their_other_bytes_stay(case: Path) -> None:
    (case / "log").write_bytes(b"\xff\r\n\te\xcc\x81 " + WORD + b" end\r\n" + base64.b64encode(WORD))
    (case / "log").chmod(0o640)
    hide(case)
    assert (case / "log").read_bytes() == b"\xff\r\n\te\xcc\x81 *** end\r\n***="
    assert stat.S_IMODE((case / "log").stat().st_mode) == 0o640


def test_what_only_looks_like_a_secret_stays_in_a_text(case: Path) -> None:
    (case / "log").write_text('{"api_key": "abcdefgh"}')
    before = (case / "log").stat()
    hide(case)
    assert (case / "log").read_text() == '{"api_key": "abcdefgh"}'
    assert (case / "log").stat().st_ino == before.st_ino


@pytest.mark.parametrize("name", ["binary", "mlperf_log_detail.txt", CASE_OWNER + "2"])
def test_binary_files_and_loadgen_s_logs_stay(name: str, case: Path) -> None:
    data = WORD + (b"\0" if name == "binary" else b"")
    (case / name).write_bytes(data)
    hide(case)
    assert (case / name).read_bytes() == (b"***" if name.startswith(CASE_OWNER) else data)


def test_names_are_masked_and_none_is_lost(case: Path) -> None:
    (case / "d-planted-word-7").mkdir()
    (case / "d-planted-word-7/f-planted-word-7").write_text("one")
    (case / "d-***").mkdir()
    (case / "d-***-2").write_text("two")
    hide(case)
    assert (case / "d-***-3/f-***").read_text() == "one"
    assert (case / "d-***-2").read_text() == "two"


def test_no_link_is_followed_and_other_steps_cases_stay(case: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(WORD)
    (case / "link").symlink_to(tmp_path / "victim")
    (case / "folder").symlink_to(tmp_path)
    (case / "hard").hardlink_to(tmp_path / "victim")
    os.mkfifo(case / "pipe")
    hide(case)
    (case / "own").write_bytes(WORD)
    hide(case, "another/run")
    assert (tmp_path / "victim").read_bytes() == WORD
    assert (case / "own").read_bytes() == WORD
