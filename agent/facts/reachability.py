"""Checks whether servers answer, through the proxies of this host."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LIMIT_S = 5
_ASK = """\
import concurrent.futures, json, os, sys, urllib.error, urllib.request
proxies = {**urllib.request.getproxies(), **json.loads(os.environ["VCAGENT_PROXIES"])}
opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
def ask(uri):
    try:
        opener.open(urllib.request.Request(uri, method="HEAD"), timeout=float(sys.argv[1])).close()
    except urllib.error.HTTPError:
        return None
    except OSError as error:
        return str(getattr(error, "reason", error))
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    answers = dict(zip(sys.argv[2:], pool.map(ask, sys.argv[2:])))
print(json.dumps({uri: why for uri, why in answers.items() if why}))
"""
"""Any answer of a server counts, even an error status."""


def origins(uris: Iterable[str]) -> tuple[str, ...]:
    """Return the servers of http and https addresses, without passwords or variables."""
    found = (re.match(r"(https?://)(?:[^/@]*@)?([^/$]+)(?=/|$)", uri) for uri in uris)
    return tuple(dict.fromkeys(f"{match.group(1)}{match.group(2)}/" for match in found if match))


def apt_proxies(text: str | None) -> dict[str, str]:
    """Return the proxies of ``apt-config dump Acquire``, by scheme (apt-transport-http(1))."""
    pairs = re.findall(r'^Acquire::(https?)::Proxy "([^"]+)";$', text or "", re.MULTILINE)
    return {scheme: proxy for scheme, proxy in pairs if proxy != "DIRECT"}


def registry_of(image: str) -> str:
    """Return the address of an image's registry; an image without one is on Docker Hub."""
    name, slash, _ = image.partition("/")
    has_registry = slash and ("." in name or ":" in name or name == "localhost")
    return f"https://{name}/" if has_registry and name != "docker.io" else "https://registry-1.docker.io/"


def unreachable(uris: Iterable[str]) -> Fact[Mapping[str, str]]:
    """Return the fact of the servers that do not answer, each with the reason."""
    servers = origins(uris)

    def read(host: Host) -> Mapping[str, str]:
        if not servers:
            return {}
        proxies = apt_proxies(host.output(["apt-config", "dump", "Acquire"]))
        command = [sys.executable, "-I", "-c", _ASK, str(_LIMIT_S), *servers]
        # A proxy's password must not appear in the process list.
        answer = host.output(command, timeout_s=4 * _LIMIT_S, env={"VCAGENT_PROXIES": json.dumps(proxies)})
        return dict(json.loads(answer)) if answer else {}

    return Fact("unreachable", "HEAD to each server", read)
