"""What a run knows an OpenAI-compatible endpoint by: its URL, its key, the models it lists."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .errors import HarnessError

_SHOWN = 300


def is_like(served: str, wanted: str) -> bool:
    """Whether a served name (``meta-llama/Llama-3.1-8B``) is a model's (``llama3.1-8b``)."""
    return _words(wanted) in (_words(served), _words(served.rpartition("/")[2]))


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+|[0-9]+", name.lower())


def base_url(url: str | None) -> str:
    """The URL without the ending that every path brings.

    Raises:
        HarnessError: (``config``) if it is none, or holds a password.
    """
    parts = urlsplit(url or "")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise HarnessError(
            "config", f"the backend's url is {url!r}", "give one such as http://127.0.0.1:8000"
        )
    if "@" in parts.netloc:
        raise HarnessError("config", "the backend's url holds a password", "use api_key_file or api_key_env")
    return (url or "").rstrip("/").removesuffix("/v1")


def api_key(file: str | None, variable: str | None) -> str:
    """The key, from a file or the environment, so that it stands in no configuration or process list.

    Raises:
        HarnessError: (``config``) if it is not there.
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
    """The models in a reply of ``/v1/models``.

    Raises:
        HarnessError: (``malformed_reply``) if it is no list of models.
    """
    try:
        listed = json.loads(body)["data"]
        return [{**served, "id": str(served["id"])} for served in listed]
    except (ValueError, TypeError, KeyError) as error:
        shown = body[:_SHOWN].decode(errors="replace")
        raise HarnessError("malformed_reply", f"/v1/models is no list of models: {shown!r}") from error
