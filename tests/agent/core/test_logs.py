from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from agent.core.logs import agent_log
from agent.core.secrets import Secrets

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_events_are_json_lines_without_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "logs" / "vcagent.jsonl"
    with agent_log(path, Secrets(["planted-secret"])) as log:
        log.info("step started", step="a/b", password="x", nested={"note": "planted-secret"}, path=tmp_path)
        log.warning("step ended", number=1)
        try:
            raise RuntimeError("planted-secret")
        except RuntimeError:
            log.exception("failed")
    log.info("afterwards")
    text = path.read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["event"] for event in events] == ["step started", "step ended", "failed"]
    assert events[0]["password"] == "***"
    assert events[0]["level"] == "info"
    assert "RuntimeError: ***" in events[2]["exception"]
    assert "planted-secret" not in text
    assert (
        abs(
            datetime.now(timezone.utc) - datetime.fromisoformat(events[0]["timestamp"].replace("Z", "+00:00"))
        ).seconds
        < 60
    )
    assert capsys.readouterr() == ("", "")


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    for number in range(2):
        with agent_log(tmp_path / "log", Secrets()) as log:
            log.info("event", number=number)
    assert [json.loads(line)["number"] for line in (tmp_path / "log").read_text().splitlines()] == [0, 1]
