"""The Llama 2 70B profile in a real engine: its container on AMD's GPUs, and its tiny form completely."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actions.loadgen.parameters import LoadGenParameters
from actions.submission.building import Order, build, stage
from actions.submission.checking import check_tree
from actions.submission.rounds import find_round
from actions.submission.runs import cases_of
from actions.submission.system_description import read_description, system_description
from agent.component import container_parameters
from agent.host.containers import creation
from agent.profile import Variables, check, load, resolve
from tests.actions.loadgen.test_llama2_70b_profile import AMD_SMI, PROFILE, SIX
from tests.actions.submission.conftest import MEASUREMENTS
from tests.actions.submission.test_real_run import CPU, TOO_SMALL
from tests.agent.host.containers.conftest import run_in
from tests.lab.container_engine import BUSYBOX
from tests.lab.engine import smollm2_gguf, tiny_gguf
from tests.lab.fleet.ssh_image import ssh_base
from tests.lab.image_wheels import PYTHON, image_wheels

if TYPE_CHECKING:
    from agent.host.containers.container import Container
    from tests.lab.restartable_docker import RestartableDocker

__all__ = ["smollm2_gguf", "tiny_gguf"]

RENDER, VIDEO = 4711, 4712
NULL_DEVICE = os.makedev(1, 3)
OVERRIDES = {"Image": BUSYBOX, "ContainerUlimits": "{memlock: 65536}"}
"""The profile's own limits need an engine with CAP_SYS_RESOURCE."""
PROBE = """
id -G
stat -c '%t:%T %g' {devices}
grep Seccomp: /proc/self/status
ulimit -l
readlink /proc/self/ns/ipc
cat /model/config.json
echo none > {kfd} && echo writable
"""

BASE = "vcagent-test-debian:3"
QUESTIONS = [
    {"input": f"Which number follows {number}?", "tok_input": [1, number], "output": f"{number + 1} follows."}
    for number in range(3, 9)
]
TEST06 = ("offline-test06", "server-test06", "interactive-test06")
ROUND = find_round("v6.1")

pytestmark = pytest.mark.lab


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return device nodes in place of /dev/kfd and /dev/dri/renderD128, in groups of their own."""
    kfd, render = tmp_path / "kfd", tmp_path / "dri" / "renderD128"
    render.parent.mkdir()
    for path, group in ((kfd, VIDEO), (render, RENDER)):
        os.mknod(path, stat.S_IFCHR | 0o660, NULL_DEVICE)
        os.chown(path, 0, group)
    for module in (container_parameters, creation):
        monkeypatch.setattr(module, "AMD_DEVICE_PATHS", (str(kfd), str(render.parent)))
    return kfd, render


def asked_by_the_profile(model: Path) -> LoadGenParameters:
    profile = load(["PERF-GPU-MLPERF-LLAMA2-70B.yaml"], overrides=OVERRIDES)
    places = {"LAB_MODEL": str(model)}
    variables = Variables(
        {},
        {
            "PackagePath": lambda name: f"/packages/{name}",
            "EnvironmentVariable": lambda name: places.get(name, ""),
        },
    )
    check(profile, variables)
    action = next(one for one in profile.actions if one.parameters.get("scenario") == "offline-performance")
    return LoadGenParameters.model_validate(resolve(action, profile, variables))


def test_devices_groups_limits_and_model_are_in_the_container(
    container_engine: RestartableDocker, devices: tuple[Path, Path], tmp_path: Path
) -> None:
    kfd, render = devices
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}\n")
    container = asked_by_the_profile(model).container
    assert container is not None
    with run_in(container_engine, tmp_path / "records") as engine:
        running: Container = engine.ensure_running(container.spec("llama2-70b"))
        script = PROBE.format(devices=f"{kfd} {render}", kfd=kfd)
        lines = running.run(["sh", "-ec", script], log=tmp_path / "log").stdout.splitlines()
    groups, first, second, seccomp, locked, ipc, config, written = lines
    assert {str(RENDER), str(VIDEO)} <= set(groups.split())
    assert (first, second) == (f"1:3 {VIDEO}", f"1:3 {RENDER}")
    assert seccomp.split() == ["Seccomp:", "0"]
    assert (locked, config, written) == ("64", "{}", "writable")
    engine_pid = (container_engine.folder / "pid").read_text().strip()
    assert ipc == str(Path(f"/proc/{engine_pid}/ns/ipc").readlink())


@pytest.mark.engine
@pytest.mark.skipif(
    sys.version_info[:2] != PYTHON, reason="the wheels are for the Python of the image's base"
)
def test_the_whole_tiny_form_in_its_image(
    container_engine: RestartableDocker, accuracy_python: Path, tiny_gguf: Path, tmp_path: Path
) -> None:
    container_engine.docker("import", str(ssh_base() / "root.tar"), BASE)
    data, tools = tmp_path / "data", tmp_path / "tools"
    data.mkdir()
    tools.mkdir()
    rows = "".join(json.dumps(row) + "\n" for row in QUESTIONS)
    (data / "processed-data.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (tools / "amd-smi").write_text(AMD_SMI)
    (tools / "amd-smi").chmod(0o755)
    parameters = {
        "Form": "tiny", "ImageBase": BASE, "WheelsDir": image_wheels(PROFILE), "ImageBuildNetwork": "none",
        "InstallDocker": "false", "InstallDriver": "false", "OnAmd": "true",
        "TinyModel": tiny_gguf, "Samples": len(QUESTIONS),
        # It prepares the samples; the image does not use it.
        "Environment": accuracy_python.parents[1], "MaxOutputTokens": 4,
        "OfflineMinDuration": 0.001, "ServerMinDuration": 0.2, "OfflineMinQueryCount": 100,
        # The counts decide, and the limits are wide: a busy host is slow.
        "ServerLoad": 100, "InteractiveLoad": 100, "ServerMinQueryCount": 470,
        "TtftLatencyMs": 60000, "TpotLatencyMs": 60000, "MonitorInterval": 0.5, "Compliance": "true",
    }  # fmt: skip
    agent = container_engine.beside(sys.executable, "-m", "agent")  # it queries the server in the container
    places = {
        "DOCKER_HOST": container_engine.address, "PATH": f"{tools}:{os.environ['PATH']}",
        "LAB_DATASET": str(data), "COMPANY": "Acme", "SYSTEM_NAME": "small",
    }  # fmt: skip
    ended = subprocess.run(
        [
            *agent, "--profile", PROFILE, "--results-dir", tmp_path / "results",
            "--package-dir", tmp_path / "packages",
            "--parameters", ",,,".join(f"{name}={value}" for name, value in parameters.items()),
        ],
        capture_output=True, text=True, timeout=900, check=False, env={**os.environ, **places},
    )  # fmt: skip
    run = tmp_path / "results" / "latest"
    assert (run / "run.json").is_file(), ended.stdout + ended.stderr
    image = container_engine.docker(
        "image", "inspect", "--format={{.Id}}", "vcagent-llama2-70b-tiny:1"
    ).strip()
    names = (*SIX, *TEST06)
    summaries = {name: json.loads((run / "mlperf" / name / "summary.json").read_text()) for name in names}
    assert {each["details"]["image_id"] for each in summaries.values()} == {image}
    found = {name: each["verdict"]["validity"] for name, each in summaries.items()}
    assert found == {name: "NOT_APPLICABLE" if "accuracy" in name else "VALID" for name in names}, (
        ended.stdout
    )
    scores = {metric["name"] for metric in summaries["server-accuracy"]["metrics"]}
    assert {"rouge1", "rouge2", "rougeL", "rougeLsum"} <= scores
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert 641 in [record["value"] for record in records if "power" in record["metric"]]
    assert container_engine.docker("ps", "--all", "--quiet") == "", "the containers went with their steps"
    assert_that_only_its_size_is_refused(run, tmp_path)


def assert_that_only_its_size_is_refused(run: Path, folder: Path) -> None:
    """Check the submission of a run: everything is in it, and too small."""
    said, measurements = read_description(run / "system_description.yaml", {})
    order = Order(
        folder / "tree", "open", ROUND, "Acme", "small", "datacenter",
        {**CPU, **said}, {**MEASUREMENTS, **measurements}, {"smollm2-135m": "llama2-70b-99.9"},
    )  # fmt: skip
    cases = cases_of([run])
    built = build(order, cases)
    assert built.filed == ()
    assert not order.output.exists()
    order.output.mkdir()
    system = system_description(
        cases, order.said, division="open", submitter="Acme", system_type="datacenter", name="small"
    )
    stage(order, cases, order.output, system, keeps_rejected=True)
    checked = check_tree(order.output, ROUND)
    assert [each.place.scenario for each in checked.results] == ["Interactive", "Offline", "Server"]
    assert {finding.code for each in checked.results for finding in each.errors} <= TOO_SMALL
    assert not [finding for _, finding in checked.findings if finding.is_error]
