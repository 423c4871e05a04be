"""What a llama-server says of itself, in the words of each age."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actions.llamacpp.server import LlamaCppServer, ServerParameters
from actions.llamacpp.server_binary import ServerBinary
from agent.errors import ActionFailedError
from agent.processes import LocalProcesses

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("version", "facts"),
    [
        ("version: 3661 (f648ca2c)", ("b3661", "f648ca2c")),
        ("version: 0.6.0-dev (build 11434, commit 515e855)", ("b11434", "515e855")),
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
    assert (read.facts["engine_version"], read.facts["engine_commit"]) == facts
    asked = ServerParameters(model="m", binary=program, parallel=2, context=100)
    command = read.command(asked, model="m", alias="m", host="h", port=1)
    assert command[command.index("--ctx-size") + 1] == "200"
    assert command[-2:] == ["--cache-ram", "0"]  # nothing that its help does not name


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
