"""Undoes an installation of amdgpu and ROCm, but only what is unchanged since."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.component import Plan
from agent.facts.files import text_of
from agent.facts.packages import INSTALLED_PACKAGES
from agent.facts.users import members_of
from dependencies.amd.packages import DRIVER, amd_packages
from dependencies.docker.undo import undo_plan as undo_repository
from dependencies.packages.holding import excluded_names, file_plan, unhold_plan, unlock_plan
from dependencies.packages.package_managers import removal_plan
from dependencies.system.groups import leave_group_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts


def undo_plan(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Return the plan that undoes one step.

    Args:
        values: the step's ``undo``: one of ``amd``, ``unhold`` and ``file``, ``versionlock``, ``member`` and
            ``group``, ``file``, or that of a repository and its key.
        facts: the host.
    """
    if "amd" in values:
        return _remove(values, facts)
    if "unhold" in values:
        return _unhold(values, facts)
    if "versionlock" in values:
        return unlock_plan(values, facts)
    if "member" in values:
        return leave_group_plan(values["member"], values["group"], members_of(values["group"]), facts)
    if "text" in values or "keyring" in values:
        return undo_repository(values, facts)
    return file_plan(values, facts)


def _remove(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Remove AMD's packages that were not installed before; do not restore earlier versions of others."""
    installed = facts[INSTALLED_PACKAGES]
    half = {DRIVER} if DRIVER in installed and installed[DRIVER].broken else set()
    names = sorted({*amd_packages(installed), *half} - set(values["amd"]))
    if not names:
        return Plan(nothing_to_do="none of AMD's packages that were installed is there any more")
    return removal_plan({"packages": names, "lock_timeout_s": values["lock_timeout_s"]}, facts)


def _unhold(values: Mapping[str, Any], facts: Facts) -> Plan:
    before = set(values["unhold"])
    ours = excluded_names(facts[text_of(Path(values["file"]))])
    held = unhold_plan(ours - before, facts, values["lock_timeout_s"])
    # The record stays while it lists holds that vcagent had before this run.
    record = Plan(nothing_to_do="kept") if ours & before else file_plan(values, facts)
    steps = (*held.steps, *record.steps)
    return Plan(steps) if steps else held
