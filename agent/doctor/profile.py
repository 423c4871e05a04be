"""Checks the requirements of a profile on this host."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.core.errors import HostError
from agent.core.secret_shapes import is_secret_name
from agent.doctor.check import Check, Status
from agent.facts.reachability import unreachable
from agent.planning.planner import leaves
from agent.profile import unique_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.facts import Facts
    from agent.planning.planner import PlannedComponent
    from agent.profile import Profile


_VARIABLE = re.compile(r"\{EnvironmentVariable:(\w+)\}", re.IGNORECASE)
_BRINGS = {
    "NvidiaCudaInstallation": ("GPUs", "GPU driver", "nouveau", "Secure Boot", "fabric manager"),
    "AmdRocmInstallation": ("amdgpu", "AMD devices", "ROCm"),
    "AMDGPUDriverInstallation": ("amdgpu", "AMD devices", "ROCm"),
    "DockerInstallation": ("Docker",),
    "FreeGpuMemory": ("GPU processes",),
}
"""What a type of component puts right, by the names of the checks. Its plan has looked at the same facts."""


def agree(checks: Iterable[Check], planned: Iterable[PlannedComponent]) -> list[Check]:
    """Return the checks of the host; anything that a profile's own steps correct is not a problem.

    Args:
        checks: the checks of the host alone.
        planned: the profile's plan on this host.
    """
    bringers = {
        name: component.element
        for component in planned
        if component.plan and component.plan.steps
        for name in _BRINGS.get(component.element.type, ())
    }

    def agreed(check: Check) -> Check:
        element = bringers.get(check.name)
        # Some GPUs that do not answer beside others that do: no installation mends them.
        broken = check.name == "GPUs" and check.status is Status.PROBLEM
        if element is None or check.status is Status.OK or broken:
            return check
        return Check(check.name, Status.OK, f"{check.message}; {element.type} sees to it")

    return [agreed(check) for check in checks]


def for_profile(gpu_checks: Iterable[Check], planned: Iterable[PlannedComponent]) -> list[Check]:
    """Return the checks of the GPUs; their problems are only warnings for a profile that uses no GPU.

    Args:
        gpu_checks: the checks of the GPUs and their driver.
        planned: the profile's plan on this host.
    """
    checks = list(gpu_checks)
    if any(component.uses_gpus for component in planned):
        return checks
    return [
        replace(check, status=Status.WARNING, message=f"{check.message}; the profile uses no GPU")
        if check.status is Status.PROBLEM
        else check
        for check in checks
    ]


def check_plan(planned: Iterable[PlannedComponent]) -> list[Check]:
    """Return the checks of a profile's plan: a refusal is a problem, with the remedy of its error.

    A refusal that an earlier dependency lifts is not a problem; one that it may lift is a warning.
    """
    checks = []
    components = list(planned)
    names = unique_names(
        (component.element, f"{component.element.type} {component.scenario}".rstrip())
        for component in components
    )
    for component in components:
        name = names[component.element.key]
        if component.error:
            checks.append(Check(name, Status.PROBLEM, component.error.message, component.error.remedy or ""))
            continue
        if component.for_now:
            known = isinstance(component.for_now, HostError) and component.for_now.lifted_by
            remedy = component.for_now.remedy if not known else ""
            remedy = f"if the dependencies do not change that: {remedy}" if remedy else ""
            checks.append(Check(name, Status.OK if known else Status.WARNING, component.note, remedy))
            continue
        steps = component.plan.steps if component.plan else ()
        message = component.note or ", ".join(step.name for step in steps) or component.standing.value
        checks.append(Check(name, Status.OK, message))
    return checks


def check_secrets(profile: Profile) -> list[Check]:
    """Return a warning for parameters with secret names and empty values, such as a missing token.

    A value may be one of the agent's environment, ``{EnvironmentVariable:NAME}``.
    """
    checks = [
        Check(
            f"parameter {name}",
            Status.WARNING,
            f"{name} is empty{_unset(value)}",
            _export(value) or f"give it where it is needed: --parameters {name}=…",
        )
        for name, value in profile.parameters.items()
        if is_secret_name(name) and _is_empty(value)
    ]
    for element in (*leaves(profile.dependencies), *leaves(profile.monitors), *leaves(profile.actions)):
        checks += [
            Check(
                f"{element.type} ({element.where(name)})",
                Status.WARNING,
                f"{name} is empty{_unset(value)}",
                _export(value) or f"write it as $.Parameters.{name}, and give it with --parameters {name}=…",
            )
            for name, value in element.parameters.items()
            if is_secret_name(name) and _is_empty(value)
        ]
    return checks


def unset_secrets(profile: Profile) -> list[str]:
    """Return a warning for each secret that a variable of the environment should give, but does not."""
    elements = (*leaves(profile.dependencies), *leaves(profile.monitors), *leaves(profile.actions))
    given = [profile.parameters, *(element.parameters for element in elements)]
    return [
        f"{name} is empty{_unset(value)}; {_export(value)}"
        for parameters in given
        for name, value in parameters.items()
        if is_secret_name(name) and _is_empty(value) and _unset(value)
    ]


def _is_empty(value: Any) -> bool:
    """Return True if a parameter has no value once the variables of the environment are filled in."""
    if not isinstance(value, str):
        return value is None
    return not _VARIABLE.sub(lambda found: os.environ.get(found[1], ""), value)


def _unset(value: Any) -> str:
    """Return which variables of the environment an empty value consists of, as the end of a sentence."""
    names = _VARIABLE.findall(value) if isinstance(value, str) else []
    return f": {', '.join(names)} of the environment is not set" if names else ""


def _export(value: Any) -> str:
    """Return the command that sets the variables of an empty value; empty if it has none."""
    names = _VARIABLE.findall(value) if isinstance(value, str) else []
    return f"set it before the command: export {' '.join(f'{name}=…' for name in names)}" if names else ""


def check_servers(planned: Iterable[PlannedComponent], facts: Facts) -> list[Check]:
    """Check that the servers that the profile's steps fetch from answer, such as package indexes and hubs."""
    fresh = facts.fresh()
    steps = [step for component in planned if component.plan for step in component.plan.steps]
    addresses = re.findall(r"https?://[^\s'\"]+", "\n".join(step.command for step in steps))
    for step in steps:
        addresses += step.fetches_from(fresh) if step.fetches_from else ()
    return [
        Check(
            f"server {server}",
            Status.PROBLEM,
            f"it does not answer: {why}; steps of the profile fetch from it",
            "check DNS, the route and the proxy, or give another address in the profile",
        )
        for server, why in fresh[unreachable(addresses)].items()
    ]
