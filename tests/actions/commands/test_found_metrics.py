"""Rules for metrics: their results on texts of real tools, and their failures."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.commands import found_metrics
from actions.commands.execute_command import ExecuteCommandParameters
from actions.commands.found_metrics import read_outputs
from actions.commands.json_paths import find, parse_json_path
from actions.commands.metric_rules import MetricRule
from agent.core.errors import ParseError
from agent.core.records import Metric, Relativity

if TYPE_CHECKING:
    from pathlib import Path

GPU_BURN = """\
50.0%  proc'd: 200 (25000 Gflop/s) - 190 (26000 Gflop/s)   errors: 3  (WARNING!) - 0   temps: 80 C - 74 C
\r100.0%  proc'd: 405 (26255 Gflop/s) - 405 (26545 Gflop/s)   errors: 0 - 2  (WARNING!)  temps: 87 C - 74 C
"""
NCCL = """\
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw
  1073741824     268435456     float     sum      -1    13867   77.43  135.50      0    13877   77.38  135.41
  2147483648     536870912     float     sum      -1    25000   85.90  150.30      0    25001   85.89  150.31
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 142.88
"""
NVBANDWIDTH = {
    "nvbandwidth": {
        "testcases": [
            {
                "name": "host_to_device_memcpy_ce",
                "status": "Passed",
                "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                "bandwidth_matrix": [["53.4", "53.5"]],
                "sum": 106.9,
            },
            {"name": "device_to_device_memcpy_read_ce", "status": "Waived"},
        ]
    }
}
"""In the format of json_output.cpp (NVIDIA/nvbandwidth); the texts above are from gpu-burn and nccl-tests."""


def found(folder: Path, *rules: dict[str, Any], stdout: str = "", stderr: str = "") -> dict[str, Metric]:
    (folder / "stdout.txt").write_text(stdout)
    (folder / "stderr.txt").write_text(stderr)
    checked = [MetricRule.model_validate(rule) for rule in rules]
    (output,) = read_outputs(checked, folder, tool="tool", since_s=0)
    return {metric.name: metric for metric in output.metrics}


def values(metrics: dict[str, Metric]) -> dict[str, float]:
    return {name: metric.value for name, metric in metrics.items()}


def rules_of(example: str) -> list[dict[str, Any]]:
    """Return the rules of an example's command."""
    from agent.profile import find as find_profile
    from agent.profile import load_sources

    profile = load_sources([find_profile(f"examples/{example}")])
    (command,) = [
        element for action in profile.actions for element in action.walk() if element.type == "ExecuteCommand"
    ]
    rules: list[dict[str, Any]] = command.parameters["metrics"]
    return rules


def test_a_regular_expression_names_what_it_finds(tmp_path: Path) -> None:
    rule = {
        "regex": r"(?P<name>[A-Za-z ]+): (?P<value>[\d.,]+) (?P<unit>\S+)",
        "relativity": "LowerIsBetter",
        "tags": "a,<name>",
        "description": "the <name>",
    }
    metrics = found(tmp_path, rule, stdout="Total time: 1,234.5 ms\n", stderr="Idle time: 2 s\n")
    assert values(metrics) == {"Total_time": 1234.5, "Idle_time": 2.0}
    total = metrics["Total_time"]
    assert (total.unit, total.relativity, total.tags) == ("ms", Relativity.LOWER, ("a", "Total time"))
    assert total.description == "the Total time"


def test_gpu_burn_s_line_has_a_number_for_each_gpu(tmp_path: Path) -> None:
    assert values(found(tmp_path, *rules_of("GPU-BURN"), stdout=GPU_BURN)) == {
        "gpu0_operations_per_second": 26255e9,
        "gpu1_operations_per_second": 26545e9,
        "gpu0_errors": 3,
        "gpu1_errors": 2,
    }


def test_nccl_tests_have_a_number_for_each_size(tmp_path: Path) -> None:
    metrics = found(tmp_path, *rules_of("NCCL-TESTS"), stdout=NCCL)
    assert values(metrics) == {
        "average_bus_bandwidth": pytest.approx(142.88e9),
        "bus_bandwidth_1073741824_bytes": pytest.approx(135.5e9),
        "bus_bandwidth_2147483648_bytes": pytest.approx(150.3e9),
        "wrong_values": 0,
    }
    assert metrics["average_bus_bandwidth"].metadata == {"tool_value": 142.88, "tool_unit": "GB/s"}


def test_nvbandwidth_leaves_out_what_was_waived(tmp_path: Path) -> None:
    metrics = found(tmp_path, *rules_of("NVBANDWIDTH"), stdout=json.dumps(NVBANDWIDTH))
    assert values(metrics) == {"host_to_device_memcpy_ce_bandwidth": pytest.approx(106.9e9)}
    assert "CPU(row)" in metrics["host_to_device_memcpy_ce_bandwidth"].description


def test_vllm_s_benchmark_is_read_from_its_file(tmp_path: Path) -> None:
    result = {"request_throughput": 12.5, "output_throughput": 1600, "p99_ttft_ms": 80, "p99_tpot_ms": 9}
    (tmp_path / "vllm-bench.json").write_text(json.dumps(result))
    assert values(found(tmp_path, *rules_of("VLLM-BENCH-SERVE"))) == {
        "requests_per_second": 12.5,
        "output_tokens_per_second": 1600,
        "ttft_p99": pytest.approx(0.08),
        "tpot_p99": pytest.approx(0.009),
    }


@pytest.mark.parametrize(
    ("take", "value"),
    [("last", 1), ("first", 4), ("minimum", 1), ("maximum", 7), ("mean", 4), ("median", 4), ("sum", 12)],
)
def test_of_several_numbers_one_is_taken(tmp_path: Path, take: str, value: float) -> None:
    rule = {"regex": r"speed (?P<value>\d+)", "name": "speed", "unit": "tokens/s", "take": take}
    assert values(found(tmp_path, rule, stdout="speed 4\nspeed 7\nspeed 1\n")) == {"speed": value}


def test_columns_of_a_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("test, seconds\nread, 1.5\nwrite, 2.5\nread, 3.5\nseek,\n")
    rule = {"column": "seconds", "file": "*.csv", "name": "<test>", "unit": "seconds"}
    assert values(found(tmp_path, rule)) == {"read": 3.5, "write": 2.5}
    assert values(found(tmp_path, {**rule, "where": {"test": "write"}})) == {"write": 2.5}
    (tmp_path / "b.tsv").write_text("read;1.5\n")
    bare = {**rule, "file": "b.tsv", "header": "test,seconds", "delimiter": ";"}
    assert values(found(tmp_path, bare)) == {"read": 1.5}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.b[1]", [2]),
        ("$.a.b[*]", [1, 2]),
        ("a['x.y'].z", [3]),
        ("a.*.z", [3]),
        ("a.b[-1]", [2]),
        ("a.b.0", [1]),
        ("a.b[7]", []),
        ("a.none.b", []),
        ("*.b[0]", [1]),
    ],
)
def test_paths_into_json(path: str, expected: list[int]) -> None:
    document = {"a": {"b": [1, 2], "x.y": {"z": 3}}}
    assert [one.value for one in find(document, parse_json_path(path))] == expected


@pytest.mark.parametrize("path", ["", "$", "a..b", "a[", "a[x]", "a.", ".", "a b]"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="path into JSON"):
        parse_json_path(path)


def test_json_may_stand_behind_other_lines_or_one_a_line(tmp_path: Path) -> None:
    rule = {"json_path": "v", "name": "v", "unit": "count"}
    assert values(found(tmp_path, rule, stdout='starting up\n{\n "v": 5\n}\ndone\n')) == {"v": 5}
    assert values(found(tmp_path, {**rule, "take": "sum"}, stdout='{"v": 1}\n{"v": 2}\n')) == {"v": 3}


@pytest.mark.parametrize(
    ("rule", "stdout", "message"),
    [
        ({"regex": r"x (?P<value>\d+)", "name": "x", "unit": "s"}, "y 1\n", "matches nothing in stdout.txt"),
        ({"regex": r"x (?P<value>\S+)", "name": "x", "unit": "s"}, "x fast\n", "'fast' in stdout.txt"),
        ({"regex": r"x (?P<value>\S+)", "name": "x", "unit": "s"}, "x nan\n", "is not a number"),
        ({"json_path": "a", "name": "a", "unit": "s"}, "no braces", "holds no JSON"),
        ({"json_path": "a", "name": "a", "unit": "s"}, "{}", "json 'a' matches nothing"),
        ({"json_path": "a", "name": "a", "unit": "s"}, '{"a": true}', "'True' in stdout.txt is not a number"),
        ({"json_path": "a", "name": "<b>", "unit": "s"}, '{"a": 1}', "<b> is unknown"),
        ({"column": "a", "name": "a", "unit": "s"}, "b\n1\n", "has no column 'a'"),
        ({"json_path": "a", "name": "a", "unit": "s", "file": "x.json"}, "", "no file of the case"),
        ({"json_path": "a", "name": "a", "unit": "s"}, "[" * 100_000, "nested too deeply|holds no JSON"),
    ],
)  # fmt: skip
def test_what_is_not_found_is_an_error(
    tmp_path: Path, rule: dict[str, Any], stdout: str, message: str
) -> None:
    with pytest.raises(ParseError, match=message):
        found(tmp_path, rule, stdout=stdout)


def test_a_file_of_before_the_command_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('{"v": 1}')
    rule = MetricRule.model_validate({"json_path": "v", "name": "v", "unit": "s", "file": "old.json"})
    with pytest.raises(ParseError, match="is older than the command"):
        read_outputs([rule], tmp_path, tool="t", since_s=time.time() + 60)


def test_an_expression_that_takes_for_ever_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_metrics, "_MATCHING_S", 0.2)
    rule = {"regex": r"(?P<value>(1|11)+)$", "name": "x", "unit": "s"}
    with pytest.raises(ParseError, match=r"took longer than 0.2 s for one line"):
        found(tmp_path, rule, stdout="1" * 64 + "!\n")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metrics": [{"regex": "("}]}, "not a regular expression"),
        ({"metrics": [{"regex": "a"}]}, "no group"),
        ({"metrics": [{"regex": "(?P<value>1)", "unit": "s"}]}, "and the rule no name"),
        ({"metrics": [{"regex": "(?P<value>1)", "unit": "s", "name": "<b>"}]}, "<b> is not a group"),
        ({"metrics": [{"json_path": "a", "unit": "s"}]}, "needs a name"),
        ({"metrics": [{"json_path": "a", "name": "a"}]}, "needs the unit"),
        ({"metrics": [{"name": "a", "unit": "s"}]}, "a rule has one of parser, regex, json_path, column"),
        ({"metrics": [{"json_path": "a", "column": "b", "name": "a", "unit": "s"}]}, "not 2"),
        ({"metrics": [{"json_path": "a", "name": "a", "unit": "s", "take": "lst"}]}, "did you mean last"),
        ({"metrics": [{"json_path": "a", "name": "a", "unit": "s", "file": "/etc/x"}]}, "outputs copies"),
        ({"metrics": [{"json_path": "a", "name": "a", "unit": "s", "scale": 0}]}, "other than 0"),
        ({"metrics": [{"jsonpth": "a"}]}, "jsonpth"),
        ({"metrics": "loadgn"}, "did you mean loadgen"),
        ({"metrics": [{"parser": "loadgen", "unit": "s"}]}, "leave unit out"),
        ({"metrics": "loadgen", "expect": "a > b"}, "is not an expectation"),
        ({"expect": "a > 1"}, "expect needs metrics"),
        ({"repeats": 2}, "repeats needs metrics"),
        ({"metrics": [{"json_path": "a", "name": "speed", "unit": "s"}], "expect": "sped > 1"}, "mean speed"),
        ({"metrics": [{"json_path": "a", "name": "a", "unit": "s"}] * 2}, "two rules give a metric named a"),
        ({"container": {"gpus": "all"}}, "needs an image"),
    ],
)  # fmt: skip
def test_rules_are_checked_when_the_profile_is_read(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ExecuteCommandParameters.model_validate({"command": "true", **parameters})
