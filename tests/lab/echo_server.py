"""A completions endpoint that echoes log-probabilities, as vLLM's does, with a model that knows one text.

A stand-in for an engine: its tokens are words, and a token is likely if it follows the two previous tokens in
the known text. Run with any Python: ``python echo_server.py TEXT_FILE``; it prints its port.
"""

from __future__ import annotations

import json
import math
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_WORD = re.compile(r"\s*\S+")
_LIKELY, _UNLIKELY = math.log(0.9), math.log(1e-4)


class Model:
    """Words by number, and the word that follows each pair."""

    def __init__(self, text: str) -> None:
        self.words: dict[str, int] = {}
        tokens = self.encode(text)
        self.following = {tuple(tokens[place - 2 : place]): tokens[place] for place in range(2, len(tokens))}

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; a new word gets a number."""
        return [self.words.setdefault(word.strip(), len(self.words)) for word in _WORD.findall(text)]

    def score(self, tokens: list[int], place: int) -> float:
        """Return the log-probability of a token after the previous ones."""
        return _LIKELY if self.following.get(tuple(tokens[place - 2 : place])) == tokens[place] else _UNLIKELY


class Handler(BaseHTTPRequestHandler):
    """Answers ``/v1/completions``, ``/tokenize`` and ``/tokenizer_info``, in the parts that lm-eval uses."""

    model: Model
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Ignore the message."""

    def do_GET(self) -> None:
        """Describe the tokenizer."""
        self._reply({"tokenizer_class": "words", "eos_token": "<end>", "bos_token": None, "pad_token": None})

    def do_POST(self) -> None:
        """Tokenize or complete."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/tokenize"):
            tokens = self.model.encode(asked["prompt"])
            self._reply({"tokens": tokens, "count": len(tokens), "max_model_len": 4096})
            return
        prompts = asked["prompt"]
        if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
            prompts = [prompts]
        choices = [
            self._choice(index, prompt, echo=bool(asked.get("echo"))) for index, prompt in enumerate(prompts)
        ]
        self._reply({"object": "text_completion", "model": asked["model"], "choices": choices})

    def _choice(self, index: int, prompt: str | list[int], *, echo: bool) -> dict[str, Any]:
        tokens = [
            *(self.model.encode(prompt) if isinstance(prompt, str) else prompt),
            0,
        ]  # and a new one
        scores = [None, *(self.model.score(tokens, place) for place in range(1, len(tokens)))]
        shown = scores if echo else scores[-1:]
        top = [None if score is None else {"a": score, "b": _LIKELY} for score in shown]
        logprobs = {"token_logprobs": shown, "top_logprobs": top, "tokens": [""] * len(shown)}
        return {"index": index, "text": "", "logprobs": logprobs, "finish_reason": "length"}

    def _reply(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as known:  # noqa: PTH123
        Handler.model = Model(known.read())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)  # noqa: T201
    server.serve_forever()
