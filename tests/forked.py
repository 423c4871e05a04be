"""Processes of their own for tests that kill an agent: a server forks them, imports done."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkServerProcess
    from typing import Any

__all__ = ["exit_code_of", "forked"]

_PRELOADED = ("tests.agent.kill_driver", "tests.agent.rebooting_components")
"""All that the tests need: the server of a test process starts once, and what it lacks each child imports."""


def forked(target: Callable[..., Any], *arguments: object) -> ForkServerProcess:
    """Start a process that calls a function.

    Args:
        target: a function of a module.
        arguments: what it is called with.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def exit_code_of(target: Callable[..., Any], *arguments: object) -> int:
    """Call a function in a process of its own, wait for its end, and return its exit code."""
    process = forked(target, *arguments)
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode
