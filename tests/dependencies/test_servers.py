"""The servers that a profile's steps fetch from are asked beforehand, each at its real address."""

from __future__ import annotations

import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from agent.doctor.check import Status
from agent.doctor.profile import check_servers
from agent.facts import Facts, LocalHost
from agent.facts.reachability import registry_of
from dependencies.models.hub_access import hub_servers
from dependencies.models.hugging_face_model import HuggingFaceModel, HuggingFaceModelParameters
from dependencies.python.environment_installation import (
    PythonEnvironmentInstallation,
    PythonEnvironmentInstallationParameters,
)
from dependencies.python.pip import package_indexes
from tests.lab.hub_server import Hub, serving_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "HF_ENDPOINT", "HF_HUB_OFFLINE",
                 "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # ignore all of pip's files
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


@pytest.fixture
def nobody() -> Iterator[str]:
    """Return an address at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{closed.getsockname()[1]}/"


@pytest.fixture
def index() -> Iterator[str]:
    """Serve at a local address; any answer shows that a server is there."""
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


def planned(facts: Facts, tmp_path: Path) -> list[Any]:
    """Plan an environment and a model, as a profile does."""
    environment = PythonEnvironmentInstallation(
        PythonEnvironmentInstallationParameters.model_validate(
            {"package_name": "env", "requirements": "some-package==1", "required_space": 0}
        )
    )
    model = HuggingFaceModel(
        HuggingFaceModelParameters.model_validate(
            {"package_name": "model", "repository": "org/model", "environment": tmp_path / "env"}
        )
    )
    return [SimpleNamespace(plan=component.plan(facts)) for component in (environment, model)]


def test_the_package_index_and_the_hub_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nobody: str, index: str
) -> None:
    facts = Facts(LocalHost(), {"package_dir": tmp_path / "packages"})
    with serving_hub(Hub({"org/model": {"config.json": b"{}"}})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("PIP_INDEX_URL", index)
        plans = planned(facts, tmp_path)
        assert check_servers(plans, facts) == []
        monkeypatch.setenv("PIP_INDEX_URL", f"{nobody}simple")
        (check,) = check_servers(plans, facts)
    assert (check.status, check.name) == (Status.PROBLEM, f"server {nobody}")
    monkeypatch.setenv("PIP_INDEX_URL", index)
    (gone,) = check_servers(plans, facts)  # the hub has ended
    assert gone.name.startswith(f"server {hub.url}")
    assert "refused" in gone.message


def test_the_index_is_that_of_pips_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> tuple[str, ...]:
        return Facts(LocalHost())[package_indexes(sys.executable)]

    assert found() == ("https://pypi.org/simple/",)
    settings = tmp_path / "pip.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    settings.write_text(
        "[global]\nindex-url = http://one/simple\nextra-index-url =\n  http://two\n  http://three\n"
    )
    assert found() == ("http://one/simple", "http://two", "http://three")
    monkeypatch.setenv("PIP_INDEX_URL", "http://four")
    assert found()[0] == "http://four"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert found() == ()


def test_a_hub_that_must_not_be_asked_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(LocalHost())
    assert hub_servers(facts) == ["https://huggingface.co"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub_servers(facts) == []


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ubuntu:24.04", "https://registry-1.docker.io/"),
        ("vllm/vllm-openai:latest", "https://registry-1.docker.io/"),
        ("docker.io/library/ubuntu", "https://registry-1.docker.io/"),
        ("nvcr.io/nvidia/cuda:13", "https://nvcr.io/"),
        ("localhost:5000/x", "https://localhost:5000/"),
    ],
)
def test_an_image_names_its_registry(image: str, registry: str) -> None:
    assert registry_of(image) == registry
