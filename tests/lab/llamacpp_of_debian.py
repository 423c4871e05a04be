"""llama.cpp's programs as built by Debian, in a folder that may be moved; available in seconds.

Each program is a script next to the folder ``debian``, which holds the real program, its libraries and
Debian's C library: they run on any x86-64 Linux, and in a container with only a shell. The packages lack the
converter, which comes from the sdist on PyPI.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from agent.facts import Facts, LocalHost
from agent.facts.processor import PROCESSOR
from dependencies.llamacpp.source import PACKAGE_INDEX, PINNED_VERSION, Source, root_of
from tests.lab.debian_packages import unpack
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import StepContext

__all__ = ["llamacpp_of_debian"]

_SUITE = "sid"
_PACKAGES = ("llama.cpp-tools", "llama.cpp-tools-extra")
_CONVERTER = ("convert_hf_to_gguf.py", "conversion", "gguf-py")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SCRIPT = """\
#!/bin/sh
own=${0%/*}/debian
export GGML_BACKEND_PATH="$own/libggml-cpu-BACKEND.so"
exec "$own/ld-linux-x86-64.so.2" --library-path "$own" "$own/${0##*/}" "$@"
"""


def llamacpp_of_debian(context: StepContext) -> Path:
    """Return the folder, with ``bin`` and the converter; made once.

    Args:
        context: the context for fetching the sdist.

    Raises:
        OSError, CalledProcessError: if the packages cannot be fetched.
        DependencyFailedError: if the sdist cannot be fetched.
    """
    recipe = fingerprint(_SUITE, _PACKAGES, _SCRIPT, _backend(), PINNED_VERSION)
    return cached_folder("llamacpp-debian", recipe, lambda folder: _make(folder, context))


def _backend() -> str:
    """Return Debian's build of ggml for this processor: never one with AMX, which some machines trap."""
    wanted = {"avx2", "fma", "f16c", "bmi2"}
    return "haswell" if wanted <= Facts(LocalHost())[PROCESSOR].flags else "x64"


def _make(folder: Path, context: StepContext) -> None:
    unpacked, own = folder / "unpacked", folder / "bin" / "debian"
    unpacked.mkdir()
    own.mkdir(parents=True)
    unpack(unpacked, _SUITE, _PACKAGES, dependencies=True)
    libraries = unpacked / _LIBRARIES
    files = [
        *libraries.glob("*.so*"),
        *libraries.glob("llama/*.so*"),
        *libraries.glob(f"ggml/*/libggml-cpu-{_backend()}.so"),
        *unpacked.glob("usr/bin/llama-*"),
    ]
    for file in files:
        shutil.copy2(file, own)  # a link becomes its target file
    for program in unpacked.glob("usr/bin/llama-*"):
        script = folder / "bin" / program.name
        script.write_text(_SCRIPT.replace("BACKEND", _backend()))
        script.chmod(0o755)
    shutil.rmtree(unpacked)

    tree = folder / "sdist"
    Source(PACKAGE_INDEX, PINNED_VERSION).fetch(tree, context)
    root = root_of(tree, _CONVERTER[0])
    assert root is not None
    for name in _CONVERTER:
        (root / name).rename(folder / name)
    shutil.rmtree(tree)
