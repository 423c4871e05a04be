"""The first two exchanges with a host: probe it, then send the bundle and the request."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent.fleet.commands import (
    NEWER_PYTHON,
    NO_PYTHON,
    doorstep_command,
    doorstep_input,
    first_command,
    privileged,
    too_old,
)
from agent.fleet.errors import ConnectionLostError, HostUnfitError
from agent.fleet.remote.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.fleet.bundle import Bundle
    from agent.fleet.scheduling import Task
    from agent.fleet.ssh.session import Command, Session
    from agent.fleet.status import HostStatus

EXCHANGE_S = 60.0
"""Seconds to wait for one answer of a host."""


_ANOTHER_FOLDER = "name another folder with --host-dir, or with host_dir: in the inventory"
_MOST_CLOCK_S = 60.0
"""Seconds that a host's clock may differ: certificates of new tokens and mirrors, and journals that are
compared across hosts, tolerate that difference."""


def probed(
    session: Session, python: str, *, sudo: bool, sudo_password: str | None, host_dir: str = ""
) -> Task[dict[str, Any]]:
    """Probe a host with the doorstep.

    Args:
        session: the connection.
        python: the host's Python; empty for the first that is new enough.
        sudo: whether the agent is to run as root.
        sudo_password: the sudo password.
        host_dir: the agent's folder on the host; empty for the default.

    Returns:
        The doorstep's answer with ``clock_off_s``: the seconds by which the host's clock is ahead.

    Raises:
        HostUnfitError: if the host cannot run the agent.
    """
    command = session.start(first_command(python), EXCHANGE_S)
    order = {"do": "probe", "sudo": sudo, "password": sudo_password, "base": host_dir}
    asked_s = time.time()
    with suppress(ConnectionLostError):  # without a Python, nobody reads this
        command.write(doorstep_input(order))
        command.end_input()
    line = yield from command.line(EXCHANGE_S)
    if line is None:
        raise ConnectionLostError(f"a command on the host did not answer within {EXCHANGE_S:g} s")
    answer = command.ended()
    told_s = time.time()
    if not command.has_begun:
        raise HostUnfitError(
            f"the login shell runs no commands: {command.said or answer.stderr or 'it ended at once'}",
            remedy="give the account a shell (usermod --shell /bin/bash), or log in as another user",
        )
    if answer.exit_code == NO_PYTHON:
        raise _no_python(too_old(answer.stderr), python)
    if not line:
        raise HostUnfitError(
            f"Python does not work on the host: {answer.stderr or f'exit code {answer.exit_code}'}",
            remedy="name another Python with python: in the inventory",
        )
    found: dict[str, Any] = json.loads(line)
    found["clock_off_s"] = clock_off_s(found["clock_s"], asked_s, told_s)
    if found["problem"]:
        raise HostUnfitError(found["problem"], remedy=_ANOTHER_FOLDER)
    if "tty" in found["sudo"]:
        raise HostUnfitError(
            f"sudo on the host wants a terminal (requiretty): {found['sudo']}",
            remedy="on the host: echo 'Defaults !requiretty' >/etc/sudoers.d/vcagent",
        )
    if found["sudo"] not in ("", "root", "free", "password"):
        raise HostUnfitError(
            f"the agent cannot run as root: {found['sudo']}",
            remedy="see /etc/sudoers on the host, or enter the password with --ask-sudo-password",
        )
    return found


def _no_python(found: str, python: str) -> HostUnfitError:
    if found:
        return HostUnfitError(
            f"the agent needs Python 3.10 or newer; the host has only {found}",
            remedy=f"{NEWER_PYTHON}, or name one with python: in the inventory",
        )
    what = f"{python} does not exist on the host" if python else "no python3 in the PATH of an SSH command"
    return HostUnfitError(
        f"the agent needs Python 3.10 or newer: {what}",
        remedy="install python3, or name it with python: in the inventory",
    )


def clock_off_s(clock_s: float, asked_s: float, told_s: float) -> float:
    """Return the seconds by which a host's clock is at least ahead; 0 within the time of the exchange.

    Args:
        clock_s: the host's clock, in seconds since 1970.
        asked_s: the controller's clock when the host was asked.
        told_s: the controller's clock when the answer arrived.
    """
    return min(0.0, clock_s - asked_s) + max(0.0, clock_s - told_s)


def clock_warning(off_s: float) -> str:
    """Return a warning about a host's clock; empty if it is close enough to the controller's."""
    if abs(off_s) <= _MOST_CLOCK_S:
        return ""
    return (
        f"its clock is {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'behind'}: "
        "TLS connections may fail there, and its times do not match those of other hosts; "
        "start chrony or systemd-timesyncd on the host"
    )


def arrived(
    session: Session,
    status: HostStatus,
    bundle: Bundle,
    request: Mapping[str, Any],
    *,
    sudo_password: str | None,
    tell: Callable[[str], None],
) -> Task[Standing]:
    """Send the bundle to a host if it is missing, and start the run.

    Args:
        session: the connection.
        status: the status of the host.
        bundle: the agent.
        request: the request for the agent.
        sudo_password: the sudo password.
        tell: called with a message before each step.

    Raises:
        HostUnfitError: if there is not enough space, or the agent does not start.
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
        raise HostUnfitError(answer["error"], remedy=f"free some space there, or {_ANOTHER_FOLDER}")
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
        raise ConnectionLostError(f"the host did not answer within {EXCHANGE_S:g} s")
    if not line:
        ended = command.ended()
        raise HostUnfitError(
            f"the agent does not start on the host: {ended.stderr[-2000:] or ended.exit_code}"
        )
    answer: dict[str, Any] = json.loads(line)
    return answer
