"""Makes the slow parts of engines and labs before their tests: ``python -m tests.lab.prepared``.

This is optional: a test that finds a part missing makes it, or waits for the process that is making it.
"""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

import pytest

from tests.lab.environment import ENVIRONMENTS, environment
from tests.lab.fleet.ssh_image import ssh_base
from tests.lab.host.agent_wheels import dependency_wheels
from tests.lab.llamacpp import made_llamacpp

if TYPE_CHECKING:
    from collections.abc import Callable


def _parts() -> list[Callable[[], object]]:
    environments = [partial(environment, variable) for variable in ENVIRONMENTS]
    # The image of SSH hosts is made from that of lab hosts, which is made first.
    hosts = [ssh_base] if os.geteuid() == 0 and shutil.which("mmdebstrap") else []
    return [*environments, *hosts, made_llamacpp, dependency_wheels]


def main() -> int:
    """Make all parts, two at a time, as half of the time is downloads; return how many failed."""
    failed = 0
    with ThreadPoolExecutor(2) as workers:
        for future in [workers.submit(part) for part in _parts()]:
            try:
                future.result()
            except (OSError, CalledProcessError, pytest.skip.Exception) as error:
                sys.stderr.write(f"left to the tests: {error}\n")
                failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
