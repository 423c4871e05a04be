"""Define the contract between the harness and a backend, which answers queries.

A backend lives on one event loop. The harness passes it batches as LoadGen issues them (the whole set at once
in Offline, bursts in Server, one sample in SingleStream); it answers through the sink, in any order.
"""

# ruff: noqa: TID252  (the harness is its own top-level package where it runs)
from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ..dataset import Sample
    from ..reply_log import ReplyLog


class Batch(NamedTuple):
    """Samples issued together, as two lists of the same length.

    Args:
        ids: each sample's id for the sink; unique while the sample is in flight.
        indices: each sample's index in the data set.
    """

    ids: Sequence[int]
    indices: Sequence[int]


FirstToken = tuple[int, bytes]
"""A sample's id and its first token, in the backend's data encoding."""

Completion = tuple[int, bytes, int]
"""A sample's id, its whole answer in the backend's data encoding, and its exact number of output tokens."""


class Sink(Protocol):
    """Destination of a backend's reports; methods are called on the event loop and record the current time.

    The ``_many`` methods cost less per sample. They are for answers that appear at the same time, such as
    those of one engine step: delaying an answer to form a batch would distort its time.
    """

    def first_token(self, sample_id: int, token: bytes) -> None:
        """Report a sample's first token."""

    def first_token_many(self, tokens: Sequence[FirstToken]) -> None:
        """Report several samples' first tokens."""

    def complete(self, sample_id: int, data: bytes, token_count: int) -> None:
        """Report a sample's answer."""

    def complete_many(self, completions: Sequence[Completion]) -> None:
        """Report several samples' answers."""

    def fail(self, sample_id: int, error: HarnessError) -> None:
        """Report that a sample cannot be answered: the run fails."""


@dataclass(frozen=True)
class BackendContext:
    """Properties of the run for a backend.

    Args:
        samples: the data set; a batch's indices point into it.
        scenario: one of the harness's scenarios.
        mode: performance or accuracy.
        max_output_tokens: output tokens per sample.
        sample_timeout_s: time limit for a single request, in seconds.
        output_dir: the test's folder, for the engine's output.
        tell: reports the engine's current step while it loads.
    """

    samples: Sequence[Sample]
    scenario: str
    mode: str
    max_output_tokens: int
    sample_timeout_s: float
    output_dir: Path
    tell: Callable[[str], None]


@dataclass
class BackendStats:
    """Counters of a backend for the timed part; reset after the warm-up.

    Args:
        retries: requests repeated because their connection was closed before any byte of the reply.
        cached_tokens: prompt tokens that the engine took from a prefix cache: more than 0 spoils the result,
            None means that no reply reported it.
        input_tokens: prompt tokens counted by the engine; None if no reply reported them.
        token_count_sources: the methods of counting output tokens (``usage``, ``chunks``, ``engine``), each
            with its number of samples.
        queue_peak: maximum number of samples waiting because the limit of concurrent requests was reached.
        queue_wait_max_s: longest wait of such a sample in seconds; LoadGen's clock included it.
        replies: contradictions within the replies; None for an engine in this process.
    """

    retries: int = 0
    cached_tokens: int | None = None
    input_tokens: int | None = None
    token_count_sources: dict[str, int] = field(default_factory=dict)
    queue_peak: int = 0
    queue_wait_max_s: float = 0.0
    replies: ReplyLog | None = None

    def count_input(self, tokens: int | None, cached: int | None) -> None:
        """Add the prompt tokens that one reply reported."""
        if tokens is not None:
            self.input_tokens = (self.input_tokens or 0) + tokens
        if cached is not None:
            self.cached_tokens = (self.cached_tokens or 0) + cached


class Backend(Protocol):
    """Answers queries. A module of ``backends`` offers ``create(settings, context) -> Backend``."""

    data_encoding: str
    """Encoding of answers: ``utf-8`` or ``int32`` (token ids)."""

    version: str
    """Name and version of the library or engine that answers, if known."""

    stats: BackendStats

    async def start(self) -> Mapping[str, Any]:
        """Connect or load; return facts about the engine, with its ``model``.

        Raises:
            HarnessError: if the engine cannot answer, or is not the requested one.
        """

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Accept samples and return immediately."""

    def decode(self, data: bytes) -> str:
        """Return an answer as text."""

    async def stop(self) -> None:
        """Release all resources, after the last answer."""

    def kill(self) -> None:
        """Kill child processes immediately; called before the process exits on a failure."""


def checked(settings: Mapping[str, Any], defaults: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """Return a backend's settings merged over their defaults.

    Raises:
        HarnessError: (``config``) if a name is unknown; suggests the nearest known one.
    """
    for name in settings:
        if name not in defaults:
            near = get_close_matches(name, defaults, n=1)
            raise HarnessError(
                "config",
                f"the {backend} backend has no setting {name!r}",
                f"did you mean {near[0]!r}?" if near else f"it knows {', '.join(defaults)}",
            )
    return {**defaults, **settings}
