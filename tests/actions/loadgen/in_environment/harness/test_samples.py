"""The times of samples: what is kept, compared and written."""

from __future__ import annotations

import json
import random
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from actions.loadgen.in_environment.harness.samples import OutputWriter, SampleRecorder

if TYPE_CHECKING:
    from pathlib import Path


def recorded(*samples: tuple[int, float, float | None, float | None]) -> SampleRecorder:
    """Return a recorder of samples: index, issue, first token, end."""
    recorder = SampleRecorder()
    for slot, (index, issued, first, end) in enumerate(samples):
        recorder.issued(issued, [index])
        if first is not None:
            recorder.first_token[slot] = first
        if end is not None:
            recorder.completed(end, [slot], [slot + 4])
    return recorder


def test_times_are_written_since_the_first_issue(tmp_path: Path) -> None:
    recorder = recorded((7, 10.0, 10.25, 11.5), (3, 10.5, None, 12.0), (9, 11.0, 11.125, None))
    recorder.write(tmp_path / "samples.csv")
    assert (tmp_path / "samples.csv").read_text() == (
        "sample_id,sample_index,issued_s,first_token_s,completed_s,output_tokens\n"
        "0,7,0.000000,0.250000,1.500000,4\n"
        "1,3,0.500000,,2.000000,5\n"
        "2,9,1.000000,1.125000,,\n"
    )
    assert [recorder.index(slot) for slot in range(3)] == [7, 3, 9]


def test_a_query_of_several_samples_opens_a_slot_for_each() -> None:
    recorder = SampleRecorder()
    recorder.issued(1.0, [5, 6])
    recorder.issued(2.0, [7])
    recorder.completed(3.5, [0, 1, 2], [1, 2, 3])
    issued, waited = recorder.waits()
    assert list(issued) == [1.0, 1.0, 2.0]
    assert waited == [2.5, 2.5, 1.5]
    assert [recorder.index(slot) for slot in range(3)] == [5, 6, 7]
    with pytest.raises(ValueError, match="zip"):
        recorder.completed(4.0, [0, 1], [1])


def test_a_wait_ends_with_the_first_token_or_the_answer() -> None:
    recorder = recorded((0, 1.0, 1.5, 4.0), (1, 2.0, None, 5.0), (2, 3.0, 3.5, None))
    issued, waited = recorder.waits()
    assert (list(issued), waited) == ([1.0, 2.0], [0.5, 3.0])


def test_nine_of_ten_answers_are_complete_within_the_time_of_an_answer() -> None:
    rows = [(0, 1.0, 1.5, 1.0 + seconds) for seconds in range(20, 0, -1)]
    assert recorded(*rows, (1, 1.0, 1.5, None)).answer_s() == 19.0
    assert recorded((0, 2.0, None, 5.0)).answer_s() == 3.0
    assert recorded((0, 2.0, 2.5, None)).answer_s() == 0.0


def test_nothing_recorded_is_an_empty_table(tmp_path: Path) -> None:
    SampleRecorder().write(tmp_path / "samples.csv")
    assert (tmp_path / "samples.csv").read_text().count("\n") == 1


@pytest.mark.parametrize(
    ("new", "old", "compared"),
    [(20, 20, True), (19, 20, False), (20, 19, False)],
)
def test_waits_of_new_samples_and_of_known_ones(new: int, old: int, *, compared: bool) -> None:
    """Ask an engine that had samples 0 to 9 before the test; others are known when they come again."""
    samples: list[tuple[int, float, float | None, float | None]] = []
    samples += [(10 + number, 1.0, 1.75, 9.0) for number in range(new)]
    samples += [(number % 20, 2.0, None, 2.25) for number in range(min(old, 10))]
    samples += [(10 + number, 3.0, 3.25, 9.0) for number in range(old - min(old, 10))]
    samples += [(99, 4.0, 4.5, None)]  # unanswered
    found = recorded(*samples).repeats(seen=10)
    expected = {"first_s": 0.75, "again_s": 0.25, "first": new, "again": old}
    assert found == (expected if compared else None)


def test_each_new_sample_is_compared_with_the_three_repeated_before_and_after_it() -> None:
    draw = random.Random(7)  # noqa: S311 - a draw, not a secret
    samples = [(draw.randrange(30), float(slot), None, slot + draw.random()) for slot in range(60)]
    known: set[int] = set()
    waits: tuple[list[tuple[int, float]], list[tuple[int, float]]] = [], []
    for slot, (index, issued, _, end) in enumerate(samples):
        waits[index in known].append((slot, end - issued))
        known.add(index)
    new, repeated = waits
    near = [
        wait
        for at, _ in new
        for wait in (
            *[wait for slot, wait in repeated if slot < at][-3:],
            *[wait for slot, wait in repeated if slot > at][:3],
        )
    ]
    assert recorded(*samples).repeats(seen=0) == {
        "first_s": median(wait for _, wait in new),
        "again_s": median(near),
        "first": len(new),
        "again": len(repeated),
    }


def test_an_engine_that_starts_slowly_has_no_cache() -> None:
    """Draw of 32 samples at random, while waits fall from 1 s to 0.1 s for all alike."""
    draw = random.Random(1)  # noqa: S311 - a draw, not a secret
    samples: list[tuple[int, float, float | None, float | None]] = []
    for slot in range(500):
        wait_s = 0.1 + 0.9 * 0.97**slot
        samples.append((draw.randrange(32), float(slot), slot + wait_s, slot + 2.0))
    found = recorded(*samples).repeats(seen=0)
    assert found is not None
    assert found["first_s"] < 1.5 * found["again_s"]


def test_answers_are_written_as_text(tmp_path: Path) -> None:
    samples = cast("Any", [SimpleNamespace(id="q0"), SimpleNamespace(id="q1")])
    writer = OutputWriter(tmp_path / "outputs.jsonl", samples, lambda data: data.decode() + "!")
    writer.write(1, "größer".encode())
    writer.write(0, b"2")
    writer.close()
    text = (tmp_path / "outputs.jsonl").read_text(encoding="utf-8")
    assert "größer!" in text
    assert [json.loads(line) for line in text.splitlines()] == [
        {"sample_index": 1, "id": "q1", "text": "größer!"},
        {"sample_index": 0, "id": "q0", "text": "2!"},
    ]
