"""Problems that no earlier step can solve are refused before any change, in plan, doctor and run alike."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from agent.cli.main import app
from agent.core.errors import ExitCode, HostError, LiftedBy
from agent.core.secrets import Secrets
from agent.facts import Facts, LocalHost
from agent.planning.planner import Planner, Standing
from agent.planning.variables import run_variables
from agent.profile import Source, find, load_sources
from tests.lab.hub_server import Hub, serving_hub

if TYPE_CHECKING:
    from pathlib import Path

    from agent.planning.planner import PlannedComponent
    from agent.profile import Profile

PENDING = {"type": "PythonEnvironmentInstallation", "parameters": {"packageName": "e", "requirements": "a"}}
COMMAND = {"type": "ExecuteCommand", "parameters": {"command": "true"}}
NOWHERE = "/nowhere/at/all"
GATED = "org/gated"
Element = dict[str, Any]


def data_set(source: str) -> Element:
    return {"type": "CnnDailyMailDataSet", "parameters": {"environment": "/e", "source": source}}


def action(kind: str, **parameters: Any) -> Element:
    return {"type": kind, "parameters": parameters}


def load_test(**parameters: Any) -> Element:
    own = {"model": "m", "loadgenScenario": "Offline", "mode": "performance", "targetQps": 1}
    return action("LoadGenExecutor", **own, environment="/e", endpoint="http://h", **parameters)


def preview(tmp_path: Path, profile: Profile, **modelled: Any) -> list[PlannedComponent]:
    facts = Facts(LocalHost(), {"package_dir": tmp_path / "packages", **modelled})
    variables = run_variables(facts, tmp_path / "run", "experiment", "host")
    return Planner(profile, variables, Secrets()).preview(facts)


def profile_of(dependencies: list[Element], actions: list[Element] = ()) -> Source:  # type: ignore[assignment]
    document = {"description": "d", "dependencies": dependencies, "actions": list(actions)}
    return Source("P", "P.json", json.dumps(document), "json")


FINAL: dict[str, tuple[list[Element], list[Element], str]] = {
    "no GPU": ([COMMAND, {"type": "GpuSelection", "parameters": {"model": "llama3.1-8b"}}], [], "no GPU"),
    "a data set's source": ([PENDING, data_set(NOWHERE)], [], "is not there"),
    "a data set": ([PENDING], [load_test(dataset=NOWHERE)], "cannot be read"),
    "a key": ([COMMAND], [load_test(dataset="short-prompts", apiKeyEnv="NO_SUCH_KEY")], "is not set"),
    "a model to convert": (
        [PENDING],
        [action("LlamaCppConvert", model="m", variant="F16", source=NOWHERE, environment="/e")],
        "is not a model in Hugging Face's format",
    ),
    "a model to quantise": (
        [PENDING],
        [action("LlamaCppQuantize", model="m", variants="Q4_0", source=f"{NOWHERE}/m.gguf")],
        "cannot be read",
    ),
    "a text": (
        [PENDING],
        [action("LlamaCppPerplexity", model="m", variants="Q4_0", text=NOWHERE)],
        "cannot be read",
    ),
    "a Dockerfile": (
        [PENDING],
        [action("ExecuteCommand", command="a", container={"dockerfile": NOWHERE})],
        "no",
    ),
    "an account": (
        [PENDING],
        [action("MLPerfExecutor", model="bert", username="nobody-has-this")],
        "account",
    ),
}


@pytest.mark.parametrize("case", FINAL)
def test_it_is_refused_though_dependencies_are_pending(case: str, tmp_path: Path) -> None:
    dependencies, actions, message = FINAL[case]
    planned = preview(tmp_path, load_sources([profile_of(dependencies, actions)]), gpus=())
    assert planned[0].standing is Standing.PLANNED
    assert planned[-1].standing is Standing.REFUSED
    assert planned[-1].error
    assert message in planned[-1].error.message
    assert planned[-1].error.remedy


LATER: dict[str, tuple[list[Element], list[Element]]] = {
    "a command may fetch it": ([COMMAND, data_set(NOWHERE)], []),
    "a dependency may make what is in the package folder": ([PENDING, data_set("{PackagePath:a}/b")], []),
    "also for actions": ([PENDING], [load_test(dataset="{PackagePath:a}/b")]),
    "also an interpreter": (
        [
            PENDING,
            {
                "type": "PythonEnvironmentInstallation",
                "parameters": {
                    "packageName": "f",
                    "requirements": "a",
                    "python": "{PackagePath:e}/bin/python",
                },
            },
        ],
        [],
    ),
    "a command may make the account": (
        [COMMAND],
        [action("MLPerfExecutor", model="bert", username="no-such")],
    ),
}


@pytest.mark.parametrize("case", LATER)
def test_it_is_planned_later_where_a_pending_dependency_may_bring_it(case: str, tmp_path: Path) -> None:
    dependencies, actions = LATER[case]
    planned = preview(tmp_path, load_sources([profile_of(dependencies, actions)]), gpus=())
    assert planned[-1].standing is Standing.LATER


def test_a_host_without_a_gpu_is_refused_by_the_setup_profile(tmp_path: Path) -> None:
    planned = preview(tmp_path, load_sources([find("SETUP-GPU-NVIDIA")]), gpus=(), gpu_count=0)
    driver = next(one for one in planned if one.element.type == "NvidiaCudaInstallation")
    assert isinstance(driver.error, HostError)
    assert driver.error.lifted_by is LiftedBy.NOTHING
    assert "no NVIDIA GPU" in driver.error.message
    # Docker's toolkit lacks the driver only for that reason.
    assert [one.element.type for one in planned if one.error and "NVIDIA's driver" in str(one.error)] == []


@pytest.mark.parametrize(
    ("token", "message"),
    [("", "org/gated is gated"), ("hf_stranger", "may not read it"), ("hf_expired", "is refused")],
)
def test_the_hub_is_asked_before_anything_is_made(
    token: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_TOKEN", token)
    model = {"packageName": "m", "repository": GATED, "environment": "/e"}
    profile = load_sources([profile_of([PENDING, {"type": "HuggingFaceModel", "parameters": model}])])
    files = {GATED: {"config.json": b"{}"}}
    access = {"tokens": frozenset({"hf_stranger"}), "readers": frozenset({"hf_reader"})}
    with serving_hub(Hub(files, gated=frozenset({GATED}), **access)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        _, refused = preview(tmp_path, profile)
        assert {method for method, _, _ in hub.requests} == {"HEAD"}
        monkeypatch.setenv("HF_TOKEN", "hf_reader")
        _, granted = preview(tmp_path, profile)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    _, unknown = preview(tmp_path, profile)
    assert refused.error
    assert message in refused.error.message
    assert refused.standing is Standing.REFUSED
    assert granted.standing is unknown.standing is Standing.PLANNED


@pytest.mark.parametrize("command", ["plan", "doctor", "run"])
def test_every_command_refuses_and_nothing_is_made(command: str, tmp_path: Path) -> None:
    profile = tmp_path / "P.json"
    profile.write_text(profile_of([PENDING], [load_test(dataset=NOWHERE)]).text, encoding="utf-8")
    folders = [f"--package-dir={tmp_path / 'packages'}", f"--results-dir={tmp_path / 'results'}"]
    ended = CliRunner().invoke(app, [command, "--profile", str(profile), *folders])
    assert getattr(ended.exception, "exit_code", ended.exit_code) == ExitCode.HOST_CANNOT_RUN
    assert sorted(path.name for path in tmp_path.iterdir()) == ["P.json"]
