"""The remedy that installs the libraries of an extra beside the agent."""

from __future__ import annotations

import sys


def extra_remedy(extra: str) -> str:
    """Return the remedy for a missing extra such as ``fleet``: a pip command for the agent's own environment.

    The agent is on no package index, so the command names the checkout that it is installed from.
    """
    return f"in the checkout of vcagent: {sys.executable} -m pip install '.[{extra}]'"
