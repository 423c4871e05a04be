"""Query a server before a load test, for token ids, slots and context, and warm it up."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class TextServer:
    """A server that generates text.

    Args:
        url: the server's address; never reached through a proxy.
        api: ``llamacpp`` or ``openai``.
        api_key: the server's key; empty for none.
    """

    url: str
    api: str
    api_key: str = ""

    def model(self) -> str:
        """Return the first model that the server lists.

        Raises:
            ActionFailedError: if the server does not answer, or lists no model.
        """
        served = self._ask("GET", "/v1/models").get("data") or []
        if not served:
            raise ActionFailedError(f"{self.url} serves no model", remedy="see the server's log")
        return str(served[0].get("id"))

    def limits(self) -> dict[str, int]:
        """Return ``slots`` and ``context`` (tokens of one request), if the server reports them.

        Raises:
            ActionFailedError: if the server does not answer.
        """
        if self.api == "llamacpp":
            told = self._ask("GET", "/props")
            found = {
                "slots": told.get("total_slots"),
                "context": (told.get("default_generation_settings") or {}).get("n_ctx"),
            }
        else:
            served = self._ask("GET", "/v1/models").get("data") or [{}]
            found = {"context": served[0].get("max_model_len")}
        return {name: value for name, value in found.items() if isinstance(value, int) and value > 0}

    def token_ids(self, text: str, model: str) -> tuple[list[int], list[int]]:
        """Return the token ids that begin every prompt (often none), and those of a text.

        Raises:
            ActionFailedError: if the server cannot tokenise.
        """
        plain, whole = (self._tokenise(text, model, special=special) for special in (False, True))
        if not plain:
            raise ActionFailedError(f"{self.url} made no tokens of a text", remedy="see the server's log")
        begin = whole[: len(whole) - len(plain)] if whole[-len(plain) :] == plain else whole[:1]
        return begin, sorted(set(plain))

    def complete(self, prompt: list[int], tokens: int, model: str, timeout_s: float) -> Mapping[str, Any]:
        """Return a reply with this number of tokens; not streamed.

        Raises:
            ActionFailedError: if the server does not return a reply.
        """
        own = {"n_predict": tokens} if self.api == "llamacpp" else {"max_tokens": tokens, "model": model}
        path = "/completion" if self.api == "llamacpp" else "/v1/completions"
        body = {"prompt": prompt, "temperature": 0, "ignore_eos": True, **own}
        return self._ask("POST", path, body, timeout_s)

    def counters(self) -> str:
        """Return the content of /metrics; empty if the server does not have it."""
        try:
            return self._raw("GET", "/metrics", None, _TIMEOUT_S)
        except ActionFailedError:
            return ""

    def _tokenise(self, text: str, model: str, *, special: bool) -> list[int]:
        # vLLM's names for these are prompt and add_special_tokens.
        body = {
            "content": text,
            "add_special": special,
            "prompt": text,
            "add_special_tokens": special,
            "model": model,
        }
        named = (
            ("content", "add_special")
            if self.api == "llamacpp"
            else ("model", "prompt", "add_special_tokens")
        )
        told = self._ask("POST", "/tokenize", {name: body[name] for name in named})
        return [token for token in told.get("tokens") or () if isinstance(token, int)]

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        text = self._raw(method, path, body, timeout_s)
        try:
            told = json.loads(text)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise ActionFailedError(
                f"{self.url}{path} answers no JSON: {text[:200]!r}", remedy="check the server's URL"
            )
        return told

    def _raw(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> str:
        address = urlsplit(self.url)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        try:
            with closing(kind(address.hostname or "", address.port, timeout=timeout_s)) as connection:
                sent = None if body is None else json.dumps(body).encode()
                connection.request(method, address.path.rstrip("/") + path, sent, headers)
                reply = connection.getresponse()
                text = reply.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise ActionFailedError(
                f"{self.url}{path} does not answer: {error}",
                remedy="check that the server is running, and see its log",
            ) from error
        if reply.status != http.client.OK:
            raise ActionFailedError(
                f"{self.url}{path} answers HTTP {reply.status}: {text[:300]}", remedy="see the server's log"
            )
        return text
