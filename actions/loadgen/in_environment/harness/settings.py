"""Write LoadGen's settings as a user.conf, and verify that LoadGen applied them.

LoadGen hides mistakes: it ignores an unknown name, truncates a fraction given for a whole number, skips a
line for the wrong scenario, and gives an unknown model a limit of 10 ms and no token latencies. Here each of
these is an error. Precedence follows TestSettings::FromConfig (mlcommons/inference,
loadgen/test_settings_internal.cc, 6.0.17).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import HarnessError
from .outputs import write_new
from .setting_table import SETTINGS, Number, check_name, read_number
from .user_conf import lines_for, look_up, user_conf_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TOKEN_LIMITS = ("ttft_latency", "tpot_latency")


@dataclass(frozen=True)
class Asked:
    """The settings of one test.

    Args:
        model: the model's name for LoadGen; Interactive has a different one.
        scenario: LoadGen's scenario.
        values: the values in effect by user.conf name, after the user's own user.conf; includes the latency
            limits, even if they are the model's own.
        user_conf: the text of the user.conf with these values.
    """

    model: str
    scenario: str
    values: Mapping[str, Number]
    user_conf: str


def loadgen_scenario(scenario: str) -> str:
    """Return LoadGen's name of a scenario: Interactive is Server with other limits."""
    return "Server" if scenario == "Interactive" else scenario


def ask(
    scenario: str,
    *,
    mode: str,
    model: str,
    base_model: str,
    own_limits: Mapping[str, Number],
    defaults: Mapping[str, Number],
    settings: Mapping[str, Any],
    user_conf: Path | None,
) -> Asked:
    """Combine defaults, settings and the user's own user.conf; later ones override earlier ones.

    Token latencies are on by default, except in an accuracy run, where an empty answer is only a wrong one,
    and in Server if the limit is on the latency of the whole answer.

    Args:
        scenario: LoadGen's scenario.
        mode: performance or accuracy.
        model: the model's name for LoadGen.
        base_model: its name outside of Interactive, whose lines in ``user_conf`` also apply in Interactive.
        own_limits: the latency limits of this model in LoadGen's built-in configuration.
        defaults: values unless set otherwise; names without effect in the scenario are dropped.
        settings: the settings for this scenario.
        user_conf: a file whose lines override the others.

    Raises:
        HarnessError: (``settings``) if LoadGen would not accept a name or value, if no line of
            ``user_conf`` has an effect, or if LoadGen would judge a Server test by a limit that was not set.
    """
    values = {name: value for name, value in defaults.items() if scenario in SETTINGS[name].fields}
    asked = _checked(settings, scenario)
    theirs = lines_for(user_conf, model=model, base_model=base_model, scenario=scenario) if user_conf else {}
    their_values = {
        name: read_number(text, f"{user_conf}: {name}")
        for name in SETTINGS
        if (text := look_up(theirs, model, scenario, name)) is not None
    }
    chosen = {**asked, **their_values}
    _check_range(chosen, scenario)
    own: Mapping[str, Number] = {}
    if mode == "accuracy":
        values["use_token_latencies"] = 0
        asked, their_values = (
            {n: v for n, v in each.items() if n not in _TOKEN_LIMITS} for each in (asked, their_values)
        )
    elif scenario == "Server":
        tokens, own = _server_limits(model, chosen, own_limits)
        values["use_token_latencies"] = int(tokens)
        if tokens:
            values["target_latency"] = 0  # like LoadGen's own language models: no limit
    else:
        values["use_token_latencies"] = 1
    values |= asked
    in_effect = {**own, **values, **their_values}
    text = user_conf_text(scenario, values, in_effect, theirs, user_conf)
    return Asked(model=model, scenario=scenario, values=in_effect, user_conf=text)


def _checked(settings: Mapping[str, Any], scenario: str) -> dict[str, Number]:
    """Return the settings as numbers; refuse any without effect."""
    values = {}
    for name, value in settings.items():
        where = f"setting {name}"
        check_name(name, where)
        if scenario not in SETTINGS[name].fields:
            raise HarnessError(
                "settings",
                f"{where} has no effect in {scenario}",
                f"remove it for this scenario; LoadGen reads it in {', '.join(SETTINGS[name].fields)}",
            )
        values[name] = read_number(str(int(value) if isinstance(value, bool) else value), where)
    return values


def _check_range(chosen: Mapping[str, Number], scenario: str) -> None:
    """Refuse numbers that LoadGen would accept but that make no sense."""
    for name, value in chosen.items():
        may_be_none = name not in _TOKEN_LIMITS and (name != "target_latency" or scenario == "Server")
        if value < 0 or (value == 0 and not may_be_none):
            raise HarnessError("settings", f"{name} is {value}", "it must be above 0")


def _server_limits(
    model: str, chosen: Mapping[str, Number], own_limits: Mapping[str, Number]
) -> tuple[bool, Mapping[str, Number]]:
    """Return how LoadGen judges a Server test, and the model's own limits that apply by default.

    LoadGen judges either the first token and the time per further token, or the latency of whole answers.

    Args:
        model: the model's name for LoadGen.
        chosen: the values that were set, without defaults.
        own_limits: the limits of this model in the built-in configuration.

    Returns:
        whether token latencies are measured, and the model's own limits.
    """
    token_limits = [name for name in _TOKEN_LIMITS if name in chosen]
    is_whole = chosen.get("target_latency", 0) > 0 or (
        not token_limits and "target_latency" in own_limits and "target_latency" not in chosen
    )
    tokens = bool(chosen.get("use_token_latencies", not is_whole or bool(token_limits)))
    ignored = token_limits if not tokens else ["target_latency"] if chosen.get("target_latency") else []
    if ignored:
        raise HarnessError(
            "settings",
            f"{' and '.join(ignored)} would have no effect, because LoadGen judges "
            + (
                "token latencies: ttft_latency and tpot_latency" if tokens else "the latency of whole answers"
            ),
            "set target_latency, or ttft_latency and tpot_latency, but not both",
        )
    needed = _TOKEN_LIMITS if tokens else ("target_latency",)
    missing = [name for name in needed if not chosen.get(name) and name not in own_limits]
    if missing:
        raise HarnessError(
            "settings",
            f"LoadGen has no limits for the model {model!r} in this scenario, and {' and '.join(missing)} is "
            "not set",
            "set ttft_latency and tpot_latency (ms), or target_latency (ms) for whole answers, or use a name "
            "of LoadGen's, such as llama3_1-8b",
        )
    return tokens, {name: own_limits[name] for name in needed if name not in chosen}


def apply_settings(test_settings: Any, asked: Asked, path: Path) -> None:
    """Write the user.conf, let LoadGen read it, and check the resulting values.

    Args:
        test_settings: a new ``mlperf_loadgen.TestSettings``; must be the first one that the process reads,
            since LoadGen applies its built-in configuration only once.
        asked: the settings.
        path: destination of the user.conf.

    Raises:
        HarnessError: (``settings``) if LoadGen refuses the file or has another value than requested.
    """
    write_new(path, asked.user_conf)
    code = test_settings.FromConfig(str(path), asked.model, asked.scenario)
    if code != 0:
        cause = {-2: "it could not open the file", -22: "a value is not a number"}.get(code, "unknown cause")
        raise HarnessError("settings", f"LoadGen refused {path} with {code}: {cause}")
    for name, value in asked.values.items():
        setting = SETTINGS[name]
        field = setting.fields.get(asked.scenario)
        if field is None:
            continue
        taken = getattr(test_settings, field)
        wanted = bool(value) if setting.kind == "switch" else value * setting.factor
        if not math.isclose(taken, wanted, rel_tol=1e-9):
            raise HarnessError(
                "settings",
                f"{name} = {value} was requested, but LoadGen uses {taken / setting.factor:g}",
                "" if float(value).is_integer() else "LoadGen needs a whole number there",
            )
