"""The first two exchanges with a host: what it is, and the bundle and the request on their way in."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.fleet.commands import NO_PYTHON, doorstep_command, doorstep_input, first_command, privileged
from agent.fleet.errors import ConnectionLostError, HostUnfitError
from agent.fleet.remote.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.fleet.bundle import Bundle
    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.session import Command, Session
    from agent.fleet.status import HostStatus

EXCHANGE_S = 60.0
"""Seconds that a host may take for one answer."""


def probed(session: Session, python: str, *, sudo: bool, sudo_password: str | None) -> Task[dict[str, Any]]:
    """What the doorstep tells of a host.

    Args:
        session: the connection.
        python: the host's Python; empty for the first that is new enough.
        sudo: whether the agent is to be root.
        sudo_password: for sudo.

    Raises:
        HostUnfitError: if the host cannot run the agent.
    """
    command = session.start(first_command(python), EXCHANGE_S)
    order = {"do": "probe", "sudo": sudo, "password": sudo_password}
    with suppress(ConnectionLostError):  # where there is no Python, nobody reads this
        command.write(doorstep_input(order))
        command.end_input()
    line = yield from command.line(EXCHANGE_S)
    if line is None:
        raise ConnectionLostError(f"a command there gave no answer within {EXCHANGE_S:g} s")
    answer = command.ended()
    if answer.exit_code == NO_PYTHON or not line:
        raise HostUnfitError(
            f"no Python 3.10 or newer: {answer.stderr}".rstrip(": "),
            remedy="install python3, or name it with python: in the inventory",
        )
    found: dict[str, Any] = json.loads(line)
    if found["sudo"] not in ("", "root", "free", "password"):
        raise HostUnfitError(
            f"the agent cannot be root: {found['sudo']}",
            remedy="see /etc/sudoers on the host, or be asked for the password: --ask-sudo-password",
        )
    return found


def arrived(
    session: Session,
    status: HostStatus,
    bundle: Bundle,
    request: Mapping[str, Any],
    *,
    sudo_password: str | None,
    tell: Callable[[str], None],
) -> Task[Standing]:
    """Bring the bundle there if it is missing, and start the run.

    Args:
        session: the connection.
        status: what is known of the host.
        bundle: the agent.
        request: what it is to do.
        sudo_password: for sudo.
        tell: told what is being done.

    Raises:
        HostUnfitError: if there is no room, or the agent does not start.
    """
    command, data = privileged(doorstep_command(status.python), status.sudo, sudo_password)
    size = bundle.path.stat().st_size
    order = {
        "do": "arrive",
        "base": status.base,
        "bundle": bundle.name,
        "bytes": size,
        "sha256": bundle.sha256,
        "then": "start",
        "run": status.run_dir,
    }
    arrival = session.start(command, EXCHANGE_S)
    arrival.write(data + doorstep_input(order))
    answer = yield from _answer(arrival)
    if "error" in answer:
        raise HostUnfitError(answer["error"], remedy="free some space there")
    if answer["missing"]:
        tell(f"sending the agent, {size / 1e6:.1f} MB")
        with bundle.path.open("rb") as file:
            while piece := file.read(1 << 16):
                arrival.write(piece)
    tell("starting the agent")
    arrival.write(json.dumps(request).encode())
    arrival.end_input()
    standing = Standing.from_json(json.dumps((yield from _answer(arrival))))
    arrival.ended()
    return standing


def _answer(command: Command) -> Task[dict[str, Any]]:
    line = yield from command.line(EXCHANGE_S)
    if line is None:
        raise ConnectionLostError(f"the host gave no answer within {EXCHANGE_S:g} s")
    if not line:
        ended = command.ended()
        raise HostUnfitError(f"the agent does not start there: {ended.stderr[-2000:] or ended.exit_code}")
    answer: dict[str, Any] = json.loads(line)
    return answer
