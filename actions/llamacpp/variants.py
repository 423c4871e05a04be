"""Names that llama.cpp's actions share: where a variant of a model lies, and how its records are called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from agent.core.records import MetadataValue

DEFAULT_MODELS = "models"
"""The folder of models below the package folder, where ``models_dir`` is not given."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""What a model and a variant may be called: both become part of a path and of a scenario."""


@dataclass(frozen=True)
class Variant:
    """One model in one precision: ``<models_dir>/<model>/<model>-<variant>.gguf``.

    Args:
        model: the model's name, such as ``smollm2-135m``.
        name: llama.cpp's name of the precision, such as ``F16``, ``Q8_0``, ``Q4_K_M``; upper case.
        models_dir: the folder of all models.
    """

    model: str
    name: str
    models_dir: Path

    def __post_init__(self) -> None:
        """Refuse names that would lead out of the folder."""
        for value in (self.model, self.name):
            if not re.fullmatch(NAME_PATTERN, value):
                raise ValueError(f"{value!r} is no name: use letters, digits, '.', '_' and '-'")

    @property
    def folder(self) -> Path:
        """The folder of the model's variants."""
        return self.models_dir / self.model

    @property
    def path(self) -> Path:
        """The variant's file."""
        return self.folder / f"{self.model}-{self.name}.gguf"

    @property
    def part(self) -> Path:
        """The file while it is made."""
        return self.path.with_suffix(".part")

    def scenario(self, what: str) -> str:
        """The scenario of its records, such as ``smollm2-135m/Q4_K_M/mmlu``."""
        return f"{self.model}/{self.name}/{what}"

    @property
    def metadata(self) -> dict[str, MetadataValue]:
        """What every record of it carries, so that variants can be set side by side."""
        return {"model": self.model, "variant": self.name}


def variant_files(models_dir: Path, model: str) -> list[Variant]:
    """The variants of a model that lie in its folder, by name."""
    prefix = f"{model}-"
    return [
        Variant(model, path.stem.removeprefix(prefix), models_dir)
        for path in sorted((models_dir / model).glob(f"{prefix}*.gguf"))
    ]
