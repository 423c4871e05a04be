"""Files of root: links planted by others are not followed, and folders that others control are not used."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.core import safe_files
from agent.core.errors import HostError
from agent.core.logs import agent_log
from agent.core.safe_files import (
    append_bytes_to,
    append_text,
    append_to,
    copy_file,
    distrust,
    distrust_file,
    give_to,
    open_file,
    replace_text,
    require_trust,
)
from agent.core.secrets import Secrets
from agent.host.processes import LocalProcesses
from agent.sinks import CsvSink, JsonlSink
from agent.store.journal import Journal
from agent.store.results import ResultsFolder, write_json
from dependencies.packages.system_file import write_system_file

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def by_process(path: Path) -> None:
    LocalProcesses("run").run(["true"], log=path)


def by_marker(path: Path) -> None:
    LocalProcesses("run").run(["true"], log=path.with_name("log"), marker=path.with_suffix(""))


def by_log(path: Path) -> None:
    with agent_log(path, Secrets()) as log:
        log.info("planted")


def by_copy(path: Path) -> None:
    source = path.with_name("source")
    source.write_text("text")
    copy_file(source, path.with_suffix(""))


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "records": ("metrics.csv", lambda path: CsvSink(path, {}).write([], 0)),
    "lines": ("metrics.jsonl", lambda path: JsonlSink(path).write([], 0)),
    "JSON": ("run.json.part", lambda path: write_json(path.with_suffix(""), {"a": 1})),
    "text": ("page.html.part", lambda path: replace_text(path.with_suffix(""), "text")),
    "a log": ("step.log", lambda path: append_text(path, "text")),
    "a command's log": ("command.log", by_process),
    "a command's end": ("marker.part", by_marker),
    "the agent's log": ("vcagent.jsonl", by_log),
    "a copy": ("copy.part", by_copy),
    "bytes": ("results.part", lambda path: append_bytes_to(path).write(b"text")),
    "a probe": ("x", lambda path: open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
    "a journal": ("journal.sqlite", Journal),
    "a journal's own log": ("journal.sqlite-wal", lambda path: Journal(path.with_name("journal.sqlite"))),
    "a system file": (".file.part", lambda path: write_system_file(path.with_name("file"), b"text")),
    "the lock of a results folder": (
        ".vcagent.lock", lambda path: ResultsFolder(path.parent).locked("run").__enter__(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("plant", ["symlink", "hard link", "dangling"])
def test_nothing_that_was_planted_is_written_through(kind: str, plant: str, tmp_path: Path) -> None:
    if plant == "hard link" and kind in {"a log", "a command's log", "the agent's log"}:
        pytest.skip("a step's log has another name in its case's folder")
    victim = tmp_path / "victim"
    if plant != "dangling":
        victim.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    name, write = WRITERS[kind]
    (folder / name).hardlink_to(victim) if plant == "hard link" else (folder / name).symlink_to(victim)
    try:
        write(folder / name)
    except (OSError, HostError):
        assert kind not in {"JSON", "text", "a command's end", "a system file", "a copy"}  # these replace it
    assert victim.read_text() == "precious" if plant != "dangling" else not victim.exists()


@as_root
def test_root_follows_no_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="root never follows"):
        append_text(tmp_path / "link/logs/step.log", "text")
    assert not any((tmp_path / "real").iterdir())
    append_text(tmp_path / "new/logs/step.log", "text")
    assert (tmp_path / "new/logs/step.log").read_text() == "text"


def test_a_pipe_and_a_folder_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match=r"not an ordinary file|Is a directory"):
            open_file(tmp_path / name, os.O_RDWR)


@as_root
def test_another_accounts_file_is_not_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("theirs")
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match="belongs to nobody"):
        open_file(file, os.O_WRONLY | os.O_TRUNC)
    assert file.read_text() == "theirs"


def test_a_file_is_private_from_its_first_byte_and_whole(tmp_path: Path) -> None:
    replace_text(tmp_path / "file", "one", 0o600)
    replace_text(tmp_path / "file", "two", 0o600)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "two"


@as_root
@pytest.mark.parametrize(
    ("mode", "owner", "group", "reason"),
    [
        (0o755, 0, 0, ""),
        (0o770, 0, 0, ""),
        (0o777, 0, 0, "every account may write to"),
        (0o1777, 0, 0, "every account may write to"),
        (0o775, 0, NOBODY, "the group nogroup may write to"),
        (0o755, NOBODY, 0, "belongs to nobody"),
    ],
)
def test_folders_that_root_does_not_write_to(
    mode: int, owner: int, group: int, reason: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.chown(folder, owner, group)
    folder.chmod(mode)
    assert reason in distrust(folder)
    assert bool(distrust(folder)) == bool(reason)
    below = folder / "results" / "new"
    if mode & stat.S_ISVTX:
        below.parent.mkdir()
        assert not distrust(below)  # no other user can rename root's folder there
        return
    assert bool(distrust(below)) == bool(reason)
    if reason:
        with pytest.raises(HostError, match="root does not write to the results folder") as caught:
            require_trust(below, "results folder", "--results-dir")
        assert "chmod go-w" in str(caught.value)
        assert "--results-dir" in str(caught.value)
    file = folder / "file"
    file.write_text("x")
    assert bool(distrust_file(file)) == bool(reason)


@as_root
def test_the_caller_of_sudo_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    os.chown(folder, NOBODY, NOBODY)
    assert distrust(folder)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    assert not distrust(folder)
    folder.chmod(0o775)
    assert "the group nogroup may write" in distrust(folder)  # its name differs from the caller's
    monkeypatch.setenv("SUDO_USER", "nogroup")
    assert not distrust(folder)
    file = folder / "file"
    file.write_text("x")
    file.chmod(0o666)
    assert distrust_file(file) == "others may write to it"
    monkeypatch.setenv("SUDO_UID", "none")
    assert distrust(folder)


def test_who_is_not_root_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(safe_files.os, "geteuid", lambda: 1000)
    assert not distrust(tmp_path)
    assert not distrust_file(tmp_path / "missing")
    tmp_path.chmod(0o700)


def test_what_root_wrote(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert not safe_files.written_by_root(file)
    file.write_text("x")
    file.chmod(0o644)
    assert safe_files.written_by_root(file) == (os.geteuid() == 0)
    (tmp_path / "link").symlink_to(file)
    assert not safe_files.written_by_root(tmp_path / "link")
    file.chmod(0o664)
    assert not safe_files.written_by_root(file)


def test_a_command_without_a_log_writes_to_dev_null() -> None:
    with append_to(Path(os.devnull)) as log:
        log.write("nobody reads this")


def test_an_account_may_own_a_file_that_is_meant_for_it(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path = tmp_path / "lock"
    path.touch()
    os.chown(path, 12345, 12345)
    with pytest.raises(PermissionError):
        open_file(path, os.O_RDWR)
    os.close(open_file(path, os.O_RDWR, owner=12345))


def test_a_copy_takes_no_link_and_leaves_no_half(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to("secret")
    (tmp_path / "target").write_text("old")
    for source in ("link", "missing", "."):
        with pytest.raises(OSError, match=r"symbolic link|No such file|directory|ordinary"):
            copy_file(tmp_path / source, tmp_path / "target")
    assert (tmp_path / "target").read_text() == "old"
    (tmp_path / "target").unlink()
    (tmp_path / "target").symlink_to("secret")
    (tmp_path / "source").write_text("new")
    copy_file(tmp_path / "source", tmp_path / "target")
    assert ((tmp_path / "target").read_text(), (tmp_path / "secret").read_text()) == ("new", "secret")
    assert not list(tmp_path.glob("*.part"))


@as_root
def test_a_link_is_given_away_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    give_to(tmp_path / "link", NOBODY, NOBODY)
    assert (tmp_path / "file").stat().st_uid == 0
    assert (tmp_path / "link").lstat().st_uid == NOBODY


@as_root
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.chmod(0o666), "others may write to"),
        (lambda path: path.parent.chmod(0o777), "others may write to"),
        (lambda path: path.parent.chmod(0o1777), "others may write to"),
        (lambda path: os.chown(path, 65534, 65534), "belongs to nobody"),
        (lambda path: os.chown(path.parent, 65534, 65534), "belongs to nobody"),
        (lambda path: path.with_name("link").symlink_to("/etc/passwd"), "is a link, a device or a pipe"),
        (lambda path: path.with_name("link").symlink_to("/etc"), "is a link, a device or a pipe"),
        (lambda path: os.mkfifo(path.with_name("pipe")), "is a link, a device or a pipe"),
        (lambda path: os.mknod(path.with_name("null"), 0o20644, os.makedev(1, 3)), "is a link, a device"),
    ],
    ids=["file for all", "folder for all", "sticky", "another's file", "another's folder", "link",
         "link to a folder", "pipe", "device"],
)  # fmt: skip
def test_root_takes_no_file_that_others_may_have_put_there(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    path = tmp_path / "debs" / "one" / "Packages"
    path.parent.mkdir(parents=True, mode=0o755)
    path.write_text("")
    path.chmod(0o644)
    assert safe_files.distrust_tree(tmp_path) == ""
    spoil(path)
    assert reason in safe_files.distrust_tree(tmp_path)


def test_a_pipe_a_device_and_a_link_to_one_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "link", "null"):
        before = os.lstat(tmp_path / name).st_ino
        with pytest.raises(OSError, match="not an ordinary file"):
            replace_text(tmp_path / name, "text")
        assert os.lstat(tmp_path / name).st_ino == before
    (tmp_path / "nowhere").symlink_to("gone")
    replace_text(tmp_path / "nowhere", "text")
    assert (tmp_path / "nowhere").read_text() == "text"
