"""Run LoadGen: the only module that calls ``mlperf_loadgen``."""

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
    """Return LoadGen's version from its distribution."""
    try:
        return metadata.version("mlcommons-loadgen")
    except metadata.PackageNotFoundError:
        return "unknown"  # built from a checkout; LoadGen's own log has the version


def is_valid(output_dir: Path) -> bool:
    """Return True if LoadGen's summary calls its test valid."""
    return _of_summary(output_dir, "Result is") == "VALID"


def invalid_reason(output_dir: Path) -> str:
    """Return the unmet conditions from LoadGen's summary."""
    conditions = (
        "Performance constraints satisfied",
        "Min duration satisfied",
        "Min queries satisfied",
        "Early stopping satisfied",
    )
    unmet = [name for name in conditions if _of_summary(output_dir, name).upper() == "NO"]
    latencies = (
        "99.00 percentile first token latency (ns)",
        "99.00 percentile time to output token (ns)",
        "99.00 percentile time per output token (ns)",
        "99.00 percentile latency (ns)",
    )
    found = [
        f"{name.replace(' (ns)', '').replace('99.00 percentile', 'p99')} {float(value) / 1e9:.4g} s"
        for name in latencies
        if (value := _of_summary(output_dir, name))
    ]
    said = ", ".join(name.replace(" satisfied", "") for name in unmet) or "LoadGen gives no reason"
    return f"not met: {said} ({', '.join(found[:2])})" if found else f"not met: {said}"


def _of_summary(output_dir: Path, name: str) -> str:
    """Return a value of ``mlperf_log_summary.txt``; empty if it is missing."""
    try:
        text = (output_dir / "mlperf_log_summary.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""


def known_benchmark(model: str, scenario: str) -> Benchmark | None:
    """Return the settings of a model and scenario in LoadGen's built-in configuration; None if unknown."""
    return benchmark_of(load().TestSettings, model, scenario)


class LoadGenTest:
    """One test, in its own thread, since LoadGen's call only returns when the test is over.

    Args:
        settings: the ``mlperf_loadgen.TestSettings`` to use.
        scenario: LoadGen's scenario.
        mode: performance or accuracy.
        sample_count: samples in the data set.
        performance_count: samples that LoadGen keeps loaded.
        output_dir: folder for LoadGen's logs.
        audit_config: an audit configuration that overrides the settings.
    """

    def __init__(
        self,
        settings: Any,
        *,
        scenario: str,
        mode: str,
        sample_count: int,
        performance_count: int,
        output_dir: Path,
        audit_config: str | None,
    ) -> None:
        lg = self._lg = load()
        self.settings = settings
        settings.scenario = getattr(lg.TestScenario, scenario)
        settings.mode = getattr(lg.TestMode, _MODES[mode])
        self.scenario = scenario
        self.mode = mode
        self._sample_count = sample_count
        self._performance_count = performance_count
        output = lg.LogOutputSettings()
        output.outdir = str(output_dir)
        self._logs = lg.LogSettings()
        self._logs.log_output = output
        self._logs.enable_trace = False
        # LoadGen reads any audit.config in the working directory unless it is given another name.
        self._audit_config = audit_config or str(output_dir / "no_audit_config")

    @classmethod
    def asked(
        cls, asked: Asked, *, mode: str, sample_count: int, output_dir: Path, audit_config: str | None
    ) -> LoadGenTest:
        """Return the test with the requested settings; must be the first test that the process creates.

        Further tests are made by ``again``.

        Raises:
            HarnessError: (``settings``) if LoadGen does not apply the settings.
        """
        settings = load().TestSettings()
        apply_settings(settings, asked, output_dir / "user.conf")
        return cls(
            settings,
            scenario=asked.scenario,
            mode=mode,
            sample_count=sample_count,
            performance_count=int(asked.values["performance_sample_count_override"]),
            output_dir=output_dir,
            audit_config=audit_config,
        )

    def again(self, output_dir: Path, **fields: float) -> LoadGenTest:
        """Return another test with the same settings except ``fields`` (TestSettings' names and units)."""
        settings = self._lg.TestSettings()
        for name in _fields(self.settings):
            setattr(settings, name, fields.get(name, getattr(self.settings, name)))
        return LoadGenTest(
            settings,
            scenario=self.scenario,
            mode=self.mode,
            sample_count=self._sample_count,
            performance_count=self._performance_count,
            output_dir=output_dir,
            audit_config=self._audit_config,
        )

    @property
    def wants_first_tokens(self) -> bool:
        """True if LoadGen takes first tokens (``SetNeedsFirstToken``): token latencies on, not Offline."""
        return bool(self.settings.use_token_latencies) and self.scenario != "Offline"

    def effective(self) -> dict[str, float | int | bool]:
        """Return every field of LoadGen's TestSettings, with LoadGen's own names and units."""
        fields = {name: getattr(self.settings, name) for name in _fields(self.settings)}
        return {name: value for name, value in fields.items() if isinstance(value, int | float)}

    def expected_samples(self) -> int | None:
        """Return the number of samples that LoadGen will issue; None if it depends on the answers' speed."""
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
            on_flush: called in LoadGen's thread when all queries are issued.
            on_end: called in LoadGen's thread when the last answer is logged, with LoadGen's error, if any.
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
        # The "fast" system under test gets lists of numbers instead of an object for each sample.
        sut = lg.ConstructFastSUT(on_issue, on_flush)
        qsl = lg.ConstructQSL(self._sample_count, self._performance_count, _nothing, _nothing)
        problem = None
        try:
            lg.StartTestWithLogSettings(sut, qsl, self.settings, self._logs, self._audit_config)
        except Exception as error:  # noqa: BLE001  (the last frame of the thread: the error is passed on)
            problem = error
        lg.DestroyQSL(qsl)
        lg.DestroyFastSUT(sut)
        on_end(problem)


def _fields(settings: Any) -> list[str]:
    return [
        name for name in dir(settings) if not name.startswith("_") and not callable(getattr(settings, name))
    ]


def _nothing(*_: object) -> None:
    """Do nothing: samples are always in memory."""
