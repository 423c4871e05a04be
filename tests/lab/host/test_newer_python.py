"""The README's first command on a bare host with a Python newer than LoadGen's wheels (``make lab``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.lab.conftest import unavailable
from tests.lab.host.bare_host import bare_host, run_first_command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.environ.get("VCAGENT_LAB") != "all", reason="takes minutes: make lab runs it"),
]


def test_make_run_brings_a_compiler_and_is_valid(tmp_path: Path) -> None:
    host = bare_host(tmp_path / "root", "sid")
    version = host.run("python3", "-c", "import sys; print(sys.version_info >= (3, 14))").stdout.strip()
    if version != "True":
        unavailable("Debian sid's Python is not newer than LoadGen's wheels")
    # The limits of Server are not what is tested: a busy machine misses them.
    run_first_command(host, "--parameters=TtftLatencyMs=600000,,,TpotLatencyMs=60000")
