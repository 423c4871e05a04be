"""Tells from a model's configuration whether it is the model that a profile names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CONFIGURATIONS = Path(__file__).with_name("models")
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)


def own_name(named: str, folder: str) -> str:
    """Return the name under which a model is recorded: its own if its sizes are not those of the named model.

    Args:
        named: the name in the profile, such as ``llama3.1-8b``. Sizes are known of the models in ``models``.
        folder: the model's folder. Any other name, or a folder without config.json, is believed.
    """
    expected, found = _config(_CONFIGURATIONS / named.replace(".", "_")), _config(Path(folder))
    different = [size for size in _SIZES if size in found and found[size] != expected.get(size)]
    if not (expected and different):
        return named
    told = str(found.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    place = Path(folder).resolve()
    if place.parent.name == "snapshots":  # of the hub's cache: models--org--name/snapshots/commit
        place = Path(place.parents[1].name.rpartition("--")[2])
    name = told or place.name
    return name if name and name != named else f"not-{named}"


def _config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json; empty if there is none."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
