"""``vcagent telemetry``: shows and delivers waiting records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ExitCode
from agent.store.journal import Journal
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.run.session import FinishedRun


@pytest.fixture
def vcagent(vcagent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("COLUMNS", "120")
    return vcagent


def test_what_a_full_disk_kept_back_is_flushed(
    run_profile: Callable[..., FinishedRun], vcagent: Callable[..., Any], tmp_path: Path
) -> None:
    blocked = tmp_path / "all"
    blocked.write_text("a file where a folder is to be")
    finished = run_profile({"Actions": [{"Type": "Measuring"}], "Sinks": [f"jsonl:{blocked}"]})
    assert finished.outcome.exit_code == 0
    assert any("vcagent telemetry flush" in line for line in finished.outcome.warnings)
    results = ("--results-dir", str(tmp_path / "results"))
    _, out, _ = vcagent("telemetry", "status", "--json", *results)
    (row,) = json.loads(out)["sinks"]
    assert (row["delivered"], row["waiting"], row["refused"]) == (0, 1, 0)
    assert row["error"]
    assert vcagent("telemetry", "flush", "--wait", "0", *results)[0] == 6
    blocked.unlink()
    code, out, _ = vcagent("telemetry", "flush", finished.run_dir.name, *results)
    assert code == 0
    assert "all is delivered" in " ".join(out.split())
    (line,) = (blocked / f"{finished.run_dir.name}.jsonl").read_text().splitlines()
    assert json.loads(line)["metric"] == "answer"
    _, out, _ = vcagent("telemetry", "status", "--json", *results)
    (row,) = json.loads(out)["sinks"]
    assert (row["delivered"], row["waiting"], row["error"]) == (1, 0, None)


@pytest.mark.parametrize(
    "sink", ["jsonl:all", "csv:all", "content:all", "parquet:all", "prometheus-textfile:all/r.prom"]
)
def test_a_relative_folder_is_the_same_wherever_records_are_delivered_from(
    sink: str,
    run_profile: Callable[..., FinishedRun],
    vcagent: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sink.startswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / "all").write_text("a file where a folder is to be")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    finished = run_profile({"Actions": [{"Type": "Measuring"}], "Sinks": [sink]})
    (tmp_path / "all").unlink()
    (tmp_path / "all").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, _, err = vcagent(
        "telemetry", "flush", finished.run_dir.name, "--results-dir", str(tmp_path / "results")
    )
    assert code == 0, err
    assert any(path.is_file() for path in (tmp_path / "all").rglob("*"))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_another_sink_gets_a_run_that_has_ended(
    run_profile: Callable[..., FinishedRun], vcagent: Callable[..., Any], tmp_path: Path
) -> None:
    finished = run_profile({"Actions": [{"Type": "Measuring"}]})
    results = ("--results-dir", str(tmp_path / "results"))
    assert "no run" in vcagent("telemetry", "status", *results)[1]
    code, _, _ = vcagent("telemetry", "flush", "--sink", f"csv:{tmp_path / 'all'}", *results)
    assert code == 0
    assert (tmp_path / "all" / f"{finished.run_dir.name}.csv").is_file()


def test_a_secret_in_the_settings_is_asked_for_again(
    run_profile: Callable[..., FinishedRun], vcagent: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    finished = run_profile(
        {"Actions": [{"Type": "Measuring"}]}, sinks=("otlp:http://user:hunter2-long@127.0.0.1:9",)
    )
    everything = b"".join(path.read_bytes() for path in finished.run_dir.rglob("*") if path.is_file())
    assert b"hunter2-long" not in everything
    code, _, err = vcagent("telemetry", "flush", "--results-dir", str(tmp_path / "results"))
    assert code == 2
    assert "held a secret" in err


def test_root_brings_no_records_to_what_a_journal_of_others_names(
    run_profile: Callable[..., FinishedRun],
    vcagent: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    run_profile({"Actions": [{"Type": "Measuring"}], "Sinks": [f"jsonl:{tmp_path / 'all'}"]})
    for path in (tmp_path / "all").iterdir():
        path.unlink()
    monkeypatch.setattr("agent.core.safe_files.distrust", lambda folder: f"{folder} belongs to mallory")
    code, _, err = vcagent("telemetry", "flush", "--again", "--results-dir", str(tmp_path / "results"))
    assert code == ExitCode.HOST_CANNOT_RUN
    assert "belongs to mallory" in err
    assert list((tmp_path / "all").iterdir()) == []


def test_a_refused_file_is_shown_and_sent_again(
    run_profile: Callable[..., FinishedRun],
    vcagent: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused: list[str] = ["run.json"]
    from agent.sinks import content
    from agent.sinks.base import RecordsRefusedError

    send = content.ContentSink._send

    def refusing(self: Any, run: Any, path: Path, name: str) -> None:
        if name in refused:
            raise RecordsRefusedError("[413] too large")
        send(self, run, path, name)

    monkeypatch.setattr(content.ContentSink, "_send", refusing)
    finished = run_profile({"Actions": [{"Type": "Measuring"}], "Sinks": [f"content:{tmp_path / 'store'}"]})
    (warning,) = finished.outcome.warnings
    assert "refused run.json ([413] too large)" in warning
    assert f"vcagent telemetry flush --refused {finished.run_dir.name}" in warning
    results = ("--results-dir", str(tmp_path / "results"))
    _, out, _ = vcagent("telemetry", "status", *results)
    assert "run.json" in out
    assert "[413] too large" in out
    _, out, _ = vcagent("telemetry", "status", "--json", *results)
    assert json.loads(out)["sinks"][0]["refused_pieces"] == {"run.json": "[413] too large"}
    code, out, _ = vcagent("telemetry", "flush", "--refused", *results)
    assert code == 0
    assert "refused: run.json: [413] too large" in out
    refused.clear()
    code, out, _ = vcagent("telemetry", "flush", "--refused", *results)
    assert code == 0
    assert "refused:" not in out
    assert list((tmp_path / "store").rglob("run.json"))


def test_a_run_whose_sink_is_gone_does_not_keep_back_the_others(
    run_profile: Callable[..., FinishedRun], vcagent: Callable[..., Any], tmp_path: Path
) -> None:
    gone = run_profile({"Actions": [{"Type": "Measuring"}], "Sinks": [f"jsonl:{tmp_path / 'one'}"]})
    with Journal(gone.run_dir / JOURNAL) as journal:
        journal.remember(sinks=["uninstalled:x"])
    well = run_profile({"Actions": [{"Type": "Measuring"}], "Sinks": [f"jsonl:{tmp_path / 'two'}"]})
    code, out, _ = vcagent("telemetry", "flush", "--results-dir", gone.run_dir.parent)
    assert code == ExitCode.ACTION_FAILED
    said = " ".join(out.split())
    assert f"{gone.run_dir.name} its sinks: not delivered: no sink is called" in said
    assert f"{well.run_dir.name}.jsonl: all is delivered" in said  # runs of one second have no order


def test_a_results_folder_that_is_not_there_is_an_error(
    vcagent: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """Refuse a misspelt folder: "all is delivered" would be wrong."""
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        for command in ("status", "flush"):
            code, _, errors = vcagent("telemetry", command, "--results-dir", str(tmp_path / name))
            assert code == 2
            assert "there is no folder" in errors
            assert "--results-dir" in errors
