"""Files are fetched completely or not at all, and files already fetched are not fetched again."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import pytest

from agent.fleet.errors import ConnectionLostError, DeadlineError, HostUnfitError, NotFollowedError
from agent.fleet.scheduling import Wait, run_task
from agent.fleet.ssh.gathering import gathered
from agent.fleet.ssh.session import Answer, Command

if TYPE_CHECKING:
    from pathlib import Path

    from agent.fleet.scheduling import Task


class Host:
    """The host's end; cuts the connection after some bytes."""

    def __init__(self, files: dict[str, bytes], cut_after: int | None = None) -> None:
        self.files = files
        self.wanted: list[list[object]] = []
        self._cut_after = cut_after
        self._output = io.BytesIO()

    def line(self, seconds: float) -> Task[bytes]:
        yield Wait(0)
        listed = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in self.files.items()]
        return json.dumps({"files": listed}).encode() + b"\n"

    def write(self, data: bytes) -> None:
        self.wanted = json.loads(data)
        sent = b"".join(self.files[str(name)][int(str(offset)) :] for name, offset in self.wanted)
        self._output = io.BytesIO(sent[: self._cut_after])

    def end_input(self) -> None: ...

    def read(self, count: int) -> bytes:
        return self._output.read(count)

    def ended(self) -> Answer:
        return Answer(0, "")


def gather(host: Host, folder: Path) -> int:
    return run_task(gathered(cast("Command", host), folder))


FILES = {"run.json": b"{}", "mlperf/case/detail.txt": b"0123456789" * 100_000, "empty": b""}


def test_all_come_and_stay(tmp_path: Path) -> None:
    assert gather(Host(FILES), tmp_path) == sum(map(len, FILES.values()))
    assert {
        path.relative_to(tmp_path).as_posix(): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    } == FILES
    again = Host(FILES)
    assert gather(again, tmp_path) == 0
    assert again.wanted == []


def test_a_file_that_was_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLostError, match=r"during the transfer of mlperf/case/detail\.txt"):
        gather(Host(FILES, cut_after=400_002), tmp_path)
    assert not (tmp_path / "mlperf/case/detail.txt").exists()
    again = Host(FILES)
    assert gather(again, tmp_path) == 600_000
    assert ["mlperf/case/detail.txt", 400_000] in again.wanted
    assert (tmp_path / "mlperf/case/detail.txt").read_bytes() == FILES["mlperf/case/detail.txt"]


def test_a_limit_counts_while_files_come(tmp_path: Path) -> None:
    left = iter(range(6, 0, -1))

    def left_s() -> float:
        try:
            return next(left)
        except StopIteration:
            raise DeadlineError("not done within 6 s") from None

    with pytest.raises(DeadlineError):
        run_task(gathered(cast("Command", Host(FILES)), tmp_path, left_s))
    kept = (tmp_path / "mlperf/case/detail.txt.part").stat().st_size
    assert 0 < kept < 1_000_000
    assert gather(Host(FILES), tmp_path) == 1_000_000 - kept


def test_a_part_of_another_state_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "run.json.part").write_bytes(b"x")
    with pytest.raises(ConnectionLostError, match=r"files changed during the transfer: run\.json"):
        gather(Host(FILES), tmp_path)
    gather(Host(FILES), tmp_path)
    assert (tmp_path / "run.json").read_bytes() == b"{}"


def test_a_file_that_changed_is_fetched_again(tmp_path: Path) -> None:
    gather(Host(FILES), tmp_path)
    gather(Host({**FILES, "run.json": b"[]"}), tmp_path)
    assert (tmp_path / "run.json").read_bytes() == b"[]"


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", ""])
def test_no_file_leaves_its_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(HostUnfitError, match="outside of its folder"):
        gather(Host({name: b"x"}), tmp_path / "in")
    assert not list(tmp_path.rglob("*passwd*"))


def test_a_full_disk_here_is_told_and_the_run_can_be_brought_home_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("agent.fleet.ssh.gathering._fetch", full)
        with pytest.raises(NotFollowedError, match="No space left on device") as caught:
            gather(Host(FILES), tmp_path)
    assert "vcagent fleet resume" in str(caught.value)
    assert gather(Host(FILES), tmp_path) == sum(map(len, FILES.values()))


@pytest.mark.parametrize("text", ["x", "more than what comes"])
def test_a_planted_part_is_not_written_through(text: str, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text(text)
    (tmp_path / "run.json.part").symlink_to(tmp_path / "victim")
    with suppress(NotFollowedError):  # a part that is too long is removed; here, the link itself
        gather(Host(FILES), tmp_path)
    assert (tmp_path / "victim").read_text() == text
