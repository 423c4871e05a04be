"""Images: pulled with a real registry's protocol, built by a real engine."""

from __future__ import annotations

import base64
import json
import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.bundled_images import image_download
from agent.component.component import StepContext
from agent.component.downloads import Fetching
from agent.component.open_container import load_image
from agent.core.errors import ContainerError, HostError, InterruptedRunError
from agent.core.secrets import Secrets
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.host.containers.client import connected
from agent.host.containers.engine import ContainerEngine
from agent.host.containers.images import Layers
from agent.host.processes import LocalProcesses
from tests.lab.container_engine import BUSYBOX
from tests.lab.host.web.image_registry import busybox_layer, write_image
from tests.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.restartable_docker import RestartableDocker

lab = pytest.mark.lab
PORT = 5000
REGISTRY = f"localhost:{PORT}"
PRIVATE = f"localhost:{PORT + 1}"


class Shown:
    """A progress display that keeps its messages."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, float | None, float | None]] = []

    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        self.updates.append((message, done, total))


def test_how_much_has_come() -> None:
    layers = Layers()
    events: list[dict[str, Any]] = [
        {"status": "Pulling from lab/busybox", "id": "1"},
        {"status": "Downloading", "id": "a", "progressDetail": {"current": 10, "total": 100}},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 5}},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 20, "total": 50}},
        {"status": "Verifying Checksum", "id": "a", "progressDetail": {}},
        {"status": "Download complete", "id": "a", "progressDetail": {}},
        {"status": "Extracting", "id": "a", "progressDetail": {"current": 1, "total": 100}},
        {"status": "Already exists", "id": "c", "progressDetail": {}},
    ]
    assert layers.total_bytes is None
    for event in events:
        layers.take(event)
    assert (layers.done_bytes, layers.total_bytes) == (120, 150)


@pytest.fixture(scope="module")
def registry(
    container_engine: RestartableDocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestartableDocker]:
    """Start a registry in the engine's network, and one that needs a password; yield the engine."""
    folder = tmp_path_factory.mktemp("registry")
    layer = busybox_layer(Path(shutil.which("busybox") or "/bin/busybox"))
    write_image(folder, "lab/busybox", ("1",), layer)
    write_image(folder, "stalled/busybox", ("1",), layer + bytes(10_240))
    script = Path(__file__).parents[3] / "lab" / "registry_server.py"
    command = container_engine.beside(sys.executable, str(script), str(folder), str(PORT))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        yield container_engine
        server.kill()


def an_engine(docker: RestartableDocker, config: Path | None = None) -> ContainerEngine:
    return ContainerEngine(
        connected(docker.address, config), run_id="images", secrets=Secrets(), stop=threading.Event()
    )


@lab
def test_an_image_is_pulled_once_and_known_by_its_digest(registry: RestartableDocker) -> None:
    shown, reference = Shown(), f"{REGISTRY}/lab/busybox:1"
    with an_engine(registry) as engine:
        with pytest.raises(ContainerError, match="does not exist"):
            engine.ensure_image(reference, when="never")
        image = engine.ensure_image(reference, progress=shown)
        assert image.identifier.startswith("sha256:")
        (digest,) = image.digests
        assert digest.startswith(f"{REGISTRY}/lab/busybox@sha256:")
        assert {message for message, *_ in shown.updates} == {f"pulling {reference}"}
        shown.updates.clear()
        assert engine.ensure_image(reference, progress=shown) == image
        assert shown.updates == []
        assert engine.ensure_image(reference, when="always", progress=shown) == image
        assert shown.updates
        assert engine.ensure_image(digest).identifier == image.identifier
    registry.docker("rmi", reference)


@lab
def test_an_image_goes_through_a_bundle(
    registry: RestartableDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", registry.address)
    bundle, reference = tmp_path / "bundle", f"{REGISTRY}/lab/busybox:1"
    download = image_download(reference)
    download.fetch(Fetching(bundle, tmp_path, Facts(None, {"architecture": platform.machine()})))
    progress: Any = Shown()
    there = Bundle(bundle, "test", frozenset({("image", reference)}))
    processes = LocalProcesses("images", stop=threading.Event())
    step = StepContext(
        Facts(None, {BUNDLE: there}),
        processes,
        progress,
        processes.stop,
        tmp_path,
        tmp_path,
        tmp_path / "log",
    )
    with an_engine(registry) as engine:
        before = engine.ensure_image(reference, when="never")
        registry.docker("rmi", reference)
        assert engine.image(reference) is None
        assert load_image(reference, step)
        assert engine.ensure_image(reference, when="never").identifier == before.identifier
        assert progress.updates == []  # nothing was pulled
    registry.docker("run", "--rm", "--network=none", reference, "true")
    registry.docker("rmi", reference)
    absent = image_download(f"{REGISTRY}/lab/busybox:9")
    with pytest.raises(HostError, match="the image localhost:5000/lab/busybox:9 cannot be fetched"):
        absent.fetch(Fetching(bundle, tmp_path, Facts(None, {"architecture": platform.machine()})))


@lab
@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (f"{REGISTRY}/lab/busybox:9", "no_such_image"),
        (f"{REGISTRY}/lab/busybox", "no_such_image"),
        (f"{REGISTRY}/lab/nothing:1", "no_such_image"),
        (f"{PRIVATE}/lab/busybox:1", "unauthorized"),
        ("localhost:1/lab/busybox:1", "registry_not_reached"),
        ("Not a name", "bad_reference"),
    ],
)
def test_what_cannot_be_pulled(registry: RestartableDocker, reference: str, problem: str) -> None:
    with an_engine(registry) as engine, pytest.raises(ContainerError) as error:
        engine.ensure_image(reference)
    assert error.value.problem == problem
    assert error.value.remedy


@lab
@pytest.mark.filterwarnings("ignore:docker-credential-no-such-store")
def test_the_credentials_of_the_docker_configuration(registry: RestartableDocker, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    entry = {"auth": base64.b64encode(b"user:open-sesame").decode()}
    config.write_text(json.dumps({"auths": {PRIVATE: entry}}))
    reference = f"{PRIVATE}/lab/busybox:1"
    with an_engine(registry, config) as engine:
        assert engine.ensure_image(reference).digests
    registry.docker("rmi", reference)
    config.write_text(json.dumps({"credsStore": "no-such-store"}))
    with an_engine(registry, config) as engine, pytest.raises(ContainerError) as error:
        engine.ensure_image(reference)
    assert error.value.problem == "no_credential_program"


@lab
def test_a_pull_that_is_told_to_stop(registry: RestartableDocker) -> None:
    with an_engine(registry) as engine:
        shown = Shown()
        threading.Timer(1, engine.stop.set).start()
        with pytest.raises(InterruptedRunError):
            engine.ensure_image(f"{REGISTRY}/stalled/busybox:1", progress=shown)


@lab
def test_an_image_is_built(container_engine: RestartableDocker, tmp_path: Path) -> None:
    folder, log, shown = tmp_path / "context", tmp_path / "log", Shown()
    folder.mkdir()
    (folder / "told").write_text("told at build\n")
    (folder / "Dockerfile.lab").write_text(
        f"FROM {BUSYBOX} AS base\nARG WHO\nCOPY told /told\nRUN echo built for $WHO\nFROM base\nRUN exit 9\n"
    )
    wish: dict[str, Any] = {
        "tag": "vcagent-test-built:1",
        "dockerfile": "Dockerfile.lab",
        "log": log,
        "network": "none",
        "labels": {"made-by": "test"},
        "arguments": {"WHO": "planted-who"},
        "progress": shown,
    }
    with an_engine(container_engine) as engine:
        engine.secrets.add("planted-who")
        image = engine.build_image(folder, target="base", **wish)
        assert engine.image("vcagent-test-built:1") == image
        text = log.read_text()
        assert text.startswith("$ docker build --tag vcagent-test-built:1")
        assert "built for ***" in text
        assert [(message[:7], done) for message, done, _ in shown.updates][:2] == [
            ("Step 1/", 0),
            ("Step 2/", 1),
        ]
        with pytest.raises(ContainerError, match="returned a non-zero code: 9") as error:
            engine.build_image(folder, **wish)
        assert any("RUN exit 9" in line for line in error.value.details)
        with pytest.raises(ContainerError, match="cannot be built"):
            engine.build_image(folder, **{**wish, "dockerfile": "Dockerfile.nothing"})
    container_engine.docker("rmi", "vcagent-test-built:1")


@lab
def test_a_build_that_is_told_to_stop_ends(container_engine: RestartableDocker, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN echo begun; sleep 987\n")
    with an_engine(container_engine) as engine:
        log = tmp_path / "log"

        def begun() -> bool:
            return log.exists() and "begun" in log.read_text().splitlines()

        def stop_when_begun() -> None:
            try:
                wait_for(begun, every_s=0.1)
            finally:
                engine.stop.set()

        stopper = threading.Thread(target=stop_when_begun)
        stopper.start()
        with pytest.raises(InterruptedRunError):
            engine.build_image(tmp_path, tag="vcagent-test-stopped:1", log=log, network="none")
        command = ["ps", "-eo", "args"]
        wait_for(
            lambda: (
                "sleep 987" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout
            ),
            every_s=0.1,
        )
        stopper.join()
    assert begun()
