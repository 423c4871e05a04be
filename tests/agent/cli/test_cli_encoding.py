"""Output of the commands on a terminal that cannot show every character."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = "description: größer → 2\nactions:\n- type: X\n"


def vcagent(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", "from agent.cli.main import main; main()", *arguments],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("command", ["facts", "doctor", "profiles"])
def test_tables_are_shown(command: str) -> None:
    result = vcagent(command)
    assert b"Traceback" not in result.stderr
    assert result.stdout


def test_a_converted_profile_loses_no_character(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PROFILE, encoding="utf-8")
    assert json.loads(vcagent("convert", str(path)).stdout)["description"] == "größer → 2"
    told = json.loads(vcagent("convert", str(path), "--json").stdout)
    assert json.loads(told["text"])["description"] == "größer → 2"
