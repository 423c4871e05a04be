"""Read a result's ``user.conf``: the settings that LoadGen takes from it for one benchmark and scenario."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_QUALITY = re.compile(r"-99(\.9)?$")
_LOADGEN_NAMES = {"resnet": "resnet50"}


def loadgen_names(benchmark: str, scenario: str) -> tuple[str, ...]:
    """Return the names of a benchmark in LoadGen's configuration, the most specific first.

    Args:
        benchmark: the official name, such as ``llama2-70b-99.9``.
        scenario: the scenario's name in the tree: Interactive has its own names.
    """
    base = _LOADGEN_NAMES.get(benchmark, _QUALITY.sub("", benchmark).replace(".", "_"))
    return (f"{base}-interactive", base) if scenario == "Interactive" else (base,)


def settings_in(path: Path, names: tuple[str, ...], scenario: str) -> Mapping[str, str | int | float]:
    """Return the settings for one benchmark in one of LoadGen's scenarios.

    The more specific line takes precedence, as in LoadGen (loadgen/test_settings_internal.cc, FromConfig).

    Args:
        path: the file; one that cannot be read has no settings.
        names: LoadGen's names of the benchmark, the most specific first.
        scenario: LoadGen's scenario: Interactive runs are of Server.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, tuple[int, str | int | float]] = {}
    models = {name: rank for rank, name in enumerate(reversed(("*", *names[::-1])), start=0)}
    for line in lines:
        key, equals, value = line.partition("#")[0].partition("=")
        parts = key.strip().rsplit(".", 2)
        if not equals or len(parts) != 3 or parts[0] not in models:  # noqa: PLR2004 - model, scenario, name
            continue
        if parts[1] not in {"*", scenario}:
            continue
        rank = 2 * (len(models) - models[parts[0]]) + (parts[1] != "*")
        if parts[2] not in found or rank >= found[parts[2]][0]:
            found[parts[2]] = (rank, _value(value.strip()))
    return {name: value for name, (_, value) in found.items()}


def _value(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
