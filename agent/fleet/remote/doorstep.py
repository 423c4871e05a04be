"""The first program on a host: checks the host, receives the bundle and starts it.

It is sent as text and needs only Python 3.10 and the standard library. The first line of standard input is
a JSON object, the order.
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
"""The list of a bundle's files and sizes in its folder; written last, when the bundle is complete."""
_LEFT_OVER_S = 86400.0
_LEAST_FREE_BYTES = 256 << 20
_SUDO_S = 30
_BUNDLE_S = 1800


def _base(*, root: bool) -> Path:
    """Return the agent's folder: in the system's cache for root, otherwise in the user's cache."""
    if root:
        return Path("/var/cache/vcagent/fleet")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vcagent" / "fleet"


def _sudo(password: str | None) -> str:  # noqa: PLR0911 - one return per answer
    """Return how sudo can be used: ``root``, ``free``, ``password``, or the reason why it cannot."""
    if os.geteuid() == 0:
        return "root"
    if not shutil.which("sudo"):
        return "sudo is not installed"
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
    """Return the facts about the host that the controller needs."""
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
    """Return the reason why the agent's folder cannot be used; empty if it can."""
    folder = next(path for path in (base, *base.parents) if path.is_dir())
    status = os.statvfs(folder)
    if status.f_flag & os.ST_RDONLY:
        return f"{folder} is on a read-only file system"
    if status.f_flag & os.ST_NOEXEC:
        return f"{folder} is mounted noexec: the agent's libraries cannot be loaded from there"
    if not as_root and not os.access(folder, os.W_OK | os.X_OK):
        missing = "" if folder == base else f" ({base} does not exist)"
        return f"{folder} is not writable by this user{missing}"
    if (free := status.f_bavail * status.f_frsize) < _LEAST_FREE_BYTES:
        return f"only {free >> 20} MiB are free in {folder}; the agent needs {_LEAST_FREE_BYTES >> 20}"
    return ""


def _arrive(order: dict[str, Any], source: IO[bytes]) -> int:
    """Receive the bundle if it is missing, then run it with the rest of standard input."""
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
    os.utime(home / _MARKER)  # marks it as used: see _clean
    launcher = [sys.executable, "-I", str(home / "vcagent"), "fleet-host", order["then"], order["run"]]
    return subprocess.run(launcher, input=source.read(), check=False).returncode


def _is_whole(home: Path) -> bool:
    """Return True if all files of a bundle exist with their sizes."""
    try:
        sizes = json.loads((home / _MARKER).read_text())
        return bool(sizes) and all((home / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _take_in(home: Path, order: dict[str, Any], source: IO[bytes]) -> None:
    """Unpack a bundle to a temporary folder, then rename it.

    Hosts may share the folder: temporary names are unique across hosts, and the host that comes later finds
    the bundle complete.
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
            raise SystemExit("the bundle was not received completely")
        with tarfile.open(archive) as tar:
            # Python 3.14 filters by itself; those before 3.10.12 and 3.11.4 have no filters.
            tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
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
        with suppress(OSError):  # another host may have replaced it meanwhile
            home.rename(broken / "bundle")
        shutil.rmtree(broken, ignore_errors=True)
    try:
        part.rename(home)
    except OSError:
        if not _is_whole(home):  # no other run has put a complete one there either
            raise


def _clean(order: dict[str, Any]) -> dict[str, Any]:
    """Remove runs by name, and unused bundles; return what was removed, and what was kept with reasons."""
    base, removed, left, size = Path(order["base"]), [], {}, 0
    for name in order["runs"]:
        run = base / "runs" / name
        if Path(name).name != name or not run.is_dir():
            continue
        why = "it is running" if _is_at_work(run) else "" if order["force"] else _standing_changes(run)
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
    """Return True if a process holds one of the run's locks: its id is in the file, which it has open."""
    for lock in (run / "lock", run / "results" / ".vcagent.lock"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            process = int(json.loads(lock.read_text())["pid"])
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    if descriptor.samefile(lock):
                        return True
    return False


def _standing_changes(run: Path) -> str:
    """Return the reason to keep a run, if only its journal can undo its changes to the host."""
    import sqlite3

    for journal in sorted((run / "results").glob("*/journal.sqlite")):
        try:
            database = sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=5)
            with closing(database):
                query = "SELECT count(*) FROM undos WHERE undone IS NULL"
                if database.execute(query).fetchone()[0]:
                    return "its changes to the host are not undone, and only its journal can undo them"
        except sqlite3.Error as error:
            return f"its journal cannot be read: {error}"
    return ""


def _new_file(path: Path) -> IO[bytes]:
    """Create a file; fail if a file or a link exists there."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW), "wb")


def _platform() -> str:
    """Return the platform of this host, as bundles are named."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"py{version}-{platform.machine()}-{platform.libc_ver()[0] or 'musl'}"


def _job(order: dict[str, Any]) -> None:
    """Replace this task of a Slurm job by the agent, with the bundle from the shared folder.

    If the bundle for this platform is missing, request it from the controller.
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
            raise SystemExit(f"the controller provided no bundle for {_platform()}")
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
    os.execv(sys.executable, launcher)  # noqa: S606 - Slurm sends signals to this process


def main() -> None:
    """Carry out the order in the first line of standard input."""
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
