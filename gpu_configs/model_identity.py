"""Tells whether a model is the one that a profile names, and whether two folders hold the same model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIGURATIONS = Path(__file__).with_name("models")
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
_BLOCK_BYTES = 1024**2
_WHOLE_BYTES = 16 * _BLOCK_BYTES
"""Larger files are weights, of which blocks are read."""


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


def model_fingerprint(folder: Path) -> str:
    """Return a name for the content of a model's folder; empty if it is not a folder of a model.

    It does not depend on the folder's place: the same model in another package folder has the same one. It
    is the SHA-256 of the files' names, sizes and contents. Of a file of weights, the first, the middle and
    the last MiB stand for the content, because reading 140 GB takes minutes.

    Raises:
        OSError: if a file cannot be read.
    """
    if not (folder / "config.json").is_file():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            digest.update(f"{path.name} {path.stat().st_size} ".encode())
            for block in _blocks(path):
                digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            yield file.read()
            return
        for start in (0, size // 2, size - _BLOCK_BYTES):
            file.seek(start)
            yield file.read(_BLOCK_BYTES)


def _config(folder: Path) -> dict[str, Any]:
    """Return the content of config.json; empty if there is none."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
