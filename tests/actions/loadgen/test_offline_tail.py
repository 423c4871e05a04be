"""The end of an Offline test, with the engine no longer full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actions.loadgen.offline_tail import tail_metrics, tail_share

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "sample_id,sample_index,issued_s,first_token_s,completed_s,output_tokens\n"


@pytest.mark.parametrize(
    ("completed_s", "at_once", "share"),
    [
        # Ten answers, one a second, two at once: from the eighth answer on fewer than two more begin.
        (list(range(1, 11)), 2, 0.2),
        (list(range(10, 0, -1)), 2, 0.2),
        (list(range(1, 101)), 2, 0.02),
        (list(range(1, 11)), 10, 1.0),
        (list(range(1, 11)), 99, 1.0),
        ([0.0], 1, 1.0),
    ],
)
def test_a_longer_test_has_a_smaller_tail(completed_s: list[float], at_once: int, share: float) -> None:
    assert tail_share(completed_s, at_once) == pytest.approx(share)


def test_all_engines_count(tmp_path: Path) -> None:
    rows = "".join(f"{place},0,0.000000,,{place + 1}.5,4\n" for place in range(10))
    (tmp_path / "samples.csv").write_text(HEADER + rows + "10,0,0.000000,,,\n")
    result = {"engine": {"max_num_seqs": 2, "data_parallel_size": 2}}
    (metric,) = tail_metrics(result, tmp_path)
    assert (metric.name, metric.unit) == ("tail_share", "ratio")
    assert metric.value == pytest.approx(1 - 6.5 / 10.5)
    assert "fewer than 4 answers" in metric.description


def test_without_the_engine_s_size_or_the_times_there_is_none(tmp_path: Path) -> None:
    assert list(tail_metrics({"engine": {"max_num_seqs": 2}}, tmp_path)) == []
    (tmp_path / "samples.csv").write_text(f"{HEADER}0,0,0.0,,1.0,4\n")
    assert list(tail_metrics({}, tmp_path)) == []
    (tmp_path / "samples.csv").write_text("nothing\n")
    assert list(tail_metrics({"engine": {"max_num_seqs": 2}}, tmp_path)) == []
