"""Separate processes for tests that kill an agent: a server with all imports done forks them."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkServerProcess
    from typing import Any

__all__ = ["exit_code_of", "forked"]

_PRELOADED = ("tests.agent.kill_driver", "tests.agent.rebooting_components")
"""Modules that the tests need; the server imports them once, and each child imports any others."""


def forked(target: Callable[..., Any], *arguments: object) -> ForkServerProcess:
    """Start a process that calls a function.

    Args:
        target: a function of a module.
        arguments: the arguments of the call.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def exit_code_of(target: Callable[..., Any], *arguments: object) -> int:
    """Call a function in a separate process, wait for its end, and return its exit code."""
    process = forked(target, *arguments)
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode
