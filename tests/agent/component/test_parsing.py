"""``vcagent parse``: it detects the format, and the exit code shows the verdict."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agent.cli.parse import parse
from agent.component.parsing import parse_path, parsers
from agent.core.errors import ExitCode, ParseError, UsageError
from agent.core.records import Validity

LOGS = Path(__file__).parents[2] / "parsers" / "loadgen" / "logs"
SMI = "index, name, power.draw [W]\n0, NVIDIA L4, 20.5 W\n"

app = typer.Typer()
app.command()(parse)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_formats_are_those_that_are_registered() -> None:
    assert {"loadgen", "mlperf_metadata", "nvidia_smi"} <= set(parsers())


def test_a_tree_of_several_formats_gives_them_all(tmp_path: Path) -> None:
    shutil.copytree(LOGS / "offline_v6_0_valid", tmp_path / "offline")
    (tmp_path / "smi.csv").write_text(SMI)
    assert [output.format for output in parse_path(tmp_path)] == ["loadgen", "nvidia_smi"]


@pytest.mark.parametrize("name", ["nvidia_smi", "nvidia-smi", "NvidiaSmi"])
def test_a_format_may_be_named_in_any_spelling(tmp_path: Path, name: str) -> None:
    (tmp_path / "output").write_text(SMI)
    assert [output.format for output in parse_path(tmp_path / "output", name)] == ["nvidia_smi"]


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean loadgen"):
        parse_path(tmp_path, "loadgn")


def test_what_is_not_there_or_not_recognised_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        parse_path(tmp_path / "nothing")
    with pytest.raises(ParseError, match="looked for loadgen: MLPerf LoadGen"):
        parse_path(tmp_path)


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("offline_v6_0_valid", ExitCode.OK),
        ("offline_v6_0_min_duration", ExitCode.RESULT_INVALID),
        ("accuracy_v6_0", ExitCode.OK),
    ],
)
def test_the_exit_code_is_the_verdict(case: str, code: ExitCode) -> None:
    assert run(LOGS / case)[0] == code


def test_a_cut_log_ends_with_failed(tmp_path: Path) -> None:
    text = (LOGS / "offline_v6_0_valid" / "mlperf_log_detail.txt").read_text()
    (tmp_path / "mlperf_log_detail.txt").write_text(text[:-300])
    code, shown = run(tmp_path)
    assert code == ExitCode.ACTION_FAILED
    assert "incomplete" in shown


def test_people_see_verdict_reason_remedy_and_headlines_in_this_order() -> None:
    _, shown = run(LOGS / "offline_v6_0_min_duration")
    places = [
        shown.index(part)
        for part in (
            "INVALID",
            "minimum duration missed",
            "set target_qps to at least 469",
            "samples_per_second",
        )
    ]
    assert places == sorted(places)
    assert "latency_p50" not in shown
    assert "latency_p50" in run(LOGS / "offline_v6_0_min_duration", "--all")[1]


def test_programs_get_json() -> None:
    code, shown = run(LOGS / "offline_v6_0_min_duration", "--json")
    (output,) = json.loads(shown)["outputs"]
    assert code == ExitCode.RESULT_INVALID
    assert output["verdict"]["validity"] == "INVALID"
    assert output["verdict"]["reasons"][0]["setting"] == "target_qps"
    values = {metric["name"]: metric["value"] for metric in output["metrics"]}
    assert values["samples_per_second"] == 468.556


BENCH = [
    {"build_commit": "a", "build_number": 1, "model_filename": "m", "n_prompt": 16, "n_gen": 0, "avg_ts": 5.5,
     "stddev_ts": 0.1, "flash_attn": flash_attn}
    for flash_attn in (0, 1)
]  # fmt: skip


def test_cases_are_told_apart_for_people_and_programs(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(BENCH, indent=2))
    _, shown = run(tmp_path / "bench.json", "--all")
    assert "pp16/flash_attn=0" in shown
    assert "pp16/flash_attn=1" in shown
    (output,) = json.loads(run(tmp_path / "bench.json", "--json")[1])["outputs"]
    cases = [(metric["scenario"], metric["name"]) for metric in output["metrics"]]
    assert len(set(cases)) == len(cases) == 4
    (tmp_path / "smi.csv").write_text(
        "timestamp, index, power.draw [W]\n2026/01/02 03:04:05.500, 0, 70 W\n" * 2
    )
    assert "reading-2" in run(tmp_path / "smi.csv")[1]


def test_a_parser_that_fails_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(SMI)
    (tmp_path / "results_1.json").write_text('{"results": {"t": {"alias": "t", "acc,none": 0.')
    outputs = {output.format: output for output in parse_path(tmp_path)}
    assert outputs["nvidia_smi"].metrics
    assert outputs["lm_eval"].validity is Validity.FAILED
    assert run(tmp_path)[0] == ExitCode.ACTION_FAILED


def test_output_that_was_cut_is_called_incomplete(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(SMI + "1, NVIDIA L4, 10")
    code, shown = run(tmp_path / "smi.csv")
    assert code == ExitCode.ACTION_FAILED
    assert "incomplete" in shown


def test_what_is_neither_file_nor_folder_is_a_usage_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        parse_path(tmp_path / "pipe")
    (tmp_path / "smi.csv").write_text(SMI)
    assert len(parse_path(tmp_path)) == 1  # the pipe in the folder is not opened
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(UsageError, match="cannot be read"):
            parse_path(Path(name))
