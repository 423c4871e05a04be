"""LoadGen's settings: what was asked, written as a user.conf, and proof that LoadGen took it.

LoadGen forgives too much: an unknown name is ignored, a fraction given for a whole number is cut, a line
for the wrong scenario is skipped, and a model it does not know gets a limit of 10 ms and no token latencies.
Here each of these is an error. Names, units and precedence follow TestSettings::FromConfig
(mlcommons/inference, loadgen/test_settings_internal.cc, 6.0.17).
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
    from pathlib import Path

__all__ = ["Asked", "apply_settings", "ask", "loadgen_scenario", "read_user_conf"]

Number = int | float

_MS = 1_000_000
"""Nanoseconds in a user.conf's millisecond."""

_ALL = ("SingleStream", "MultiStream", "Server", "Offline")


@dataclass(frozen=True)
class _Setting:
    """How LoadGen takes one name of a user.conf.

    Args:
        fields: the field of TestSettings it ends in, for each scenario that it applies to.
        factor: from the user.conf's unit to the field's.
        kind: ``whole`` (cut by LoadGen), ``real``, or ``switch`` (0 or 1).
    """

    fields: Mapping[str, str]
    factor: float = 1
    kind: str = "whole"


def _everywhere(field: str, kind: str = "whole") -> _Setting:
    return _Setting(dict.fromkeys(_ALL, field), kind=kind)


_SETTINGS: Mapping[str, _Setting] = {
    "target_qps": _Setting({"Server": "server_target_qps", "Offline": "offline_expected_qps"}, kind="real"),
    "target_latency": _Setting(
        {
            "SingleStream": "single_stream_expected_latency_ns",
            "MultiStream": "multi_stream_expected_latency_ns",
            "Server": "server_target_latency_ns",
        },
        factor=_MS,
        kind="real",
    ),
    "target_latency_percentile": _Setting(
        {
            "SingleStream": "single_stream_target_latency_percentile",
            "MultiStream": "multi_stream_target_latency_percentile",
            "Server": "server_target_latency_percentile",
        },
        factor=0.01,
        kind="real",
    ),
    "ttft_latency": _Setting({"Server": "ttft_latency"}, factor=_MS),
    "tpot_latency": _Setting({"Server": "tpot_latency"}, factor=_MS),
    "samples_per_query": _Setting({"MultiStream": "multi_stream_samples_per_query"}),
    "coalesce_queries": _Setting({"Server": "server_coalesce_queries"}, kind="switch"),
    "max_async_queries": _Setting({"Server": "server_max_async_queries"}),
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

_BUILT_IN_ONLY = {
    "qsl_rng_seed",
    "sample_index_rng_seed",
    "schedule_rng_seed",
    "accuracy_log_probability",
    "test05",
    "test05_qsl_rng_seed",
    "test05_sample_index_rng_seed",
    "test05_schedule_rng_seed",
}
"""Names that LoadGen reads from its built-in configuration only, so that every submitter has the same."""


@dataclass(frozen=True)
class Asked:
    """The settings of one test.

    Args:
        model: the model's name for LoadGen; Interactive has its own.
        scenario: LoadGen's scenario.
        values: what is in effect by its user.conf name, after the user's own user.conf.
        user_conf: the text of the user.conf that says so.
    """

    model: str
    scenario: str
    values: Mapping[str, Number]
    user_conf: str


def loadgen_scenario(scenario: str) -> str:
    """LoadGen's name of a scenario: Interactive is Server with other limits."""
    return "Server" if scenario == "Interactive" else scenario


def read_user_conf(path: Path) -> dict[str, str]:
    """The lines ``model.scenario.name = value`` of a user.conf.

    Raises:
        HarnessError: (``settings``) if it cannot be read, or a line is none that LoadGen accepts.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HarnessError("settings", f"the user.conf {path} cannot be read: {error}") from error
    found = {}
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        if len(words) != 3 or words[1] != "=" or words[0].count(".") < 2:  # noqa: PLR2004  (key = value)
            raise HarnessError(
                "settings",
                f"{where} is not 'model.scenario.name = value': {line.strip()!r}",
                "a comment needs a line of its own; a model's name is written with _ for its dots",
            )
        _number(words[2], where)
        _check_name(words[0].rsplit(".", 1)[1], where)
        found[words[0]] = words[2]
    return found


def _number(text: str, where: str) -> Number:
    """Read a value as LoadGen does: a whole number in any base, else a fraction."""
    with suppress(ValueError):
        return int(text, 0)
    with suppress(ValueError):
        if math.isfinite(value := float(text)):
            return value
    raise HarnessError("settings", f"{where}: {text!r} is not a number", "LoadGen's values are numbers")


def _check_name(name: str, where: str) -> None:
    """Refuse a name that LoadGen would silently ignore."""
    if name in _SETTINGS:
        return
    if name in _BUILT_IN_ONLY:
        raise HarnessError(
            "settings",
            f"{where}: LoadGen takes {name} only from its built-in configuration and would ignore it",
            "remove it",
        )
    if name == "mode":
        raise HarnessError("settings", f"{where}: the mode is not a setting", "say so by the run's mode")
    near = get_close_matches(name, _SETTINGS, n=1)
    raise HarnessError(
        "settings",
        f"{where}: LoadGen has no setting {name!r} and would ignore it",
        f"did you mean {near[0]!r}?" if near else f"it knows {', '.join(sorted(_SETTINGS))}",
    )


def ask(
    scenario: str,
    *,
    model: str,
    known: bool,
    defaults: Mapping[str, Number],
    settings: Mapping[str, Any],
    user_conf: Path | None,
) -> Asked:
    """Put defaults, settings and the user's own user.conf together, the later winning.

    Args:
        scenario: LoadGen's scenario.
        model: the model's name for LoadGen.
        known: whether LoadGen's built-in configuration has this model's token limits.
        defaults: what holds unless asked otherwise; names without effect in the scenario are left out.
        settings: what is asked for this scenario.
        user_conf: a file whose lines win.

    Raises:
        HarnessError: (``settings``) if a name or value is none that LoadGen would take, or if a model that
            LoadGen does not know has no token limits.
    """
    values: dict[str, Number] = {
        name: value for name, value in defaults.items() if scenario in _SETTINGS[name].fields
    }
    for name, value in settings.items():
        where = f"setting {name}"
        _check_name(name, where)
        if scenario not in _SETTINGS[name].fields:
            raise HarnessError(
                "settings",
                f"{where} has no effect in {scenario}",
                f"remove it for this scenario; LoadGen reads it in {', '.join(_SETTINGS[name].fields)}",
            )
        values[name] = _number(str(int(value) if isinstance(value, bool) else value), where)

    theirs = read_user_conf(user_conf) if user_conf else {}
    in_effect = dict(values)
    for name in _SETTINGS:
        their_value = _look_up(theirs, model, scenario, name)
        if their_value is not None:
            in_effect[name] = _number(their_value, f"{user_conf}: {name}")
    if scenario == "Server" and in_effect.get("use_token_latencies") and not known:
        _check_limits(model, in_effect)
        values.setdefault("target_latency", 0)  # as LoadGen's own language models have it: no limit
    in_effect = {**values, **in_effect}
    text = _user_conf_text(scenario, values, in_effect, theirs, user_conf)
    return Asked(model=model, scenario=scenario, values=in_effect, user_conf=text)


def _user_conf_text(
    scenario: str,
    values: Mapping[str, Number],
    in_effect: Mapping[str, Number],
    theirs: Mapping[str, str],
    path: Path | None,
) -> str:
    """The user.conf: our lines, then theirs.

    LoadGen lets the more specific of two lines win, not the later one, so ours are left out where they
    have another value for the same setting.
    """
    lines = ["# Asked for by the run; lines of the user's own user.conf follow, if there are any, and win."]
    for name, value in values.items():
        if in_effect[name] == value:
            lines.append(f"*.{scenario}.{name} = {_text(value)}")
        else:
            lines.append(f"# {name} = {_text(value)} is overridden below.")
    if theirs:
        lines += ["", f"# From {path}:", *(f"{key} = {value}" for key, value in theirs.items())]
    return "\n".join(lines) + "\n"


def _text(value: Number) -> str:
    """A number as a user.conf spells it; whole where it is whole, since LoadGen cuts ``1e3`` to 1."""
    return str(int(value)) if float(value).is_integer() else repr(value)


def _look_up(conf: Mapping[str, str], model: str, scenario: str, name: str) -> str | None:
    """The value LoadGen would find, in its order of precedence (``lookupkv``)."""
    for prefix in (f"{model}.{scenario}", f"*.{scenario}", f"{model}.*", "*.*"):
        if f"{prefix}.{name}" in conf:
            return conf[f"{prefix}.{name}"]
    return None


def _check_limits(model: str, values: Mapping[str, Number]) -> None:
    """Refuse a Server test that LoadGen would judge by limits that nobody asked for."""
    missing = [name for name in ("ttft_latency", "tpot_latency") if name not in values]
    if missing:
        raise HarnessError(
            "settings",
            f"LoadGen has no limits for the model {model!r} in this scenario, and "
            f"{' and '.join(missing)} is not set",
            "set ttft_latency and tpot_latency (ms), or use a model name of LoadGen's, such as llama3_1-8b",
        )


def apply_settings(test_settings: Any, asked: Asked, path: Path) -> None:
    """Write the user.conf, let LoadGen read it, and check that it holds.

    Args:
        test_settings: a new ``mlperf_loadgen.TestSettings``; the process must not have read one before,
            since LoadGen applies its built-in configuration only once.
        asked: the settings.
        path: where the user.conf goes.

    Raises:
        HarnessError: (``settings``) if LoadGen refuses the file or took another value than was asked for.
    """
    path.write_text(asked.user_conf, encoding="utf-8")
    code = test_settings.FromConfig(str(path), asked.model, asked.scenario)
    if code != 0:
        cause = {-2: "it could not open the file", -22: "a value is not a number"}.get(code, "unknown cause")
        raise HarnessError("settings", f"LoadGen refused {path} with {code}: {cause}")
    for name, value in asked.values.items():
        setting = _SETTINGS[name]
        field = setting.fields.get(asked.scenario)
        if field is None or (name.startswith(("ttft", "tpot")) and not test_settings.use_token_latencies):
            continue
        taken = getattr(test_settings, field)
        wanted = bool(value) if setting.kind == "switch" else value * setting.factor
        if not math.isclose(taken, wanted, rel_tol=1e-9):
            raise HarnessError(
                "settings",
                f"{name} = {value} was asked for, but LoadGen took {taken / setting.factor:g}",
                "" if float(value).is_integer() else "LoadGen takes whole numbers there",
            )
