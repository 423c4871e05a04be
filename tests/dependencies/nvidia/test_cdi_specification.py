"""The CDI step: the file of a stand-in for nvidia-ctk is read back, and no second file is written."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from agent.component.component import StepContext
from agent.core.yaml_data import yaml_data
from agent.facts.container_toolkit import cdi_spec
from dependencies.docker.undo import undo_plan
from dependencies.nvidia.container_toolkit_installation import NvidiaContainerToolkitInstallation
from tests.dependencies.conftest import Messages
from tests.dependencies.test_cases import CASES, facts_of, read_case
from tests.lab.host.web.debian_packages import STANDINS

if TYPE_CHECKING:
    from pathlib import Path

    from agent.component.component import Step
    from agent.facts import Facts

CASE = next(path for path in CASES if path.stem == "docker_has_cdi_by_default")


def cdi_step(facts: Facts) -> Step:
    parameters = NvidiaContainerToolkitInstallation.Parameters.model_validate({"Cdi": "always"})
    steps = NvidiaContainerToolkitInstallation(parameters).plan(facts).steps
    return next(step for step in steps if step.name == "cdi")


def test_what_nvidia_ctk_writes_is_read(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-0)'\necho 'GPU 1: NVIDIA H100 (UUID: GPU-1)'\n"
    )
    smi.chmod(0o755)
    path = tmp_path / "cdi" / "nvidia.yaml"
    command = [sys.executable, STANDINS / "nvidia-ctk", "cdi", "generate", f"--output={path}"]
    subprocess.run(command, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=True)
    spec = cdi_spec(str(path), path.read_text())
    assert spec
    assert (spec.kind, spec.devices) == ("nvidia.com/gpu", ("0", "1", "all"))


def test_a_specification_that_came_meanwhile_is_enough(tmp_path: Path) -> None:
    case: dict[str, Any] = read_case(CASE)
    step = cdi_step(facts_of(case["facts"]))
    written = yaml_data(
        "cdi_specs: [{path: /var/run/cdi/n.yaml, kind: nvidia.com/gpu, devices: [all], driver: 550.90.07}]"
    )
    context = StepContext(
        facts=facts_of(case["facts"], written),
        processes=None,  # type: ignore[arg-type]  # no command may run
        progress=Messages(),
        stop=threading.Event(),
        run_dir=tmp_path,
        package_dir=tmp_path,
        log=tmp_path / "log",
    )
    outcome = step.run(context)
    assert outcome
    assert outcome.message == "there is one by now"
    assert step.holds
    assert step.holds(context.facts)
    assert step.undo == {"cdi": "/etc/cdi/nvidia.yaml"}
    gone = facts_of(case["facts"], written, {"exists[/etc/cdi/nvidia.yaml]": False})
    assert undo_plan(step.undo, gone).nothing_to_do
