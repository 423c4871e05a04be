"""Locate the source of variants: a variant, a GGUF file, or a package of an environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from actions.llamacpp.model_file import PACKAGE_PREFIX, locate_model
from actions.llamacpp.variant_action import VariantParameters
from actions.llamacpp.variants import Variant
from agent.component.parameter_types import OptionalPath  # noqa: TC001 - pydantic reads it
from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from agent.component.component import StepContext

MATRIX_FILE = "imatrix.gguf"
"""Importance matrix of a model, in the folder of its variants."""


class SourceParameters(VariantParameters):
    """Variants and their source."""

    source: str = Field(
        "F16", min_length=1, description="A variant, a GGUF file, or package:<module> of the environment."
    )
    environment: OptionalPath = Field(None, description="The Python environment of package:<module>.")

    @property
    def source_variant(self) -> str:
        """The variant named by source; empty if source is a file or a package."""
        named = (
            "/" not in self.source and ":" not in self.source and not self.source.lower().endswith(".gguf")
        )
        return self.source.upper() if named else ""

    @property
    def origin(self) -> str:
        """Origin that is recorded beside files made from the source."""
        if named := self.source_variant:
            return named
        return self.source if self.source.startswith(PACKAGE_PREFIX) else str(Path(self.source).absolute())

    def source_file(self, context: StepContext) -> Path:
        """Return the source's file.

        Raises:
            ActionFailedError: if the file does not exist.
        """
        if named := self.source_variant:
            return Variant(self.model, named, self.models(context.package_dir)).require()
        if self.source.startswith(PACKAGE_PREFIX) and self.environment is None:
            raise ActionFailedError(
                f"{self.source} is a package, but environment is not set", remedy="set environment"
            )
        python = (self.environment or Path()) / "bin" / "python"
        return locate_model(self.source, python=python, processes=context.processes, log=context.log)
