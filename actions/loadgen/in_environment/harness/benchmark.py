"""What LoadGen's built-in configuration sets for a benchmark, and whether a test keeps to it."""

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
"""FromConfig's ``conf_type`` for the built-in configuration alone."""
_UNSET = 1
"""A nanosecond, a query: no benchmark has that."""


@dataclass(frozen=True)
class Benchmark:
    """A model's own settings in a scenario.

    Args:
        model: the model's name for LoadGen.
        scenario: LoadGen's scenario.
        settings: what the configuration sets, by user.conf names and in their units; of the latency limits
            those of this very model, not the fallback for any.
    """

    model: str
    scenario: str
    settings: Mapping[str, Number]

    @property
    def limits(self) -> dict[str, Number]:
        """Its latency limits alone."""
        return {name: value for name, value in self.settings.items() if name in _LIMITS}

    def compare(self, test_settings: Any) -> dict[str, dict[str, Number | bool | None]]:
        """What a test has in effect beside what the benchmark asks for.

        Args:
            test_settings: the test's ``mlperf_loadgen.TestSettings``.

        Returns:
            for each setting the ``benchmark``'s value, that ``in_effect`` (None for a limit that is not
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
    """What LoadGen's built-in configuration says of a model; None if it does not know it.

    Reading that configuration alone (``conf_type`` 0) leaves the process's one real reading free.

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
        # The configuration has no line for ttft and tpot of any model, but one for target_latency.
        is_fallback = getattr(found, _field(name, scenario)) == getattr(unknown, _field(name, scenario))
        if not is_fallback and (name == "target_latency") != found.use_token_latencies:
            settings[name] = value_in(found, name, scenario) or 0
    return Benchmark(model, scenario, settings)


def _read(test_settings: Any, model: str, scenario: str) -> Any:
    """The built-in configuration over marks, so that what it leaves alone can be told from what it sets."""
    for name in (*_LIMITS, *_LOWER, *_SAME):
        if _field(name, scenario) and SETTINGS[name].kind == "whole":
            setattr(test_settings, _field(name, scenario), _UNSET)
    test_settings.FromConfig("", model, scenario, _BUILT_IN)
    return test_settings


def _numbers(test_settings: Any) -> dict[str, float]:
    values = {name: getattr(test_settings, name) for name in dir(test_settings)}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def _field(name: str, scenario: str) -> str:
    """The field of TestSettings that a setting ends in; empty where the scenario has none."""
    return SETTINGS[name].fields.get(scenario, "")
