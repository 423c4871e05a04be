"""Undoes the installation of driver and toolkit where the results are unchanged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.component import Plan, Step, StepContext
from agent.facts.cuda_toolkits import cuda_toolkit
from agent.facts.files import text_of
from agent.facts.linux import KERNEL
from agent.facts.packages import INSTALLED_PACKAGES
from dependencies.docker.undo import undo_plan as undo_repository
from dependencies.nvidia.driver import find_installed
from dependencies.nvidia.packages import belongs_to_driver, upstream
from dependencies.packages.holding import file_plan, unhold_plan, unlock_plan
from dependencies.packages.package_folder import write_whole
from dependencies.packages.package_managers import removal_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.facts import Facts


def undo_plan(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Return the plan that undoes one step.

    Args:
        values: the step's ``undo``: one of ``driver``, ``unhold``, ``versionlock``, ``file``, ``toolkit`` and
            ``lines``, or that of a repository and its key.
        facts: the facts about the host.
    """
    kinds: dict[str, Callable[[Mapping[str, Any], Facts], Plan]] = {
        "driver": _driver,
        "unhold": _unhold,
        "versionlock": unlock_plan,
        "text": undo_repository,
        "keyring": undo_repository,
        "file": file_plan,
        "toolkit": _toolkit,
        "lines": _lines,
    }
    kind = next(name for name in kinds if name in values)
    return kinds[kind](values, facts)


def _driver(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Remove the driver's packages, unless there was a driver before: the old one cannot be restored."""
    if values["driver"]:
        return Plan(nothing_to_do=f"driver {values['driver']} was there before, and is not brought back")
    installed = facts[INSTALLED_PACKAGES]
    driver = find_installed(installed, facts[KERNEL])
    half = {name for name, package in installed.items() if package.broken and belongs_to_driver(name)}
    if driver is None and not half:
        return Plan(nothing_to_do="no driver is installed any more")
    there = {*(driver.packages if driver else ()), *(name for name in half if ":" not in name)}
    if driver is None:  # an interrupted installation: remove its packages too
        there |= {
            name
            for name, package in installed.items()
            if package.installed
            and ":" not in name
            and belongs_to_driver(name)
            and re.match(r"\d{3,}\.", upstream(package.version))
        }
    names = sorted(there - set(values["before"]))
    return removal_plan({"packages": names, "lock_timeout_s": values["lock_timeout_s"]}, facts)


def _unhold(values: Mapping[str, Any], facts: Facts) -> Plan:
    driver = find_installed(facts[INSTALLED_PACKAGES], facts[KERNEL])
    ours = {*(driver.packages if driver else ()), *values.get("kernel", ())}
    return unhold_plan(ours - set(values["unhold"]), facts, values["lock_timeout_s"])


def _toolkit(values: Mapping[str, Any], facts: Facts) -> Plan:
    path, link = Path(values["toolkit"]), Path(values["link"])
    found = facts[cuda_toolkit(path)]
    if found is None:
        return Plan(nothing_to_do=f"no toolkit is in {path} any more")
    if values.get("before"):
        return Plan(nothing_to_do=f"something was in {path} before: what belongs to whom is not known")

    def run(_: StepContext) -> None:
        if link.is_symlink() and link.readlink() == path:
            link.unlink()
        shutil.rmtree(path)

    return Plan((Step("remove-toolkit", f"CUDA {found.version} is in {path}", run, f"rm -r {path}"),))


def _lines(values: Mapping[str, Any], facts: Facts) -> Plan:
    lines = {Path(path): line for path, line in values["lines"].items()}
    present = {
        path: line for path, line in lines.items() if line in (facts[text_of(path)] or "").splitlines()
    }
    if not present:
        return Plan(nothing_to_do="the lines for the toolkit are gone")

    def run(context: StepContext) -> None:
        for path, line in present.items():
            kept = [old for old in path.read_text(encoding="utf-8").splitlines() if old != line]
            if kept:
                write_whole(path, "\n".join(kept) + "\n")
            else:
                path.unlink()
        root = values["root"]
        context.processes.run(["ldconfig", *(["-r", root] if root != "/" else [])], log=context.log)

    shown = f"remove the toolkit's lines from {' and '.join(map(str, present))}; ldconfig"
    return Plan((Step("remove-lines", "shells and the linker were configured for the toolkit", run, shown),))
