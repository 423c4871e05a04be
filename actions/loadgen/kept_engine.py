"""Keep vLLM loaded from one LoadGen test to the next, if both ask for an equal engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import TYPE_CHECKING, Any, NamedTuple

from actions.loadgen.harness_run import harness_environment
from agent.component.environment_script import interpreter
from agent.component.handover import LeftRunning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actions.loadgen.parameters import LoadGenParameters
    from actions.loadgen.sample_sets import SampleSet
    from agent.component.component import StepContext

_GRACE_S = 30.0
"""Seconds in which the engine may free its GPUs before it is killed."""
_POLL_S = 0.05
_LONGEST_FOLDER = 70
"""Characters of the folder for temporary files: a socket's path has at most 107."""


class Lent(NamedTuple):
    """An engine for one test.

    Args:
        config: the harness's configuration with it.
        facts: the case that it was loaded for, if that was another one.
    """

    config: Mapping[str, Any]
    facts: Mapping[str, str]


def can_be_kept(asked: LoadGenParameters) -> bool:
    """Return True if the test's engine may outlive the test.

    A container belongs to one test, with the test's own mounts, so its engine ends with it.
    """
    return asked.vllm is not None and asked.container is None


@contextmanager
def engine_for(
    asked: LoadGenParameters,
    config: Mapping[str, Any],
    *,
    samples: SampleSet,
    context: StepContext,
    case_dir: Path,
) -> Iterator[Lent]:
    """Yield the harness's configuration with the engine that the test before left, or with a new one.

    After a test that succeeded the engine is left for the next test. After any failure it is ended.

    Args:
        asked: the test.
        config: the harness's configuration.
        samples: the test's samples.
        context: the step's context.
        case_dir: the folder of the case, for the output of the engine's process.
    """
    if context.handover is None or not can_be_kept(asked):
        yield Lent(config, {})
        return
    settings = {name: value for name, value in config["backend"].items() if name != "type"}
    key = _key(asked, settings, samples)
    running = context.handover.take(key)
    facts = {} if running is None else {"loaded_for": running.name}
    if running is None:
        running = _start(asked, key, context, case_dir)
    backend = {"type": "vllm_kept", "socket": running.address, "settings": settings}
    try:
        yield Lent({**config, "backend": backend}, facts)
    except BaseException:
        running.stop()
        raise
    context.handover.leave(running)


def _key(asked: LoadGenParameters, settings: Mapping[str, Any], samples: SampleSet) -> str:
    """Return all that the engine's arguments depend on.

    The longest sample determines ``max_model_len`` where it is not given. The sampling belongs to requests.
    """
    loaded = {name: value for name, value in settings.items() if name != "sampling"}
    longest = "" if "max_model_len" in settings["engine"] else samples.sha256
    return json.dumps(
        [str(asked.environment), loaded, asked.max_output_tokens, longest], sort_keys=True, default=str
    )


def _start(asked: LoadGenParameters, key: str, context: StepContext, case_dir: Path) -> LeftRunning:
    short = None if len(gettempdir()) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108 - mkdtemp makes it private
    folder = Path(mkdtemp(prefix="vcagent-engine-", dir=short))
    address = str(folder / "socket")
    command = [str(interpreter(asked.environment)), "-m", "harness.kept_engine", address]
    try:
        process = context.processes.start(command, log=case_dir / "server.log", env=harness_environment())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise

    def stop() -> None:
        try:
            # The engine ends vLLM's own processes in order; the rest of the tree is ended afterwards.
            deadline = time.monotonic() + _GRACE_S
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            process.stop()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def death() -> str | None:
        code = process.poll()
        return None if code is None else f"ended with exit code {code}"

    return LeftRunning(key, asked.case, address, stop, death)
