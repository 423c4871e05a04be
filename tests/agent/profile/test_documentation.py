"""Every profile on the documentation page about profiles is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.run.request import RunRequest
from agent.run.session import plan

PAGE = Path(__file__).parents[3] / "docs" / "profiles.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_example_can_be_planned(text: str, tmp_path: Path) -> None:
    path = tmp_path / "EXAMPLE.yaml"
    path.write_text(text, encoding="utf-8")
    run = plan(RunRequest((str(path),), results_dir=tmp_path / "results"))
    profile, planned = run.profile, run.components
    assert profile.actions
    assert len(planned) == len(profile.dependencies) + len(profile.actions)
    assert not [str(component.error) for component in planned if component.error]
