"""Identify an OpenAI-compatible endpoint: its URL, its key, the models it lists."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 300
_HIT = re.compile(r"(\b|_)hit\b")
_USUAL_TRIES = {
    "x-litellm-attempted-retries": 0,
    "x-litellm-attempted-fallbacks": 0,
    "x-portkey-retry-attempt-count": 0,
    "cf-aig-step": 0,
    "x-envoy-attempt-count": 1,
    "ngrok-aig-attempts": 1,
}
"""Headers by which gateways count tries, with the number for a reply at the first try."""


def is_like(served: str, wanted: str) -> bool:
    """Return True if a served name (``meta-llama/Llama-3.1-8B``) belongs to a model (``llama3.1-8b``)."""
    return _words(wanted) in (_words(served), _words(served.rpartition("/")[2]))


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]+", name.lower())


def stored(headers: Iterable[tuple[str, str]]) -> str:
    """Return the header by which a cache reports that it sent a stored reply; empty if none does.

    Sources: RFC 9111 (Age), RFC 9211 (Cache-Status), and the X-Cache of Varnish, Squid and CDNs.
    """
    for name, value in headers:
        kind, said = name.lower(), value.lower()
        if kind == "age" or (
            "cache" in kind and (_HIT.search(said) or (kind.endswith("hit") and said == "true"))
        ):
            return f"{name}: {value}"
    return ""


def retried(headers: Iterable[tuple[str, str]]) -> str:
    """Return the header by which a gateway reports that an earlier try failed; empty if none does."""
    for name, value in headers:
        usual = _USUAL_TRIES.get(name.lower())
        if usual is not None and value.strip().isdigit() and int(value) > usual:
            return f"{name}: {value}"
    return ""


def base_url(url: str | None) -> str:
    """Return the URL without the suffix that all paths include.

    Raises:
        HarnessError: (``config``) if it is not a URL, or contains a password.
    """
    parts = urlsplit(url or "")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise HarnessError(
            "config", f"the backend's url is {url!r}", "set it to a URL such as http://127.0.0.1:8000"
        )
    if "@" in parts.netloc:
        raise HarnessError(
            "config", "the backend's url contains a password", "use api_key_file or api_key_env"
        )
    return (url or "").rstrip("/").removesuffix("/v1")


def api_key(file: str | None, variable: str | None) -> str:
    """Return the key from a file or the environment, so that no configuration or process list contains it.

    Raises:
        HarnessError: (``config``) if the key is missing.
    """
    if file:
        with suppress(OSError):
            return Path(file).read_text(encoding="utf-8").strip()
        raise HarnessError("config", f"api_key_file {file} cannot be read")
    if variable:
        if variable not in os.environ:
            raise HarnessError("config", f"api_key_env {variable} is not set")
        return os.environ[variable]
    return ""


def listed(body: bytes) -> list[dict[str, Any]]:
    """Return the models in a reply of ``/v1/models``.

    Raises:
        HarnessError: (``malformed_reply``) if it is not a list of models.
    """
    try:
        listed = json.loads(body)["data"]
        return [{**served, "id": str(served["id"])} for served in listed]
    except (ValueError, TypeError, KeyError) as error:
        shown = body[:_SHOWN].decode(errors="replace")
        raise HarnessError("malformed_reply", f"/v1/models is not a list of models: {shown!r}") from error
