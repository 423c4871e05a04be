"""The parts of a bundle, as its manifest and the document of ``vcagent bundle`` list them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class BundledContent(BaseModel):
    """A thing that a profile asks for, and that a bundle has."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(description="Such as wheel or deb.")
    name: str = Field(description="Its name, as the profile writes it.")


class BundledFile(BaseModel):
    """A file of a bundle."""

    model_config = ConfigDict(extra="allow")

    path: str = Field(description="Its path in the bundle.")
    size_bytes: int
    sha256: str
