"""Folders of models in Hugging Face's layout: their contents, and missing files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_INDICES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = (".safetensors", ".bin", ".gguf")


@dataclass(frozen=True)
class ModelFolder:
    """A folder that may hold a model.

    Args:
        files: the sizes in bytes of the files in it, links followed; a dangling link does not count.
        shards: the files of weights listed in its indices.
    """

    files: Mapping[str, int] = field(default_factory=dict)
    shards: tuple[str, ...] = ()

    def problem(self, *, weights: bool) -> str:
        """Return what a model lacks, with its weights or with random ones; empty if it is complete."""
        if not self.files.get("config.json"):
            return "config.json is not there"
        if not weights:
            return ""
        if missing := [shard for shard in self.shards if not self.files.get(shard)]:
            return f"{len(missing)} of {len(self.shards)} files of weights are missing, such as {missing[0]}"
        if not self.shards and not any(size for name, size in self.files.items() if name.endswith(_WEIGHTS)):
            return "there are no weights"
        return ""


def model_folder(path: Path) -> Fact[ModelFolder]:
    """Return the fact of the content of a model's folder."""
    command = ["find", "-L", str(path), "-maxdepth", "1", "-type", "f", "-printf", "%s %f\\n"]

    def read(host: Host) -> ModelFolder:
        lines = (line.partition(" ") for line in (host.output(command) or "").splitlines())
        files = {name: int(size) for size, _, name in lines}
        shards = {
            shard for name in _INDICES if name in files for shard in _shards(host.text(str(path / name)))
        }
        return ModelFolder(files, tuple(sorted(shards)))

    return Fact(f"model_folder[{path}]", " ".join(command[:3]), read)


def _shards(index: str | None) -> list[str]:
    try:
        return list(map(str, json.loads(index or "")["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
