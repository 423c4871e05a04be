"""The engine's arguments for a requested container."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ProfileError
from agent.host.containers import ContainerSpec, GpuAccess, Mount, Port, Ulimit
from agent.host.containers.creation import container_name, engine_config, fingerprint


def spec(**values: Any) -> ContainerSpec:
    return ContainerSpec(**{"image": "image:1", "purpose": "harness", **values})


def config(**values: Any) -> dict[str, Any]:
    return engine_config(spec(**values), run_id="run-1", secrets_folder=None)


def test_the_least() -> None:
    assert config(ulimits={}) == {
        "Image": "image:1",
        "Cmd": ["sleep", "infinity"],
        "Labels": {
            "vcagent.run": "run-1",
            "vcagent.purpose": "harness",
            "vcagent.spec": fingerprint(spec(ulimits={})),
        },
    }
    assert container_name("run-1", "harness") == "vcagent-run-1-harness"


def test_everything() -> None:
    made = engine_config(
        spec(
            command=("make", "prebuild"),
            entrypoint=(),
            init=True,
            shm_size_bytes=1 << 30,
            ipc="host",
            ulimits={"nofile": Ulimit(1024, 4096)},
            mounts=(Mount(Path("/scratch"), "/scratch"), Mount(Path("/models"), "/models", read_only=True)),
            user="1000:1000",
            groups=("44",),
            environment={"B": "2", "A": "1"},
            secret_environment={"HF_TOKEN": "hf_planted"},
            secret_files={"token": "hf_planted"},
            network="host",
            ports=(Port(8000), Port(53, 5353, "0.0.0.0", "udp")),
            workdir="/work",
            hostname="mlperf",
            cap_add=("SYS_ADMIN",),
            security_opt=("seccomp=unconfined",),
            privileged=True,
            labels={"team": "bench"},
            keep=True,
        ),
        run_id="run-1",
        secrets_folder=Path("/run/vcagent/x"),
    )
    assert made["Cmd"] == ["make", "prebuild"]
    assert made["Entrypoint"] == [""]
    assert made["Env"] == ["A=1", "B=2", "HF_TOKEN=hf_planted"]
    assert made["User"] == "1000:1000"
    assert made["WorkingDir"] == "/work"
    assert made["Hostname"] == "mlperf"
    assert made["ExposedPorts"] == {"8000/tcp": {}, "53/udp": {}}
    assert made["Labels"]["team"] == "bench"
    assert made["Labels"]["vcagent.keep"] == "true"
    assert made["HostConfig"] == {
        "Mounts": [
            {"Type": "bind", "Source": "/scratch", "Target": "/scratch", "ReadOnly": False},
            {"Type": "bind", "Source": "/models", "Target": "/models", "ReadOnly": True},
            {"Type": "bind", "Source": "/run/vcagent/x", "Target": "/run/vcagent-secrets", "ReadOnly": True},
        ],
        "PortBindings": {
            "8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}],
            "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "5353"}],
        },
        "ShmSize": 1 << 30,
        "IpcMode": "host",
        "Ulimits": [{"Name": "nofile", "Soft": 1024, "Hard": 4096}],
        "GroupAdd": ["44"],
        "NetworkMode": "host",
        "CapAdd": ["SYS_ADMIN"],
        "SecurityOpt": ["seccomp=unconfined"],
        "Privileged": True,
        "Init": True,
    }


def test_nvidias_usual_limits_are_the_default() -> None:
    assert config()["HostConfig"]["Ulimits"] == [
        {"Name": "memlock", "Soft": -1, "Hard": -1},
        {"Name": "stack", "Soft": 67108864, "Hard": 67108864},
    ]


@pytest.mark.parametrize(
    ("values", "requests", "runtime", "variable"),
    [
        ({}, None, None, None),
        ({"gpus": "all"}, [{"Driver": "", "Capabilities": [["gpu"]], "Count": -1}], None, None),
        (
            {"gpus": ("0", "GPU-8a")},
            [{"Driver": "", "Capabilities": [["gpu"]], "DeviceIDs": ["0", "GPU-8a"]}],
            None,
            None,
        ),
        (
            {"gpus": "all", "gpu_access": GpuAccess.CDI},
            [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}],
            None,
            None,
        ),
        (
            {"gpus": ("1", "2"), "gpu_access": GpuAccess.CDI},
            [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=1", "nvidia.com/gpu=2"]}],
            None,
            None,
        ),
        ({"gpus": ("1", "2"), "gpu_access": GpuAccess.RUNTIME}, None, "nvidia", "NVIDIA_VISIBLE_DEVICES=1,2"),
        (
            {"gpus": "all", "gpu_access": GpuAccess.RUNTIME, "runtime": "nvidia-legacy"},
            None,
            "nvidia-legacy",
            "NVIDIA_VISIBLE_DEVICES=all",
        ),
        ({"gpu_access": GpuAccess.RUNTIME}, None, None, None),
    ],
)
def test_gpus(values: dict[str, Any], requests: object, runtime: str | None, variable: str | None) -> None:
    made = config(**values)
    assert made["HostConfig"].get("DeviceRequests") == requests
    assert made["HostConfig"].get("Runtime") == runtime
    assert made.get("Env") == (None if variable is None else [variable])


def test_the_fingerprint_tells_wishes_apart_and_tells_no_secrets() -> None:
    base = fingerprint(spec())
    assert fingerprint(spec(environment={})) == base
    changes: list[dict[str, Any]] = [
        {"image": "image:2"},
        {"gpus": "all"},
        {"mounts": (Mount(Path("/a"), "/a"),)},
        {"environment": {"A": "1"}},
        {"secret_environment": {"TOKEN": "x"}},
        {"secret_files": {"token": "x"}},
        {"ulimits": {}},
        {"labels": {"a": "b"}},
        {"keep": True},
        {"user": "1"},
    ]
    assert len({base, *(fingerprint(spec(**change)) for change in changes)}) == len(changes) + 1
    for name in ("secret_environment", "secret_files"):
        one, other = (fingerprint(spec(**{name: {"token": value}})) for value in ("planted-1", "planted-2"))
        assert one == other


def test_secrets_are_in_no_record_and_no_representation() -> None:
    wish = spec(secret_environment={"TOKEN": "planted-secret"}, secret_files={"file": "planted-secret"})
    record = engine_config(wish, run_id="run-1", secrets_folder=None, masked=True)
    assert "planted-secret" not in json.dumps(record) + repr(wish)
    assert "TOKEN=***" in record["Env"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"image": ""}, "no image"),
        ({"purpose": "a b"}, "container's name"),
        ({"gpus": ()}, "empty list"),
        ({"secret_files": {"../x": "y"}}, "not a file name"),
        ({"environment": {"A": "1"}, "secret_environment": {"A": "1"}}, "both secret and not"),
    ],
)
def test_a_wish_that_contradicts_itself(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ProfileError, match=told) as error:
        dataclasses.replace(spec(), **values)
    assert error.value.remedy


def test_amd_s_gpus_are_devices() -> None:
    made = config(gpus="all", gpu_access=GpuAccess.AMD, groups=("44", "109"))
    devices = [device["PathOnHost"] for device in made["HostConfig"]["Devices"]]
    assert devices == ["/dev/kfd", "/dev/dri"]
    assert made["HostConfig"]["GroupAdd"] == ["44", "109"]
    assert "DeviceRequests" not in made["HostConfig"]
    assert "Devices" not in config(gpu_access=GpuAccess.AMD)["HostConfig"]
    assert "ROCR_VISIBLE_DEVICES=0,2" in config(gpus=("0", "2"), gpu_access=GpuAccess.AMD)["Env"]
