"""llama.cpp's HTTP server: replies with its timings, and its counters in Prometheus' text form."""

from __future__ import annotations

from agent.core.records import Parser
from parsers.llamacpp_server import counters, replies

__all__ = ["COUNTERS_PARSER", "REPLIES_PARSER"]

REPLIES_PARSER = Parser(
    name="llamacpp_reply",
    description="llama.cpp's server: a reply of /completion or /v1/completions, streamed or not",
    recognise=replies.recognise,
    parse=replies.parse,
)
COUNTERS_PARSER = Parser(
    name="llamacpp_counters",
    description="llama.cpp's server: what /metrics answers",
    recognise=counters.recognise,
    parse=counters.parse,
)
