"""The build of a kernel module by a package: shows its progress, and explains failures."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent.facts.dkms import DKMS_BUILDS
from dependencies.packages.package_lock import remedy_among

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agent.component.component import StepContext
    from agent.facts import Facts

_REMEDIES = (
    (
        r"(?:g\+\+|c\+\+): (?:command )?not found",
        "install the C++ compiler, which the open module needs: apt-get install g++, or dnf install gcc-c++",
    ),
    (
        r"(?:gcc|cc|clang)(?:-\d+)?: (?:command )?not found",
        "install the compiler that built the kernel: see /proc/version",
    ),
    (
        (
            r"unrecognized command[- ]line option|compiler differs|[Cc]ompiler version check|cc: error"
            r"|Failed CC (?:sanity|version) check"
        ),
        "install the compiler version that built the kernel (see /proc/version) and make it the default gcc",
    ),
    (
        (
            r"kernel (?:headers|source).*(?:not be found|not found|does not seem|missing)|[Hh]eaders for"
            r"|No rule to make target|modules: No such file|Kernel configuration is invalid"
        ),
        (
            "install the headers of the running kernel: apt-get install linux-headers-$(uname -r), "
            "or dnf install kernel-devel-$(uname -r)"
        ),
    ),
    (
        r"PREEMPT_RT",
        "NVIDIA does not support real-time kernels: boot one without PREEMPT_RT",
    ),
    (
        r"GPL-incompatible module \S+ uses GPL-only symbol",
        "this kernel keeps a symbol from this driver: take a newer release, or the open module",
    ),
    (r"[Nn]o space left", "free some space in /var/lib/dkms and /tmp, then run again"),
    (
        (
            r"implicit declaration|incompatible (?:pointer|integer)|has no member|too (?:few|many) arguments"
            r"|undeclared|unknown type|conflicting types|redefinition"
        ),
        "this driver is too old for this kernel: ask for a newer release, or boot an older kernel",
    ),
    (r"[Kk]illed|internal compiler error", "the compiler ran out of memory: see dmesg, then run again"),
)


def build_remedy(error: str) -> str | None:
    """Return the remedy for the first error of a build; None if it is unknown."""
    return remedy_among(_REMEDIES, error)


def build_failure(facts: Facts) -> tuple[str, str, tuple[str, ...]] | None:
    """Return message, remedy and details of a failed build; None if none failed."""
    failed = [build for build in facts[DKMS_BUILDS] if build.error]
    if not failed:
        return None
    build = failed[-1]
    return (
        f"the kernel module {build.module}/{build.version} could not be built: {build.error}",
        build_remedy(build.error)
        or f"see {build.log}; another release of the driver or another kernel may do",
        (f"{build.log}: {build.error}",),
    )


def build_words(output: str) -> bool:
    """Return True if a package manager's output is about a module build."""
    return re.search(r"dkms|make\.log|error processing package|Sub-process .*dpkg", output) is not None


@contextmanager
def shown_builds(context: StepContext, poll_s: float = 5.0) -> Iterator[None]:
    """Show the progress of a build within the block: package managers print nothing for minutes meanwhile."""
    over = threading.Event()

    def watch() -> None:
        last = ""
        while not over.wait(poll_s):
            for build in context.facts.fresh()[DKMS_BUILDS]:
                told = (
                    f"building {build.module}/{build.version}: line {build.lines} of its log, {build.at[:60]}"
                )
                if told != last:
                    context.progress.update(told)
                    last = told

    watcher = threading.Thread(target=watch, name="module-build", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
