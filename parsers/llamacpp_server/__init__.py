"""Reads llama.cpp's HTTP server: replies with timings, and counters in Prometheus' text format."""

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
    description="llama.cpp's server: the counters of /metrics",
    recognise=counters.recognise,
    parse=counters.parse,
)
