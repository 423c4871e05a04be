"""Compares the settings that LoadGen used with the settings requested in ``user.conf``.

LoadGen silently ignores unknown settings: a misspelt key, a key for another model or scenario, a second
configuration in one process (mlcommons/inference, loadgen/test_settings_internal.cc, FromConfig).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from agent.core.records import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parsers.loadgen.detail import DetailLog, Value

MILLISECOND_NS = 1e6
_DIGITS = 1e-5  # LoadGen logs six significant digits

# user.conf name: the key in LoadGen's log, and the size of one unit of user.conf in that log
_LOGGED: dict[str, tuple[str, float]] = {
    "min_duration": ("requested_min_duration_ms", 1),
    "max_duration": ("requested_max_duration_ms", 1),
    "min_query_count": ("requested_min_query_count", 1),
    "max_query_count": ("requested_max_query_count", 1),
    "performance_sample_count_override": ("requested_performance_sample_count_override", 1),
    "accuracy_sample_count_override": ("requested_accuracy_sample_count_override", 1),
    "sample_concatenate_permutation": ("requested_sample_concatenate_permutation", 1),
    "performance_issue_unique": ("requested_performance_issue_unique", 1),
    "performance_issue_same": ("requested_performance_issue_same", 1),
    "performance_issue_same_index": ("requested_performance_issue_same_index", 1),
    "qsl_rng_seed": ("requested_qsl_rng_seed", 1),
    "sample_index_rng_seed": ("requested_sample_index_rng_seed", 1),
    "schedule_rng_seed": ("requested_schedule_rng_seed", 1),
    "accuracy_log_rng_seed": ("requested_accuracy_log_rng_seed", 1),
    "accuracy_log_probability": ("requested_accuracy_log_probability", 0.01),
    "accuracy_log_sampling_target": ("requested_accuracy_log_sampling_target", 1),
    "print_timestamps": ("requested_print_timestamps", 1),
}
_LOGGED_IN: dict[str, dict[str, tuple[str, float]]] = {
    "Server": {
        "target_qps": ("requested_server_target_qps", 1),
        "target_latency": ("requested_server_target_latency_ns", MILLISECOND_NS),
        "target_latency_percentile": ("requested_server_target_latency_percentile", 0.01),
        "ttft_latency": ("requested_server_ttft_latency", MILLISECOND_NS),
        "tpot_latency": ("requested_server_tpot_latency", MILLISECOND_NS),
        "coalesce_queries": ("requested_server_coalesce_queries", 1),
        "max_async_queries": ("requested_server_max_async_queries", 1),
    },
    "Offline": {"target_qps": ("requested_offline_expected_qps", 1)},
    "SingleStream": {
        "target_latency": ("requested_single_stream_expected_latency_ns", MILLISECOND_NS),
        "target_latency_percentile": ("requested_single_stream_target_latency_percentile", 0.01),
    },
    "MultiStream": {
        "target_latency": ("requested_multi_stream_expected_latency_ns", MILLISECOND_NS),
        "target_latency_percentile": ("requested_multi_stream_target_latency_percentile", 0.01),
        "samples_per_query": ("requested_multi_stream_samples_per_query", 1),
    },
}
# Known to LoadGen, but never logged, or logged in some scenarios only.
_UNLOGGED = {"infer_token_latencies", "token_latency_scaling_factor", "mode", "test05"}
_UNLOGGED |= {f"test05_{seed}_rng_seed" for seed in ("qsl", "sample_index", "schedule")}
_KNOWN = {
    "use_token_latencies",
    *_UNLOGGED,
    *_LOGGED,
    *(name for names in _LOGGED_IN.values() for name in names),
}


def compare_settings(detail: DetailLog, asked: Mapping[str, Value]) -> list[Reason]:
    """Return the differences between the run and the requested settings; empty if there are none.

    Args:
        detail: the settings that LoadGen logged.
        asked: names of ``user.conf`` with its units: target_qps in queries/s, min_duration, target_latency,
            ttft_latency and tpot_latency in ms, percentiles in percent, truth values as 0 and 1. A name may
            carry model and scenario, ``llama3_1-8b.Server.target_qps``; other scenarios are ignored.
    """
    reasons = []
    lost_tokens = False
    for full_name, wanted in asked.items():
        place, _, name = str(full_name).rpartition(".")
        if place and place.rpartition(".")[2] not in {"*", detail.scenario}:
            continue
        if name not in _KNOWN:
            reasons.append(
                Reason(
                    f"LoadGen has no setting {name!r} and ignores it",
                    "correct the name in user.conf",
                    name,
                    code="unknown_setting",
                )
            )
            continue
        if _wants_tokens(name, wanted, detail) and not detail.token_latencies:
            lost_tokens = True
            continue
        if reason := _difference(detail, name, wanted):
            reasons.append(reason)
    if lost_tokens:
        reasons.insert(0, _tokens_lost())
    return reasons


def _wants_tokens(name: str, wanted: Value, detail: DetailLog) -> bool:
    if name == "use_token_latencies":
        return bool(_as_number(wanted))
    return name in {"ttft_latency", "tpot_latency"} and detail.scenario == "Server"


def _tokens_lost() -> Reason:
    return Reason(
        "token latencies were requested, but LoadGen measured none: no TTFT and TPOT limit was applied",
        "use LoadGen's own name of the model (llama3_1-8b, not llama3.1-8b) and load the configuration once, "
        "before the test, in a process of its own",
        "use_token_latencies",
        1,
        "token_latencies_lost",
    )


def _difference(detail: DetailLog, name: str, wanted: Value) -> Reason | None:
    if name == "use_token_latencies":
        logged: Value = detail.token_latencies
        factor = 1.0
    else:
        place = _LOGGED_IN.get(detail.scenario, {}).get(name) or _LOGGED.get(name)
        if place is None or place[0] not in detail.values:
            return None  # has no meaning in this scenario, or LoadGen never logs it
        key, factor = place
        logged = detail.values[key]
    used, number = _as_number(logged), _as_number(wanted)
    shown: Value = logged
    if name.endswith("seed"):  # 64 bits are more than a float holds
        is_same = str(wanted).strip() == str(logged)
    else:
        is_same = used is not None and number is not None and _near(used, number * factor)
        shown = f"{used / factor:.15g}" if used is not None else logged
    if is_same:
        return None
    return Reason(
        f"{name} was requested as {wanted}, but LoadGen used {shown}",
        "check the model and scenario before the name in user.conf, and that nothing overrides it",
        name,
        wanted,
        "setting_ignored",
    )


def _near(used: float, wanted: float) -> bool:
    return math.isclose(used, wanted, rel_tol=_DIGITS, abs_tol=1e-12)


def _as_number(value: Value) -> float | None:
    words = {"true": 1.0, "false": 0.0}
    if isinstance(value, str) and (word := value.strip().lower()) in words:
        return words[word]
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def settings_of(log: DetailLog) -> dict[str, Value]:
    """Return the settings that LoadGen used, in base units, for a report."""
    settings: dict[str, Value] = {}
    for name, value in log.settings().items():
        if name in {"scenario", "test_mode"}:
            continue
        for ending, unit, divisor in (("_ns", "_s", 1e9), ("_ms", "_s", 1e3)):
            if name.endswith(ending) and (number := log.number(f"effective_{name}")) is not None:
                settings[name.removesuffix(ending) + unit] = number / divisor
                break
        else:
            # seeds have 64 bits, more than a JSON reader's numbers hold
            settings[name] = str(value) if name.endswith("seed") else value
    settings["use_token_latencies"] = log.token_latencies
    for name in ("ttft_latency", "tpot_latency"):
        if log.scenario == "Server" and (limit := log.number(f"requested_server_{name}")) is not None:
            settings[f"{name}_s"] = limit / 1e9
    return settings
