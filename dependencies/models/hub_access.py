"""Checks, before anything is fetched, that the hub grants this host's token access to a repository."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from agent.core.errors import HostError, LiftedBy
from agent.facts import Fact
from dependencies.models.in_environment.model_files.hub import explain, find_token

if TYPE_CHECKING:
    from agent.facts import Facts, Host

_HUB = "https://huggingface.co"
_LIMIT_S = 5
_ASK = """\
import os, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
request = urllib.request.Request(sys.argv[2], method="HEAD")
if token := os.environ["VCAGENT_HUB_TOKEN"]:
    request.add_header("Authorization", f"Bearer {token}")
try:
    answer = urllib.request.build_opener(Stay).open(request, timeout=float(sys.argv[1]))
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.headers.get("X-Error-Code") or "")
"""
"""A redirect leads to the file's storage: access is granted, and the storage is not contacted."""
_REFUSED = (401, 403)
_NOT_THERE = ("RepoNotFound", "RevisionNotFound")


class HubAnswer(NamedTuple):
    """Status and X-Error-Code of the hub's answer."""

    status: int
    code: str


class _RefusedError(Exception):
    """The hub's answer in the form that ``explain`` reads."""

    def __init__(self, answer: HubAnswer) -> None:
        super().__init__(f"status {answer.status}")
        self.response = SimpleNamespace(status_code=answer.status, headers={"X-Error-Code": answer.code})


def hub_answer(file: str) -> Fact[HubAnswer | None]:
    """Return the fact of the hub's answer for a file, such as org/model/resolve/main/config.json.

    It is None if no hub can be reached.
    """

    def read(host: Host) -> HubAnswer | None:
        uri = f"{(os.environ.get('HF_ENDPOINT') or _HUB).rstrip('/')}/{file}"
        token = find_token(os.environ, Path(".env"))
        command = [sys.executable, "-I", "-c", _ASK, str(_LIMIT_S), uri]
        # A token must not stand in the process list.
        said = host.output(command, timeout_s=4 * _LIMIT_S, env={"VCAGENT_HUB_TOKEN": token.value})
        status, _, code = (said or "").strip().partition(" ")
        return HubAnswer(int(status), code) if status else None

    return Fact(f"hub_answer[{file}]", "HEAD to the hub, with the token of this host", read)


def hub_servers(_: Facts) -> list[str]:
    """Return the hub's address; nothing if the hub must not be asked."""
    return [] if _is_offline() else [os.environ.get("HF_ENDPOINT") or _HUB]


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def require_access(facts: Facts, repository: str, revision: str, *, kind: str = "") -> None:
    """Refuse to plan a fetch that the hub does not grant. A hub that cannot be reached refuses nothing.

    Args:
        facts: the facts about the host.
        repository: such as meta-llama/Llama-3.1-8B-Instruct.
        revision: the commit, tag or branch.
        kind: ``datasets/`` for a data set.

    Raises:
        HostError: if the repository or the revision does not exist, or the token may not read it.
    """
    if _is_offline():
        return
    file = "README.md" if kind else "config.json"
    answer = facts[hub_answer(f"{kind}{repository}/resolve/{revision}/{file}")]
    if answer is None or (answer.status not in _REFUSED and answer.code not in _NOT_THERE):
        return
    token = find_token(os.environ, Path(".env"))
    told = explain(_RefusedError(answer), repository, token, revision)
    raise HostError(told.message, remedy=told.remedy, lifted_by=LiftedBy.NOTHING)
