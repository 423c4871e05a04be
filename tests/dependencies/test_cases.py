"""Plans as data: facts and parameters in; steps, or the reason for none, out.

A case has ``facts``, ``parameters`` and one of ``steps``, ``nothing_to_do``, ``refused``. With ``after``, the
facts that the steps bring about, the plan made again must have nothing to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from agent.errors import HostError
from agent.facts import Facts
from agent.facts.git import GitCheckout
from agent.facts.linux import Distribution
from agent.facts.packages import InstalledPackage
from agent.facts.python import PythonInterpreter
from agent.facts.python_environments import PythonEnvironment
from agent.facts.storage import Mount
from dependencies.git_repo_clone import GitRepoClone
from dependencies.linux_package_installation import LinuxPackageInstallation
from dependencies.python_environment_installation import PythonEnvironmentInstallation

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.component import ComponentParameters, Dependency

INSTALLERS: dict[str, type[Dependency]] = {
    "git_repo_clone": GitRepoClone,
    "linux_package_installation": LinuxPackageInstallation,
    "python_environment_installation": PythonEnvironmentInstallation,
}
CASES = sorted((Path(__file__).parent / "cases").glob("*/*.yaml"))

READERS: dict[str, Callable[[Any], Any]] = {
    "available_packages": frozenset,
    "distribution": lambda value: Distribution(**{**value, "like": tuple(value.get("like", ()))}),
    "git_checkout": lambda value: (
        value
        and GitCheckout(
            **{**value, **{name: tuple(value.get(name, ())) for name in ("tags", "changed", "ahead")}}
        )
    ),
    "installed_packages": lambda value: {name: InstalledPackage(*state) for name, state in value.items()},
    "link_target": lambda value: value and Path(value),
    "mounts": lambda value: tuple(Mount(Path(target), "ext4", size, free) for target, size, free in value),
    "package_dir": Path,
    "python": lambda value: value and PythonInterpreter(**value),
    "python_environment": lambda value: (
        value and PythonEnvironment(**{**value, "changed": tuple(value.get("changed", ()))})
    ),
}


def facts_of(*written: dict[str, Any]) -> Facts:
    values = {}
    for name, value in {key: value for part in written for key, value in part.items()}.items():
        read = READERS.get(name.partition("[")[0], lambda plain: plain)
        values[name] = read(value)
    return Facts(None, values)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    case = yaml.safe_load(path.read_text())
    installer = INSTALLERS[path.parent.name]
    parameters: ComponentParameters = installer.Parameters.model_validate(case["parameters"])
    component = installer(parameters)
    facts = facts_of(case["facts"])
    if "refused" in case:
        with pytest.raises(HostError) as refusal:
            component.plan(facts)
        assert case["refused"] in refusal.value.message
        assert case["remedy"] in (refusal.value.remedy or "")
        return
    plan = component.plan(facts)
    if "nothing_to_do" in case:
        assert case["nothing_to_do"] in plan.nothing_to_do
        assert not plan.steps
        return
    assert [step.name for step in plan.steps] == [step["name"] for step in case["steps"]]
    for step, expected in zip(plan.steps, case["steps"], strict=True):
        assert expected["reason"] in step.reason
        for part in expected.get("command", ()):
            assert part in step.command
        for part in expected.get("not_in_command", ()):
            assert part not in step.command
        assert step.holds is None or not step.holds(facts), "what holds already needs no step"
    applied = facts_of(case["facts"], case["after"])
    assert component.plan(applied).nothing_to_do
    assert all(step.holds is None or step.holds(applied) for step in plan.steps)


def test_every_installer_has_cases() -> None:
    assert {path.parent.name for path in CASES} == set(INSTALLERS)
