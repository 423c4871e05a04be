"""The properties that a llama-server reports, in the wording of each version."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from actions.llamacpp.server import LlamaCppServer
from actions.llamacpp.server_binary import ServerBinary
from actions.llamacpp.server_parameters import ServerParameters
from agent.core.errors import ActionFailedError
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """\
#!{python}
import http.server, json, sys
if "--version" in sys.argv:
    sys.exit("version: 8123 (abc)")
if "--help" in sys.argv:
    sys.exit("--list-devices")
if "--list-devices" in sys.argv:
    print("Available devices:\\n  {line}")
    sys.exit()

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({{"data": [{{"id": "m"}}]}}).encode())

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Answers).serve_forever()
"""


@pytest.mark.parametrize(
    ("version", "facts"),
    [
        ("version: 3661 (f648ca2c)", ("b3661", "f648ca2c")),
        ("version: 0.6.0-dev (build 11434, commit 515e855)", ("b11434", "515e855")),
        ("version: 0.6.0-dev (build 11434, commit unknown)", ("b11434", None)),
        ("version: 0 (unknown)", (None, None)),
        ("version: 0 (f648ca2c)", ("f648ca2c", "f648ca2c")),
    ],
)
def test_version_and_options_are_read(tmp_path: Path, version: str, facts: tuple[str, str]) -> None:
    program = tmp_path / "llama-server"
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "{version}" >&2\n'
        '[ "$1" = --help ] && echo "--cache-ram, -cram N"\n'
        "exit 0\n"
    )
    program.chmod(0o755)
    read = ServerBinary.read(program, processes=LocalProcesses("test"), log=tmp_path / "log")
    assert (read.facts.get("engine_version"), read.facts.get("engine_commit")) == facts
    asked = ServerParameters(model="m", binary=program, parallel=2, context=100)
    command = read.command(asked, model="m", alias="m", host="h", port=1)
    assert command[command.index("--ctx-size") + 1] == "200"
    assert command[-2:] == ["--cache-ram", "0"]  # only options that its help names


@pytest.mark.parametrize(
    ("line", "starts"), [("CUDA0: NVIDIA H100 (81079 MiB, 80559 MiB free)", True), ("(none)", False)]
)
def test_where_it_computes_is_told_before_anybody_is_answered(
    tmp_path: Path, line: str, *, starts: bool
) -> None:
    """Check a server that ignores the layers, and does not report it if it could offload over a network."""
    program, model = tmp_path / "llama-server", tmp_path / "m.gguf"
    program.write_text(SERVER.format(python=sys.executable, line=line))
    program.chmod(0o755)
    model.write_bytes(b"GGUF")
    server = LlamaCppServer(
        ServerParameters(model=str(model), binary=program, gpu_layers=99),
        name="m",
        python=program,
        processes=LocalProcesses("test"),
        log=tmp_path / "log",
    )
    if starts:
        with server:
            assert (server.facts["devices"], server.facts["gpu_layers"]) == ("CUDA0: NVIDIA H100", 99)
    else:
        with pytest.raises(ActionFailedError, match="computed on the CPU: it lists no GPU"), server:
            pass
    assert server.death() is not None


def test_a_line_that_is_not_whole_yet_says_nothing(tmp_path: Path) -> None:
    server = LlamaCppServer(
        ServerParameters(model="m"),
        name="m",
        python=tmp_path / "python",
        processes=LocalProcesses("test"),
        log=tmp_path / "log",
    )
    line = '{"event": "listening", "address": "http://127.0.0.1:4711"}\n'
    for end in (30, -1):
        server.log.write_text(line[:end])
        assert not server._listening(0)
    server.log.write_text(line)
    assert server._listening(0)
    assert server.url == "http://127.0.0.1:4711"


def test_one_that_was_compiled_for_another_processor_is_told_as_such(tmp_path: Path) -> None:
    program, model = tmp_path / "llama-server", tmp_path / "m.gguf"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && { echo "version: 3661 (f648ca2c)" >&2; exit; }\n'
        '[ "$1" = --help ] && exit\n'
        "echo AMX is not ready to be used\n"
        "kill -ILL $$\n"
    )
    program.chmod(0o755)
    model.write_bytes(b"GGUF")
    server = LlamaCppServer(
        ServerParameters(model=str(model), binary=program),
        name="m",
        python=program,
        processes=LocalProcesses("test"),
        log=tmp_path / "log",
    )
    with pytest.raises(ActionFailedError, match="ended by signal 4") as failure, server:
        pass
    assert str(failure.value.remedy).startswith("it was compiled for another processor")
    assert "AMX is not ready to be used" in failure.value.details
