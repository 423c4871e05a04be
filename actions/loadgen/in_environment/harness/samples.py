"""Record the times of every sample and, in accuracy runs, its text."""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect
from itertools import repeat
from statistics import median
from typing import TYPE_CHECKING

from .outputs import new_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .dataset import Sample

_ENOUGH = 20
"""Minimum number of samples of each kind for comparing their medians."""
_NEIGHBOURS = 3
"""Number of repeated samples before a new one, and of those after it, that it is compared with."""
_HEADER = "sample_id,sample_index,issued_s,first_token_s,completed_s,output_tokens\n"


class SampleRecorder:
    """Times in flat arrays (32 bytes per sample), written as ``samples.csv`` after the run.

    A sample's slot is its position in the order of issue.
    """

    def __init__(self) -> None:
        self._indices = array("L")
        self._issued = array("d")
        self.first_token = array("d")
        self._completed = array("d")
        self._tokens = array("L")

    def issued(self, now: float, indices: Sequence[int]) -> None:
        """Open slots for the samples of a query issued at ``now`` (``perf_counter``)."""
        count = len(indices)
        self._indices.extend(indices)
        for times, value in ((self._issued, now), (self.first_token, math.nan), (self._completed, math.nan)):
            times.extend(repeat(value, count))
        self._tokens.extend(repeat(0, count))

    def completed(self, now: float, slots: Sequence[int], token_counts: Sequence[int]) -> None:
        """Close the slots of samples answered at ``now``."""
        for slot, tokens in zip(slots, token_counts, strict=True):
            self._completed[slot] = now
            self._tokens[slot] = tokens

    def waits(self) -> tuple[array[float], list[float]]:
        """Return issue times of answered samples, and their waits for the first token or the answer."""
        answered = [slot for slot, end in enumerate(self._completed) if not math.isnan(end)]
        return array("d", (self._issued[slot] for slot in answered)), list(map(self._wait, answered))

    def answer_s(self) -> float:
        """Return the time within which nine of ten answers were complete, in seconds; 0 if there is none."""
        took = sorted(
            end - start
            for start, end in zip(self._issued, self._completed, strict=True)
            if not math.isnan(end)
        )
        return took[len(took) * 9 // 10] if took else 0.0

    def repeats(self, seen: int) -> dict[str, float] | None:
        """Return the median waits of samples that are new to the engine, and of those that it had before.

        Each new sample is compared with the repeated ones issued nearest to it. New samples come early in
        a test, when an engine may be slow for other causes.

        Args:
            seen: number of samples, from the start of the data set, that the engine had before the test.

        Returns:
            ``first_s``, ``again_s``, and the number of samples of each; None if either number is too small.
        """
        known = set(range(seen))
        slots: tuple[list[int], list[int]] = [], []
        for slot, (index, end) in enumerate(zip(self._indices, self._completed, strict=True)):
            if not math.isnan(end):
                slots[index in known].append(slot)
                known.add(index)
        new, repeated = slots
        if min(len(new), len(repeated)) < _ENOUGH:
            return None
        near: list[int] = []
        for slot in new:
            at = bisect(repeated, slot)
            near += repeated[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS]
        return {
            "first_s": median(map(self._wait, new)),
            "again_s": median(map(self._wait, near)),
            "first": len(new),
            "again": len(repeated),
        }

    def _wait(self, slot: int) -> float:
        """Return the wait for the first token, or for the answer if it came whole, in seconds."""
        first = self.first_token[slot]
        return (self._completed[slot] if math.isnan(first) else first) - self._issued[slot]

    def index(self, slot: int) -> int:
        """Return the data set's index of the sample in this slot."""
        return self._indices[slot]

    def write(self, path: Path) -> None:
        """Write all slots, in the order of issue, in seconds since the first issue."""
        start = self._issued[0] if self._issued else 0.0
        rows = zip(self._indices, self._issued, self.first_token, self._completed, self._tokens, strict=True)
        with new_file(path, "ascii") as file:
            file.write(_HEADER)
            for slot, (index, issued, first, completed, tokens) in enumerate(rows):
                file.write(
                    f"{slot},{index},{issued - start:.6f},{_since(start, first)},"
                    f"{_since(start, completed)},{tokens or ''}\n"
                )


def _since(start: float, time: float) -> str:
    return "" if math.isnan(time) else f"{time - start:.6f}"


class OutputWriter:
    """Writes answers as ``outputs.jsonl``, decoded, so that scoring needs no tokenizer."""

    def __init__(self, path: Path, samples: Sequence[Sample], decode: Callable[[bytes], str]) -> None:
        self._file = new_file(path)
        self._samples = samples
        self._decode = decode

    def write(self, index: int, data: bytes) -> None:
        """Write the answer of the sample with this index in the data set."""
        row = {"sample_index": index, "id": self._samples[index].id, "text": self._decode(data)}
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Write buffered data and close the file."""
        self._file.close()
