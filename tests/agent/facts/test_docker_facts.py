from __future__ import annotations

import json

import pytest

from agent.facts.container_toolkit import CdiSpec, cdi_spec, nvidia_runtime_configured, toolkit_version
from agent.facts.docker import (
    DockerEngine,
    DockerServer,
    RunningContainer,
    daemon_config,
    docker_engine,
    docker_server,
    running_containers,
    upstream_version,
)
from agent.facts.users import group_members

PATHS = "/usr/bin/docker\n/usr/bin/dockerd\n"


@pytest.mark.parametrize(
    ("packages", "programs", "expected"),
    [
        ("docker-ce\t5:27.3.1-1~ubuntu.24.04~noble\tii \n", PATHS, "docker-ce"),
        ("docker.io\t28.2.2-0ubuntu1\tii \n", PATHS, "docker.io"),
        ("docker-ce\t5:27.3.1\trc \ndocker.io\t28.2.2\tii \n", PATHS, "docker.io"),
        ("docker.io\t28.2.2\thi \n", PATHS, "docker.io"),
        ("moby-engine\t25.0.3-13.azl3\tii\n", PATHS, "moby-engine"),
        ("docker\t27.5.1_ce-98.1\tii\n", PATHS, "docker"),
        ("package docker-ce is not installed\nmoby-engine\t24.0.5-1\tii\n", PATHS, "moby-engine"),
        ("", "/snap/bin/docker\n", "snap"),
        ("", "/var/lib/snapd/snap/bin/docker\n", "snap"),
        ("podman-docker\t4.9.4\tii\n", "/usr/bin/docker\n", "podman"),
        ("", PATHS, "static"),
        ("docker\t1.5-2\tii \n", "", None),  # wmdocker of old Debian: a dock, not an engine
        ("docker-ce\t5:27.3.1\trc \n", "", None),
        ("", "/usr/local/bin/docker\n", None),  # only a client
        ("", "", None),
    ],
)
def test_which_engine(packages: str, programs: str, expected: str | None) -> None:
    engine = docker_engine(packages, programs)
    assert (engine and engine.kind) == expected


@pytest.mark.parametrize("state", ["iU ", "iF ", "iHR", "iW "])
@pytest.mark.parametrize("name", ["docker-ce", "docker.io", "moby-engine"])
def test_an_engine_whose_installation_was_cut_short(name: str, state: str) -> None:
    unfinished = f"{name}\t5:27.3.1\t{state}\n"
    assert docker_engine(unfinished, PATHS) == DockerEngine(name, "5:27.3.1", whole=False)
    whole = docker_engine(f"{unfinished}docker-ee\t3\tii \n", PATHS)
    assert whole == DockerEngine("docker-ee", "3")
    snap = docker_engine(unfinished, "/snap/bin/docker\n")
    assert snap == DockerEngine("snap")


def test_the_version_of_a_package() -> None:
    assert docker_engine("docker-ce\t5:27.3.1-1\tii \n", PATHS) == DockerEngine("docker-ce", "5:27.3.1-1")
    assert upstream_version("5:27.3.1-1~ubuntu.24.04~noble") == "27.3.1"
    assert upstream_version("20.10.24+dfsg1-1+deb12u1+b6") == "20.10.24"
    assert upstream_version("27.5.1_ce-98.1") == "27.5.1"
    assert upstream_version("3:27.3.1-1.el9") == "27.3.1"


def test_an_engine_that_answers() -> None:
    info = {
        "ServerVersion": "28.2.2",
        "DockerRootDir": "/data/docker",
        "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": "nvidia-container-runtime"}},
        "DefaultRuntime": "runc",
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns"],
        "CgroupDriver": "systemd",
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
        "HttpProxy": "",
        "HttpsProxy": "http://xxxxx:xxxxx@proxy:3128",
    }
    expected = DockerServer(
        "28.2.2",
        "/data/docker",
        {"runc": "runc", "nvidia": "nvidia-container-runtime"},
        "runc",
        cgroup_driver="systemd",
        cdi_folders=("/etc/cdi", "/var/run/cdi"),
        proxies={"https-proxy": "http://xxxxx:xxxxx@proxy:3128"},
    )
    assert docker_server(json.dumps(info)) == expected
    assert expected.major == 28
    store = docker_server(
        json.dumps({**info, "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]})
    )
    assert store
    assert store.image_root == "/var/lib/containerd"
    assert expected.image_root == expected.data_root
    rootless = docker_server(json.dumps({**info, "SecurityOptions": ["name=rootless"], "Runtimes": None}))
    assert rootless
    assert rootless.rootless
    assert rootless.runtimes == {}


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"ServerErrors": ["Cannot connect"]}'])
def test_an_engine_that_does_not_answer(text: str | None) -> None:
    assert docker_server(text) is None


def test_daemon_config() -> None:
    assert daemon_config(None).settings == {}
    assert daemon_config(" \n").settings == {}
    assert daemon_config('{"data-root": "/d"}').settings == {"data-root": "/d"}
    comma = daemon_config('{"data-root": "/d",}')
    assert comma.settings is None
    assert "line 1 column " in comma.problem
    assert "contains a list" in daemon_config("[]").problem


def test_group_and_containers() -> None:
    assert group_members("docker:x:998:alice,bob\n") == ("alice", "bob")
    assert group_members("docker:x:998:\n") == ()
    assert group_members(None) is None
    assert running_containers("1f\tweb\tnginx:1\nbroken\n") == (RunningContainer("1f", "web", "nginx:1"),)


def test_toolkit() -> None:
    told = "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n"
    assert toolkit_version(told) == "1.17.8"
    assert toolkit_version("nvidia-ctk version 1.18.0-rc.1") == "1.18.0-rc.1"
    assert toolkit_version(None) is None
    with_runtime = daemon_config('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
    assert nvidia_runtime_configured(with_runtime, None) is True
    assert nvidia_runtime_configured(with_runtime, DockerServer("28")) is False  # not loaded yet
    assert nvidia_runtime_configured(daemon_config("{"), None) is None


SPEC = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}
- name: all
containerEdits:
  mounts:
  - {hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15, containerPath: /usr/lib/libcuda.so.550.54.15}
"""


def test_cdi() -> None:
    assert cdi_spec("f", SPEC) == CdiSpec("f", "nvidia.com/gpu", ("0", "all"), "550.54.15")
    assert cdi_spec("f", '{"kind": "acme.com/npu", "devices": []}') == CdiSpec("f", "acme.com/npu")
    for broken in ("", "kind: [", "- a", "x: y", "kind: k\ndevices: [1]"):
        assert cdi_spec("f", broken) is None
