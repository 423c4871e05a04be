"""The bundle that takes the place of the network on a host without one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agent.facts.base import Facts

BUNDLE = "bundle"
"""The name under which the facts of a run have the bundle."""

WHEELS = "wheels"
DEBS = "debs"
RPMS = "rpms"
IMAGES = "images"
"""Folders of a bundle."""


@dataclass(frozen=True)
class Bundle:
    """Everything that the steps of a plan download, in one folder.

    Args:
        folder: its folder.
        platform: what it was made for, such as ``ubuntu-24.04-x64``.
        contents: what it has, as pairs of kind and name, such as ``("deb", "libgomp1")``.
        apt_environment: the variables with which apt sees the bundle's packages and no others; empty if the
            bundle has none.
        dnf_options: the options with which dnf sees the bundle's packages and no others.
    """

    folder: Path
    platform: str
    contents: frozenset[tuple[str, str]]
    apt_environment: Mapping[str, str] = field(default_factory=dict)
    dnf_options: tuple[str, ...] = ()

    @property
    def wheels(self) -> Path:
        """The folder of its wheels."""
        return self.folder / WHEELS


def bundle_of(facts: Facts) -> Bundle | None:
    """Return the bundle that was given with ``--bundle``, or None."""
    return cast("Bundle | None", facts.given(BUNDLE))
