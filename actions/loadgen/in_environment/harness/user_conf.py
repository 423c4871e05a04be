"""Read and check the user's own user.conf, and append it to the run's own lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import HarnessError
from .setting_table import SCENARIOS, SETTINGS, Number, check_name, read_number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SHOWN = 3


def read_user_conf(path: Path) -> dict[str, str]:
    """Return the lines ``model.scenario.name = value`` of a user.conf, for all models and scenarios.

    Raises:
        HarnessError: (``settings``) if the file cannot be read, or LoadGen could never apply a line.
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
                "write comments on their own lines; write a model's name with _ in place of dots",
            )
        model, scenario, name = words[0].rsplit(".", 2)
        _check_place(model, scenario, where)
        check_name(name, where)
        read_number(words[2], where)
        found[words[0]] = words[2]
    return found


def _check_place(model: str, scenario: str, where: str) -> None:
    """Refuse a model or scenario that LoadGen would never match."""
    if "." in model:
        raise HarnessError(
            "settings",
            f"{where}: the model {model!r} has a dot, which matches nothing in LoadGen",
            f"write {model.replace('.', '_')}.{scenario}",
        )
    if scenario not in {"*", *SCENARIOS}:
        interactive = f"; Interactive is {model}-interactive.Server" if scenario == "Interactive" else ""
        raise HarnessError(
            "settings",
            f"{where}: LoadGen has no scenario {scenario!r}",
            f"it knows {', '.join(SCENARIOS)}, and * for all{interactive}",
        )


def lines_for(path: Path, *, model: str, base_model: str, scenario: str) -> dict[str, str]:
    """Return the lines of a user.conf for LoadGen to read in this test.

    Lines for the base model become lines for its interactive name, unless the file has lines for that.

    Args:
        path: the file.
        model: the model's name for LoadGen.
        base_model: the model's name outside of Interactive; the same one elsewhere.
        scenario: LoadGen's scenario.

    Raises:
        HarnessError: (``settings``) if the file cannot be used, or if no line has an effect in this test.
    """
    conf = read_user_conf(path)
    lines: dict[str, str] = {}
    for key, value in conf.items():
        its_model, rest = key.split(".", 1)
        own = f"{model}.{rest}"
        if its_model != base_model:
            lines[key] = value
        elif model == base_model or own not in conf:
            lines[own] = value
    if all(look_up(lines, model, scenario, name) is None for name in _names_in(scenario)):
        names = model if model == base_model else f"{model} or {base_model}"
        places = dict.fromkeys(key.rsplit(".", 1)[0] for key in conf)
        found = f"it is for {', '.join([*places][:_SHOWN])}" if places else "it is empty"
        raise HarnessError(
            "settings",
            f"no line of {path} has an effect on the model {names} in {scenario}: {found}",
            f"use {model}.{scenario} or *.{scenario} there, or remove user_conf",
        )
    return lines


def _names_in(scenario: str) -> list[str]:
    return [name for name, setting in SETTINGS.items() if scenario in setting.fields]


def look_up(conf: Mapping[str, str], model: str, scenario: str, name: str) -> str | None:
    """Return the value that LoadGen would find, in its order of precedence (``lookupkv``)."""
    for prefix in (f"{model}.{scenario}", f"*.{scenario}", f"{model}.*", "*.*"):
        if f"{prefix}.{name}" in conf:
            return conf[f"{prefix}.{name}"]
    return None


def user_conf_text(
    scenario: str,
    values: Mapping[str, Number],
    in_effect: Mapping[str, Number],
    theirs: Mapping[str, str],
    path: Path | None,
) -> str:
    """Return the user.conf that LoadGen reads: the run's lines, then the user's.

    LoadGen applies the more specific of two lines, not the later one, so the run's lines are omitted if the
    user's set another value for the same setting.
    """
    lines = ["# Set by the run; lines of the user's own user.conf, if any, follow and override these."]
    for name, value in values.items():
        if in_effect[name] == value:
            lines.append(f"*.{scenario}.{name} = {_text(value)}")
        else:
            lines.append(f"# {name} = {_text(value)} is overridden below.")
    if theirs:
        lines += ["", f"# From {path}:", *(f"{key} = {value}" for key, value in theirs.items())]
    return "\n".join(lines) + "\n"


def _text(value: Number) -> str:
    """Format a number for a user.conf; avoid exponents, since LoadGen truncates ``1e3`` to 1."""
    return str(int(value)) if float(value).is_integer() else repr(value)
