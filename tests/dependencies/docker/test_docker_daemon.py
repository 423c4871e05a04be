"""daemon.json: merged, undone, and never half written; the installers' other files undone too."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts, LocalHost
from agent.facts.docker import DAEMON_CONFIG_PATH, daemon_config
from dependencies.docker.cli import REMEDIES, docker_remedy
from dependencies.docker.daemon import changes, merged, overwritten, without, write_daemon_config
from dependencies.docker.installation import DockerInstallation
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from dependencies.packages.system_file import write_system_file
from tests.dependencies.docker_facts import DOCKER_READERS

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import StepContext
    from tests.dependencies.conftest import RealHost

NAMES = st.sampled_from(["runtimes", "nvidia", "features", "cdi", "hosts", "path"])
PLAIN = st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
SETTINGS = st.dictionaries(
    NAMES, st.recursive(PLAIN, lambda inner: st.dictionaries(NAMES, inner, max_size=3)), max_size=4
)
WISH: dict[str, Any] = {
    "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}},
    "features": {"cdi": True},
    "default-runtime": "nvidia",
}


@given(SETTINGS, SETTINGS)
def test_a_merge_brings_the_wish_keeps_the_rest_and_can_be_taken_back(
    settings: dict[str, Any], wish: dict[str, Any]
) -> None:
    before = json.dumps(settings)
    try:
        result = merged(settings, wish)
    except HostError:  # the wish has an object where the file has another value
        return
    assert json.dumps(settings) == before
    assert changes(result, wish) == []
    assert merged(result, wish) == result
    assert set(settings) <= set(result)
    assert [key for key in result if key in settings] == list(settings)
    assert all(result[key] == value for key, value in settings.items() if key not in wish)
    if settings == result:
        assert changes(settings, wish) == []
    kept = {key: value for key, value in wish.items() if value != {}}  # an empty object leaves no trace
    assert without(merged(settings, kept), kept, overwritten(settings, kept)) == settings or _has_empty(kept)


def _has_empty(value: Any) -> bool:
    return isinstance(value, dict) and (not value or any(map(_has_empty, value.values())))


def test_what_others_added_since_stays() -> None:
    settings = merged({"data-root": "/d"}, WISH)
    settings["runtimes"]["kata"] = {"path": "kata"}
    assert without(settings, WISH, {}) == {"data-root": "/d", "runtimes": {"kata": {"path": "kata"}}}


class ConfiguredHost(LocalHost):
    """This host with the daemon.json in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, path: str) -> str | None:
        return super().text(f"{self.root}{path}" if path == DAEMON_CONFIG_PATH else path)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / DAEMON_CONFIG_PATH.lstrip("/")
    path.parent.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return path


@pytest.fixture
def context(real_host: RealHost, config: Path) -> StepContext:
    root = config.parents[2]
    return replace(real_host.context, facts=Facts(ConfiguredHost(root), {"system_root": root}))


def dockerd(config: Path, script: str) -> None:
    program = config.parents[2] / "bin" / "dockerd"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_byte_order_mark_is_skipped_as_moby_does() -> None:
    assert daemon_config('\ufeff{"debug": true}').settings == {"debug": True}
    assert daemon_config("\ufeff").settings == {}


def test_what_is_checked_can_be_read_by_its_owner_alone(context: StepContext, config: Path) -> None:
    """Protect the file, because it may hold the password of a proxy."""
    mode = config.parents[2] / "mode"
    dockerd(config, f'for word in "$@"; do :; done; stat -c %a "${{word#*=}}" >{mode}')
    write_daemon_config(context, {"proxies": {"http-proxy": "http://user:secret@proxy"}})
    assert mode.read_text().strip() == "600"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("proxy:3128", "write the proxy's address"),
        ("http://", "write the proxy's address"),
        ("http://user:secret@proxy:3128", "every account may read daemon.json"),
    ],
)
def test_what_is_no_proxy_or_has_a_password_is_refused(address: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        DockerInstallation.Parameters(https_proxy=address)


def test_dockerd_refuses_what_would_be_written(context: StepContext, config: Path) -> None:
    config.write_text('{"data-root": 1}')
    dockerd(
        config,
        "echo 'unable to configure the Docker daemon with file x: data-root: not a string' >&2; exit 1",
    )
    with pytest.raises(DependencyFailedError, match=r"dockerd refuses the changed .* not a string"):
        write_daemon_config(context, WISH)
    assert config.read_text() == '{"data-root": 1}'
    assert [path.name for path in config.parent.iterdir()] == ["daemon.json"]


@pytest.mark.parametrize("script", ["exit 0", "echo 'unknown flag: --validate' >&2; exit 125"])
def test_dockerd_takes_it_or_cannot_say(context: StepContext, config: Path, script: str) -> None:
    dockerd(config, script)
    told = write_daemon_config(context, WISH)
    assert told == f"{config} written"
    assert json.loads(config.read_text()) == WISH


def test_a_malformed_file_is_never_touched(context: StepContext, config: Path) -> None:
    config.write_text("{,}")
    with pytest.raises(HostError, match="malformed"):
        write_daemon_config(context, WISH)
    assert config.read_text() == "{,}"


def test_a_file_keeps_its_permissions_and_a_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("before")
    real.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(real)
    write_system_file(link, b"after")
    assert link.is_symlink()
    assert real.read_bytes() == b"after"
    assert real.stat().st_mode & 0o777 == 0o640
    write_system_file(tmp_path / "new", b"")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o644


def facts_of(values: dict[str, Any]) -> Facts:
    readers = {name: DOCKER_READERS.get(name.partition("[")[0], lambda plain: plain) for name in values}
    return Facts(None, {name: readers[name](value) for name, value in values.items()})


KEY = {"keyring": "/k.gpg", "fingerprints": ["9DC8"]}
RESTORE = {"daemon": WISH, "before": {"features": {}}}
MERGED = json.dumps({"data-root": "/d", **merged({"features": {}}, WISH)})
QUIET: dict[str, Any] = {
    "docker_engine": None,
    "docker_server": None,
    "running_containers": [],
    "systemd": True,
}


@pytest.mark.parametrize(
    ("undo", "facts", "expected"),
    [
        ({"file": "/f", "text": "a"}, {"text[/f]": "a", "exists[/f]": True}, "rm /f"),
        ({"file": "/f", "text": "a"}, {"text[/f]": "b", "exists[/f]": True}, "/f was changed since"),
        ({"file": "/f", "text": "a"}, {"text[/f]": None, "exists[/f]": False}, "/f is gone"),
        (KEY, {"keyring[/k.gpg]": ["9DC8"], "exists[/k.gpg]": True}, "rm /k.gpg"),
        (KEY, {"keyring[/k.gpg]": ["C95B"], "exists[/k.gpg]": True}, "was changed since"),
        ({"member": "alice"}, {"docker_group": ["alice"]}, "gpasswd --delete alice docker"),
        ({"member": "alice"}, {"docker_group": None}, "not in the group docker any more"),
        ({"cdi": "/etc/cdi/n.yaml"}, {"cdi_specs": [], "exists[/etc/cdi/n.yaml]": False}, "is gone"),
        (RESTORE, {**QUIET, "daemon_config": MERGED}, "take {"),
        (
            RESTORE,
            {**QUIET, "daemon_config": '{"data-root": "/d"}'},
            "was changed since: runtimes is missing",
        ),
        (
            RESTORE,
            {
                **QUIET,
                "daemon_config": MERGED,
                "docker_engine": ["docker-ce", "1"],
                "docker_server": {"version": "28"},
            },
            "systemctl restart docker.service",
        ),
    ],
)
def test_taking_back(undo: dict[str, Any], facts: dict[str, Any], expected: str) -> None:
    for installer in (DockerInstallation, NvidiaContainerToolkitInstallation):
        plan = installer.undo(undo, facts_of(facts))
        assert expected in (plan.nothing_to_do or plan.steps[0].command)
        assert not plan.steps or plan.steps[0].holds
        assert not plan.steps or not plan.steps[0].holds(facts_of(facts))  # type: ignore[misc]


def test_restoring_would_end_containers() -> None:
    facts = {
        **QUIET,
        "daemon_config": MERGED,
        "docker_engine": ["docker-ce", "1"],
        "docker_server": {"version": "28"},
        "running_containers": [["1f", "trainer", "pytorch"]],
    }
    with pytest.raises(HostError, match="trainer"):
        DockerInstallation.undo(RESTORE, facts_of(facts))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('could not select device driver "" with capabilities: [[gpu]].', "nvidia-container-runtime-hook"),
        ("Error response from daemon: unknown or invalid runtime name: nvidia", "the runtime nvidia"),
        ("Error response from daemon: Unknown runtime specified nvidia", "the runtime nvidia"),
        ("failed to discover GPU vendor from CDI: no known GPU vendor found", "nvidia-ctk cdi generate"),
        (
            "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all",
            "has nvidia.com/gpu=all",
        ),
        ('could not select device driver "cdi" with capabilities: []', '"features": {"cdi": true}'),
        ("nvml error: driver not loaded: unknown", "modprobe nvidia"),
        ("Failed to initialize NVML: Driver/library version mismatch", "reboot"),
        ("Failed to initialize NVML: Unknown Error", "daemon-reload"),
        (
            "load library failed: libnvidia-ml.so.1: cannot open shared object file",
            "libnvidia-ml.so.1 is not",
        ),
        ("dial tcp: lookup registry-1.docker.io: Temporary failure in name resolution", "not reached"),
        ("toomanyrequests: You have reached your pull rate limit", "docker login"),
        ("pull access denied for nosuch, repository does not exist", "correct its name"),
        ("manifest for ubuntu:99.99 not found: manifest unknown", "correct its name"),
        ('exec: "nvidia-smi": executable file not found in $PATH', "the image has no nvidia-smi"),
        ("permission denied while trying to connect to the Docker daemon socket", "group docker"),
        ("write /var/lib/docker/tmp/x: no space left on device", "docker system df"),
        (
            "the following directives are specified both as a flag and in the configuration file: hosts: (fr",
            "take hosts out",
        ),
        ("Failed to start docker.service: Unit docker.service is masked.", "systemctl unmask"),
        (
            "client version 1.41 is too old. Minimum supported API version is 1.44, please upgrade",
            "DOCKER_MIN_API_VERSION",
        ),
        ("client version 1.52 is too new. Maximum supported API version is 1.41", "DOCKER_API_VERSION=1.41"),
        (
            "Get https://x.io/v2/: proxyconnect tcp: dial tcp 10.0.0.1:3128: i/o timeout",
            "proxies",
        ),
        ("something else", "is in the log"),
    ],
)
def test_what_docker_says_has_a_remedy(said: str, remedy: str) -> None:
    told = docker_remedy(said, "the log")
    assert remedy in told or told.endswith(f"{remedy}")


def test_every_remedy_can_be_filled_in() -> None:
    for pattern, remedy in REMEDIES:
        assert remedy.format("x", "y"), pattern
