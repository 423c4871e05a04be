"""Names shared by llama.cpp's actions: the place of a variant's file, and the scenarios of its records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from agent.core.records import MetadataValue

DEFAULT_MODELS = "models"
"""Default folder of the models, below the package folder."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""Pattern of the names of models and variants: both become part of a path and of a scenario."""


PLAIN = "-PLAIN"
"""Suffix of a variant made without the importance matrix that its twin has."""

_SMALL_BITS = 4
_NEEDS_MATRIX = re.compile(r"IQ1_.*|IQ2_.*|IQ3_XXS|Q2_K_S")
"""Types that llama-quantize only makes with a matrix (src/llama-quant.cpp, tensor_requires_imatrix)."""


def bits_of(name: str) -> int | None:
    """Return the minimum bits per weight of a type such as F16, Q4_K_M or IQ2_XS; None for other names."""
    match = re.fullmatch(r"(?:BF|F|I?Q|TQ)(\d+)(?:_.*)?", name.upper())
    return int(match[1]) if match else None


def takes_matrix(name: str) -> bool:
    """Return True if a type is small enough for an importance matrix: 4 bits or fewer, and not ternary."""
    bits = bits_of(name)
    return name.upper().startswith(("Q", "IQ")) and bits is not None and bits <= _SMALL_BITS


def with_plain_twins(names: Iterable[str]) -> tuple[str, ...]:
    """Return the variants, each one with an importance matrix followed by its twin without one.

    Types that cannot be made without a matrix do not have a twin.
    """
    twins = {
        name: f"{name}{PLAIN}"
        for name in names
        if takes_matrix(name) and not name.endswith(PLAIN) and not _NEEDS_MATRIX.fullmatch(name)
    }
    return tuple(one for name in names for one in ((name, twins[name]) if name in twins else (name,)))


@dataclass(frozen=True)
class Variant:
    """A model in one precision: ``<models_dir>/<model>/<model>-<variant>.gguf``.

    Args:
        model: the model's name, such as ``smollm2-135m``.
        name: llama.cpp's name of the precision, such as ``F16``, ``Q8_0``, ``Q4_K_M``, in upper case.
        models_dir: the folder of all models.
    """

    model: str
    name: str
    models_dir: Path

    def __post_init__(self) -> None:
        """Refuse names that lead out of the folder."""
        for value in (self.model, self.name):
            if not re.fullmatch(NAME_PATTERN, value):
                raise ValueError(f"{value!r} is not a valid name: use letters, digits, '.', '_' and '-'")

    @property
    def folder(self) -> Path:
        """Folder of the model's variants."""
        return self.models_dir / self.model

    @property
    def path(self) -> Path:
        """The variant's file."""
        return self.folder / f"{self.model}-{self.name}.gguf"

    @property
    def type(self) -> str:
        """llama.cpp's name of the precision."""
        return self.name.removesuffix(PLAIN)

    @property
    def part(self) -> Path:
        """File name while the variant is being made."""
        return self.path.with_suffix(".part")

    def require(self) -> Path:
        """Return the variant's file.

        Raises:
            ActionFailedError: if the file does not exist.
        """
        if not self.path.is_file():
            there = ", ".join(path.name for path in sorted(self.folder.glob("*.gguf"))) or "none"
            raise ActionFailedError(
                f"{self.path} does not exist; variants of {self.model}: {there}",
                remedy="add a LlamaCppQuantize before this action",
            )
        return self.path

    def scenario(self, what: str) -> str:
        """Return the scenario of its records, such as ``smollm2-135m/Q4_K_M/mmlu``."""
        return f"{self.model}/{self.name}/{what}"

    @property
    def metadata(self) -> dict[str, MetadataValue]:
        """Return the metadata of its records, by which variants are compared."""
        return {"model": self.model, "variant": self.name}


def variant_files(models_dir: Path, model: str) -> list[Variant]:
    """Return the variants of a model in its folder, by name."""
    prefix = f"{model}-"
    return [
        Variant(model, path.stem.removeprefix(prefix), models_dir)
        for path in sorted((models_dir / model).glob(f"{prefix}*.gguf"))
    ]
