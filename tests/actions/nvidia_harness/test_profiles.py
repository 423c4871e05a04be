"""VirtualClient's unchanged PERF-GPU-MLPERF, and the shipped one: plans on a host that meets all needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from actions.nvidia_harness.executor import MLPerfExecutor
from actions.nvidia_harness.parameters import MLPerfParameters
from agent.component.component import ComponentParameters
from agent.core.errors import HostError
from agent.core.names import canonical
from agent.core.secrets import Secrets
from agent.core.yaml_data import yaml_data
from agent.facts import Facts
from agent.facts.disks import BlockDevice
from agent.facts.gpus import Gpu
from agent.facts.linux import Distribution
from agent.facts.storage import Mount
from agent.facts.users import Account, User
from agent.planning.planner import Planner, Standing, leaves
from agent.planning.variables import run_variables
from agent.profile import Element, find, load_sources, select

FIXTURE = Path(__file__).parent / "virtualclient" / "PERF-GPU-MLPERF.json"
"""The types, parameters and order of VirtualClient's profile."""

FOLDER = Path("/packages/mlperf/closed/NVIDIA")
DISK = BlockDevice("/dev/nvme1n1", "disk", 4 * 10**12, "ext4", "u", mount_points=("/mnt_0",))
SYSTEM = BlockDevice(
    "/dev/sda",
    "disk",
    2 * 10**12,
    children=(BlockDevice("/dev/sda1", "part", 2 * 10**12, mount_points=("/",)),),
)


def host(**changed: Any) -> Facts:
    """Return a host that meets all needs of the action, used by ann with sudo."""
    facts: dict[str, Any] = {
        "user": User("root", 0, "ann", "/root"),
        "root": True,
        "account_of[ann]": Account("ann", 1000, 1000, "/home/ann"),
        "docker_group": ("ann",),
        "process_groups": frozenset({"root"}),
        "package_dir": Path("/packages"),
        "disks": (SYSTEM, DISK),
        "mounts": (
            Mount(Path("/"), "ext4", 10**12, 10**11),
            Mount(Path("/mnt_0"), "ext4", 4 * 10**12, 3 * 10**12),
        ),
        "gpus": (Gpu("0000:01:00.0", "0x2330", "NVIDIA H100 80GB HBM3", 81559, "550.90.07"),) * 8,
        f"exists[{FOLDER / 'Makefile.docker'}]": True,
        f"exists[{FOLDER.parents[1] / 'Makefile.docker'}]": False,
        f"text[{FOLDER / 'VERSION'}]": "v4.1\n",
        f"text[{FOLDER / 'Makefile.docker'}]": "docker build --build-context common=docker/common\n",
        "program[make]": "/usr/bin/make",
        "docker_version": "27.3.1",
        "docker_buildx": "github.com/docker/buildx v0.17.1",
        "exists[/home/ann/.docker/cli-plugins/docker-buildx]": False,
        "text[/sys/class/dmi/id/sys_vendor]": "Microsoft Corporation\n",
        "platform": "linux-x64",
        "distribution": Distribution("ubuntu"),
    }
    for stage in ("download-data", "download-model", "preprocess-data"):
        for model in ("bert", "3d-unet", "gptj"):
            facts[f"bytes_made[/mnt_0/scratch/.vcagent/{stage}-{model}.json]"] = None
            facts[f"bytes_made[/scratch/.vcagent/{stage}-{model}.json]"] = None
    return Facts(None, {**facts, **changed})


def steps(facts: Facts, **values: Any) -> dict[str, str]:
    parameters = MLPerfParameters.model_validate({"model": "bert", **values})
    return {step.name: step.command for step in MLPerfExecutor(parameters).plan(facts).steps}


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("TEST01", "vcagent does not run TEST01, .* make run_audit_test01 of NVIDIA's code"),
        ("TEST06", "MLPerfExecutor does not run TEST06: run make run_audit_test06"),
        ("speed", "performance, accuracy, or both"),
    ],
)
def test_compliance_tests_are_refused_by_name(mode: str, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        MLPerfParameters.model_validate({"model": "bert", "modes": f"performance,{mode}"})


def test_the_fixture_asks_for_what_virtualclient_s_profile_does(shared: Path) -> None:
    path = shared / "peers" / "virtualclient" / "profiles" / FIXTURE.name
    ours, theirs = (json.loads(one.read_text(encoding="utf-8")) for one in (FIXTURE, path))
    for part in ("Parameters", "Dependencies", "Actions"):
        assert ours[part] == theirs[part]


def test_virtualclient_s_profile_is_planned_as_it_is() -> None:
    profile = load_sources([find(str(FIXTURE))])
    facts = host()
    planner = Planner(profile, run_variables(facts, Path("/results/r"), "experiment", "host"), Secrets())
    planner.validate()
    planned = [planner.plan(element, facts) for element in leaves(profile.actions)]
    assert [one.standing for one in planned] == [Standing.PLANNED] * 2
    names = [[step.name for step in one.plan.steps] for one in planned if one.plan]
    assert names[0] == [
        "scratch", "repository", "image", "clean", "link-dirs", "known-system",
        "download-data-bert", "download-model-bert", "preprocess-data-bert", "build", "system",
        *(f"generate-engines-default-{one}" for one in ("offline", "server", "singlestream")),
        *(f"run-default-{one}-performance" for one in ("offline", "server", "singlestream")),
        *(f"run-default-{one}-accuracy" for one in ("offline", "server", "singlestream")),
    ]  # fmt: skip
    assert names[1][-2:] == ["run-default-offline-accuracy", "run-default-singlestream-accuracy"]
    scratch = planned[0].plan.steps[0].command if planned[0].plan else ""
    assert scratch == "mkdir -p /mnt_0/scratch/{data,models,preprocessed_data}"


def planner_of(facts: Facts, scenarios: str = "", **overrides: str) -> Planner:
    profile = load_sources([find("PERF-GPU-MLPERF")], overrides=overrides)
    variables = run_variables(facts, Path("/results/r"), "experiment", "host", scenarios=scenarios)
    if scenarios:
        profile = select(profile, scenarios, variables)
    planner = Planner(profile, variables, Secrets())
    planner.validate()
    return planner


def run_by(planner: Planner, elements: tuple[Element, ...], facts: Facts) -> list[str]:
    """Return the scenarios of the elements that are not skipped."""
    return [
        str(element.parameters["scenario"])
        for element in leaves(elements)
        if planner.skipped(element, facts) is None
    ]


@pytest.mark.parametrize(
    ("scenarios", "overrides", "actions", "clones"),
    [
        ("", {}, ["bert", "3d-unet"], ["CloneMLCommonsRepo"]),
        ("", {"Gptj": "true"}, ["bert", "3d-unet", "gptj"],
         ["CloneMLCommonsRepo", "CloneMLCommonsRepoOfGptj"]),
        ("inferencemodels-gptj", {}, ["gptj"], ["CloneMLCommonsRepoOfGptj"]),
        ("-inferencemodels-bert", {}, ["3d-unet"], ["CloneMLCommonsRepo"]),
        ("", {"Repository": "/src/results"}, ["bert", "3d-unet"], []),
    ],
)  # fmt: skip
def test_our_profile_has_virtualclient_s_models(
    scenarios: str, overrides: dict[str, str], actions: list[str], clones: list[str]
) -> None:
    facts = host()
    planner = planner_of(facts, scenarios, **overrides)
    profile = planner.profile
    assert run_by(planner, profile.actions, facts) == [f"inferencemodels-{name}" for name in actions]
    built = [planner.build(element) for element in leaves(profile.actions)]
    assert {type(one) for one in built} == {MLPerfExecutor}
    chain = run_by(planner, profile.dependencies, facts)
    assert [name for name in chain if name.startswith("Clone")] == clones
    assert [name for name in chain if not name.startswith("Clone")] == [
        "InitializeDisks", "CreateMountPoints", "InstallNvidiaCuda", "InstallMake", "InstallDocker",
        "InstallNvidiaContainerToolkit",
    ]  # fmt: skip


def test_our_profile_has_virtualclient_s_parameters_and_values() -> None:
    theirs = json.loads(FIXTURE.read_text(encoding="utf-8"))["Parameters"]
    ours = {
        canonical(name): value
        for name, value in load_sources([find("PERF-GPU-MLPERF.json")]).parameters.items()
    }
    assert {name: ours[canonical(name)] for name in theirs} == theirs


def test_every_parameter_of_the_executor_is_reachable() -> None:
    planner = planner_of(host())
    given = {canonical(name) for name in planner.profile.actions[0].parameters}
    own = set(MLPerfParameters.model_fields) - set(ComponentParameters.model_fields)
    assert {canonical(name) for name in own} - given == set()
    asked = planner_of(
        host(), Mounts="{/data: /data}", LoadgenScenarios="Offline", RunArgs="--gpu_batch_size=64",
        System="ND_H100_v5", Repository="/src", Submitter="Azure",
    )  # fmt: skip
    built = asked.build(asked.profile.actions[0]).parameters
    assert isinstance(built, MLPerfParameters)
    assert (built.mounts, built.loadgen_scenarios, built.run_args) == (
        {"/data": "/data"}, ("Offline",), "--gpu_batch_size=64",
    )  # fmt: skip
    assert (built.system, built.repository, built.submitter) == ("ND_H100_v5", Path("/src"), "Azure")


def test_another_submitter_s_folder_is_taken() -> None:
    folder = Path("/packages/mlperf/closed/Azure")
    facts = host(**{
        f"exists[{folder / 'Makefile.docker'}]": True,
        f"text[{folder / 'VERSION'}]": "v4.1\n",
        f"text[{folder / 'Makefile.docker'}]": "docker build --build-context common=docker/common\n",
    })  # fmt: skip
    assert steps(facts, Submitter="Azure")["repository"] == f"chown -R ann {folder}"


@pytest.mark.parametrize("by", ["parameter", "variable"])
def test_a_folder_alone_is_enough_for_scratch(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = host(disks=(SYSTEM,))
    if by == "variable":
        monkeypatch.setenv("MLPERF_SCRATCH_PATH", "/scratch")
    planner = planner_of(facts, **({"ScratchPath": "/scratch"} if by == "parameter" else {}))
    assert "CreateMountPoints" not in run_by(planner, planner.profile.dependencies, facts)
    planned = planner.plan(planner.profile.actions[0], facts)
    assert planned.plan, planned.note
    assert planned.plan.steps[0].command == "mkdir -p /scratch/{data,models,preprocessed_data}"


def test_run_args_are_virtualclient_s() -> None:
    command = steps(host())["run-default-offline-performance"]
    arguments = (
        "--benchmarks=bert --scenarios=Offline --config_ver=default --test_mode=PerformanceOnly --fast"
    )
    assert command == f"make run_harness RUN_ARGS='{arguments}'"


def test_gpus_of_several_kinds_are_not_taken_for_one() -> None:
    h100 = Gpu("0000:01:00.0", "0x2330", "NVIDIA H100 80GB HBM3", 81559)
    mixed = (h100, Gpu("0000:02:00.0", "0x20b0", "NVIDIA A100-SXM4-40GB", 40960), h100)
    with pytest.raises(HostError, match="several kinds: NVIDIA H100 80GB HBM3, NVIDIA A100"):
        steps(host(gpus=mixed))
    assert steps(host(gpus=mixed), Gpus="0,2")


CASES = yaml_data((Path(__file__).parent / "plans.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_plan(case: dict[str, Any]) -> None:
    changed = dict(case.get("host", {}))
    if "user" in changed:
        changed["user"] = User(*changed["user"])
    for key in ("account_of[root]", "account_of[ann]"):
        if changed.get(key):
            changed[key] = Account(*changed[key])
    if "disks" in changed:
        changed["disks"] = (SYSTEM,)
    if "docker_group" in changed:
        changed["docker_group"] = tuple(changed["docker_group"])
    if "refused" in case:
        with pytest.raises(HostError, match=case["refused"]) as refusal:
            steps(host(**changed), **case.get("parameters", {}))
        assert refusal.value.remedy
        return
    planned = steps(host(**changed), **case.get("parameters", {}))
    for name, command in case["steps"].items():
        assert planned.get(name) == command


def test_a_bundle_refuses_what_nvidias_makefiles_fetch_themselves() -> None:
    parameters = MLPerfParameters.model_validate({"model": "bert"})
    with pytest.raises(HostError, match="its make build fetches from GitHub and PyPI") as caught:
        MLPerfExecutor(parameters).downloads(Facts(None))
    assert "--dependencies" in str(caught.value.remedy)
