"""llama.cpp's HTTP server in one process: runs inside a benchmark environment that has xllamacpp.

It imports nothing of the agent, prints one JSON line when it listens, and stays until SIGTERM or until the
process that started it is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys

_PARENT_CHECK_S = 1.0
_WARNINGS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--alias", required=True, help="the name that /v1/models answers")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--parallel", type=int, default=8, help="requests served at once")
    parser.add_argument("--context", type=int, default=512, help="tokens of prompt and output, per request")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each CPU this process may use")
    parser.add_argument("--stay", action="store_true", help="go on when the starter is gone")
    return parser.parse_args()


def main() -> int:
    """Serve until told to stop."""
    arguments = _arguments()
    signals = {signal.SIGTERM, signal.SIGINT}
    # Before any thread exists, so that llama.cpp's threads inherit the mask and the signal waits for us.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    parent = os.getppid()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {arguments.alias}
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.n_parallel = arguments.parallel
    # llama.cpp shares n_ctx out among its slots.
    params.n_ctx = arguments.context * arguments.parallel
    threads = arguments.threads or len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # No answer may come from an earlier prompt's KV cache: MLPerf forbids it, and it is on by default.
    params.cache_prompt = False
    params.cache_idle_slots = False
    params.cache_ram_mib = 0
    params.fit_params = False  # what was asked for, or a failure: never a silently smaller context
    params.endpoint_metrics = True
    params.ui = False
    params.verbosity = _WARNINGS  # one level more writes eight lines for each request

    server = xllamacpp.Server(params)
    listening = {
        "event": "listening",
        "address": server.listening_address,
        "engine": "llama.cpp",
        "engine_version": xllamacpp.__version__,
        "system": xllamacpp.get_system_info().strip(),
        "threads": threads,
    }
    print(json.dumps(listening), flush=True)  # noqa: T201 - the starter reads it
    while signal.sigtimedwait(signals, _PARENT_CHECK_S) is None:
        if os.getppid() != parent and not arguments.stay:
            break
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
