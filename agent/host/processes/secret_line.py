"""Shell lines that hold secrets: the shell reads them from its environment, not from its arguments.

Every account of a host may read the arguments of all processes; the environment is its owner's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.core.secrets import Secrets

_VARIABLE = "VCAGENT_COMMAND"
_REVEAL = f'eval "unset {_VARIABLE}\n${_VARIABLE}"'


def arguments_of(line: str, shell: str, secrets: Secrets) -> tuple[list[str], dict[str, str]]:
    """Return the arguments that have a shell run a line, and the variables that it needs besides its own.

    Args:
        line: the line.
        shell: the shell's path.
        secrets: a line that holds none of them is an argument as usual.
    """
    if secrets.spans(line):
        return [shell, "-c", _REVEAL], {_VARIABLE: line}
    return [shell, "-c", line], {}
