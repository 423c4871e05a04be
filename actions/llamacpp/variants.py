"""Names that llama.cpp's actions share: where a variant of a model lies, and how its records are called."""

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
"""The folder of models below the package folder, where ``models_dir`` is not given."""

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""What a model and a variant may be called: both become part of a path and of a scenario."""


PLAIN = "-PLAIN"
"""The end of the name of a variant that is made without the importance matrix that its twin has."""

_SMALL_BITS = 4
_NEEDS_MATRIX = re.compile(r"IQ1_.*|IQ2_.*|IQ3_XXS|Q2_K_S")
"""Types that llama-quantize makes with a matrix only (src/llama-quant.cpp, tensor_requires_imatrix)."""


def bits_of(name: str) -> int | None:
    """Return the least bits of a weight in a type such as F16, Q4_K_M or IQ2_XS; None for other names."""
    match = re.fullmatch(r"(?:BF|F|I?Q|TQ)(\d+)(?:_.*)?", name.upper())
    return int(match[1]) if match else None


def takes_matrix(name: str) -> bool:
    """Return True if a type is small enough for an importance matrix: 4 bits or fewer, and not ternary."""
    bits = bits_of(name)
    return name.upper().startswith(("Q", "IQ")) and bits is not None and bits <= _SMALL_BITS


def with_plain_twins(names: Iterable[str]) -> tuple[str, ...]:
    """Return variants, each that has an importance matrix followed by its twin that has none.

    Types that cannot be made without a matrix have no twin.
    """
    twins = {
        name: f"{name}{PLAIN}"
        for name in names
        if takes_matrix(name) and not name.endswith(PLAIN) and not _NEEDS_MATRIX.fullmatch(name)
    }
    return tuple(one for name in names for one in ((name, twins[name]) if name in twins else (name,)))


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
    def type(self) -> str:
        """llama.cpp's name of its precision."""
        return self.name.removesuffix(PLAIN)

    @property
    def part(self) -> Path:
        """The file while it is made."""
        return self.path.with_suffix(".part")

    def require(self) -> Path:
        """Return its file.

        Raises:
            ActionFailedError: if it is not there.
        """
        if not self.path.is_file():
            there = ", ".join(path.name for path in sorted(self.folder.glob("*.gguf"))) or "none"
            raise ActionFailedError(
                f"{self.path} is not there; variants of {self.model}: {there}",
                remedy="make it: a LlamaCppQuantize before this action",
            )
        return self.path

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
