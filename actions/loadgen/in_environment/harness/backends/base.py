"""What a backend is: the contract between the harness and whatever answers queries.

A backend lives on one event loop. The harness hands it batches as LoadGen issues them (the whole set at
once in Offline, bursts in Server, one in SingleStream); it answers through the sink, in any order.
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
        ids: what the sink knows each sample by; unique while it is in flight.
        indices: each sample's place in the data set.
    """

    ids: Sequence[int]
    indices: Sequence[int]


FirstToken = tuple[int, bytes]
"""A sample's id and its first token, in the backend's data encoding."""

Completion = tuple[int, bytes, int]
"""A sample's id, its whole answer in the backend's data encoding, and its exact number of output tokens."""


class Sink(Protocol):
    """Where a backend reports to; every method is called on the event loop and takes its time at once.

    The ``_many`` forms cost less per sample. They are for answers that exist at the same moment, such as
    those of one engine step: holding an answer back to make a batch would distort its time.
    """

    def first_token(self, sample_id: int, token: bytes) -> None:
        """A sample's first token is there."""

    def first_token_many(self, tokens: Sequence[FirstToken]) -> None:
        """Several samples' first tokens are there."""

    def complete(self, sample_id: int, data: bytes, token_count: int) -> None:
        """A sample is answered."""

    def complete_many(self, completions: Sequence[Completion]) -> None:
        """Several samples are answered."""

    def fail(self, sample_id: int, error: HarnessError) -> None:
        """A sample cannot be answered: the run ends as failed."""


@dataclass(frozen=True)
class BackendContext:
    """What a backend may know of the run.

    Args:
        samples: the data set; a batch's indices point into it.
        scenario: one of the harness's scenarios.
        mode: performance or accuracy.
        max_output_tokens: output tokens per sample.
        sample_timeout_s: seconds a single request may take.
        output_dir: the test's folder, for what an engine prints.
        tell: takes what an engine is at while it loads.
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
    """What a backend counts over the timed part; zeroed after the warm-up.

    Args:
        retries: requests sent again because their connection was closed before any byte of the reply.
        cached_tokens: prompt tokens that the engine took from a prefix cache: more than 0 spoils the result,
            None (no reply told) leaves it open.
        input_tokens: prompt tokens as the engine counted them; None if no reply told.
        token_count_sources: how output tokens were counted (``usage``, ``chunks``, ``engine``) and for how
            many samples.
        queue_peak: samples that waited at once, because as many requests were under way as may be.
        queue_wait_max_s: seconds that the longest of them waited; LoadGen's clock ran for it.
        replies: what the replies say against themselves; None for an engine in this process.
    """

    retries: int = 0
    cached_tokens: int | None = None
    input_tokens: int | None = None
    token_count_sources: dict[str, int] = field(default_factory=dict)
    queue_peak: int = 0
    queue_wait_max_s: float = 0.0
    replies: ReplyLog | None = None

    def count_input(self, tokens: int | None, cached: int | None) -> None:
        """Add what one reply told of its prompt."""
        if tokens is not None:
            self.input_tokens = (self.input_tokens or 0) + tokens
        if cached is not None:
            self.cached_tokens = (self.cached_tokens or 0) + cached


class Backend(Protocol):
    """Answers queries. A module of ``backends`` offers ``create(settings, context) -> Backend``."""

    data_encoding: str
    """What answers are made of: ``utf-8`` or ``int32`` (token ids)."""

    version: str
    """The name and version of the library or engine that answers, as far as it is known."""

    stats: BackendStats

    async def start(self) -> Mapping[str, Any]:
        """Connect or load; return what is known of the engine, with its ``model``.

        Raises:
            HarnessError: if it cannot answer, or is not what was asked for.
        """

    def submit(self, batch: Batch, sink: Sink) -> None:
        """Take samples and return at once."""

    def decode(self, data: bytes) -> str:
        """An answer as text."""

    async def stop(self) -> None:
        """Let go of everything, after the last answer."""

    def kill(self) -> None:
        """End child processes at once; called before the process exits on a failure."""


def checked(settings: Mapping[str, Any], defaults: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """A backend's settings over their defaults.

    Raises:
        HarnessError: (``config``) if a name is unknown; the nearest known one is named.
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
