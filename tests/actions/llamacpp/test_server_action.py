"""The server as a separate action."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pydantic import ValidationError

from actions.llamacpp.server_action import LlamaCppServerAction, LlamaCppServerParameters
from agent.core.errors import ActionFailedError
from agent.facts import Facts
from agent.run.keeping import keep_serving
from tests.lab.container_engine import BUSYBOX
from tests.lab.llamacpp import llamacpp, llamacpp_image, llamacpp_version
from tests.waiting import LIMIT_S, wait_for

if TYPE_CHECKING:
    from agent.component.component import Service, StepContext
    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["llamacpp", "llamacpp_image", "llamacpp_version"]

pytestmark = pytest.mark.engine


def start(step_context: StepContext, **parameters: Any) -> Service:
    action = LlamaCppServerAction(LlamaCppServerParameters.model_validate({"scenario": "srv", **parameters}))
    (step,) = action.plan(Facts(modelled={})).steps
    outcome = step.run(step_context)
    assert outcome is not None
    assert outcome.service is not None
    return outcome.service


def test_it_stays_when_it_is_to(
    context: StepContext, bench_python: Path, tiny_gguf: Path, tmp_path: Path
) -> None:
    service = start(context, model=str(tiny_gguf), environment=bench_python.parents[1], context=256)
    service.stop()
    (tmp_path / "logs").mkdir(exist_ok=True)
    serving = keep_serving(service, tmp_path, context.stop, context.processes)
    try:
        assert (serving.url, serving.model) == (service.values["url"], service.values["model"])
        command = psutil.Process(serving.pid).cmdline()
        assert command[-1] == "--stay"
        assert command[command.index("--port") + 1] == serving.url.rpartition(":")[2]
    finally:
        process = psutil.Process(serving.pid)
        subprocess.run(["sh", "-c", serving.how_to_stop], check=True)
        process.wait(20)


def test_it_tells_where_it_is_and_what_it_can(
    context: StepContext, bench_python: Path, tiny_gguf: Path
) -> None:
    service = start(
        context,
        model=str(tiny_gguf),
        environment=bench_python.parents[1],
        parallel=2,
        context=512,  # llama.cpp rounds up to multiples of 256
        name="tiny",
    )
    try:
        assert service.name == "srv"
        assert service.death() is None
        values = service.values
        assert (values["model"], values["slots"], values["context"]) == ("tiny", 2, 512)
        assert values["engine"] == "llama.cpp"
        with closing(
            http.client.HTTPConnection(str(values["url"]).removeprefix("http://"), timeout=LIMIT_S)
        ) as asked:
            asked.request("GET", "/health")
            assert asked.getresponse().status == 200
        process = next(
            child
            for child in psutil.Process().children(recursive=True)
            if any(part.endswith("server_process.py") for part in child.cmdline())
        )
        process.kill()
        wait_for(lambda: service.death() is not None)
        assert str(service.death()).startswith("was ended by signal 9")
    finally:
        service.stop()


def test_llama_server_itself_serves(
    context: StepContext, llamacpp: Path, llamacpp_version: str, tiny_gguf: Path
) -> None:
    service = start(context, model=str(tiny_gguf), llamacpp=llamacpp, parallel=2, context=512, threads=2)
    try:
        values = service.values
        assert (values["model"], values["slots"], values["context"]) == (tiny_gguf.stem, 2, 512)
        assert (values["engine_version"], values["threads"]) == (llamacpp_version, 2)
        host = str(values["url"]).removeprefix("http://")
        first, again = completion(host), completion(host)
        assert (first["tokens_evaluated"], first["tokens_predicted"]) == (64, 5)
        assert again["content"] == first["content"]
        assert again["timings"]["cache_n"] == 0, "no answer from an earlier prompt's cache"
    finally:
        service.stop()
    with pytest.raises(ConnectionRefusedError):
        completion(host)


def test_layers_for_a_gpu_that_is_not_found_are_no_start(
    context: StepContext, llamacpp: Path, tiny_gguf: Path
) -> None:
    with pytest.raises(
        ActionFailedError, match="computed on the CPU: warning: no usable GPU found"
    ) as refusal:
        start(context, model=str(tiny_gguf), llamacpp=llamacpp, context=256, gpuLayers=999)
    assert "gpuLayers 0" in (refusal.value.remedy or "")
    assert not [
        child for child in psutil.Process().children(recursive=True) if "llama-server" in child.name()
    ]


def completion(host: str) -> dict[str, Any]:
    body = json.dumps({"prompt": list(range(5, 69)), "n_predict": 5, "ignore_eos": True, "temperature": 0})
    with closing(http.client.HTTPConnection(host, timeout=60)) as asked:
        asked.request("POST", "/completion", body, {"Content-Type": "application/json"})
        reply: dict[str, Any] = json.loads(asked.getresponse().read())
        return reply


def test_a_variant_is_found_where_other_actions_make_it(
    context: StepContext, bench_python: Path, tiny_gguf: Path
) -> None:
    folder = context.package_dir / "models" / "tiny"
    folder.mkdir(parents=True)
    shutil.copy(tiny_gguf, folder / "tiny-F16.gguf")
    wish = {"model": "tiny", "environment": bench_python.parents[1], "context": 64}
    service = start(context, variant="f16", **wish)
    try:
        assert service.values["model"] == "tiny-F16"
        assert service.values["model_file"] == str(folder / "tiny-F16.gguf")
    finally:
        service.stop()
    with pytest.raises(ActionFailedError, match=r"tiny-Q4_0\.gguf does not exist"):
        start(context, variant="Q4_0", **wish)


def test_a_taken_port_is_explained(context: StepContext, bench_python: Path, tiny_gguf: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ActionFailedError, match=f"port {port} .* is taken by"):
            start(context, model=str(tiny_gguf), environment=bench_python.parents[1], port=port)


def test_without_an_environment_a_program_is_looked_for(context: StepContext, tiny_gguf: Path) -> None:
    with pytest.raises(ActionFailedError, match="has no llama-server or server"):
        start(context, model=str(tiny_gguf))
    with pytest.raises(ActionFailedError, match="is not an executable"):
        start(context, model=str(tiny_gguf), binary=str(tiny_gguf))
    with pytest.raises(ActionFailedError, match="does not report its version"):
        start(context, model=str(tiny_gguf), binary="/bin/true")


def test_the_program_s_own_settings_need_the_program(bench_python: Path) -> None:
    with pytest.raises(ValidationError, match="remove environment"):
        LlamaCppServerParameters.model_validate(
            {"model": "x", "environment": bench_python.parents[1], "gpu_layers": 99}
        )


def test_no_environment_is_a_clear_error(context: StepContext, tmp_path: Path, tiny_gguf: Path) -> None:
    with pytest.raises(ActionFailedError, match="has no python"):
        start(context, model=str(tiny_gguf), environment=tmp_path)


def contained(engine: RestartableDocker, folder: Path, **parameters: Any) -> dict[str, Any]:
    """Return the output about a server in a container, which runs in the engine's network and is removed."""
    wish = json.dumps({"context": 256, "parallel": 2, **parameters}, default=str)
    command = engine.beside(
        sys.executable, "-m", "tests.actions.llamacpp.contained_server", str(folder), wish
    )
    variables = {**os.environ, "DOCKER_HOST": engine.address}
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env=variables, cwd=Path(__file__).parents[3]
    )
    assert ended.returncode == 0, ended.stderr
    seen: dict[str, Any] = json.loads(ended.stdout)
    assert (seen["during"], seen["after"], seen["death"]) == (5, 0, None)
    assert (seen["slots"], seen["context"]) == (2, 256)
    assert engine.docker("ps", "--all", "--quiet") == ""
    return seen


@pytest.mark.lab
def test_it_serves_from_a_container_that_goes_with_it(
    bench_python: Path, tiny_gguf: Path, container_engine: RestartableDocker, tmp_path: Path
) -> None:
    environment = bench_python.parents[1]
    told = subprocess.run(
        [bench_python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    )
    own = [path for path in {environment, Path(told.stdout.strip())} if not path.is_relative_to("/usr")]
    system = [path for path in map(Path, ("/usr", "/lib", "/lib64")) if path.exists()]
    mounts = [f"{path.resolve()}:{path}:ro" for path in system] + [f"{path}:{path}:ro" for path in own]
    container = {"image": BUSYBOX, "ulimits": {}, "mounts": mounts}
    contained(
        container_engine, tmp_path / "work", model=tiny_gguf, environment=environment, container=container
    )


@pytest.mark.lab
@pytest.mark.parametrize("network", ["host", "bridge"])
def test_it_serves_from_the_image_of_the_programs(
    network: str, llamacpp_image: str, tiny_gguf: Path, container_engine: RestartableDocker, tmp_path: Path
) -> None:
    seen = contained(
        container_engine,
        tmp_path / "work",
        model=tiny_gguf,
        container={"image": llamacpp_image, "ulimits": {}, "network": network},
    )
    assert str(seen["engine_version"]).startswith("b1")
    assert str(seen["url"]).startswith("http://127.0.0.1:")


def test_a_container_may_be_its_image_alone_and_needs_a_network(tmp_path: Path) -> None:
    asked = LlamaCppServerParameters.model_validate({"model": "x.gguf", "container": "y:1"})
    assert asked.container is not None
    assert (asked.container.image, asked.container.network) == ("y:1", "host")
    assert asked.server(tmp_path).binary == Path("llama-server")
    assert asked.server(tmp_path).model == str(Path("x.gguf").absolute())
    assert LlamaCppServerParameters.model_validate({"model": "x", "container": ""}).container is None
    with pytest.raises(ValidationError, match="cannot be reached"):
        LlamaCppServerParameters.model_validate(
            {"model": "x", "container": {"image": "y", "network": "none"}}
        )


def test_a_taken_port_cannot_be_published(context: StepContext, tiny_gguf: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ActionFailedError, match=f"port {port} .* is taken by"):
            start(context, model=str(tiny_gguf), port=port, container={"image": "y", "network": "bridge"})
