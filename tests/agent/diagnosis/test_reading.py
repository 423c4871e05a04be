"""What is read: runs, fleet runs, files of records; and the two commands over them."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import main
from agent.core.errors import ExitCode, UsageError
from agent.diagnosis.reading import read_observations

FINISHED = Path(__file__).parents[1] / "report/finished_run"
SPEED = "bench/Offline/performance/tokens_per_second"


def _record(host: str, speed: Any, number: int = 1, **more: Any) -> str:
    values = {
        "record_id": number,
        "run_id": f"run-{host}",
        "client_id": host,
        "scenario": "bench/Offline/performance",
        "metric": "tokens_per_second",
        "value": speed,
        "unit": "tokens/s",
        "relativity": "HigherIsBetter",
        "verbosity": 1,
        **more,
    }
    return json.dumps(values) + "\n"


def _fleet_run(folder: Path, speeds: dict[str, float], unreached: tuple[str, ...] = ()) -> Path:
    folder.mkdir()
    lines = [_record(host, speed) for host, speed in speeds.items()]
    random.Random(0).shuffle(lines)  # noqa: S311 - any order
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    hosts = [{"name": name} for name in (*speeds, *unreached)]
    (folder / "fleet.json").write_text(json.dumps({"hosts": hosts}), encoding="utf-8")
    return folder


def _vcagent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["vcagent", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        main()
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_a_real_run_is_read() -> None:
    observed = read_observations([FINISHED])
    lines = [json.loads(line) for line in (FINISHED / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert {host: len(metrics) for host, metrics in observed.hosts.items()} == {
        lines[0]["client_id"]: len({(line["scenario"], line["metric"]) for line in lines})
    }
    assert read_observations([FINISHED, FINISHED / "metrics.jsonl"]) == observed, "nothing counts twice"


def test_a_last_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(_record("a", 5) + _record("a", 6, 2)[:40], encoding="utf-8")
    assert read_observations([file]).hosts == {"a": {SPEED: (5.0,)}}


def test_superbench_results_are_read(tmp_path: Path) -> None:
    file = tmp_path / "results-summary.jsonl"
    file.write_text('{"node": "n1", "copy/in:0": 25.5, "copy/in:1": null, "copy/return_code": 0}\n', "utf-8")
    assert read_observations([file]).hosts == {"n1": {"copy/in:0": (25.5,), "copy/return_code": (0.0,)}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}\n", "jsonl:2"),
        ("5\n", "no record"),
        ("nonsense\n", "no record"),
        (_record("a", "fast"), "no record"),
        (_record("a", float("nan")), "no record"),
        (_record("a", 1, relativity="Up"), "no record"),
        (_record("a", 10**400), "no record"),
        ("[" * 100_000 + "\n", "no record"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(_record("a", 5) + line, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        read_observations([file])


def test_where_there_are_no_records_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no"):
        read_observations([tmp_path])
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(UsageError, match="no records in"):
        read_observations([tmp_path])


def test_the_slow_host_of_a_fleet_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = {f"gpu-{number:02}": 1000.0 + number for number in range(16)} | {"gpu-07": 700.0}
    fleet = _fleet_run(tmp_path / "fleet", speeds)
    code, out, _ = _vcagent(capsys, monkeypatch, "diagnose", fleet, "--json")
    found = json.loads(out)
    assert (code, found["defective"], found["without_records"]) == (ExitCode.FLEET_PARTIAL, ["gpu-07"], [])
    (defect,) = next(host for host in found["hosts"] if host["host"] == "gpu-07")["defects"]
    assert (defect["metric"], defect["value"], defect["baseline"]) == (SPEED, 700, 1008)
    assert defect["variance"] == pytest.approx(-308 / 1008)

    code, out, _ = _vcagent(capsys, monkeypatch, "diagnose", fleet)
    assert code == ExitCode.FLEET_PARTIAL
    assert "gpu-07" in out
    assert "-30.6%" in out
    assert "1 of 16 hosts" in out


def test_a_baseline_serves_another_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = _fleet_run(tmp_path / "one", {f"h{number}": 1000.0 + number for number in range(8)} | {"h8": 1.0})
    baseline = tmp_path / "baseline.json"
    code, _, _ = _vcagent(capsys, monkeypatch, "baseline", fleet, "-o", baseline, "--json")
    assert code == ExitCode.OK
    assert json.loads(baseline.read_text("utf-8"))["metrics"][SPEED]["dropped"] == ["h8"]

    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: {slow: {function: variance, criteria: x < -0.05, metrics: ['*']}}", "utf-8")
    again = _fleet_run(tmp_path / "two", {"a": 900.0, "b": 990.0})
    code, out, _ = _vcagent(
        capsys, monkeypatch, "diagnose", again, "--rules", rules, "--baseline", baseline, "--markdown"
    )
    assert code == ExitCode.FLEET_PARTIAL
    assert out.splitlines()[2:] == [
        f"| a | slow | slow | {SPEED} | 900 tokens/s | 1003.5 tokens/s | -10.3% |"
    ]

    well = _fleet_run(tmp_path / "three", {"a": 1000.0})
    assert _vcagent(
        capsys, monkeypatch, "diagnose", well, "--rules", rules, "--baseline", baseline
    )[0] == ExitCode.OK  # fmt: skip


def test_a_host_that_was_never_reached_is_not_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = _fleet_run(tmp_path / "fleet", dict.fromkeys("abcd", 10.0), unreached=("lost",))
    code, out, _ = _vcagent(capsys, monkeypatch, "diagnose", fleet, "--markdown")
    assert code == ExitCode.FLEET_PARTIAL
    assert "| lost |  |  | no records |  |  |  |" in out


def test_two_hosts_cannot_be_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = _fleet_run(tmp_path / "fleet", {"a": 10.0, "b": 5.0})
    code, _, err = _vcagent(capsys, monkeypatch, "diagnose", fleet)
    assert code == ExitCode.USAGE
    assert "no rule could judge anything" in err
    code, _, err = _vcagent(capsys, monkeypatch, "baseline", fleet, "-o", tmp_path / "b.json")
    assert code == ExitCode.USAGE
    assert "--least-hosts" in err
