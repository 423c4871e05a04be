"""Limits that were not requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parsers.loadgen import parse_folder

if TYPE_CHECKING:
    from tests.parsers.loadgen.conftest import Edit

DEFAULT_NS = 100_000_000


@pytest.mark.parametrize(
    ("ttft_ns", "tpot_ns", "asked", "words"),
    [
        (2_000_000_000, DEFAULT_NS, {"ttft_latency": 2000}, "TPOT limit of 100 ms"),
        (DEFAULT_NS, 200_000_000, {"tpot_latency": 200}, "TTFT limit of 100 ms"),
        (DEFAULT_NS, DEFAULT_NS, {"target_qps": 300}, "TTFT and TPOT limit of 100 ms"),
        (DEFAULT_NS, DEFAULT_NS, {"ttft_latency": 100}, "TPOT limit of 100 ms"),
        (DEFAULT_NS, DEFAULT_NS, {"ttft_latency": 100, "tpot_latency": 100}, None),
        (2_000_000_000, DEFAULT_NS, {"ttft_latency": 2000, "tpot_latency": 100}, None),
        (2_000_000_000, DEFAULT_NS, {}, None),  # llama3_1-8b's own
    ],
)
def test_loadgens_default_counts_only_where_it_was_asked_for(
    edit: Edit, ttft_ns: int, tpot_ns: int, asked: dict[str, float], words: str | None
) -> None:
    folder = edit(
        "server_v6_0_valid",
        requested_server_ttft_latency=ttft_ns,
        requested_server_tpot_latency=tpot_ns,
    )

    verdict = parse_folder(folder, asked).verdict

    assert verdict is not None
    found = [reason.message for reason in verdict.reasons if reason.code == "limits_default"]
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
