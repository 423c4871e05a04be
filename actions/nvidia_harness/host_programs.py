"""Check the host's programs for building the image, before anything is done."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import HostError, LiftedBy
from agent.facts.docker import DOCKER_BUILDX, DOCKER_VERSION
from agent.facts.files import exists, text_of
from agent.facts.programs import program

if TYPE_CHECKING:
    from agent.facts import Facts
    from agent.facts.users import Account

_BUILDX = re.compile(r"docker buildx|--build-context")
"""Text that requires buildx (v4.1 and v5.1, Makefile.docker; not v3.1)."""

_OF_ACCOUNT = Path(".docker", "cli-plugins", "docker-buildx")


def check_programs(folder: Path, account: Account, facts: Facts) -> None:
    """Check that prebuild finds make, and buildx if the repository's rules use it.

    Args:
        folder: NVIDIA's code on the host.
        account: the account that runs it.
        facts: the facts of this host.

    Raises:
        HostError: if a program is missing; includes the remedy.
    """
    if facts[program("make")] is None:
        raise HostError(
            "prebuild runs make on this host, but make is not installed",
            remedy="add a LinuxPackageInstallation of make before this element, or install it by hand",
            lifted_by=LiftedBy.PROGRAM,
        )
    rules = facts[text_of(folder / "Makefile.docker")] or ""
    # Without Docker, its installation comes first.
    if not _BUILDX.search(rules) or facts[DOCKER_VERSION] is None:
        return
    if facts[DOCKER_BUILDX] is None and not facts[exists(Path(account.home) / _OF_ACCOUNT)]:
        raise HostError(
            f"{folder / 'Makefile.docker'} builds the image with docker buildx, which is not installed",
            remedy="install docker-buildx-plugin of Docker's own packages, or docker-buildx beside docker.io",
            lifted_by=LiftedBy.PROGRAM,
        )
