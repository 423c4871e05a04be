"""Run lm-eval with a model that it does not support: llama.cpp's HTTP server.

Run by the environment that has lm-eval, with lm-eval's own arguments and ``--model llama-cpp --model_args
base_url=http://…``. The server does not echo the log-probabilities of a prompt, so this module requests them
token by token: after the context, then after each token of the text (``/completion`` with ``n_probs``).
Answers of one token, such as MMLU's letters, cost one request each.
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

_CANDIDATES = 1024
"""Number of likeliest tokens to request; a token outside of them counts as the last of them."""
_DRAWS = 20
_TIMEOUT_S = 600.0


@register_model("llama-cpp")
class LlamaCppModel(LM):  # type: ignore[misc]
    """Queries a running server.

    Args:
        base_url: the server's address.
        workers: concurrent requests; the server's slots are a good number.
    """

    def __init__(self, base_url: str, workers: int = 4, **_: Any) -> None:
        super().__init__()
        self._url = base_url.rstrip("/")
        self._workers = int(workers)
        self._likeliest = lru_cache(maxsize=65536)(self._ask)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:  # noqa: ARG002, FBT001, FBT002
        """Return each text's log-probability after its context, and whether greedy decoding yields it."""
        return self._map(self._score, [request.args for request in requests])

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:  # noqa: ARG002, FBT001, FBT002
        """Return the log-probability of whole texts."""
        return [score for score, _ in self._map(self._score, [("", request.args[0]) for request in requests])]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002, FBT001, FBT002
        """Return greedy continuations."""
        return self._map(self._continue, [request.args for request in requests])

    def _map(self, function: Any, items: list[Any]) -> list[Any]:
        results = []
        with ThreadPoolExecutor(self._workers) as pool:
            for result in pool.map(function, items):
                results.append(result)
                print(f"llama.cpp: {len(results)}/{len(items)} [", flush=True)  # noqa: T201
        return results

    def _score(self, pair: tuple[str, str]) -> tuple[float, bool]:
        context, text = pair
        before, all_tokens = self._tokens(context), self._tokens(context + text)
        start = len(before) if all_tokens[: len(before)] == before else _common(before, all_tokens)
        total, is_greedy = 0.0, True
        for place in range(max(start, 1), len(all_tokens)):
            candidates = self._likeliest(tuple(all_tokens[:place]))
            token = all_tokens[place]
            is_greedy &= next(iter(candidates)) == token
            total += candidates.get(token, min(candidates.values()))
        return total, is_greedy

    def _continue(self, pair: tuple[str, dict[str, Any]]) -> str:
        context, options = pair
        asked = {
            "prompt": context, "n_predict": int(options.get("max_gen_toks", 256)), "temperature": 0,
            "stop": options.get("until", []), "cache_prompt": True,
        }  # fmt: skip
        return str(self._post("/completion", asked)["content"])

    def _tokens(self, text: str) -> list[int]:
        asked = {"content": text, "add_special": True, "parse_special": True}
        return list(self._post("/tokenize", asked)["tokens"])

    def _ask(self, tokens: tuple[int, ...]) -> dict[int, float]:
        """Return the likeliest next tokens with their log-probabilities, in descending order."""
        asked = {
            "prompt": list(tokens), "n_predict": 1, "n_probs": _CANDIDATES, "temperature": 0,
            "cache_prompt": True, "samplers": [],
        }  # fmt: skip
        for seed in range(_DRAWS):
            # The server reports no probabilities if it drew an end of text or half a character.
            if told := self._post("/completion", {**asked, "seed": seed}).get("completion_probabilities"):
                return {row["id"]: row["logprob"] for row in told[0]["top_logprobs"]}
        raise RuntimeError(
            f"llama.cpp reported no probabilities in {_DRAWS} draws after {len(tokens)} tokens"
        )

    def _post(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(asked).encode()
        request = urllib.request.Request(self._url + path, body, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310
            told: dict[str, Any] = json.load(reply)
        return told


def _common(first: list[int], second: list[int]) -> int:
    """Return the number of tokens at the start that two lists share."""
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


if __name__ == "__main__":
    cli_evaluate()
