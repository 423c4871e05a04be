"""LoadGen itself: the one module that calls ``mlperf_loadgen``."""

from __future__ import annotations

import math
import platform
import threading
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .benchmark import Benchmark, benchmark_of
from .errors import HarnessError
from .settings import Asked, apply_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["LoadGenTest", "known_benchmark", "load", "version"]

_MODES = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}


def load() -> Any:
    """Import LoadGen.

    Raises:
        HarnessError: (``dependency``) if it is not installed.
    """
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise HarnessError(
            "dependency",
            f"LoadGen cannot be imported by Python {platform.python_version()}: {error}",
            "install it in this environment: python -m pip install mlcommons-loadgen",
        ) from error
    return mlperf_loadgen


def version() -> str:
    """LoadGen's version as its distribution says."""
    try:
        return metadata.version("mlcommons-loadgen")
    except metadata.PackageNotFoundError:
        return "unknown"  # built from a checkout; LoadGen's own log says which


def known_benchmark(model: str, scenario: str) -> Benchmark | None:
    """What LoadGen's built-in configuration says of a model in one of its scenarios, if it knows it."""
    return benchmark_of(load().TestSettings, model, scenario)


class LoadGenTest:
    """One test, in a thread of its own, since LoadGen's call returns only when the test is over.

    Args:
        asked: the settings.
        mode: performance or accuracy.
        sample_count: samples in the data set.
        output_dir: where LoadGen's logs and the user.conf go.
        audit_config: an audit configuration that LoadGen reads over the settings.

    Raises:
        HarnessError: (``settings``) if LoadGen does not take the settings.
    """

    def __init__(
        self, asked: Asked, *, mode: str, sample_count: int, output_dir: Path, audit_config: str | None
    ) -> None:
        lg = self._lg = load()
        settings = self.settings = lg.TestSettings()
        apply_settings(settings, asked, output_dir / "user.conf")
        settings.scenario = getattr(lg.TestScenario, asked.scenario)
        settings.mode = getattr(lg.TestMode, _MODES[mode])
        self.scenario = asked.scenario
        self.mode = mode
        self._sample_count = sample_count
        self._performance_count = int(asked.values["performance_sample_count_override"])
        output = lg.LogOutputSettings()
        output.outdir = str(output_dir)
        self._logs = lg.LogSettings()
        self._logs.log_output = output
        self._logs.enable_trace = False
        # LoadGen reads any audit.config in the working directory unless it is given another name.
        self._audit_config = audit_config or str(output_dir / "no_audit_config")

    @property
    def wants_first_tokens(self) -> bool:
        """Whether LoadGen takes first tokens (``SetNeedsFirstToken``): token latencies on, not Offline."""
        return bool(self.settings.use_token_latencies) and self.scenario != "Offline"

    def effective(self) -> dict[str, float | int | bool]:
        """Every field of LoadGen's TestSettings, with LoadGen's own names and units."""
        names = (name for name in dir(self.settings) if not name.startswith("_"))
        fields = {name: getattr(self.settings, name) for name in names}
        return {name: value for name, value in fields.items() if isinstance(value, int | float)}

    def expected_samples(self) -> int | None:
        """How many samples LoadGen will issue, or None where that depends on the answers' speed."""
        settings, loaded = self.settings, self._performance_count
        if self.mode == "accuracy":
            return int(settings.accuracy_sample_count_override) or self._sample_count
        seconds = settings.min_duration_ms / 1000
        if self.scenario == "Offline":
            wanted = max(settings.min_query_count, int(1.1 * seconds * settings.offline_expected_qps))
        elif self.scenario == "Server":
            wanted = max(settings.min_query_count, math.ceil(seconds * settings.server_target_qps))
        else:
            return None
        is_padded = settings.sample_concatenate_permutation
        return int(math.ceil(wanted / loaded) * loaded if is_padded else wanted)

    def start(
        self,
        on_issue: Callable[[Sequence[int], Sequence[int]], None],
        on_flush: Callable[[], None],
        on_end: Callable[[Exception | None], object],
    ) -> None:
        """Start the test and return.

        Args:
            on_issue: called in LoadGen's thread with the ids and indices of the samples of a query; it
                must be fast, since LoadGen issues the next query only after it returns, and never raise.
            on_flush: called in LoadGen's thread when all is issued.
            on_end: called in LoadGen's thread when the last answer is logged, with what LoadGen raised.
        """
        threading.Thread(
            target=self._run, args=(on_issue, on_flush, on_end), name="loadgen", daemon=True
        ).start()

    def _run(
        self,
        on_issue: Callable[[Sequence[int], Sequence[int]], None],
        on_flush: Callable[[], None],
        on_end: Callable[[Exception | None], object],
    ) -> None:
        lg = self._lg
        # The "fast" system under test gets plain lists of numbers instead of an object for each sample.
        sut = lg.ConstructFastSUT(on_issue, on_flush)
        qsl = lg.ConstructQSL(self._sample_count, self._performance_count, _nothing, _nothing)
        problem = None
        try:
            lg.StartTestWithLogSettings(sut, qsl, self.settings, self._logs, self._audit_config)
        except Exception as error:  # noqa: BLE001  (the last frame of the thread: it is handed over)
            problem = error
        lg.DestroyQSL(qsl)
        lg.DestroyFastSUT(sut)
        on_end(problem)


def _nothing(*_: object) -> None:
    """Samples are in memory all the time."""
