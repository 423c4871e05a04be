"""Undoes the steps of the installers of Docker and the container toolkit if the results are unchanged."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.component.component import Plan, Step, StepContext
from agent.facts.container_toolkit import CDI_SPECS
from agent.facts.docker import DAEMON_CONFIG, DAEMON_CONFIG_PATH, DOCKER_ENGINE, DOCKER_GROUP, DOCKER_SERVER
from agent.facts.files import exists, text_of
from agent.facts.keyrings import keyring_of
from dependencies.docker.daemon import changes, replace_daemon_config, require_readable, without
from dependencies.docker.service import refuse_to_stop_containers, restart_command, start_engine
from dependencies.packages.package_managers import removal_plan
from dependencies.system.groups import leave_group_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.facts import Facts


def undo_plan(values: Mapping[str, Any], facts: Facts) -> Plan:
    """Return the plan that undoes one step, or the reason why it is not undone.

    Args:
        values: the step's ``undo``: ``packages``, ``file`` and ``text``, ``keyring`` and ``fingerprints``,
            ``member``, ``daemon``, ``before`` and ``restart``, or ``cdi``.
        facts: the host.
    """
    if "packages" in values:
        return removal_plan(values, facts)
    if "file" in values:
        path = Path(values["file"])
        return _removal(path, facts, unchanged=facts[text_of(path)] == values["text"])
    if "keyring" in values:
        path = Path(values["keyring"])
        present = facts[keyring_of(path)]
        same = present is not None and sorted(present.fingerprints) == values["fingerprints"]
        return _removal(path, facts, unchanged=same or not values["fingerprints"])
    if "cdi" in values:
        path = Path(values["cdi"])
        unchanged = any(spec.path == str(path) and spec.kind == "nvidia.com/gpu" for spec in facts[CDI_SPECS])
        return _removal(path, facts, unchanged=unchanged)
    if "member" in values:
        return leave_group_plan(values["member"], "docker", DOCKER_GROUP, facts)
    return _restore_daemon(values, facts)


def _removal(path: Path, facts: Facts, *, unchanged: bool) -> Plan:
    if not facts[exists(path)]:
        return Plan(nothing_to_do=f"{path} is gone")
    if not unchanged:
        return Plan(nothing_to_do=f"{path} was changed since")
    return Plan(
        (
            Step(
                "remove",
                f"{path} was written, and is unchanged",
                lambda _context: path.unlink(),
                shlex.join(["rm", str(path)]),
                lambda fresh: not fresh[exists(path)],
            ),
        )
    )


def _restore_daemon(values: Mapping[str, Any], facts: Facts) -> Plan:
    wish, before = values["daemon"], values["before"]
    settings = require_readable(facts[DAEMON_CONFIG])
    if changes(settings, wish):
        return Plan(
            nothing_to_do=f"{DAEMON_CONFIG_PATH} was changed since: {'; '.join(changes(settings, wish))}"
        )
    restored = without(settings, wish, before)
    running = facts[DOCKER_ENGINE] is not None and facts[DOCKER_SERVER] is not None
    if running:
        refuse_to_stop_containers(
            facts,
            f"{DAEMON_CONFIG_PATH} is restored",
            allowed=False,
            live_restore=settings.get("live-restore") is True,
        )
    command = shlex.split(values.get("restart", "")) or restart_command(facts)

    def restore(context: StepContext) -> None:
        replace_daemon_config(context, restored)
        if running:
            start_engine(context, command)

    shown = [
        f"take {json.dumps(wish)} out of {DAEMON_CONFIG_PATH}",
        *([shlex.join(command)] if running else []),
    ]
    return Plan(
        (
            Step(
                "restore",
                "daemon.json has what was merged into it",
                restore,
                " && ".join(shown),
                lambda fresh: fresh[DAEMON_CONFIG].settings == restored,
            ),
        )
    )
