"""The container of the Llama 2 70B profile on AMD's GPUs, in a real engine with stand-ins for the devices."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actions.loadgen.parameters import LoadGenParameters
from agent.component import container_parameters
from agent.host.containers import creation
from agent.profile import Variables, check, load, resolve
from tests.agent.host.containers.conftest import run_in
from tests.lab.container_engine import BUSYBOX

if TYPE_CHECKING:
    from agent.host.containers.container import Container
    from tests.lab.restartable_docker import RestartableDocker

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
