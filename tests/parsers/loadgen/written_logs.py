"""Logs in the form of each version of LoadGen, without running it: one run as detail log and summary.

Based on mlcommons/inference at the tags v1.0.1 to v6.0.0pre: PerformanceSummary::LogSummary and LogDetail
(loadgen/loadgen.cc, since v3.0 results.cc), LogRequestedTestSettings, LogEffectiveSettings and
TestSettingsInternal::LogSummary (test_settings_internal.cc). It does not use the parser's table, so that the
two can be compared. Each release is listed with its properties, which are not derived from its number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DETAIL, SUMMARY = "mlperf_log_detail.txt", "mlperf_log_summary.txt"
PERCENTILES = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
STREAMS = ("SingleStream", "MultiStream")

_1 = frozenset({"legacy_multi_stream"})
_2 = frozenset({"early_stopping"})
_4_0 = _2 | {"tokens"}
_4_1 = _4_0 | {"completed_first", "completed_tokens", "inferred"}
_5_0 = _4_1 | {"one_decimal"}
_5_1 = _5_0 | {"num_errors"}
_5_1_1 = _5_1 | {"per_output_token"}
_6_0 = _5_1_1 | {"accuracy_samples"}
RELEASES: dict[str, frozenset[str]] = {
    ".5a1": _1, "1.1": _1, "2.0": _2, "2.1": _2, "3.0": _2, "3.1": _2, "4.0": _4_0, "4.1": _4_1,
    "4.1.30": _4_1, "5.0.10": _4_1, "5.0.15": _5_0, "5.0.22": _5_1, "5.1.0": _5_1, "5.1.2": _5_1_1,
    "6.0.2": _5_1_1, "6.0.17": _6_0,
}  # fmt: skip


@dataclass
class Run:
    """A run of LoadGen.

    Args:
        version: one of RELEASES.
        scenario: the name in LoadGen.
        tokens: whether token latencies are in use.
        inferred: whether they are inferred.
        flags: whether each constraint was met, by its key; by default all are.
        settings: effective settings that differ from the usual ones.
        errors: the texts of errors.
        values: records that differ from those of the run.
    """

    version: str = "6.0.17"
    scenario: str = "Server"
    tokens: bool = False
    inferred: bool = False
    flags: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def has(self) -> frozenset[str]:
        return RELEASES[self.version]

    @property
    def is_legacy(self) -> bool:
        return self.scenario == "MultiStream" and "legacy_multi_stream" in self.has

    @property
    def met(self) -> dict[str, bool]:
        names = ["result_perf_constraints_met"] if self.scenario == "Server" or self.is_legacy else []
        names += ["result_min_duration_met", "result_min_queries_met"]
        names += ["early_stopping_met"] if "early_stopping" in self.has else []
        return {name: self.flags.get(name, True) for name in names}

    @property
    def validity(self) -> str:
        return "VALID" if all(self.met.values()) else "INVALID"

    @property
    def percentile(self) -> float:
        return {"SingleStream": 0.9, "Offline": 0.9}.get(self.scenario, 0.99)

    def write(self, folder: Path, names: tuple[str, ...] = (DETAIL, SUMMARY)) -> Path:
        """Write the logs into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((DETAIL, self.detail()), (SUMMARY, self.summary())):
            if name in names:
                (folder / name).write_text(text)
        return folder

    # ---- numbers

    def effective(self) -> dict[str, Any]:
        server = self.scenario == "Server"
        usual: dict[str, Any] = {
            "samples_per_query": {"Offline": 57, "MultiStream": 8}.get(self.scenario, 1),
            "target_qps": 300 if server else 1234.57,
            "target_latency_ns": 0 if self.tokens or not server else 130_000_000,
            "target_latency_percentile": self.percentile,
            "max_async_queries": 0 if server else 1,
            "target_duration_ms": 600000,
            "min_duration_ms": 100 if self.scenario == "Offline" else 50000,
            "max_duration_ms": 0,
            "min_query_count": 1 if self.scenario == "Offline" else 100,
            "max_query_count": 0,
            "min_sample_count": 100,
            "qsl_rng_seed": 2085463073848966840,
            "sample_index_rng_seed": 2747215439041700203,
            "schedule_rng_seed": 16159082839903944936,
            "accuracy_log_rng_seed": 0,
            "accuracy_log_probability": 0,
            "accuracy_log_sampling_target": 0,
            "print_timestamps": False,
            "performance_issue_unique": False,
            "performance_issue_same": False,
            "performance_issue_same_index": 0,
            "performance_sample_count": 64,
        }
        if "accuracy_samples" in self.has:
            usual["accuracy_sample_count"] = 64
        return usual | self.settings

    def latencies(self, scale: int = 1) -> dict[str, int]:
        """Return nanoseconds by statistic and percentile."""
        steps = zip(PERCENTILES, (52, 61, 66, 71, 97, 118), strict=True)
        return {"min": 41234567 * scale, "max": 123456789 * scale, "mean": 53456789 * scale} | {
            name: step * 1_000_003 * scale for name, step in steps
        }

    def estimates(self) -> tuple[int, ...]:
        """Return early stopping's estimates of the target percentile and, in SingleStream, of the 99th."""
        if self.tokens:
            return (6_500_123, 9_900_456)[: 2 if self.scenario == "SingleStream" else 1]
        return (63_000_123, 99_000_456) if self.scenario == "SingleStream" else (99_000_456,)

    def early_stopping_text(self, estimates: tuple[int, ...]) -> str:
        if not self.met.get("early_stopping_met", True):
            return (
                " * Run unsuccessful.\n * Processed 588 queries.\n"
                " * Would need to run at least 47780 more queries,\n"
                " with the run being successful if every additional\n query were under latency."
            )
        if self.scenario == "Server":
            return " * Run successful."
        if self.scenario == "Offline":
            return ""
        first = f"{self.percentile * 100:.{int('one_decimal' in self.has)}f}"
        lines = [
            " * Processed at least 64 queries (17820).",
            " * Would discard 1686 highest latency queries.",
            f" * Early stopping {first}th percentile estimate: {estimates[0]}",
        ]
        if self.scenario == "SingleStream":
            second = "99.0" if "one_decimal" in self.has else "99"
            lines.append(f" * Early stopping {second}th percentile estimate: {estimates[1]}")
        return "\n".join(lines)

    # ---- the detail log

    def detail(self) -> str:
        return "".join(_line(key, value) for key, value in self.records())

    def records(self) -> Iterator[tuple[str, Any]]:
        yield "loadgen_version", f"{self.version} @ 0123456789"
        yield "test_datetime", "2026-11-28T00:39:37Z"
        yield "sut_name", "SUT"
        yield "qsl_reported_total_count", 64
        yield "qsl_reported_performance_count", 64
        yield "requested_scenario", self.scenario
        yield "requested_test_mode", "PerformanceOnly"
        if self.tokens:
            yield "requested_use_token_latencies", True
            if self.scenario != "Offline":
                yield "requested_server_ttft_latency", 500_000_000
                yield "requested_server_tpot_latency", 30_000_000
        yield "effective_scenario", self.scenario
        yield "effective_test_mode", "PerformanceOnly"
        for name, value in self.effective().items():
            yield f"effective_{name}", value
        yield "generic_message", "Starting performance mode"
        yield "generated_query_count", 1 if self.scenario == "Offline" else 17820
        yield "generated_samples_per_query", self.effective()["samples_per_query"]
        for text in self.errors:
            yield "error_runtime", text
        yield "power_begin", "11-28-2026 00:39:38.000"
        yield "power_end", "11-28-2026 00:49:39.000"
        for key, value in self.results():
            yield key, self.values.get(key, value)

    def results(self) -> Iterator[tuple[str, Any]]:
        yield "result_validity", self.validity
        yield from self.met.items()
        if self.validity == "INVALID":
            yield "result_invalid_reason", ""
        if "early_stopping" in self.has:
            text = " ".join(self.early_stopping_text(self.estimates()).split("\n"))
            if self.tokens:
                yield "early_stopping_ttft_result", text
                tpot = tuple(estimate // 10 for estimate in self.estimates())
                yield "early_stopping_tpot_result", " ".join(self.early_stopping_text(tpot).split("\n"))
            else:
                yield "early_stopping_result", text
            yield "result_query_count", 1 if self.scenario == "Offline" else 17820
            if self.scenario == "Server":
                yield "result_overlatency_query_count", 3
        yield from self.rates()
        for name, value in self.latencies().items():
            yield f"result_{name}{'_percentile' * name[0].isdigit()}_latency_ns", value
        if self.tokens:
            yield from self.token_results()
        if self.inferred:
            name = {"Offline": "inferred_tokens_per_second", "Server": "inferred_completed_tokens_per_second"}
            yield f"result_{name[self.scenario]}", 32127.5
        if "num_errors" in self.has:
            yield "num_errors", len(self.errors)

    def rates(self) -> Iterator[tuple[str, Any]]:
        estimates = self.estimates() if "early_stopping" in self.has else ()
        if self.scenario == "SingleStream":
            yield "result_qps_with_loadgen_overhead", 18.6042
            yield "result_qps_without_loadgen_overhead", 18.7067
            keys = ("early_stopping_latency_ss", "early_stopping_latency_ms")
            yield from zip(keys, estimates, strict=False)
        elif self.scenario == "MultiStream":
            yield from self.per_query()
            yield from zip(("early_stopping_latency_ms",), estimates, strict=False)
        elif self.scenario == "Server":
            yield "result_scheduled_samples_per_sec", 299.926
            yield "result_completed_samples_per_sec", 299.819
        else:
            yield "result_samples_per_second", 465.616

    def per_query(self) -> Iterator[tuple[str, Any]]:
        latencies = self.latencies(8)
        if self.is_legacy:
            for name in PERCENTILES:
                yield f"result_{name}_percentile_num_intervals_between_queries", 1
                yield f"result_{name}_percentile_per_query_latency_ns", latencies[name]
            return
        for name, value in latencies.items():
            per = "percentile_per_query" if name[0].isdigit() else "query"
            yield f"result_{name}_{per}_latency_ns", value

    def token_results(self) -> Iterator[tuple[str, Any]]:
        if self.scenario == "Offline":
            yield "result_tokens_per_second", 14899.7
            return
        for name, value in self.latencies().items():
            yield f"result_first_token_{name}{'_percentile' * name[0].isdigit()}_latency_ns", value // 10
        yield "result_token_throughput_with_loadgen_overhead", 9602.89
        yield "result_token_throughput", 5.9917e-07
        for name in PERCENTILES:
            yield f"result_time_per_output_token_{name}_percentile_ns", self.latencies()[name] // 100
        for name in ("min", "max", "mean"):
            yield f"result_time_to_output_token_{name}", self.latencies()[name] // 100
        if "completed_tokens" in self.has:
            yield "result_completed_tokens_per_second", 9602.89

    # ---- the summary

    def summary(self) -> str:
        rule = "=" * 48
        head = [rule, "MLPerf Results Summary", rule, "SUT name : SUT", f"Scenario : {self.scenario}"]
        head += ["Mode     : PerformanceOnly", *self.headline(), f"Result is : {self.validity}"]
        words = {
            "result_perf_constraints_met": "Performance constraints satisfied :",
            "result_min_duration_met": "Min duration satisfied :",
            "result_min_queries_met": "Min queries satisfied :",
            "early_stopping_met": "Early stopping satisfied:",
        }
        head += [f"  {words[key]} {'Yes' if met else 'NO'}" for key, met in self.met.items()]
        if self.scenario != "Offline" and "early_stopping" in self.has:
            text = self.early_stopping_text(self.estimates())
            if self.tokens:
                tpot = self.early_stopping_text(tuple(estimate // 10 for estimate in self.estimates()))
                head += ["TTFT Early Stopping Result:", text, "TPOT Early Stopping Result:", tpot]
            else:
                head += ["Early Stopping Result:", text]
        number = len(self.errors)
        errors = {0: "No errors encountered during test.", 1: "1 ERROR encountered. See detailed log."}.get(
            number, f"{number} ERRORS encountered. See detailed log."
        )
        lines = [
            *head,
            "",
            rule,
            "Additional Stats",
            rule,
            *self.additional(),
            "",
            rule,
            "Test Parameters Used",
            rule,
        ]
        return "\n".join(
            [*lines, *self.parameters(), "", "No warnings encountered during test.", "", errors, ""]
        )

    def headline(self) -> Iterator[str]:
        decimals = int("one_decimal" in self.has)
        percent = f"{self.percentile * 100:.{decimals}f}"
        raw = f"{self.percentile * 100:.2f}"
        if self.scenario == "Offline":
            yield "Samples per second: 465.616"
            if self.tokens:
                yield "Tokens per second: 14899.7"
        elif self.scenario == "Server":
            first = self.tokens or "completed_first" in self.has
            yield (
                "Completed samples per second    : 299.82"
                if first
                else "Scheduled samples per second : 299.93"
            )
            if self.tokens and "completed_tokens" in self.has:
                yield "Completed tokens per second: 9602.89"
        elif self.is_legacy:
            yield "Samples per query : 8"
        else:
            scale = 8 if self.scenario == "MultiStream" else 1
            yield f"{percent}th percentile latency (ns) : {self.latencies(scale)[raw]}"
            if self.tokens:
                yield f"{percent}th first token percentile latency (ns) : {self.latencies()[raw] // 10}"
        if self.inferred:
            name = "Tokens" if self.scenario == "Offline" else "Completed tokens"
            yield f"{name} per second (inferred): {'32127.5' if self.scenario == 'Offline' else '32127.50'}"

    def additional(self) -> Iterator[str]:
        if self.scenario == "SingleStream":
            yield from (
                "QPS w/ loadgen overhead         : 18.60",
                "QPS w/o loadgen overhead        : 18.71",
                "",
            )
        elif self.scenario == "Server":
            first = self.tokens or "completed_first" in self.has
            yield (
                "Scheduled samples per second : 299.93"
                if first
                else "Completed samples per second    : 299.82"
            )
        elif self.scenario == "MultiStream":
            if self.is_legacy:
                yield 'Intervals between each IssueQuery:  "qps" : 20, "ms" : 50'
                yield from (f"{name} percentile : 1" for name in PERCENTILES)
                yield from ("", 'Per-query latency:  "target_ns" : 50000000, "target_ms" : 50')
            else:
                yield "Per-query latency:  "
            wanted = PERCENTILES if self.is_legacy else None
            yield from self.latency_lines(self.latencies(8), wanted)
            if self.is_legacy:
                yield from ("", "Per-sample latency:")
        if self.scenario != "MultiStream" or self.is_legacy:
            yield from self.latency_lines(self.latencies())
        if self.tokens:
            yield from self.token_lines()

    def latency_lines(
        self, latencies: dict[str, int], wanted: tuple[str, ...] | None = None
    ) -> Iterator[str]:
        for name, value in latencies.items():
            if wanted is None or name in wanted:
                what = (
                    f"{name} percentile latency (ns)" if name[0].isdigit() else f"{name.title()} latency (ns)"
                )
                yield f"{what}   : {value}"

    def token_lines(self) -> Iterator[str]:
        yield ""
        if self.scenario == "SingleStream":
            yield from (
                "TPS w/ loadgen overhead         : 9602.89",
                "TPS w/o loadgen overhead        : 9608.72",
            )
        elif self.scenario == "Server":
            yield "Completed tokens per second                 : 9602.89"
        if self.scenario == "Offline":
            return
        word = "per" if "per_output_token" in self.has else "to"
        for name, value in self.latencies().items():
            what = "percentile first token latency (ns)" if name[0].isdigit() else "First Token latency (ns)"
            yield f"{name if name[0].isdigit() else name.title()} {what} : {value // 10}"
        for name, value in self.latencies().items():
            what = (
                "percentile time to output token (ns)"
                if name[0].isdigit()
                else f"Time {word} Output Token (ns)"
            )
            yield f"{name if name[0].isdigit() else name.title()} {what} : {value // 100}"

    def parameters(self) -> Iterator[str]:
        values = self.effective()
        yield f"samples_per_query : {values['samples_per_query']}"
        yield f"target_qps : {values['target_qps']:g}"
        if self.tokens:
            limits = (100_000_000, 100_000_000) if self.scenario == "Offline" else (500_000_000, 30_000_000)
            yield from (f"ttft_latency (ns): {limits[0]}", f"tpot_latency (ns): {limits[1]}")
        else:
            yield f"target_latency (ns): {values['target_latency_ns']}"
        for name, value in values.items():
            if name in {"samples_per_query", "target_qps", "target_duration_ms", "min_sample_count"}:
                continue
            if name in {"min_duration_ms", "max_duration_ms"}:
                yield f"{name.removesuffix('_ms')} (ms): {value}"
            elif not name.startswith("target_latency"):
                yield f"{name} : {int(value) if isinstance(value, bool) else value}"


def _line(key: str, value: Any) -> str:
    error = str(key.startswith("error")).lower()
    return (
        f':::MLLOG {{"key": "{key}", "value": {json.dumps(value)}, "time_ms": 1.500000, '
        f'"namespace": "mlperf::logging", "event_type": "POINT_IN_TIME", "metadata": {{"is_error": {error}, '
        '"is_warning": false, "file": "results.cc", "line_no": 1, "pid": 1, "tid": 1}}\n'
    )
