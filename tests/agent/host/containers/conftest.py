"""A run's access to the tests' engine."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.secrets import Secrets
from agent.host.containers import ContainerSpec
from agent.host.containers.client import connected
from agent.host.containers.engine import ContainerEngine, remove_containers
from tests.lab.container_engine import BUSYBOX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.host.containers.container import Container
    from tests.lab.restartable_docker import RestartableDocker


@contextmanager
def run_in(docker: RestartableDocker, records: Path) -> Iterator[ContainerEngine]:
    """Give a run's access to an engine; its containers are removed at the end."""
    run_id = f"test-{uuid.uuid4().hex[:8]}"
    with ContainerEngine(
        connected(docker.address),
        run_id=run_id,
        secrets=Secrets(),
        stop=threading.Event(),
        step="step",
        records=records,
    ) as engine:
        yield engine
    remove_containers(run_id, kept_too=True, address=docker.address)


@pytest.fixture
def engine(container_engine: RestartableDocker, tmp_path: Path) -> Iterator[ContainerEngine]:
    with run_in(container_engine, tmp_path / "records") as engine:
        yield engine


def wish(**values: Any) -> ContainerSpec:
    """Return the specification of a container that any engine can start."""
    return ContainerSpec(**{"image": BUSYBOX, "purpose": "test", "ulimits": {}, "network": "none", **values})


@pytest.fixture
def start(engine: ContainerEngine) -> Callable[..., Container]:
    return lambda **values: engine.ensure_running(wish(**values))
