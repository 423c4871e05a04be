"""Pass answers from the backend to LoadGen immediately, and record them.

LoadGen copies an answer's bytes before its call returns, so a buffer only needs to live during the call.
"""

from __future__ import annotations

from array import array
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .backends.base import Completion, FirstToken
    from .samples import OutputWriter, SampleRecorder


class LoadGenSink:
    """The sink of the timed part.

    Args:
        lg: the module ``mlperf_loadgen``.
        recorder: records times; may be None.
        outputs: writes answers as text; may be None; needs a recorder.
        first_tokens: True if LoadGen takes first tokens.
        tokens: True if LoadGen counts tokens; an answer without any would then spoil the result.
        on_failure: called once, with the first failure.

    Attributes:
        issued: samples taken from LoadGen.
        completed: samples answered.
        output_tokens: output tokens of these answers.
        last_progress: time of the last issue or report (``perf_counter``).
    """

    def __init__(
        self,
        lg: Any,
        *,
        recorder: SampleRecorder | None,
        outputs: OutputWriter | None,
        first_tokens: bool,
        tokens: bool,
        on_failure: Callable[[HarnessError], None],
    ) -> None:
        self._response = lg.QuerySampleResponse
        self._report_first = lg.FirstTokenComplete
        self._report_complete = lg.QuerySamplesComplete
        self._recorder = recorder
        self._outputs = outputs
        self._first_tokens = first_tokens
        self._tokens = tokens
        self._on_failure = on_failure
        self._failed = False
        self._in_flight: dict[int, int] = {}
        self.issued = 0
        self.completed = 0
        self.output_tokens = 0
        self.last_progress = perf_counter()

    @property
    def outstanding(self) -> int:
        """Number of samples issued but not answered."""
        return len(self._in_flight)

    def issue(self, now: float, ids: Sequence[int], indices: Sequence[int]) -> None:
        """Record the samples of a query that LoadGen issued at ``now`` (``perf_counter``)."""
        self._in_flight.update(zip(ids, range(self.issued, self.issued + len(ids)), strict=True))
        self.issued += len(ids)
        self.last_progress = now
        if self._recorder is not None:
            self._recorder.issued(now, indices)

    def first_token(self, sample_id: int, token: bytes) -> None:
        """Report a sample's first token."""
        now = self.last_progress = perf_counter()
        if self._first_tokens:
            buffer = array("B", token)
            address, size = buffer.buffer_info()
            self._report_first([self._response(sample_id, address, size)])
        if self._recorder is not None:
            self._recorder.first_token[self._in_flight[sample_id]] = now

    def first_token_many(self, tokens: Sequence[FirstToken]) -> None:
        """Report several samples' first tokens, which appeared at the same time."""
        now = self.last_progress = perf_counter()
        if self._first_tokens:
            response, responses, buffers = self._response, [], _Buffers()
            for sample_id, token in tokens:
                address, size = buffers.hold(token)
                responses.append(response(sample_id, address, size))
            self._report_first(responses)
        if self._recorder is not None:
            first_token, in_flight = self._recorder.first_token, self._in_flight
            for sample_id, _ in tokens:
                first_token[in_flight[sample_id]] = now

    def complete(self, sample_id: int, data: bytes, token_count: int) -> None:
        """Report a sample's answer."""
        self.complete_many([(sample_id, data, token_count)])

    def complete_many(self, completions: Sequence[Completion]) -> None:
        """Report several samples' answers, which were completed at the same time."""
        if self._failed:
            return
        now = self.last_progress = perf_counter()
        response, responses, buffers = self._response, [], _Buffers()
        for sample_id, data, token_count in completions:
            address, size = buffers.hold(data)
            responses.append(response(sample_id, address, size, token_count))
        counts = [count for _, _, count in completions]
        if self._tokens and min(counts) < 1:
            self.fail(completions[counts.index(min(counts))][0], _no_tokens())
            return
        pop = self._in_flight.pop
        slots = [pop(sample_id) for sample_id, _, _ in completions]
        self._report_complete(responses)
        self.completed += len(slots)
        self.output_tokens += sum(counts)
        if self._recorder is not None:
            self._recorder.completed(now, slots, counts)
            if self._outputs is not None:
                for slot, (_, data, _) in zip(slots, completions, strict=True):
                    self._outputs.write(self._recorder.index(slot), data)

    def fail(self, sample_id: int, error: HarnessError) -> None:  # noqa: ARG002  (LoadGen does not need it)
        """End the run: LoadGen cannot record a failure, and a made-up answer would be false."""
        if not self._failed:
            self._failed = True
            self._on_failure(error)


class _Buffers:
    """Holds the bytes of one report in memory that LoadGen can read; equal bytes in a row share a copy."""

    def __init__(self) -> None:
        self._held: list[array[int]] = []
        self._data: bytes | None = None
        self._where = (0, 0)

    def hold(self, data: bytes) -> tuple[int, int]:
        """Return the address and size of a copy of ``data``, valid during this object's lifetime."""
        if data is not self._data:
            buffer = array("B", data)
            self._held.append(buffer)
            self._data, self._where = data, buffer.buffer_info()
        return self._where


def _no_tokens() -> HarnessError:
    return HarnessError(
        "no_tokens",
        "an answer has no output token",
        "see the engine's log; causes are a prompt longer than its context, or an immediate end of text",
    )
