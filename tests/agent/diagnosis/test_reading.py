"""The sources of a diagnosis (runs, fleet runs, files of records), and the two commands that use them."""

import json
import locale
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import main
from agent.core.errors import ExitCode, UsageError
from agent.core.records import Relativity
from agent.diagnosis.observations import MetricKind
from agent.diagnosis.reading import read_observations, read_text
from agent.store.documents import CasePart, FleetDocument, RunDocument
from agent.store.journal import Journal
from agent.store.results import JOURNAL

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


def test_a_record_that_is_read_twice_counts_once(tmp_path: Path) -> None:
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for file in files:
        file.write_text(_record("a", 5) + _record("a", 6, 2), encoding="utf-8")
    assert read_observations(files).hosts == {"a": {SPEED: (5.0, 6.0)}}
    without_id = _record("a", 5).replace('"record_id": 1, ', "")
    for file in files:
        file.write_text(without_id * 2, encoding="utf-8")
    assert read_observations([*files, files[0]]).hosts == {"a": {SPEED: (5.0,) * 4}}


def test_a_metric_keeps_its_properties(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(_record("aZ", 5, verbosity=3).encode().replace(b"Z", b"\xff"))
    observed = read_observations([file])
    assert observed.metrics == {SPEED: MetricKind("tokens/s", Relativity.HIGHER, 3)}
    assert list(observed.hosts) == ["a\ufffd"], "a damaged character hides no record"


def test_a_fleet_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    fleet = _fleet_run(tmp_path / "fleet", {"a": 5.0})
    (fleet / "fleet.json").write_text("{", encoding="utf-8")
    with pytest.raises(UsageError) as of_file:
        FleetDocument.read(fleet)
    with pytest.raises(UsageError) as caught:
        read_observations([fleet])
    place = of_file.value.where
    assert place
    assert (caught.value.message, caught.value.where) == (of_file.value.message, place)
    assert caught.value.remedy == "vcagent fleet resume writes it again"


def test_records_of_two_runs_are_kept_apart(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(_record("a", 5) + _record("a", 6, run_id="another"), encoding="utf-8")
    assert read_observations([file]).hosts == {"a": {SPEED: (5.0, 6.0)}}


def test_hosts_without_records_are_known(tmp_path: Path) -> None:
    fleet = _fleet_run(tmp_path / "fleet", {"a": 5.0}, unreached=("lost",))
    assert list(read_observations([fleet], ["known"]).hosts) == ["a", "known", "lost"]


def test_the_rounds_of_a_run_are_repeats_of_one_case(tmp_path: Path) -> None:
    """Name the case of the second round with #2, and another case of the first round too."""
    fleet = _fleet_run(tmp_path / "fleet", {"a": 5.0, "b": 7.0})
    with (fleet / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(_record("a", 6, 2, scenario="bench/Offline/performance#2"))
        file.write(_record("b", 8, 2, scenario="bench/Offline/performance#2"))
        file.write(_record("b", 9, 3, scenario="bench/Offline/performance#3"))
        file.write(_record("c", 8, 2, scenario="bench/Offline/performance#2"))
    for host, second in (("a", "2:actions[0]/run"), ("b", "1:actions[1]/run")):
        steps = {"bench/Offline/performance": "1:actions[0]/run", "bench/Offline/performance#2": second}
        cases = [CasePart.model_validate({"scenario": name, "step": step}) for name, step in steps.items()]
        RunDocument(run_id=f"run-{host}", cases=cases).write(fleet / "hosts" / host)
    assert read_observations([fleet]).hosts == {
        "a": {SPEED: (5.0, 6.0)},
        "b": {SPEED: (7.0,)}
        | {SPEED.replace("/tokens", f"#{number}/tokens"): (6.0 + number,) for number in (2, 3)},
        "c": {SPEED.replace("/tokens", "#2/tokens"): (8.0,)},
    }


def test_superbench_results_are_read(tmp_path: Path) -> None:
    file = tmp_path / "results-summary.jsonl"
    file.write_text('{"node": "n1", "copy/in:0": 25.5, "copy/in:1": null, "copy/return_code": 0}\n', "utf-8")
    assert read_observations([file]).hosts == {"n1": {"copy/in:0": (25.5,), "copy/return_code": (0.0,)}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}\n", "KeyError: 'node'"),
        ("5\n", "TypeError: "),
        ("nonsense\n", "JSONDecodeError: "),
        (_record("a", "fast"), "ValueError: tokens_per_second is 'fast'"),
        (_record("a", float("nan")), "ValueError: tokens_per_second is nan"),
        (_record("a", 1, relativity="Up"), "ValueError: 'Up' is not a valid Relativity"),
        pytest.param(_record("a", 10**400), "OverflowError: ", id="huge"),
        pytest.param("[" * 100_000 + "\n", "RecursionError: ", id="nested"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text(_record("a", 5) + line, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_observations([file])
    assert caught.value.message.startswith(f"this is not a record: {message}")
    assert caught.value.where == f"{file}:2"
    remedy = "metrics.jsonl of a run is read, and results-summary.jsonl of SuperBench"
    assert caught.value.remedy == remedy


def test_where_there_are_no_records_that_is_told(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    with pytest.raises(UsageError) as caught:
        read_observations([tmp_path])
    assert caught.value.message == f"there is no {file}"
    remedy = "name the folder of a run or fleet run, such as results/fleet/latest, or a file of records"
    assert caught.value.remedy == remedy
    file.touch()
    with pytest.raises(UsageError) as caught:
        read_observations([tmp_path, file])
    assert caught.value.message == f"there are no records in {tmp_path}, {file}"
    assert caught.value.remedy == "name the folders of runs that came to their end"


@pytest.fixture
def _ascii_locale() -> Iterator[None]:
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


@pytest.mark.usefixtures("_ascii_locale")
def test_files_are_utf_8_in_every_locale(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(_record("aZ", 5).replace("Z", "é").encode())
    assert "aé" in read_text(file)
    assert list(read_observations([file]).hosts) == ["aé"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    for content in (None, b"\xff"):
        if content:
            file.write_bytes(content)
        with pytest.raises(UsageError) as caught:
            read_text(file)
        assert caught.value.message.startswith(f"{file} cannot be read: ")
    unreadable = Path("/proc/self/mem")
    with pytest.raises(UsageError) as caught:
        read_observations([unreadable])
    assert caught.value.message.startswith(f"{unreadable} cannot be read: ")


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
    assert "16 hosts: 1 sick, 15 well" in out


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
        f"| a | slow | slow | {SPEED} | 900 tokens/s | 1,004 tokens/s | -10.3% |",
        "",
        "2 hosts: 1 sick, 1 well",
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
    assert "no rule could judge a value" in err
    code, _, err = _vcagent(capsys, monkeypatch, "baseline", fleet, "-o", tmp_path / "b.json")
    assert code == ExitCode.USAGE
    assert "--least-hosts" in err


def _facts(fleet: Path, host: str, **facts: Any) -> None:
    folder = fleet / "hosts" / host
    folder.mkdir(parents=True)
    run = {"schema_version": 1, "client_id": host, "facts": facts}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")


def test_hosts_are_grouped_by_their_gpus_or_by_a_fact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = {f"h{number}": (2000.0 if number < 5 else 1000.0) + number % 5 for number in range(10)}
    fleet = _fleet_run(tmp_path / "fleet", speeds)
    for number, host in enumerate(speeds):
        _facts(fleet, host, gpus=[{"name": "H100" if number < 5 else "A100"}], kernel=f"6.{number < 9:d}")
    code, out, _ = _vcagent(capsys, monkeypatch, "diagnose", fleet)
    assert (code, out.splitlines()[-1]) == (ExitCode.OK, "10 hosts: 10 well")
    code, out, _ = _vcagent(capsys, monkeypatch, "diagnose", fleet, "--json", "--group-by", "kernel")
    assert code == ExitCode.USAGE, "the two kinds of one kernel are two humps, and one host is alone"
    code, _, err = _vcagent(capsys, monkeypatch, "diagnose", fleet, "--group-by", "kernels")
    assert code == ExitCode.USAGE
    assert "did you mean kernel?" in err
    code, _, err = _vcagent(capsys, monkeypatch, "baseline", fleet, "-o", tmp_path / "b.json")
    assert code == ExitCode.USAGE
    assert "2 kinds: 1 A100; 1 H100" in err


def test_what_was_not_judged_is_not_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = _fleet_run(tmp_path / "fleet", dict.fromkeys(("h0", "h1", "h2", "h3"), 1000.0))
    assert _vcagent(capsys, monkeypatch, "diagnose", fleet)[0] == ExitCode.OK
    with (fleet / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(_record(f"h{number}", 5.0, 2, metric="other") for number in range(2))
    code, out, _ = _vcagent(capsys, monkeypatch, "diagnose", fleet)
    assert code == ExitCode.FLEET_PARTIAL
    assert out.splitlines()[-1] == "4 hosts: 4 not judged"
    assert "2 hosts to compare, at least 4 are needed" in out


def test_runs_of_this_host_are_named_by_their_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "results" / "20260101T000000Z-p-ab12"
    shutil.copytree(FINISHED, run)
    with Journal(run / JOURNAL):
        pass
    options = ["--results-dir", run.parent, "--least-hosts", 1, "-o", tmp_path / "b.json"]
    code, out, err = _vcagent(capsys, monkeypatch, "baseline", "20260101", *options)
    assert (code, err) == (ExitCode.OK, "")
    assert "metric" in out
