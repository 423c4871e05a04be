"""The first program on a host: looks around, takes the bundle in, hands over to it.

It is sent as text and needs Python 3.10 alone: it may import nothing but the standard library. On standard
input it finds a line of JSON that says what to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any

_PIECE = 1 << 20
_MARKER = "files.json"
"""In a bundle's folder, written last: its files and their sizes. A folder without it is not whole."""
_LEFT_OVER_S = 86400.0
_LEAST_FREE_BYTES = 256 << 20
_SUDO_S = 30
_BUNDLE_S = 1800


def _base(*, root: bool) -> Path:
    """Our own folder: of the system's cache for root, else of the user's."""
    if root:
        return Path("/var/cache/vcagent/fleet")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vcagent" / "fleet"


def _sudo(password: str | None) -> str:  # noqa: PLR0911 - as many answers
    """How sudo can be used: ``root``, ``free``, ``password``, or why it cannot."""
    if os.geteuid() == 0:
        return "root"
    if not shutil.which("sudo"):
        return "there is no sudo"
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        free = subprocess.run(
            ["sudo", "-k", "-n", "true"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_SUDO_S, env=environment, check=False,
        )  # fmt: skip
        if free.returncode == 0:
            return "free"
        if "password" not in free.stderr:
            return free.stderr.strip() or "sudo refuses"
        if password is None:
            return "sudo wants a password"
        asked = subprocess.run(
            ["sudo", "-k", "-S", "-p", "", "true"],
            input=password + "\n", capture_output=True, text=True,
            timeout=_SUDO_S, env=environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"sudo does not work: {error}"
    if asked.returncode == 0:
        return "password"
    lines = [line for line in asked.stderr.splitlines() if "try again" not in line and "lecture" not in line]
    return "the sudo password is wrong" if "incorrect" in asked.stderr else (lines or ["sudo refuses"])[-1]


def _probe(order: dict[str, Any]) -> dict[str, Any]:
    """What the controller has to know of the host."""
    as_root = bool(order.get("sudo")) or os.geteuid() == 0
    base = Path(order.get("base") or _base(root=as_root)).expanduser()
    return {
        "python": sys.executable,
        "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": platform.machine(),
        "libc": platform.libc_ver()[0] or "musl",
        "host_name": platform.node(),
        "sudo": _sudo(order.get("password")) if order.get("sudo") else "",
        "base": str(base),
        "problem": _problem(base, as_root=as_root),
        "clock_s": time.time(),
    }


def _problem(base: Path, *, as_root: bool) -> str:
    """Why our folder cannot be used; empty if it can."""
    folder = next(path for path in (base, *base.parents) if path.is_dir())
    status = os.statvfs(folder)
    if status.f_flag & os.ST_RDONLY:
        return f"{folder} is on a read-only file system"
    if status.f_flag & os.ST_NOEXEC:
        return f"{folder} is mounted noexec: the agent's libraries cannot be loaded from there"
    if not as_root and not os.access(folder, os.W_OK | os.X_OK):
        missing = "" if folder == base else f" ({base} does not exist)"
        return f"{folder} is not writable for this user{missing}"
    if (free := status.f_bavail * status.f_frsize) < _LEAST_FREE_BYTES:
        return f"only {free >> 20} MiB are free in {folder}; the agent needs {_LEAST_FREE_BYTES >> 20}"
    return ""


def _arrive(order: dict[str, Any], source: IO[bytes]) -> int:
    """Take the bundle in, if it is not there, and let it carry out what follows on standard input."""
    bundles = Path(order["base"]) / "bundles"
    home = bundles / order["bundle"]
    bundles.mkdir(mode=0o755, parents=True, exist_ok=True)
    missing = not _is_whole(home)
    free = shutil.disk_usage(bundles).free
    if free < _LEAST_FREE_BYTES:
        print(json.dumps({"error": f"only {free >> 20} MiB are free in {bundles}"}), flush=True)  # noqa: T201 - to the controller
        return 1
    print(json.dumps({"missing": missing}), flush=True)  # noqa: T201 - to the controller
    if missing:
        _take_in(home, order, source)
    os.utime(home / _MARKER)  # it is in use: see _clean
    launcher = [sys.executable, "-I", str(home / "vcagent"), "fleet-host", order["then"], order["run"]]
    return subprocess.run(launcher, input=source.read(), check=False).returncode


def _is_whole(home: Path) -> bool:
    """Whether a bundle is there with all its files, each of its size."""
    try:
        sizes = json.loads((home / _MARKER).read_text())
        return bool(sizes) and all((home / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _take_in(home: Path, order: dict[str, Any], source: IO[bytes]) -> None:
    """Unpack a bundle beside its place and put it there by renaming.

    Hosts may share the folder: names are unique among all of them, and whoever comes second finds it done.
    """
    part = Path(tempfile.mkdtemp(prefix=f"{home.name}.part-", dir=home.parent))
    archive, digest, left = part / "bundle.tar", hashlib.sha256(), int(order["bytes"])
    try:
        with _new_file(archive) as file:
            while left and (piece := source.read(min(_PIECE, left))):
                file.write(piece)
                digest.update(piece)
                left -= len(piece)
        if left or digest.hexdigest() != order["sha256"]:
            raise SystemExit("the bundle came incomplete")
        with tarfile.open(archive) as tar:
            tar.extractall(part)  # noqa: S202 - made by the controller, whose code runs here anyway
        archive.unlink()
        files = [path for path in part.rglob("*") if path.is_file()]
        sizes = {path.relative_to(part).as_posix(): path.stat().st_size for path in files}
        with _new_file(part / _MARKER) as file:
            file.write(json.dumps(sizes).encode())
        part.chmod(0o755)
        _put_in_place(part, home)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put_in_place(part: Path, home: Path) -> None:
    if home.exists() and not _is_whole(home):
        broken = Path(tempfile.mkdtemp(prefix=f"{home.name}.broken-", dir=home.parent))
        with suppress(OSError):  # another host may have mended it just now
            home.rename(broken / "bundle")
        shutil.rmtree(broken, ignore_errors=True)
    try:
        part.rename(home)
    except OSError:
        if not _is_whole(home):  # not even another run's
            raise


def _clean(order: dict[str, Any]) -> dict[str, Any]:
    """Remove runs by their names, and bundles that no run needs; what was removed, or left and why."""
    base, removed, left, size = Path(order["base"]), [], {}, 0
    for name in order["runs"]:
        run = base / "runs" / name
        if Path(name).name != name or not run.is_dir():
            continue
        why = "it is at work" if _is_at_work(run) else "" if order["force"] else _standing_changes(run)
        if why:
            left[name] = why
            continue
        size += _size(run)
        shutil.rmtree(run)
        removed.append(name)
    runs = [path for path in _entries(base / "runs") if path.is_dir()]
    bundles = []
    now, age = time.time(), order["bundles_older_than_s"]
    for path in _entries(base / "bundles"):
        with suppress(OSError):  # another host that shares the folder may have removed it
            marker = path / _MARKER
            unused_s = now - (marker if marker.is_file() else path).stat().st_mtime
            is_part = ".part-" in path.name or ".broken-" in path.name
            if unused_s > _LEFT_OVER_S if is_part else not runs or (age is not None and unused_s > age):
                if any(map(_is_at_work, runs)):
                    continue
                size += _size(path)
                shutil.rmtree(path)
                bundles.append(path.name)
    return {"removed": removed, "left": left, "bundles": bundles, "bytes": size}


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def _is_at_work(run: Path) -> bool:
    """Whether a process holds one of a run's locks: it wrote its number there, and has the file open."""
    for lock in (run / "lock", run / "results" / ".vcagent.lock"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            process = int(json.loads(lock.read_text())["pid"])
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    if descriptor.samefile(lock):
                        return True
    return False


def _standing_changes(run: Path) -> str:
    """Why a run is kept: only its journal knows how to take back what it changed on the host."""
    import sqlite3

    for journal in sorted((run / "results").glob("*/journal.sqlite")):
        try:
            database = sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=5)
            with closing(database):
                query = "SELECT count(*) FROM undos WHERE undone IS NULL"
                if database.execute(query).fetchone()[0]:
                    return "what it changed on the host stands, and its journal knows how to undo that"
        except sqlite3.Error as error:
            return f"its journal cannot be read: {error}"
    return ""


def _new_file(path: Path) -> IO[bytes]:
    """Make a file, and never write through a link that stands in its place."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW), "wb")


def _platform() -> str:
    """What bundle is needed, as bundles are named."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"py{version}-{platform.machine()}-{platform.libc_ver()[0] or 'musl'}"


def _job(order: dict[str, Any]) -> None:
    """In a task of a Slurm job: take the bundle from the shared folder, and become the agent in it.

    A bundle for another platform than the controller's is asked for.
    """
    task = Path(order["task"])
    described = task.parent / "bundles" / f"{_platform()}.json"
    if not described.is_file():
        part = task.with_suffix(".part")
        part.unlink(missing_ok=True)
        with _new_file(part) as file:
            file.write(json.dumps({"platform": _platform()}).encode())
        part.replace(task.with_suffix(".wants"))
    until = time.monotonic() + _BUNDLE_S
    while not described.is_file():
        if time.monotonic() > until:
            raise SystemExit(f"the controller brought no bundle for {_platform()}")
        time.sleep(1)
    work = Path(tempfile.mkdtemp(prefix="vcagent-"))
    home = work / "bundle"
    try:
        with described.with_suffix(".tar.gz").open("rb") as source:
            _take_in(home, json.loads(described.read_text()), source)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    launcher = [sys.executable, "-I", str(home / "vcagent"), "fleet-host", "job", str(task), str(work)]
    os.execv(sys.executable, launcher)  # noqa: S606 - Slurm signals this very process


def main() -> None:
    """Do what the first line of standard input says."""
    source = sys.stdin.buffer
    order = json.loads(source.readline())
    if order["do"] == "probe":
        print(json.dumps(_probe(order)))  # noqa: T201 - to the controller
        return
    os.umask(0o022)
    try:
        if order["do"] == "clean":
            print(json.dumps(_clean(order)))  # noqa: T201 - to the controller
            return
        if order["do"] == "job":
            _job(order)
        sys.exit(_arrive(order, source))
    except OSError as error:
        sys.exit(f"{error.strerror or error}: {error.filename or order.get('base')}")


if __name__ == "__main__":
    main()
