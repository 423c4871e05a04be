"""What can be said of a profile's expressions before anything of the host is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.profile.schema import Profile
    from agent.profile.variables import Variables

__all__ = ["check"]


def check(profile: Profile, variables: Variables | None = None) -> None:
    """Check that references lead somewhere, none in a circle, and that expressions can be read.

    Args:
        profile: the profile.
        variables: whose names may be referred to; no value is read.

    Raises:
        ProfileError: with every problem, each with its line and key.
    """
    raise NotImplementedError
