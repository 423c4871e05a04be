"""The doorstep on unusual hosts: shared homes, unusable folders, old Pythons, and removals."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.fleet.commands import first_command, too_old
from agent.fleet.remote import doorstep

SCRIPT = b"print('launched')"
OLD = time.time() - 10 * 86400


def bundle(**files: bytes) -> tuple[dict[str, Any], bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {"vcagent": SCRIPT, **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}, data


def arrive(base: Path, capfd: pytest.CaptureFixture[str]) -> bool:
    """Bring a bundle; return whether it was missing."""
    order, data = bundle(more=b"x" * 100)
    order |= {"base": str(base), "bundle": "b", "then": "start", "run": "/r"}
    assert doorstep._arrive(order, io.BytesIO(data)) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "launched"
    return bool(json.loads(lines[0])["missing"])


@pytest.mark.parametrize("damage", ["cut", "gone", "no marker", "empty folder"])
def test_a_damaged_bundle_is_taken_in_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: str
) -> None:
    assert arrive(tmp_path, capfd)
    assert not arrive(tmp_path, capfd)
    home = tmp_path / "bundles/b"
    if damage == "cut":
        (home / "more").write_bytes(b"x")
    elif damage == "gone":
        (home / "more").unlink()
    elif damage == "no marker":
        (home / "files.json").unlink()
    else:
        shutil.rmtree(home)
        home.mkdir()
    assert arrive(tmp_path, capfd)
    assert not arrive(tmp_path, capfd)
    assert [path.name for path in (tmp_path / "bundles").iterdir()] == ["b"]


def test_hosts_that_share_a_home_do_not_use_the_same_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another host with the same process number be half done, and done, meanwhile."""
    order, data = bundle()
    home = tmp_path / "b"
    monkeypatch.setattr(os, "getpid", lambda: 7)

    class Source(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            parts = list(tmp_path.glob("b.part-*"))
            if len(parts) == 1:
                doorstep._take_in(home, order, io.BytesIO(data))
            return super().read(size)

    doorstep._take_in(home, order, Source(data))
    assert doorstep._is_whole(home)
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("flags", "free", "told"),
    [
        (0, 1 << 40, ""),
        (os.ST_RDONLY, 1 << 40, "is on a read-only file system"),
        (os.ST_NOEXEC, 1 << 40, "is mounted noexec"),
        (0, 5 << 20, "only 5 MiB are free in"),
    ],
)
def test_a_folder_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int, free: int, told: str
) -> None:
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_flag=flags, f_bavail=free // 4096, f_frsize=4096)
    )
    problem = doorstep._problem(tmp_path / "not/there", as_root=False)
    assert told in problem
    assert bool(problem) == bool(told)
    assert not told or str(tmp_path) in problem


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("noexec", "is mounted noexec"),
        ("ro", "is on a read-only file system"),
        ("size=1m", "only 1 MiB are free in"),
        ("size=1g", ""),
    ],
)
def test_a_folder_that_is_really_mounted_so_is_named(tmp_path: Path, options: str, told: str) -> None:
    """Mount the folder in a namespace of the test's own."""
    namespace = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespace, "true"], check=False).returncode:
        pytest.skip("this host does not allow namespaces of mounts")
    ask = "from agent.fleet.remote import doorstep as d; from pathlib import Path; import sys"
    ask += "; print(d._problem(Path(sys.argv[1]) / 'runs', as_root=True))"
    script = 'mount -t tmpfs -o "$1" home "$2" && "$3" -c "$4" "$2"'
    command = [*namespace, "sh", "-c", script, "sh", options, str(tmp_path), sys.executable, ask]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told in found.stdout
    assert not told or str(tmp_path) in found.stdout
    assert bool(found.stdout.strip()) == bool(told)


def test_a_home_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    problem = doorstep._problem(tmp_path / "home", as_root=False)
    assert problem == f"{tmp_path} is not writable by this user ({tmp_path / 'home'} does not exist)"
    assert not doorstep._problem(tmp_path / "home", as_root=True)


def test_old_pythons_are_named_with_their_versions(tmp_path: Path) -> None:
    for version in ("3.6.8", "3.9.18"):
        program = tmp_path / f"python{version[:3]}"
        program.write_text(
            f'#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\necho {version}\n', encoding="utf-8"
        )
        program.chmod(0o755)
    (tmp_path / "python3").symlink_to("python3.6")
    (tmp_path / "sh").symlink_to("/bin/sh")
    shutil.copy(tmp_path / "python3.9", tmp_path / "python3.10")
    done = subprocess.run(
        ["/bin/sh", "-c", first_command("")],
        env={"PATH": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 127:
        pytest.skip("/usr/local/bin/python3 is new enough here")
    assert too_old("noise of .bashrc\n" + done.stderr).startswith("3.6.8 (python3), 3.9.18 (python3.10)")
    assert too_old("sh: not found") == ""


def test_a_python_of_uv_is_found_without_a_path(tmp_path: Path) -> None:
    folder = tmp_path / ".local/bin"
    folder.mkdir(parents=True)
    (tmp_path / "sh").symlink_to("/bin/sh")
    (folder / "python3.12").symlink_to(sys.executable)
    command = first_command("").replace("/usr/local/bin/python3", "/nonexistent/python3")
    text = b"import sys; print(sys.version_info[0])"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, input=f"{len(text)}\n".encode() + text,
        capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"3\n"), done.stderr


def test_a_python_with_wheels_of_loadgen_comes_before_a_newer_one(tmp_path: Path) -> None:
    for name in ("python3.15", "python3.12"):
        (tmp_path / name).symlink_to(sys.executable)
    (tmp_path / "sh").symlink_to("/bin/sh")
    text = b"import sys; print(sys.orig_argv[0])"
    done = subprocess.run(
        ["/bin/sh", "-c", first_command("")], env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        input=f"{len(text)}\n".encode() + text, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"python3.12\n"), done.stderr


@pytest.mark.parametrize("version", ["2.7.18", "3.6.15", "3.9.18"])
def test_real_old_pythons_are_named(version: str) -> None:
    python = Path.home() / f".pyenv/versions/{version}/bin/python"
    if not python.is_file():
        pytest.skip(f"there is no Python {version} here")
    done = subprocess.run(
        ["/bin/sh", "-c", first_command(str(python))],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 127
    assert too_old(done.stderr) == f"{version} ({python})"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for run in ("r1.a", "r2.a"):
        (tmp_path / "runs" / run / "results" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "output.log").write_text("x" * 1000)
    for name in ("used", "b.part-x"):
        (tmp_path / "bundles" / name).mkdir(parents=True)
    (tmp_path / "bundles/used/files.json").write_text("{}")
    return tmp_path


def clean(base: Path, *runs: str, **changes: object) -> dict[str, Any]:
    order = {"base": str(base), "runs": runs, "force": False, "bundles_older_than_s": None, **changes}
    return doorstep._clean(order)


def test_named_runs_are_removed_and_the_agent_with_the_last(base: Path) -> None:
    done = clean(base, "r1.a", "gone", "../runs/r2.a")
    assert (done["removed"], done["bundles"], done["left"]) == (["r1.a"], [], {})
    assert done["bytes"] >= 1000
    assert (base / "runs/r2.a").is_dir()
    assert clean(base, "r2.a")["bundles"] == ["used"]
    assert [path.name for path in (base / "bundles").iterdir()] == ["b.part-x"]  # may be in use


def test_an_agent_that_was_long_not_used_goes_before_the_last_run(base: Path) -> None:
    os.utime(base / "bundles/used/files.json", (OLD, OLD))
    os.utime(base / "bundles/b.part-x", (OLD, OLD))
    assert clean(base, bundles_older_than_s=11 * 86400)["bundles"] == ["b.part-x"]
    assert clean(base, bundles_older_than_s=9 * 86400)["bundles"] == ["used"]


def test_a_run_at_work_is_left_and_its_agent_too(base: Path) -> None:
    lock = base / "runs/r1.a/lock"
    lock.write_text(json.dumps({"pid": os.getpid()}))
    with lock.open():
        done = clean(base, "r1.a", "r2.a", force=True)
    assert done["left"] == {"r1.a": "it is running"}
    assert (base / "runs/r1.a").is_dir()
    assert (base / "bundles/used").is_dir()


def test_a_run_whose_changes_to_the_host_stand_is_left_unless_forced(base: Path) -> None:
    journal = sqlite3.connect(base / "runs/r1.a/results/r1.a/journal.sqlite")
    with closing(journal) as database, database:
        database.execute("CREATE TABLE undos (undone TEXT)")
        database.execute("INSERT INTO undos VALUES (NULL)")
    assert "its changes to the host are not undone" in clean(base, "r1.a")["left"]["r1.a"]
    assert clean(base, "r1.a", force=True)["removed"] == ["r1.a"]


def test_the_doorstep_needs_the_standard_library_alone() -> None:
    text = Path(doorstep.__file__).read_text(encoding="utf-8")
    names = {
        line.split()[1].partition(".")[0]
        for line in text.splitlines()
        if line.startswith(("import ", "from "))
    }
    assert names <= {*sys.stdlib_module_names, "__future__"}
