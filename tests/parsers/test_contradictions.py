"""Outputs of nvidia-smi and lm-eval with values of another run, another unit, or a lost digit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from agent.core.records import Validity

HERE = Path(__file__).parent
QUERY, TABLE = "nvidia_smi/outputs/query.csv", "nvidia_smi/outputs/table.txt"
XML, DMON = "nvidia_smi/outputs/xml-535-loop.xml", "nvidia_smi/outputs/dmon.txt"
RESULTS, SCORES = "lm_eval/v0_4_13_vllm.json", "lm_eval/tables/two-filters.txt"


def changed(file: str, pattern: str, replacement: str, folder: Path) -> Path:
    text, count = re.subn(pattern, replacement, (HERE / file).read_text(), count=1)
    assert count == 1
    path = folder / Path(file).name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "code"),
    [
        (QUERY, ", 103 MiB", ", 99999 MiB", "above_total"),
        (QUERY, ", 103 MiB", ", 103 GiB", "above_total"),
        (QUERY, "W, 26", "W, 2600", "beyond_any"),
        (QUERY, r"70\.89 W", "70890 W", "beyond_any"),
        (QUERY, "17 %", "170 %", "above_100"),
        (QUERY, r"70\.89 W", "-70.89 W", "below_0"),
        (XML, "<used>50 MiB", "<used>950000 MiB", "above_total"),
        (TABLE, r"\d+W /", "99999W /", "beyond_any"),
        (TABLE, r"\d+MiB /", "9999999MiB /", "above_total"),
        (DMON, "98     40", "98     400", "above_100"),
    ],
)
def test_a_reading_that_no_gpu_has_is_ignored_and_reported(
    tmp_path: Path, file: str, pattern: str, replacement: str, code: str
) -> None:
    whole = {(metric.name, metric.value) for output in parse_path(HERE / file) for metric in output.metrics}
    (output,) = parse_path(changed(file, pattern, replacement, tmp_path))
    assert output.verdict is not None
    assert (output.verdict.validity, output.verdict.reasons[0].code) == (Validity.INVALID, code)
    if file in {QUERY, TABLE}:  # the others have further readings of the same GPU
        assert {(metric.name, metric.value) for metric in output.metrics} < whole


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "told"),
    [
        (QUERY, r"(?m)^1, ", "0, ", "GPU 0 is two GPUs: GPU-a and GPU-b"),
        (QUERY, r"70\.89 W", "70890 mW", "is not in W"),
        (DMON, "    MB\n", "    KB\n", "not in MB"),
        (RESULTS, '"acc,none": 1.0', '"acc,none": 100.0', "acc is 100, which is above 1"),
        (RESULTS, '"acc,none": 1.0', '"acc,none": -0.5', "acc is -0.5, which is below 0"),
        (RESULTS, '"acc_stderr,none": 0.0', '"acc_stderr,none": 5.1', "the standard error of acc is 5.1"),
        (RESULTS, r'"acc,none": 0\.33+', '"acc,none": 0.9', "is 0.9 among the results"),
        (RESULTS, '"acc,none": 1.0', '"acc,none": 0.1', "its tasks have 0 to 0.1"),
        (SCORES, r"0\.0134", "1.34", "the standard error of exact_match is 1.34"),
        (SCORES, r"0\.3813", "0,3813", "decimal comma"),
    ],
)
def test_a_value_that_cannot_be_one_is_refused(
    tmp_path: Path, file: str, pattern: str, replacement: str, told: str
) -> None:
    with pytest.raises(ParseError) as refusal:
        parse_path(changed(file, pattern, replacement, tmp_path))
    assert told in str(refusal.value)
