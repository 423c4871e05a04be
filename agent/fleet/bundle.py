"""Bundles: the agent with all its dependencies in one file per platform.

A bundle is an archive of the agent's own packages and of its dependencies' wheels, unpacked side by side,
with a program that finds them. A host needs nothing but Python: nothing is compiled or installed there, and
nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import threading
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from packaging.markers import default_environment
from packaging.requirements import Requirement

from agent.core.errors import HostError, UsageError
from agent.core.file_hash import sha256_of
from agent.facts.agent_paths import package_dir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

_PACKAGES = ("agent", "actions", "dependencies", "parsers", "profiles", "gpu_configs")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_LAUNCHER = """\
#!/usr/bin/env python3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
if sys.argv[1:2] == ["fleet-host"]:
    from agent.fleet.remote.entry import main

    sys.exit(main(sys.argv[2:]))
from agent.cli.main import main

main()
"""
_LIBCS = {
    "glibc": ("manylinux_2_28_{}", "manylinux_2_17_{}", "manylinux2014_{}", "manylinux_2_12_{}"),
    "musl": ("musllinux_1_2_{}", "musllinux_1_1_{}"),
}
"""Platform tags that every distribution with Python 3.10 or newer supports (PEP 600, PEP 656)."""


@dataclass(frozen=True)
class Platform:
    """The platform that a bundle is made for.

    Args:
        python: the Python version, such as ``3.11``.
        machine: the machine type, as ``uname -m`` prints it.
        libc: ``glibc`` or ``musl``.
    """

    python: str
    machine: str
    libc: str = "glibc"

    def __str__(self) -> str:
        """Return the name that is used in file names."""
        return f"py{self.python}-{self.machine}-{self.libc}"

    @classmethod
    def from_text(cls, text: str) -> Platform:
        """Parse the text that ``str`` returns; ``3.11`` and ``3.11-aarch64`` are accepted too.

        Raises:
            UsageError: if the text is not a platform.
        """
        python, machine, libc = (*text.removeprefix("py").split("-"), "", "")[:3]
        libc = libc or "glibc"
        if not python.startswith("3.") or libc not in _LIBCS:
            raise UsageError(
                f"{text!r} is not a platform", remedy="write it as 3.11-x86_64 or 3.12-aarch64-musl"
            )
        return cls(python, machine or os.uname().machine, libc)

    @classmethod
    def here(cls) -> Platform:
        """Return the platform of this process."""
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return cls(version, os.uname().machine, platform.libc_ver()[0] or "musl")

    def pip_options(self) -> list[str]:
        """Return the options that make pip install for this platform."""
        machine = _MACHINES.get(self.machine, self.machine)
        platforms = [f"--platform={tag.format(machine)}" for tag in _LIBCS[self.libc]]
        return [*platforms, f"--python-version={self.python}", "--implementation=cp", "--only-binary=:all:"]


@dataclass(frozen=True)
class Bundle:
    """A bundle file on the controller."""

    path: Path
    sha256: str

    @property
    def name(self) -> str:
        """The bundle's folder name on a host."""
        return self.sha256[:32]


class Bundles:
    """The bundles of this agent; each is built once and cached.

    Args:
        given: bundles that were built beforehand.
        wheels: a folder of wheels; with it, pip does not use a package index.
        folder: the cache folder.
    """

    def __init__(
        self, given: Iterable[Path] = (), wheels: Path | None = None, folder: Path | None = None
    ) -> None:
        self._given = [_given(path) for path in given]
        self._wheels = wheels
        kept = package_dir(os.environ, root=os.geteuid() == 0)
        self._folder = folder or kept.parent / "bundles"
        self._lock = threading.Lock()
        self._made: dict[Platform, Bundle] = {}

    def ready(self) -> list[tuple[Platform, Bundle]]:
        """Return the given bundles; without any, the bundle for this machine."""
        return self._given or [(here := Platform.here(), self.bundle(here))]

    def bundle(self, platform: Platform) -> Bundle:
        """Return the bundle for a platform; build it if necessary.

        Raises:
            HostError: if it cannot be built.
        """
        with self._lock:
            if platform not in self._made:
                self._made[platform] = next(
                    (bundle for made_for, bundle in self._given if made_for == platform), None
                ) or self._make(platform)
            return self._made[platform]

    def _make(self, platform: Platform) -> Bundle:
        required = _requirements(platform)
        sources = _own_files()
        recipe = hashlib.sha256(repr((str(platform), required, _LAUNCHER, self._wheels)).encode())
        for name, content in sources:
            recipe.update(f"{name}\0{len(content)}\0".encode() + content)
        path = self._folder / f"vcagent-{platform}-{recipe.hexdigest()[:16]}.tar.gz"
        if not path.is_file():
            self._folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="bundle-", dir=self._folder) as folder:
                library = Path(folder) / "lib"
                self._install(library, required, platform)
                part = Path(folder) / path.name
                _pack(part, platform, library, sources)
                part.replace(path)
        return Bundle(path, sha256_of(path))

    def _install(self, library: Path, required: list[str], platform: Platform) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(library)]
        if self._wheels:
            options += ["--no-index", "--find-links", str(self._wheels)]
        command = [sys.executable, "-m", "pip", "install", *options, *platform.pip_options(), *required]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HostError(
                f"the bundle for {platform} cannot be built",
                details=tuple(done.stderr.strip().splitlines()[-6:]),
                remedy="run vcagent bundle on a machine that has a package index, then pass --bundle FILE",
            )
        for leftover in ("bin", "share"):
            shutil.rmtree(library / leftover, ignore_errors=True)


def _requirements(platform: Platform) -> list[str]:
    """Return the agent's requirements on a platform: no extras, and not pip, which no host needs."""
    environment: dict[str, str | AbstractSet[str]] = {
        **{name: str(value) for name, value in default_environment().items()},
        "python_version": platform.python,
        "platform_machine": platform.machine,
        "sys_platform": "linux",
        "extra": "",
    }
    required = map(Requirement, metadata.requires("vcagent") or ())
    return sorted(
        f"{one.name}{one.specifier}"
        for one in required
        if one.name != "pip" and (not one.marker or one.marker.evaluate(environment))
    )


def _own_files() -> list[tuple[str, bytes]]:
    """Return the files of the agent's packages, and the entry points that its registry reads."""
    import agent

    root = Path(agent.__file__).resolve().parents[1]
    files = [
        (path.relative_to(root).as_posix(), path.read_bytes())
        for package in _PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    distribution = metadata.distribution("vcagent")
    folder = f"vcagent-{distribution.version}.dist-info"
    described = {
        "METADATA": distribution.read_text("METADATA") or distribution.read_text("PKG-INFO"),
        "entry_points.txt": distribution.read_text("entry_points.txt"),
    }
    return [*files, *((f"{folder}/{name}", (text or "").encode()) for name, text in described.items())]


def _pack(path: Path, platform: Platform, library: Path, sources: list[tuple[str, bytes]]) -> None:
    """Write the archive; the same content gives the same bytes."""
    described = json.dumps({"platform": str(platform), "version": metadata.version("vcagent")}).encode()
    files = [("vcagent", _LAUNCHER.encode()), ("bundle.json", described)]
    files += [(f"lib/{name}", content) for name, content in sources]
    files += [
        (f"lib/{found.relative_to(library).as_posix()}", found.read_bytes())
        for found in sorted(library.rglob("*"))
        if found.is_file()
    ]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name == "vcagent" else 0o644
            archive.addfile(entry, io.BytesIO(content))
    import gzip

    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped:
        zipped.write(raw.getvalue())


def _given(path: Path) -> tuple[Platform, Bundle]:
    try:
        with tarfile.open(path) as archive:
            file = archive.extractfile("bundle.json")
            described = json.load(file) if file else {}
        platform, version = Platform.from_text(described["platform"]), described["version"]
        bundle = Bundle(path, sha256_of(path))
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is not a bundle of vcagent: {error}", remedy="vcagent bundle makes one"
        ) from error
    if version != (own := metadata.version("vcagent")):
        raise UsageError(
            f"{path} contains vcagent {version}, but this is vcagent {own}",
            remedy=f"build it again: vcagent bundle --platform {platform}",
        )
    return platform, bundle
