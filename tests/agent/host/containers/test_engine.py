"""A run's containers in a real engine: found again, replaced, always removed; others' are not touched."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ContainerError, InterruptedRunError
from agent.core.secrets import Secrets
from agent.host.containers import NVIDIA_ULIMITS, GpuAccess, Mount, Port
from agent.host.containers.client import connected
from agent.host.containers.engine import ContainerEngine, remove_containers
from tests.agent.host.containers.conftest import wish
from tests.lab.container_engine import BUSYBOX, HOOK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.host.containers.container import Container
    from tests.lab.restartable_docker import RestartableDocker

pytestmark = pytest.mark.lab


def names(docker: RestartableDocker) -> set[str]:
    return set(docker.docker("ps", "--all", "--format={{.Names}}").split())


def test_it_is_made_found_again_and_replaced(
    engine: ContainerEngine, container_engine: RestartableDocker, start: Callable[..., Container]
) -> None:
    first = start(environment={"A": "1"})
    assert not first.reused
    again = start(environment={"A": "1"})
    assert (again.identifier, again.reused) == (first.identifier, True)

    container_engine.docker("stop", "--time=0", first.name)
    started = start(environment={"A": "1"})
    assert (started.identifier, started.reused) == (first.identifier, True)
    container_engine.docker("pause", first.name)
    assert start(environment={"A": "1"}).identifier == first.identifier

    other = start(environment={"A": "2"})
    assert other.identifier != first.identifier
    assert not other.reused
    assert names(container_engine) == {other.name}

    record = json.loads((engine.records or Path()).joinpath("test.json").read_text())
    assert record["image"]["id"] == other.image.identifier
    assert record["config"]["Env"] == ["A=2"]
    assert record["engine"]["version"]


def test_another_image_of_the_same_name_makes_another_container(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    first = start()
    (tmp_path / "Dockerfile").write_text(f"FROM {BUSYBOX}\nLABEL newer=true\n")
    before = container_engine.docker("image", "inspect", "--format={{.Id}}", BUSYBOX).strip()
    container_engine.docker("tag", BUSYBOX, "lab-older")
    subprocess.run(
        ["docker", f"--host={container_engine.address}", "build", "--tag", BUSYBOX, tmp_path],
        check=True,
        capture_output=True,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
    )
    try:
        second = start()
        assert second.image.identifier != before
        assert second.identifier != first.identifier
    finally:
        container_engine.docker("tag", before, BUSYBOX)


def test_it_is_started_again_after_the_engine_was(
    container_engine: RestartableDocker, start: Callable[..., Container], tmp_path: Path
) -> None:
    command = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")
    first = start(command=command, secret_files={"token": "planted-token"})
    subprocess.run([container_engine.restart], check=True)
    container_engine.wait()
    again = start(command=command, secret_files={"token": "planted-token"})
    assert (again.identifier, again.reused) == (first.identifier, True)
    assert again.run(["echo", "alive"], log=tmp_path / "log").stdout == "alive\n"


def test_somebody_elses_is_refused_and_left(
    engine: ContainerEngine, container_engine: RestartableDocker, start: Callable[..., Container]
) -> None:
    name = f"vcagent-{engine.run_id}-test"
    theirs = container_engine.docker("create", f"--name={name}", BUSYBOX, "sleep", "9").strip()
    try:
        with pytest.raises(ContainerError, match="this run did not create") as error:
            start()
        assert error.value.problem == "name_taken"
        assert container_engine.docker("inspect", "--format={{.Id}}", name).strip() == theirs
        assert remove_containers(engine.run_id, kept_too=True, address=container_engine.address) == []
    finally:
        container_engine.docker("rm", name)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"image": "vcagent-test-nothing:1"}, "no_such_image"),
        ({"runtime": "nope"}, "unknown_runtime"),
        ({"mounts": (Mount(Path("/no/such/folder"), "/data"),)}, "no_mount_source"),
        ({"command": ("no-such-program",)}, "no_such_program"),
        ({"user": "nobody9"}, "no_such_user"),
        ({"network": "no-such-network"}, "no_such_network"),
        ({"command": ("sh", "-c", "echo its last words >&2; exit 3")}, "ended_at_once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_started_has_a_remedy_and_leaves_nothing(
    container_engine: RestartableDocker, start: Callable[..., Container], values: dict[str, Any], problem: str
) -> None:
    def start_until_refused() -> None:
        """Start until it is refused; on a busy host, a command may end only after the first look."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            start(**values)

    with pytest.raises(ContainerError) as error:
        start_until_refused()
    assert error.value.problem == problem
    assert error.value.remedy
    assert names(container_engine) == set()
    if problem == "ended_at_once":
        assert set(error.value.details) == {"its last words"}
        assert "exit code 3" in error.value.message


def test_a_limit_that_the_engine_may_not_raise(
    container_engine: RestartableDocker, engine: ContainerEngine
) -> None:
    """Expect NVIDIA's limits in the container if the tests' root may raise them (CAP_SYS_RESOURCE)."""
    problem = ""
    try:
        engine.ensure_running(wish(ulimits=NVIDIA_ULIMITS))
    except ContainerError as error:
        problem = error.problem
    assert problem in {"", "rlimit"}
    assert (names(container_engine) == set()) == bool(problem)


def test_ports(engine: ContainerEngine, start: Callable[..., Container]) -> None:
    container = start(network="bridge", ports=(Port(80),))
    port = container.host_port(80)
    with pytest.raises(ContainerError, match="no port"):
        container.host_port(81)
    with pytest.raises(ContainerError) as error:
        start(purpose="second", network="bridge", ports=(Port(80, port),))
    assert error.value.problem == "port_taken"


def seen_gpus(docker: RestartableDocker) -> set[str]:
    return set((docker.folder / "gpus").read_text().split())


def test_gpus_by_device_request(container_engine: RestartableDocker, start: Callable[..., Container]) -> None:
    start(gpus="all")
    assert "NVIDIA_VISIBLE_DEVICES=all" in seen_gpus(container_engine)
    start(gpus=("1", "GPU-8a56"))
    assert "NVIDIA_VISIBLE_DEVICES=1,GPU-8a56" in seen_gpus(container_engine)


def test_a_container_that_has_lost_its_gpus_is_replaced(
    start: Callable[..., Container], tmp_path: Path
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)'\n")
    smi.chmod(0o755)
    wanted: dict[str, Any] = {"gpus": "all", "mounts": (Mount(smi, "/bin/nvidia-smi"),)}
    first = start(**wanted)
    assert start(**wanted).identifier == first.identifier
    smi.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Unknown Error'\nexit 255\n")
    other = start(**wanted)
    assert other.identifier != first.identifier
    assert not other.reused
    without_gpus = start(mounts=wanted["mounts"])
    assert start(mounts=wanted["mounts"]).identifier == without_gpus.identifier


def test_a_container_whose_image_has_no_nvidia_smi_is_taken_for_well(
    start: Callable[..., Container],
) -> None:
    assert start(gpus="all").identifier == start(gpus="all").identifier


def test_proxies_of_the_docker_configuration_are_the_containers_too(
    container_engine: RestartableDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "docker" / "config.json"
    config.parent.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(config.parent))
    own = {"https_proxy": "http://own:1"}

    def variables(**proxies: str) -> tuple[str, dict[str, str]]:
        config.write_text(json.dumps({"proxies": {"default": proxies}}))
        with ContainerEngine(
            connected(container_engine.address),
            run_id="test-proxies",
            secrets=Secrets(),
            stop=threading.Event(),
            records=tmp_path / "records",
        ) as engine:
            container = engine.ensure_running(wish(environment=own))
            result = container.run(["env"], log=tmp_path / "log")
            assert (result.stdout.count("planted-password"), "planted" in engine.secrets.mask(url)) == (
                0,
                False,
            )
            seen = container_engine.docker("inspect", "--format={{json .Config.Env}}", container.name)
        return container.identifier, dict(one.split("=", 1) for one in json.loads(seen))

    url = "http://ann:planted-password@proxy:3128"
    try:
        first, told = variables(httpProxy=url, httpsProxy=url, noProxy="localhost")
        assert told.items() >= {"http_proxy": url, "HTTP_PROXY": url, "no_proxy": "localhost", **own}.items()
        assert variables(httpProxy=url, httpsProxy=url, noProxy="localhost")[0] == first
        # A correction of the configuration reaches the run's container.
        other, told = variables(httpProxy="http://proxy:8080")
        assert other != first
        assert (told["http_proxy"], told.get("no_proxy")) == ("http://proxy:8080", None)
        shown = (tmp_path / "records" / "test.json").read_text() + (tmp_path / "log").read_text()
        assert "planted-password" not in shown
    finally:
        remove_containers("test-proxies", kept_too=True, address=container_engine.address)


def test_gpus_by_the_runtime(start: Callable[..., Container], tmp_path: Path) -> None:
    container = start(gpus=("0", "3"), gpu_access=GpuAccess.RUNTIME)
    result = container.run("echo $NVIDIA_VISIBLE_DEVICES", log=tmp_path / "log")
    assert result.stdout == "0,3\n"


def test_gpus_by_cdi_without_a_specification(
    container_engine: RestartableDocker, start: Callable[..., Container]
) -> None:
    with pytest.raises(ContainerError) as error:
        start(gpus="all", gpu_access=GpuAccess.CDI)
    assert error.value.problem in {"cdi_off", "cdi_device"}  # depends on the engine: older than 25 or not
    assert names(container_engine) == set()


def test_gpus_without_nvidias_hook(
    container_engine: RestartableDocker, start: Callable[..., Container]
) -> None:
    hook = container_engine.programs / HOOK
    hook.rename(hook.with_suffix(".away"))
    try:
        subprocess.run([container_engine.restart], check=True)
        container_engine.wait()
        with pytest.raises(ContainerError) as error:
            start(gpus="all")
        assert error.value.problem in {"no_gpu_driver", "cdi_vendor"}  # Docker 29 only looks for CDI
        assert "nvidia-container-toolkit" in (error.value.remedy or "")
        assert names(container_engine) == set()
    finally:
        hook.with_suffix(".away").rename(hook)
        subprocess.run([container_engine.restart], check=True)
        container_engine.wait()


def test_secrets_are_files_that_its_user_alone_reads(
    engine: ContainerEngine,
    container_engine: RestartableDocker,
    start: Callable[..., Container],
    tmp_path: Path,
) -> None:
    token, password = "planted-token-91", "planted-password-92"
    container = start(
        user="1234:1234", secret_files={"token": token}, secret_environment={"PASSWORD": password}
    )
    log = tmp_path / "log"
    result = container.run("cat /run/vcagent-secrets/token; echo $PASSWORD", log=log)
    assert result.stdout == "******\n"
    folder = Path("/run/vcagent") / container.name
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o400
    assert (folder / "token").stat().st_uid == 1234
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert token not in container_engine.docker("inspect", container.name)
    written = log.read_text() + (engine.records or Path()).joinpath("test.json").read_text()
    assert token not in written
    assert password not in written
    start(user="1234:1234")
    assert not folder.exists()
    with pytest.raises(ContainerError):
        start(user="1234:1234", secret_files={"token": token}, runtime="nope")
    assert not folder.exists()
    start(user="1234:1234", secret_files={"token": token})
    assert folder.exists()
    remove_containers(engine.run_id, address=container_engine.address)
    assert not folder.exists()


def test_what_is_to_be_kept_stays(
    engine: ContainerEngine, container_engine: RestartableDocker, start: Callable[..., Container]
) -> None:
    theirs = container_engine.docker("create", "--label=vcagent.run=another", BUSYBOX, "sleep", "9").strip()
    kept, other = start(keep=True), start(purpose="other")
    try:
        assert remove_containers(engine.run_id, address=container_engine.address) == [other.name]
        assert kept.name in names(container_engine)
        removed = remove_containers(engine.run_id, kept_too=True, address=container_engine.address)
        assert removed == [kept.name]
        assert len(names(container_engine)) == 1
    finally:
        container_engine.docker("rm", theirs)


def test_a_run_that_is_told_to_stop_makes_none(
    engine: ContainerEngine, container_engine: RestartableDocker, start: Callable[..., Container]
) -> None:
    engine.stop.set()
    with pytest.raises(InterruptedRunError):
        start()
    assert names(container_engine) == set()


@pytest.fixture
def refusing_socket(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        yield f"unix://{path}"


def test_no_engine_answers(refusing_socket: str, tmp_path: Path) -> None:
    with pytest.raises(ContainerError) as error:
        connected(f"unix://{tmp_path}/nowhere.sock")
    assert error.value.problem == "no_engine"
    with pytest.raises(ContainerError) as error:
        connected(refusing_socket)
    assert error.value.problem == "engine_down"


def test_the_socket_is_another_users(container_engine: RestartableDocker, tmp_path: Path) -> None:
    """Use a process of a user without the group, who may not use the engine."""
    container_engine.folder.chmod(0o755)
    script = (
        "import os, sys; sys.path[:] = os.environ['TEST_PATH'].split(':')\n"
        "from agent.host.containers.client import connected\n"
        "from agent.core.errors import ContainerError\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: connected(sys.argv[1])\n"
        "except ContainerError as error: print(error.problem)\n"
    )
    environment = {**os.environ, "TEST_PATH": ":".join(filter(None, sys.path)), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", script, container_engine.address]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "permission\n"


def test_two_agents_do_not_disturb_each_other(container_engine: RestartableDocker) -> None:
    """Start containers of two runs for the same purpose at the same time."""
    engines = [
        ContainerEngine(
            connected(container_engine.address),
            run_id=f"side-{number}",
            secrets=Secrets(),
            stop=threading.Event(),
        )
        for number in (1, 2)
    ]
    try:
        assert len({engine.ensure_running(wish()).identifier for engine in engines}) == 2
    finally:
        for engine in engines:
            with suppress(ContainerError):
                remove_containers(engine.run_id, address=container_engine.address)
            engine.close()
