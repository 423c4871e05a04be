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
from pathlib import Path
from typing import IO, Any

_PIECE = 1 << 20
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
    return {
        "python": sys.executable,
        "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": platform.machine(),
        "libc": platform.libc_ver()[0] or "musl",
        "host_name": platform.node(),
        "sudo": _sudo(order.get("password")) if order.get("sudo") else "",
        "base": str(_base(root=bool(order.get("sudo")) or os.geteuid() == 0)),
        "clock_s": time.time(),
    }


def _arrive(order: dict[str, Any], source: IO[bytes]) -> int:
    """Take the bundle in, if it is not there, and let it carry out what follows on standard input."""
    bundles = Path(order["base"]) / "bundles"
    home = bundles / order["bundle"]
    bundles.mkdir(mode=0o755, parents=True, exist_ok=True)
    missing = not home.is_dir()
    free = shutil.disk_usage(bundles).free
    if free < _LEAST_FREE_BYTES:
        print(json.dumps({"error": f"only {free >> 20} MiB are free in {bundles}"}), flush=True)  # noqa: T201 - to the controller
        return 1
    print(json.dumps({"missing": missing}), flush=True)  # noqa: T201 - to the controller
    if missing:
        _take_in(home, order, source)
    launcher = [sys.executable, "-I", str(home / "vcagent"), "fleet-host", order["then"], order["run"]]
    return subprocess.run(launcher, input=source.read(), check=False).returncode


def _take_in(home: Path, order: dict[str, Any], source: IO[bytes]) -> None:
    part = home.with_name(f"{home.name}.part-{os.getpid()}")
    archive, digest, left = part.with_name(part.name + ".tar"), hashlib.sha256(), int(order["bytes"])
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
        try:
            part.rename(home)
        except OSError:
            if not home.is_dir():  # not even another run's
                raise
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(part, ignore_errors=True)


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
        if order["do"] == "job":
            _job(order)
        sys.exit(_arrive(order, source))
    except OSError as error:
        sys.exit(f"{error.strerror or error}: {error.filename or order.get('base')}")


if __name__ == "__main__":
    main()
