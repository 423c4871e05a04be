"""A search for the highest load on a modelled system: its statement about the rate that it ended at."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from actions.loadgen.in_environment.harness.load_search import LoadSearch
from actions.loadgen.in_environment.harness.tuning import Tuning

if TYPE_CHECKING:
    from pathlib import Path

    from actions.loadgen.in_environment.harness.loadgen import LoadGenTest
    from actions.loadgen.in_environment.harness.samples import SampleRecorder

FULL_MS = 600_000


@dataclass(frozen=True)
class ModelledTest:
    """Has the parts of a test that the search uses."""

    output_dir: Path
    server_target_qps: float = 0.0
    min_duration_ms: int = FULL_MS

    @property
    def settings(self) -> SimpleNamespace:
        """Limits that drift never exceeds."""
        return SimpleNamespace(
            min_duration_ms=self.min_duration_ms, use_token_latencies=True, ttft_latency=2_000_000_000
        )

    def again(self, output_dir: Path, *, server_target_qps: float, **changes: Any) -> ModelledTest:
        """Return the same test at another rate."""
        return ModelledTest(output_dir, server_target_qps, changes.get("min_duration_ms", FULL_MS))


class ModelledRecorder:
    """One sample that did not wait."""

    def waits(self) -> tuple[list[float], list[float]]:
        """Return when the sample was issued, and how long it waited."""
        return [0.0], [0.0]

    def write(self, path: Path) -> None:
        """Write an empty file."""
        path.touch()


@pytest.mark.parametrize(
    ("full", "target", "lowest_invalid", "trials"),
    [
        pytest.param(50.0, 49.7, 50.58, 5, id="a long test holds what a short one did"),
        pytest.param(49.0, 48.21, 49.7, 6, id="a long test holds a little less"),
        pytest.param(40.0, 46.76, 46.76, 7, id="a long test holds none of the rates"),
        pytest.param(None, 23.0, None, 3, id="no limit within the trials"),
    ],
)
def test_the_bracket_at_the_end(
    tmp_path: Path, full: float | None, target: float, lowest_invalid: float | None, trials: int
) -> None:
    """Model a system that sustains 50 queries/s in short tests, and ``full`` in long ones."""
    notes = []

    async def run(test: Any, note: str) -> Any:
        notes.append(note)
        most = (full or 50.0) if test.min_duration_ms == FULL_MS else 50.0
        verdict = "VALID" if test.server_target_qps <= most else "INVALID"
        (test.output_dir / "mlperf_log_summary.txt").write_text(f"Result is : {verdict}\n")
        return cast("SampleRecorder", ModelledRecorder())

    search = LoadSearch(
        Tuning(most_trials=12 if full else 3),
        cast("LoadGenTest", ModelledTest(tmp_path)),
        tmp_path,
        run=run,
        ask=lambda rate: f"*.Server.target_qps = {rate:g}\n",
    )
    asyncio.run(search.execute(48.0 if full else 10.0))
    found = search.as_json()
    assert (found["target_qps"], found["lowest_invalid_qps"]) == (target, lowest_invalid)
    assert len(found["trials"]) == trials
    first = "48" if full else "10"
    assert notes[:2] == [
        f"trial 1 at {first} queries/s (nothing tried)",
        f"trial 2 at {float(first) * 1.15:g} queries/s (valid at {first}, no limit found)",
    ]
    assert (tmp_path / "user.conf").read_text() == f"*.Server.target_qps = {target:g}\n"
