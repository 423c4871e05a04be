"""LoadGenExecutor in a container: the same test, the same files, against an engine in the same network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.container_parameters import ContainerParameters
from actions.mlperf.loadgen_executor import LoadGenExecutor
from actions.mlperf.loadgen_parameters import LoadGenParameters
from agent.containers import GpuAccess, Mount, Ulimit
from agent.errors import ActionFailedError, ContainerError, HostError
from agent.records import Validity
from tests.lab.container_engine import BUSYBOX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agent.component import StepContext, StepOutcome
    from tests.lab.restartable_docker import RestartableDocker

KEY = "planted-endpoint-key-77"
MOCK = Path(__file__).parents[3] / "actions" / "mlperf" / "mock_server.py"


def spec(**values: Any) -> Any:
    return ContainerParameters.model_validate({"image": "image:1", **values}).spec("test")


def test_what_a_profile_may_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "planted")
    made = spec(
        Gpus="0, 2",
        gpuAccess="cdi",
        mounts=["/models:/m:ro", {"source": "/cache", "readOnly": True}, "/data"],
        ulimits={"memlock": -1},
        inherit=["TEST_TOKEN"],
    )
    assert (made.gpus, made.gpu_access) == (("0", "2"), GpuAccess.CDI)
    assert made.mounts == (
        Mount(Path("/models"), "/m", read_only=True),
        Mount(Path("/cache"), "/cache", read_only=True),
        Mount(Path("/data"), "/data"),
    )
    assert made.ulimits == {"memlock": Ulimit(-1, -1)}
    assert made.secret_environment == {"TEST_TOKEN": "planted"}
    assert (made.user, made.network) == (f"{os.geteuid()}:{os.getegid()}", "host")
    assert "planted" not in repr(made)
    assert [spec(gpus=value).gpus for value in ("all", "none", 3, [0, 1])] == [
        "all",
        "none",
        ("3",),
        ("0", "1"),
    ]


def test_what_it_may_not() -> None:
    for wrong in ({"mounts": ["/a:/b:rx"]}, {"image": ""}, {"gpu_acess": "cdi"}):
        with pytest.raises(ValidationError):
            spec(**wrong)
    with pytest.raises(HostError, match="NO_SUCH_TOKEN"):
        spec(inherit=["NO_SUCH_TOKEN"])


@pytest.fixture
def endpoint(container_engine: RestartableDocker) -> Iterator[str]:
    """An engine in the network of the container engine, which wants a key."""
    command = container_engine.beside(
        sys.executable, str(MOCK), "--port", "0", "--model", "mock-model", "--api-key", KEY
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout
        yield f"http://127.0.0.1:{json.loads(server.stdout.readline())['port']}"
        server.kill()


@pytest.fixture
def run(
    context: StepContext,
    bench_python: Path,
    container_engine: RestartableDocker,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., StepOutcome]:
    """Runs the action in a container that has nothing but busybox and the host's Python, mounted."""
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    monkeypatch.setenv("TEST_ENDPOINT_KEY", KEY)
    context.run_dir.mkdir()
    environment = bench_python.parent.parent
    base = Path(
        subprocess.run(
            [bench_python, "-c", "import sys; print(sys.base_prefix)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    system = [
        f"{path.resolve()}:{path}:ro" for path in map(Path, ("/usr", "/lib", "/lib64")) if path.exists()
    ]
    python = [f"{path}:{path}:ro" for path in {environment, base} if not path.is_relative_to("/usr")]

    def run_with(container: dict[str, Any] | None = None, **parameters: Any) -> StepOutcome:
        asked = {
            "model": "mock-model",
            "loadgen_scenario": "Offline",
            "environment": environment,
            "endpoint": endpoint,
            "api_key_env": "TEST_ENDPOINT_KEY",
            "max_output_tokens": 4,
            "min_duration": 0.5,
            "container": {"image": BUSYBOX, "ulimits": {}, "mounts": [*system, *python], **(container or {})},
            **parameters,
        }
        (step,) = LoadGenExecutor(LoadGenParameters.model_validate(asked)).plan(context.facts).steps
        assert BUSYBOX in step.reason or container
        outcome = step.run(context)
        assert outcome is not None
        return outcome

    return run_with


@pytest.mark.lab
@pytest.mark.engine
def test_the_same_test_in_a_container(
    run: Callable[..., StepOutcome], context: StepContext, container_engine: RestartableDocker, tmp_path: Path
) -> None:
    outcome = run()
    (output,) = outcome.outputs
    assert output.verdict
    assert output.verdict.validity is Validity.VALID, output.verdict
    assert outcome.case_dir
    assert {"mlperf_log_detail.txt", "samples.csv", "harness.json"} <= {
        path.name for path in outcome.case_dir.iterdir()
    }
    assert "# in vcagent-test-run-loadgen-" in context.log.read_text()
    assert container_engine.docker("ps", "--all", "--quiet") == ""
    (record,) = (context.run_dir / "containers").iterdir()
    assert json.loads(record.read_text())["image"]["id"].startswith("sha256:")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not list(Path("/run/vcagent").glob("vcagent-test-run-*"))  # its key went with it
    assert [path for path in written if KEY in path.read_text(errors="replace")] == []


@pytest.mark.lab
@pytest.mark.engine
def test_a_key_from_a_file_and_a_wrong_one(run: Callable[..., StepOutcome], tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("wrong-key-of-the-endpoint\n")
    with pytest.raises(ActionFailedError, match="401"):
        run(api_key_env="", api_key_file=file)


@pytest.mark.lab
@pytest.mark.engine
def test_a_container_that_cannot_run_it(
    run: Callable[..., StepOutcome], container_engine: RestartableDocker
) -> None:
    with pytest.raises(ContainerError) as error:
        run({"mounts": []})  # the environment is not in the image
    assert error.value.problem == "no_such_program"
    with pytest.raises(ContainerError) as error:
        run({"image": "vcagent-test-nothing:1", "pull": "never"})
    assert error.value.problem == "no_such_image"
    assert container_engine.docker("ps", "--all", "--quiet") == ""
