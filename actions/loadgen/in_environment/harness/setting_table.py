"""List the settings of a user.conf: the field that LoadGen sets for each, and its scenarios.

Names, units and kinds follow TestSettings::FromConfig (mlcommons/inference,
loadgen/test_settings_internal.cc, 6.0.17).
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Mapping

Number = int | float

_MS = 1_000_000
"""Number of nanoseconds in a millisecond, the unit of a user.conf."""

SCENARIOS = ("SingleStream", "MultiStream", "Server", "Offline")


@dataclass(frozen=True)
class Setting:
    """One setting of a user.conf: its field in LoadGen, and its unit.

    Args:
        fields: the field of TestSettings, for each scenario that the setting applies to.
        factor: factor from the user.conf's unit to the field's.
        kind: ``whole`` (truncated by LoadGen), ``real``, or ``switch`` (0 or 1).
    """

    fields: Mapping[str, str]
    factor: float = 1
    kind: str = "whole"


def _everywhere(field: str, kind: str = "whole") -> Setting:
    return Setting(dict.fromkeys(SCENARIOS, field), kind=kind)


SETTINGS: Mapping[str, Setting] = {
    "target_qps": Setting({"Server": "server_target_qps", "Offline": "offline_expected_qps"}, kind="real"),
    "target_latency": Setting(
        {
            "SingleStream": "single_stream_expected_latency_ns",
            "MultiStream": "multi_stream_expected_latency_ns",
            "Server": "server_target_latency_ns",
        },
        factor=_MS,
        kind="real",
    ),
    "target_latency_percentile": Setting(
        {
            "SingleStream": "single_stream_target_latency_percentile",
            "MultiStream": "multi_stream_target_latency_percentile",
            "Server": "server_target_latency_percentile",
        },
        factor=0.01,
        kind="real",
    ),
    "ttft_latency": Setting({"Server": "ttft_latency"}, factor=_MS),
    "tpot_latency": Setting({"Server": "tpot_latency"}, factor=_MS),
    "samples_per_query": Setting({"MultiStream": "multi_stream_samples_per_query"}),
    "coalesce_queries": Setting({"Server": "server_coalesce_queries"}, kind="switch"),
    "max_async_queries": Setting({"Server": "server_max_async_queries"}),
    "min_duration": _everywhere("min_duration_ms"),
    "max_duration": _everywhere("max_duration_ms"),
    "min_query_count": _everywhere("min_query_count"),
    "max_query_count": _everywhere("max_query_count"),
    "performance_sample_count_override": _everywhere("performance_sample_count_override"),
    "accuracy_sample_count_override": _everywhere("accuracy_sample_count_override"),
    "use_token_latencies": _everywhere("use_token_latencies", "switch"),
    "infer_token_latencies": _everywhere("infer_token_latencies", "switch"),
    "token_latency_scaling_factor": _everywhere("token_latency_scaling_factor"),
    "sample_concatenate_permutation": _everywhere("sample_concatenate_permutation", "switch"),
    "performance_issue_unique": _everywhere("performance_issue_unique", "switch"),
    "performance_issue_same": _everywhere("performance_issue_same", "switch"),
    "performance_issue_same_index": _everywhere("performance_issue_same_index"),
    "print_timestamps": _everywhere("print_timestamps", "switch"),
    "accuracy_log_rng_seed": _everywhere("accuracy_log_rng_seed"),
    "accuracy_log_sampling_target": _everywhere("accuracy_log_sampling_target"),
}

BUILT_IN_ONLY = {
    "qsl_rng_seed",
    "sample_index_rng_seed",
    "schedule_rng_seed",
    "accuracy_log_probability",
    "test05",
    "test05_qsl_rng_seed",
    "test05_sample_index_rng_seed",
    "test05_schedule_rng_seed",
}
"""Settings that LoadGen only reads from its built-in configuration, so that they are equal for all
submitters."""


def read_number(text: str, where: str) -> Number:
    """Read a value like LoadGen: a whole number in any base, else a fraction."""
    with suppress(ValueError):
        return int(text, 0)
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise HarnessError("settings", f"{where}: {text!r} is not a number", "give a number")


def check_name(name: str, where: str) -> None:
    """Refuse a name that LoadGen would silently ignore."""
    if name in SETTINGS:
        return
    if name in BUILT_IN_ONLY:
        raise HarnessError(
            "settings",
            f"{where}: LoadGen takes {name} only from its built-in configuration and would ignore it",
            "remove it",
        )
    if name == "mode":
        raise HarnessError("settings", f"{where}: the mode is not a setting", "set the run's mode")
    near = get_close_matches(name, SETTINGS, n=1)
    raise HarnessError(
        "settings",
        f"{where}: LoadGen has no setting {name!r} and would ignore it",
        f"did you mean {near[0]!r}?" if near else f"it knows {', '.join(sorted(SETTINGS))}",
    )


def value_in(test_settings: Any, name: str, scenario: str) -> Number | None:
    """Return a setting's value from TestSettings, in the user.conf's unit; None if it has no effect."""
    setting = SETTINGS[name]
    if scenario not in setting.fields:
        return None
    value = float(getattr(test_settings, setting.fields[scenario])) / setting.factor
    return int(value) if value.is_integer() else value
