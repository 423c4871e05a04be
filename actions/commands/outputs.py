"""Collect the files that a command writes into the folder of its case."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.errors import ActionFailedError
from agent.core.safe_files import copy_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.component.component import StepContext
    from agent.host.containers.container import Container

_COPY_TIMEOUT_S = 600.0


def bring_home(patterns: Sequence[str], folder: Path, *, below: Path) -> list[str]:
    """Copy files and folders from the host into the case; return the names of the copies.

    Args:
        patterns: paths, may contain ``*`` and ``?``; relative paths start at ``below``.
        folder: the destination; each file keeps its own name.
        below: the folder in which the command ran.

    Raises:
        ActionFailedError: if a pattern matches nothing, or two files have one name.
    """
    names: list[str] = []
    for pattern in patterns:
        path = Path(pattern).expanduser()
        top, rest = (
            (Path(path.anchor), path.relative_to(path.anchor)) if path.is_absolute() else (below, path)
        )
        found = sorted(top.glob(str(rest)))
        if not found:
            raise _nothing(pattern)
        for one in found:
            if one.parent.resolve() != folder.resolve():
                _refuse_double(one.name, folder)
                if one.is_dir():
                    shutil.copytree(one, folder / one.name, symlinks=True)
                else:
                    copy_file(one.resolve(), folder / one.name)
                    shutil.copystat(one, folder / one.name)
            names.append(one.name)
    return names


def bring_home_from(
    container: Container, patterns: Sequence[str], folder: Path, context: StepContext, *, below: str
) -> list[str]:
    """Copy files and folders from a container, which sees ``folder`` at the same path, into the case.

    The container needs ``sh`` and ``cp``.

    Raises:
        ActionFailedError: if a pattern matches nothing, two files have one name, or they cannot be copied.
    """
    names: list[str] = []
    for pattern in patterns:
        # The shell expands the pattern: everything except * ? [ ] is quoted.
        quoted = "".join(sign if sign in "*?[]" else shlex.quote(sign) for sign in pattern)
        found = container.run(
            f'for one in {quoted}; do if [ -e "$one" ]; then printf "%s\\n" "$one"; fi; done',
            log=context.log,
            cwd=below or None,
            timeout_s=_COPY_TIMEOUT_S,
            user="0",
        ).stdout.splitlines()
        if not found:
            raise _nothing(pattern)
        for one in found:
            name = Path(one).name
            _refuse_double(name, folder)
            owner = f"{os.geteuid()}:{os.getegid()}"
            target = shlex.quote(str(folder / name))
            container.run(
                f"cp -R -p -- {shlex.quote(one)} {target} && chown -R {owner} {target}",
                log=context.log,
                cwd=below or None,
                timeout_s=_COPY_TIMEOUT_S,
                user="0",
            )
            names.append(name)
    return names


def _nothing(pattern: str) -> ActionFailedError:
    return ActionFailedError(
        f"the command left no {pattern}", remedy="see what it wrote and where, and correct outputs"
    )


def _refuse_double(name: str, folder: Path) -> None:
    if (folder / name).exists():
        raise ActionFailedError(
            f"two of the outputs are named {name}",
            remedy="name their folders in outputs instead of the files",
        )
