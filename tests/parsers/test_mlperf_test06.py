"""TEST06's checks, on logs as LoadGen writes them."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ParseError
from parsers.mlperf_test06 import Verification, verify_test06

if TYPE_CHECKING:
    from pathlib import Path

EOS = (0, 2)
ANSWER = [7, 8, 2]


def row(data: list[int], first: list[int] | None = None, count: int | None = None) -> dict[str, Any]:
    """Return an entry of mlperf_log_accuracy.json."""
    token_data = array("i", data[:1] if first is None else first).tobytes().hex()
    return {
        "seq_id": 0,
        "qsl_idx": 3,
        "data": array("i", data).tobytes().hex().upper(),
        "token_data": token_data,
        "token_count": len(data) if count is None else count,
    }


def verified(tmp_path: Path, *rows: dict[str, Any], first_tokens: bool = True) -> Verification:
    path = tmp_path / "mlperf_log_accuracy.json"
    path.write_text(json.dumps(rows))
    return verify_test06(path, EOS, first_tokens=first_tokens)


def test_good_answers_pass(tmp_path: Path) -> None:
    found = verified(tmp_path, row(ANSWER), row([7]), row([7, 8], first=[7, 8]))
    assert found == Verification(3, first_token=True, eos=True, sample_length=True)
    assert found.text() == (
        "First token check pass: True\nEOS check pass: True\nSample length check pass: True\n"
        "TEST06 verification complete\n"
    )


def test_offline_has_no_first_tokens(tmp_path: Path) -> None:
    entry = {name: value for name, value in row(ANSWER).items() if name != "token_data"}
    found = verified(tmp_path, entry, first_tokens=False)
    assert found.has_passed
    assert found.text().startswith("First token check pass: Skipped\n")


@pytest.mark.parametrize(
    ("entry", "failed"),
    [
        (row(ANSWER, first=[8]), "First token"),
        (row(ANSWER, first=[]), "First token"),
        (row(ANSWER, first=[7, 8, 2, 2]), "First token"),
        (row([7, 2, 2]), "EOS"),
        (row([7, 2, 0]), "EOS"),
        (row(ANSWER, count=4), "Sample length"),
    ],
)
def test_each_check_fails_alone(tmp_path: Path, entry: dict[str, Any], failed: str) -> None:
    found = verified(tmp_path, row(ANSWER), entry)
    assert not found.has_passed
    text = found.text()
    assert [line.split(" check")[0] for line in text.splitlines() if line.endswith("False")] == [failed]
    assert text.endswith("TEST06 verification failed\n")


def test_an_end_of_text_within_an_answer_is_no_end(tmp_path: Path) -> None:
    assert verified(tmp_path, row([2, 2, 7])).has_passed


def test_a_log_without_answers_fails(tmp_path: Path) -> None:
    assert not verified(tmp_path).has_passed


def test_few_tokens_may_be_unknown(tmp_path: Path) -> None:
    assert verified(tmp_path, row([7] * 19), row([-1])).has_passed
    with pytest.raises(ParseError, match="did not send the ids of 3 of 20 tokens"):
        verified(tmp_path, row([7] * 17), row([-1] * 3))


def test_64_bit_tokens(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    data = array("q", ANSWER).tobytes().hex()
    path.write_text(json.dumps([{"data": data, "token_data": data[:16], "token_count": 3}]))
    assert verify_test06(path, EOS, first_tokens=True, dtype="int64").has_passed
    assert not verify_test06(path, EOS, first_tokens=True).has_passed


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "3",
        '[{"data": "0A"}]',
        '[{"data": "zz", "token_data": "", "token_count": 1}]',
        '[{"data": "07000000", "token_count": 1}]',
    ],
)
def test_other_logs_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(ParseError, match="no answers in token ids"):
        verify_test06(path, EOS, first_tokens=True)
    with pytest.raises(ParseError, match="FileNotFoundError"):
        verify_test06(tmp_path / "nothing", EOS, first_tokens=True)
