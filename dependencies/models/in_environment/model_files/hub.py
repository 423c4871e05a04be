"""Access to a hub of models and data sets: finds the token, and explains errors.

Source: Hugging Face's documentation of environment variables (HF_TOKEN, HF_HOME, HF_TOKEN_PATH,
    XDG_CACHE_HOME), and the form of huggingface_hub's errors (``X-Error-Code`` and the status of a reply).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelFilesError

if TYPE_CHECKING:
    from collections.abc import Mapping

_VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HUGGINGFACE_HUB_TOKEN",
    "HUGGINGFACE_TOKEN",
    "HUGGINGFACE_ACCESS_TOKEN",
)
"""The variables of a token: first huggingface_hub's own, then names that guides use."""
_UNAUTHORISED, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 401, 403, 404, 429
_OUT_OF_REACH = (
    "see whether this host reaches the hub (HTTPS_PROXY, HF_ENDPOINT) and try again: what is here is kept; "
    "without a network give a path, or a cache by HF_HOME"
)
_ASK_FOR_ONE = (
    "set HF_TOKEN (or a line HF_TOKEN=… in .env) to a token of https://huggingface.co/settings/tokens"
)


@dataclass(frozen=True)
class Token:
    """The token for gated and private repositories.

    Args:
        value: the token; empty if there is none.
        source: the place where it was found, for display.
    """

    value: str = field(default="", repr=False)
    source: str = ""


def find_token(environment: Mapping[str, str], dotenv: Path) -> Token:
    """Find the token in the environment, a ``.env`` file, or an earlier login, in this order.

    Args:
        environment: the environment variables.
        dotenv: a file of lines such as ``HF_TOKEN="hf_…"``; it may be missing.
    """
    for name in _VARIABLES:
        if value := _stripped(environment.get(name, "")):
            return Token(value, f"the variable {name}")
    lines = _text(dotenv).splitlines()
    for name in _VARIABLES:
        for line in lines:
            key, _, value = line.strip().removeprefix("export ").partition("=")
            if key.strip() == name and (value := _stripped(_without_comment(value))):
                return Token(value, f"{name} in {dotenv}")
    login = Path(environment.get("HF_TOKEN_PATH") or hub_home(environment) / "token").expanduser()
    value = _stripped(_text(login))
    return Token(value, f"the login in {login}") if value else Token()


def hub_home(environment: Mapping[str, str]) -> Path:
    """Return the folder where huggingface_hub keeps its cache and login."""
    caches = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "~")) / ".cache")
    return Path(environment.get("HF_HOME") or Path(caches) / "huggingface").expanduser()


def _without_comment(value: str) -> str:
    """Return a ``.env`` value without its comment: up to the closing quote, or to a ``#`` after a blank."""
    value = value.strip()
    quote = value[:1]
    if quote in ('"', "'") and (end := value.find(quote, 1)) > 0:
        return value[1:end]
    return re.split(r"(?:^|\s)#", value, maxsplit=1)[0]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _stripped(value: str) -> str:
    return value.strip().strip("\"'").strip()


def explain(error: Exception, repository: str, token: Token, revision: str = "") -> ModelFilesError:
    """Return the error for a failure of huggingface_hub, with a remedy.

    Args:
        error: the failure.
        repository: the requested repository, such as meta-llama/Llama-3.1-8B-Instruct.
        token: the token of the request.
        revision: the requested revision.
    """
    status, code = _refusal(error)
    page = f"https://huggingface.co/{repository}"
    if code == "GatedRepo":
        return _gated(repository, page, token, status)
    if status in (_UNAUTHORISED, _FORBIDDEN):
        return _refused(repository, page, token, status)
    told = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
    message, remedy = {
        "RevisionNotFound": (f"{repository} has no revision {revision}", f"see {page}/commits/main"),
        _NOT_FOUND: (f"{repository} is not on the hub (404)", f"correct its name; see {page}"),
        _TOO_MANY: ("the hub answers too many requests (429)", f"wait a while; {_ASK_FOR_ONE}"),
    }.get(
        code if code == "RevisionNotFound" else status,
        (
            f"{repository} cannot be fetched: {told}",
            _OUT_OF_REACH,
        ),
    )
    return ModelFilesError("hub", message, remedy)


def _gated(repository: str, page: str, token: Token, status: int) -> ModelFilesError:
    if not token.value:
        return ModelFilesError(
            "hub", f"{repository} is gated", f"accept its licence at {page}, then {_ASK_FOR_ONE}"
        )
    return ModelFilesError(
        "hub",
        f"{repository} is gated, and the token of {token.source} may not read it ({status})",
        f"accept the licence at {page} with the account of that token; a fine-grained token also needs read "
        "access to gated repositories",
    )


def _refused(repository: str, page: str, token: Token, status: int) -> ModelFilesError:
    if not token.value:
        return ModelFilesError(
            "hub",
            f"{repository} is not there, or is private: without a token the hub does not say ({status})",
            f"correct its name, or {_ASK_FOR_ONE}",
        )
    return ModelFilesError(
        "hub",
        f"the token of {token.source} is refused for {repository} ({status})",
        f"see whether it is whole, has not expired and may read {page}; {_ASK_FOR_ONE}",
    )


def _refusal(error: BaseException | None) -> tuple[int, str]:
    """Return the status and error code of the reply that caused an error; 0 if there was no reply."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if response is not None:
            return int(response.status_code), str(response.headers.get("X-Error-Code") or "")
        error = error.__cause__ or error.__context__
    return 0, ""


def environment_token(config: Mapping[str, Any]) -> Token:
    """Return the token of this process's environment or of the file ``dotenv`` in the configuration."""
    return find_token(os.environ, Path(config.get("dotenv") or ".env"))
