"""Read a benchmark's settings in LoadGen's built-in configuration, and check that a test keeps to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .setting_table import SETTINGS, Number, value_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LIMITS = ("ttft_latency", "tpot_latency", "target_latency")
_LOWER = ("min_duration", "min_query_count", "target_latency_percentile", "performance_sample_count_override")
_SAME = ("sample_concatenate_permutation", "samples_per_query")
_NO_MODEL = "no-such-model"
_BUILT_IN = 0
"""Value of FromConfig's ``conf_type`` that selects only the built-in configuration."""
_UNSET = 1
"""Marker for an unset value (1 ns, 1 query); no benchmark uses it."""


@dataclass(frozen=True)
class Benchmark:
    """Settings of a model in a scenario, from LoadGen's built-in configuration.

    Args:
        model: the model's name for LoadGen.
        scenario: LoadGen's scenario.
        settings: the configured values, by user.conf names and in their units; latency limits only if
            they are for this model, not the fallback for any model.
    """

    model: str
    scenario: str
    settings: Mapping[str, Number]

    @property
    def limits(self) -> dict[str, Number]:
        """Latency limits of the benchmark."""
        return {name: value for name, value in self.settings.items() if name in _LIMITS}

    def compare(self, test_settings: Any) -> dict[str, dict[str, Number | bool | None]]:
        """Compare a test's effective settings with those of the benchmark.

        Args:
            test_settings: the test's ``mlperf_loadgen.TestSettings``.

        Returns:
            for each setting the ``benchmark``'s value, the value ``in_effect`` (None for a limit that is not
            applied), and whether the benchmark ``is_met``.
        """
        compared: dict[str, dict[str, Number | bool | None]] = {}
        for name, wanted in self.settings.items():
            value = value_in(test_settings, name, self.scenario)
            if name in _LIMITS and (name == "target_latency") == bool(test_settings.use_token_latencies):
                value = None
            is_met = value is not None and _is_met(name, value, wanted)
            compared[name] = {"benchmark": wanted, "in_effect": value, "is_met": is_met}
        return compared


def _is_met(name: str, value: Number, wanted: Number) -> bool:
    if name in _LIMITS:
        return value <= wanted
    return value >= wanted if name in _LOWER else value == wanted


def benchmark_of(new_settings: Callable[[], Any], model: str, scenario: str) -> Benchmark | None:
    """Return the settings of a model in LoadGen's built-in configuration; None if the model is unknown.

    Reading only that configuration (``conf_type`` 0) leaves the process's one real reading unused.

    Args:
        new_settings: ``mlperf_loadgen.TestSettings``.
        model: the model's name for LoadGen.
        scenario: LoadGen's scenario.
    """
    found, unknown = (_read(new_settings(), name, scenario) for name in (model, _NO_MODEL))
    if _numbers(found) == _numbers(unknown):
        return None
    settings: dict[str, Number] = {}
    for name in _LOWER + _SAME:
        value = getattr(found, _field(name, scenario), 0)
        if value and (value != _UNSET or value is True):
            settings[name] = value_in(found, name, scenario) or 0
    for name in _LIMITS if scenario == "Server" else ():
        # The configuration has ttft and tpot limits only for some models, but a target_latency for any.
        is_fallback = getattr(found, _field(name, scenario)) == getattr(unknown, _field(name, scenario))
        if not is_fallback and (name == "target_latency") != found.use_token_latencies:
            settings[name] = value_in(found, name, scenario) or 0
    return Benchmark(model, scenario, settings)


def _read(test_settings: Any, model: str, scenario: str) -> Any:
    """Return the built-in configuration read over markers, which show what the configuration does not set."""
    for name in (*_LIMITS, *_LOWER, *_SAME):
        if _field(name, scenario) and SETTINGS[name].kind == "whole":
            setattr(test_settings, _field(name, scenario), _UNSET)
    test_settings.FromConfig("", model, scenario, _BUILT_IN)
    return test_settings


def _numbers(test_settings: Any) -> dict[str, float]:
    values = {name: getattr(test_settings, name) for name in dir(test_settings)}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _field(name: str, scenario: str) -> str:
    """Return the field of TestSettings for a setting; empty if the scenario does not have one."""
    return SETTINGS[name].fields.get(scenario, "")
