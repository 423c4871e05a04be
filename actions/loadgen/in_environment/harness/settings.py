"""LoadGen's settings: what was asked, written as a user.conf, and proof that LoadGen took it.

LoadGen forgives too much: an unknown name is ignored, a fraction given for a whole number is cut, a line
for the wrong scenario is skipped, and a model it does not know gets a limit of 10 ms and no token latencies.
Here each of these is an error. Precedence follows TestSettings::FromConfig (mlcommons/inference,
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
        model: the model's name for LoadGen; Interactive has its own.
        scenario: LoadGen's scenario.
        values: what is in effect by its user.conf name, after the user's own user.conf; with the latency
            limits, also where they are the model's own.
        user_conf: the text of the user.conf that says so.
    """

    model: str
    scenario: str
    values: Mapping[str, Number]
    user_conf: str


def loadgen_scenario(scenario: str) -> str:
    """LoadGen's name of a scenario: Interactive is Server with other limits."""
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
    """Put defaults, settings and the user's own user.conf together, the later winning.

    Token latencies are on unless asked otherwise, except in an accuracy run, where an empty answer is a wrong
    one and no more, and in Server where the limit is one of the whole answer's latency.

    Args:
        scenario: LoadGen's scenario.
        mode: performance or accuracy.
        model: the model's name for LoadGen.
        base_model: its name outside of Interactive, whose lines in ``user_conf`` apply in Interactive too.
        own_limits: the latency limits that LoadGen's built-in configuration has for this very model.
        defaults: what holds unless asked otherwise; names without effect in the scenario are left out.
        settings: what is asked for this scenario.
        user_conf: a file whose lines win.

    Raises:
        HarnessError: (``settings``) if a name or value is none that LoadGen would take, if no line of
            ``user_conf`` has an effect, or if a Server test would be judged by a limit that nobody asked for.
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
            values["target_latency"] = 0  # as LoadGen's own language models have it: no limit
    else:
        values["use_token_latencies"] = 1
    values |= asked
    in_effect = {**own, **values, **their_values}
    text = user_conf_text(scenario, values, in_effect, theirs, user_conf)
    return Asked(model=model, scenario=scenario, values=in_effect, user_conf=text)


def _checked(settings: Mapping[str, Any], scenario: str) -> dict[str, Number]:
    """The settings as numbers, where each is one that has an effect."""
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
    """Refuse numbers that LoadGen would take and make nonsense of."""
    for name, value in chosen.items():
        may_be_none = name not in _TOKEN_LIMITS and (name != "target_latency" or scenario == "Server")
        if value < 0 or (value == 0 and not may_be_none):
            raise HarnessError("settings", f"{name} is {value}", "it must be above 0")


def _server_limits(
    model: str, chosen: Mapping[str, Number], own_limits: Mapping[str, Number]
) -> tuple[bool, Mapping[str, Number]]:
    """What LoadGen judges a Server test by, and the model's own limits that hold since nobody chose others.

    LoadGen judges either the first token and the time of each further one, or the whole answer's latency.

    Args:
        model: the model's name for LoadGen.
        chosen: what was asked for, defaults left out.
        own_limits: what the built-in configuration has for this very model.

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
            "ask for target_latency, or for ttft_latency and tpot_latency, not for both",
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
    """Write the user.conf, let LoadGen read it, and check that it holds.

    Args:
        test_settings: a new ``mlperf_loadgen.TestSettings``; the process must not have read one before,
            since LoadGen applies its built-in configuration only once.
        asked: the settings.
        path: where the user.conf goes.

    Raises:
        HarnessError: (``settings``) if LoadGen refuses the file or took another value than was asked for.
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
                f"{name} = {value} was asked for, but LoadGen took {taken / setting.factor:g}",
                "" if float(value).is_integer() else "LoadGen takes whole numbers there",
            )
