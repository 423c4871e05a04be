"""A real Docker engine: an installed one is accepted, daemon.json is merged, a container gets the GPUs.

NVIDIA's runtime and its hook are stand-ins: the test shows how Docker calls them.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts, LocalHost
from agent.facts.docker import (
    DAEMON_CONFIG_PATH,
    DOCKER_GROUP,
    DOCKER_PROBLEM,
    DOCKER_SERVER,
    RUNNING_CONTAINERS,
)
from agent.facts.users import User
from dependencies.docker.cli import as_user, docker_command
from dependencies.docker.installation import DockerInstallation
from dependencies.docker.service import await_engine
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from dependencies.nvidia.gpu_container_proof import GpuContainerProof
from tests.lab.newer_docker import newer_docker
from tests.lab.restartable_docker import RestartableDocker, restartable_docker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dependencies.conftest import RealHost

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("dockerd", "unshare", "ip", "busybox"))),
        reason="needs root, dockerd, iproute2 and busybox-static",
    ),
]

IMAGE = "proof:1"
SEES_ONE = "echo 'GPU 0: Stand-in'"
HOOK = "nvidia-container-runtime-hook"


@dataclass(frozen=True)
class EngineHost(LocalHost):
    """This host with another daemon.json."""

    config: Path

    def text(self, path: str) -> str | None:
        return super().text(str(self.config) if path == DAEMON_CONFIG_PATH else path)


@pytest.fixture(scope="module")
def engine() -> Iterator[RestartableDocker]:
    with (
        tempfile.TemporaryDirectory(prefix="vcagent-docker-") as folder,
        restartable_docker(Path(folder)) as docker,
    ):
        docker.import_busybox(IMAGE)
        yield docker


@pytest.fixture
def host(real_host: RealHost, engine: RestartableDocker, monkeypatch: pytest.MonkeyPatch) -> RealHost:
    """Return this host as one with a GPU and its driver, and the stand-ins for NVIDIA's runtime."""
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    engine.put_program(HOOK, "exit 0")
    engine.put_program("nvidia-container-runtime", 'exec runc "$@"')
    modelled = {
        "package_dir": real_host.context.package_dir,
        "system_root": engine.root,
        "driver_version": "550.90.07",
        "gpu_count": 1,
        "container_toolkit_version": "1.17.8",
        "systemd": False,
    }
    facts = Facts(EngineHost(engine.config), modelled)
    return replace(real_host, facts=facts, context=replace(real_host.context, facts=facts))


def toolkit(engine: RestartableDocker, **values: Any) -> NvidiaContainerToolkitInstallation:
    parameters = {
        "proof_image": IMAGE,
        "proof_command": SEES_ONE,
        "required_space": 0,
        "restart_command": str(engine.restart),
        **values,
    }
    return NvidiaContainerToolkitInstallation(
        NvidiaContainerToolkitInstallation.Parameters.model_validate(parameters)
    )


def test_from_nothing_to_a_container_with_gpus(host: RealHost, engine: RestartableDocker) -> None:
    before = engine.config.read_text()
    names = host.apply(toolkit(engine))
    assert names[-1] == "proof"
    assert names[:2] == ["daemon", "restart"]
    settings = json.loads(engine.config.read_text())
    assert settings["data-root"] == str(engine.folder / "data")
    assert settings["hosts"] == [engine.address]
    assert settings["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    (backup,) = engine.config.parent.glob("daemon.json.*.bak")
    assert backup.read_text() == before
    assert sorted(path.name for path in engine.config.parent.iterdir()) == ["daemon.json", backup.name]
    assert host.apply(toolkit(engine)) == []
    assert host.apply(toolkit(engine, proof_devices="runtime")) == ["proof"]
    (marker,) = host.context.package_dir.glob(".proofs/*.json")
    assert json.loads(marker.read_text())["way"] == "runtime"


def test_taken_back(host: RealHost, engine: RestartableDocker) -> None:
    settings = {"data-root": str(engine.folder / "data"), "hosts": [engine.address]}
    engine.config.write_text(json.dumps(settings))
    subprocess.run([engine.restart], check=True)
    await_engine(host.context)
    component = toolkit(engine, proof=False)
    (daemon, _restart) = component.plan(host.facts.fresh()).steps
    host.apply(component)
    assert daemon.undo
    (step,) = component.undo(daemon.undo, host.facts.fresh()).steps
    step.run(host.context)
    assert step.holds
    assert step.holds(host.facts.fresh())
    assert json.loads(engine.config.read_text()) == settings
    server = host.facts.fresh()[DOCKER_SERVER]
    assert server
    assert "nvidia" not in server.runtimes


def test_a_restart_would_end_containers(host: RealHost, engine: RestartableDocker) -> None:
    host.apply(toolkit(engine, proof=False))
    name = engine.docker("run", "--detach", "--rm", "--network=none", "--name=trainer", IMAGE, "sleep", "60")
    try:
        (container,) = host.facts.fresh()[RUNNING_CONTAINERS]
        assert (container.name, container.image) == ("trainer", IMAGE)
        assert host.apply(toolkit(engine, proof=False)) == []
        with pytest.raises(HostError, match=r"ends 1 running container\(s\): trainer \(proof:1\)"):
            toolkit(engine, proof=False, set_as_default=True).plan(host.facts.fresh())
    finally:
        engine.docker("kill", name.strip())


@pytest.fixture
def newer_engine() -> Iterator[RestartableDocker]:
    """Start Docker 26: Debian 12's engine does not read proxies from daemon.json."""
    try:
        programs = newer_docker()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a newer engine is not available: {error}")
    with (
        tempfile.TemporaryDirectory(prefix="vcagent-proxy-") as folder,
        restartable_docker(Path(folder), programs=programs) as docker,
    ):
        yield docker


def test_the_engine_uses_a_proxy(
    real_host: RealHost, newer_engine: RestartableDocker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = tmp_path / "service"
    service.write_text(f"#!/bin/sh\nexec {newer_engine.restart}\n")
    service.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", newer_engine.address)
    modelled = {"system_root": newer_engine.root, "systemd": False}
    facts = Facts(EngineHost(newer_engine.config), modelled)
    host = replace(real_host, facts=facts, context=replace(real_host.context, facts=facts))
    before = json.loads(newer_engine.config.read_text())
    proxies = {"https-proxy": "http://proxy.invalid:3128", "no-proxy": "localhost"}
    component = DockerInstallation(
        DockerInstallation.Parameters(https_proxy=proxies["https-proxy"], no_proxy=proxies["no-proxy"])
    )
    (step,) = component.plan(host.facts.fresh()).steps
    assert host.apply(component) == ["proxy"]
    server = host.facts.fresh()[DOCKER_SERVER]
    assert server
    assert server.proxies == proxies
    assert json.loads(newer_engine.config.read_text()) == {**before, "proxies": proxies}
    assert host.apply(component) == []
    assert step.undo
    (back,) = component.undo(step.undo, host.facts.fresh()).steps
    back.run(host.context)
    assert json.loads(newer_engine.config.read_text()) == before


def test_malformed_and_untouched(host: RealHost, engine: RestartableDocker) -> None:
    good = engine.config.read_bytes()
    bad = good.rstrip()[:-1] + b",}"
    engine.config.write_bytes(bad)
    try:
        with pytest.raises(HostError, match="malformed"):
            toolkit(engine).plan(host.facts.fresh())
        with pytest.raises(HostError, match="malformed"):
            DockerInstallation(DockerInstallation.Parameters()).plan(host.facts.fresh())
        assert engine.config.read_bytes() == bad
    finally:
        engine.config.write_bytes(good)


@pytest.mark.parametrize(
    ("image", "command", "way", "remedy"),
    [
        (IMAGE, "nvidia-smi -L", "gpus", "the image has no nvidia-smi"),
        ("no-such-image:1", "true", "gpus", "the registry is not reached"),
        (
            IMAGE,
            "sh -c 'echo Failed to initialize NVML: Driver/library version mismatch; exit 18'",
            "gpus",
            "reboot",
        ),
        (IMAGE, "sh -c 'echo GPU 0: a; echo GPU 1: b'", "gpus", "nvidia-smi -L"),
    ],
)
def test_what_goes_wrong_has_a_remedy(
    host: RealHost, image: str, command: str, way: str, remedy: str
) -> None:
    with pytest.raises(DependencyFailedError) as error:
        GpuContainerProof(image, command, way).make(host.context)
    assert remedy in (error.value.remedy or "")


def test_the_hook_is_missing(host: RealHost, engine: RestartableDocker) -> None:
    (engine.programs / HOOK).unlink()
    subprocess.run([engine.restart], check=True)
    await_engine(host.context)
    with pytest.raises(DependencyFailedError) as error:
        GpuContainerProof(IMAGE, "true", "gpus").make(host.context)
    assert "nvidia-container-runtime-hook" in (error.value.remedy or "")


def test_the_runtime_is_unknown(host: RealHost, engine: RestartableDocker) -> None:
    settings = json.loads(engine.config.read_text())
    before = engine.config.read_text()
    settings.pop("runtimes", None)
    engine.config.write_text(json.dumps(settings))
    subprocess.run([engine.restart], check=True)
    await_engine(host.context)
    try:
        with pytest.raises(DependencyFailedError) as error:
            GpuContainerProof(IMAGE, "true", "runtime").make(host.context)
        assert "the engine does not know the runtime nvidia" in (error.value.remedy or "")
    finally:
        engine.config.write_text(before)
        subprocess.run([engine.restart], check=True)
        await_engine(host.context)


@pytest.fixture
def user() -> Iterator[str]:
    name = f"vcagent-test-{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", name], check=True)
    yield name
    subprocess.run(["userdel", name], check=True)


def test_an_installed_engine_is_accepted_and_a_user_may_use_it_at_once(
    host: RealHost, engine: RestartableDocker, user: str
) -> None:
    component = DockerInstallation(DockerInstallation.Parameters.model_validate({"Usernames": user}))
    if host.facts.fresh()[DOCKER_GROUP] is None:
        subprocess.run(["groupadd", "--system", "docker"], check=True)
    assert host.apply(component) == [f"group-{user}"]
    assert host.apply(component) == []
    server = host.facts.fresh()[DOCKER_SERVER]
    assert server
    engine.folder.chmod(0o755)
    ask = ["docker", f"--host={engine.address}", "version", "--format", "{{.Server.Version}}"]
    # Root starts it for the user, with the user's current groups.
    answer = subprocess.run(as_user(ask, user), capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == server.version
    # An agent started before the user was added has the old groups: sg provides the new one.
    stale = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
    assert subprocess.run([*stale, *ask], capture_output=True, check=False).returncode != 0
    number = pwd.getpwnam(user).pw_uid
    facts = Facts(
        None,
        {
            "root": False,
            "user": User(user, number),
            "process_groups": frozenset({user}),
            "docker_group": (user,),
        },
    )
    with_group = docker_command(ask[1:], facts)
    assert with_group[:2] == ["sg", "docker"]
    answer = subprocess.run([*stale, *with_group], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == server.version


def test_an_engine_that_is_down(host: RealHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    facts = host.facts.fresh()
    assert facts[DOCKER_SERVER] is None
    assert "Cannot connect" in (facts[DOCKER_PROBLEM] or "")
    (step,) = DockerInstallation(DockerInstallation.Parameters()).plan(facts).steps
    assert step.name == "start"
