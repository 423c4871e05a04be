"""Loads what other distributions register under entry points; whatever is broken is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent.core.errors import VcagentError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class PlugInError(VcagentError):
    """A plug-in cannot be used."""


def load_plug_in(point: EntryPoint, what: str) -> Any:
    """Return the object of an entry point.

    Args:
        point: the entry point.
        what: what it provides, such as ``the parser``.

    Raises:
        PlugInError: if it cannot be loaded, for any reason, with the distribution that registers it.
    """
    try:
        return point.load()
    except Exception as error:  # the code of others may raise anything
        raise broken(point, what, error) from error


def broken(point: EntryPoint, what: str, error: Exception) -> PlugInError:
    """Return the error for a plug-in that cannot be used."""
    distribution = point.dist.name if point.dist else "an unknown distribution"
    return PlugInError(
        f"{what} {point.name} of {distribution} cannot be loaded: {type(error).__name__}: {error}",
        where=f"{point.group}: {point.value}",
        remedy=f"install {distribution} again, or remove it",
    )
