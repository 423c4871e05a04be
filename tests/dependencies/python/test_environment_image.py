"""An image with a Python environment: its plan, and a build by a real engine from wheels alone."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.core.errors import HostError
from agent.facts import Facts
from dependencies.python.environment_image.building import PythonEnvironmentImage
from tests.lab.fleet.ssh_image import ssh_base

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.dependencies.conftest import RealHost
    from tests.lab.restartable_docker import RestartableDocker

IMAGE = "vcagent-test-environment:1"
HARNESS = "actions.loadgen.in_environment.harness"


def image(**parameters: Any) -> PythonEnvironmentImage:
    values = {"image": IMAGE, "requirements": ["idna==3.20"], **parameters}
    return PythonEnvironmentImage(PythonEnvironmentImage.Parameters.model_validate(values))


def facts(labels: Mapping[str, str] | None) -> Facts:
    return Facts(modelled={f"image_labels[{IMAGE}]": labels})


def label(component: PythonEnvironmentImage) -> dict[str, str]:
    return {"vcagent.environment-image": component._wish()}


def test_it_is_built_again_for_another_wish_alone() -> None:
    first = image(programs=[HARNESS])
    (step,) = first.plan(facts(None)).steps
    assert (step.name, step.reason) == ("build-image", f"Docker does not have {IMAGE}")
    assert first.plan(facts(label(first))).nothing_to_do
    others: tuple[dict[str, Any], ...] = (
        {"base": "debian:13"},
        {"requirements": ["idna==3.21"]},
        {"programs": []},
        {"packages": "gcc"},
        {"basePackages": True},
    )
    for other in others:
        (step,) = image(**{"programs": [HARNESS], **other}).plan(facts(label(first))).steps
        assert "is built of other requirements" in step.reason


def test_somebody_else_s_image_is_not_replaced() -> None:
    with pytest.raises(HostError, match="was not built by this dependency"):
        image().plan(facts({"maintainer": "me"}))
    assert image(make="pull").plan(facts({"maintainer": "me"})).nothing_to_do == f"Docker has {IMAGE}"
    assert [step.name for step in image(make="pull").plan(facts(None)).steps] == ["pull-image"]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"requirements": ["idna=3"]}, "is not a requirement"),
        ({"programs": ["actions.no_such_package"]}, "is not a Python package of vcagent"),
        ({"packages": "gcc; reboot"}, "should match pattern"),
    ],
)
def test_what_cannot_be_built_is_told_before(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        image(**parameters)


@pytest.mark.engine
@pytest.mark.lab
def test_it_is_built_once_of_wheels_and_given_back(
    container_engine: RestartableDocker,
    real_host: RealHost,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", container_engine.address)
    base = "vcagent-test-debian:1"
    container_engine.docker("import", str(ssh_base() / "root.tar"), base)
    wheels = tmp_path / "wheels"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(wheels),
        "idna==3.20",
    ]
    subprocess.run(command, check=True)
    component = image(
        base=base, packages="python3 python3-venv", wheelsDir=wheels, programs=[HARNESS], buildNetwork="none",
        basePackages=True,
    )  # fmt: skip
    assert real_host.apply(component) == ["build-image"]
    assert real_host.apply(component) == []
    told = "import harness, idna, sys; print(idna.__version__, harness.__file__, *sys.path)"
    ran = container_engine.docker("run", "--rm", "--network=none", IMAGE, "python", "-c", told).split()
    assert ran[:2] == ["3.20", "/opt/vcagent/programs/harness/__init__.py"]
    # The packages of the base come after the environment's own.
    own = next(place for place, path in enumerate(ran) if path.startswith("/opt/vcagent/lib"))
    assert own < ran.index("/usr/lib/python3/dist-packages")
    (undo,) = PythonEnvironmentImage.undo({"image": IMAGE}, real_host.facts.fresh()).steps
    undo.run(real_host.context)
    assert PythonEnvironmentImage.undo({"image": IMAGE}, real_host.facts.fresh()).nothing_to_do
    container_engine.docker("image", "rm", base)
