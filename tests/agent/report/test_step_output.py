from __future__ import annotations

from typing import TYPE_CHECKING

from agent.report.step_output import last_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_a_log_that_is_gone_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "gone.log", 5) == ()
    assert last_lines(None, 5) == ()


def test_reports_of_progress_are_left_out(tmp_path: Path) -> None:
    report = '{"event": "progress", "phase": "run", "completed": 3}\n'
    log = tmp_path / "a.log"
    log.write_text(f"started\n{report * 30}stopped\n", encoding="utf-8")
    assert last_lines(log, 20) == ("started", "stopped")
    log.write_text(f"started\n{report * 3000}stopped\n", encoding="utf-8")
    assert last_lines(log, 20) == ("… earlier lines: see the log", "stopped")


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("".join(f"line {number}\n" for number in range(100_000)), encoding="utf-8")
    assert last_lines(log, 2) == ("… earlier lines: see the log", "line 99998", "line 99999")
