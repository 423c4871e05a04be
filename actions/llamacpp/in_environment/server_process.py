"""Run llama.cpp's HTTP server in one process, inside a benchmark environment that has xllamacpp.

It imports nothing from the agent, prints one JSON line when it listens, and stays until SIGTERM or until the
process that started it has ended.
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
    parser.add_argument("--alias", required=True, help="the model's name at /v1/models")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 selects a free one")
    parser.add_argument("--parallel", type=int, default=8, help="concurrent requests")
    parser.add_argument("--context", type=int, default=512, help="tokens of prompt and output, per request")
    parser.add_argument("--threads", type=int, default=0, help="0: one per CPU that this process may use")
    parser.add_argument(
        "--stay", action="store_true", help="keep running after the starting process has ended"
    )
    return parser.parse_args()


def main() -> int:
    """Serve until stopped by a signal."""
    arguments = _arguments()
    signals = {signal.SIGTERM, signal.SIGINT}
    # Block the signals before any thread exists: llama.cpp's threads inherit the mask, and sigwait gets the
    # signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    parent = os.getppid()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {arguments.alias}
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.n_parallel = arguments.parallel
    # llama.cpp divides n_ctx among its slots.
    params.n_ctx = arguments.context * arguments.parallel
    threads = arguments.threads or len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # No answer may use an earlier prompt's KV cache: MLPerf forbids it, and it is on by default.
    params.cache_prompt = False
    params.cache_idle_slots = False
    params.cache_ram_mib = 0
    params.fit_params = False  # use the requested context or fail: never shrink it silently
    params.endpoint_metrics = True
    params.ui = False
    params.verbosity = _WARNINGS  # one level more writes eight lines per request

    server = xllamacpp.Server(params)
    listening = {
        "event": "listening",
        "address": server.listening_address,
        "engine": "llama.cpp",
        "engine_version": xllamacpp.__version__,
        "system": xllamacpp.get_system_info().strip(),
        "threads": threads,
    }
    print(json.dumps(listening), flush=True)  # noqa: T201 - the starting process reads it
    while signal.sigtimedwait(signals, _PARENT_CHECK_S) is None:
        if os.getppid() != parent and not arguments.stay:
            break
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main())
