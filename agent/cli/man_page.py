"""The manual page, made of the commands: ``make man`` writes it to docs/vcagent.1."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agent import __version__
from agent.core.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_CODES = {
    ExitCode.OK: "The run ended well, and every result is valid.",
    ExitCode.UNEXPECTED: "A defect of vcagent; the message says how to report it.",
    ExitCode.USAGE: "The command line is wrong.",
    ExitCode.PROFILE_INVALID: "The profile cannot be used.",
    ExitCode.HOST_CANNOT_RUN: "This host cannot run the profile. Nothing was changed.",
    ExitCode.DEPENDENCY_FAILED: "A step that prepares the host failed.",
    ExitCode.ACTION_FAILED: "A workload failed.",
    ExitCode.RESULT_INVALID: "A result is INVALID; or vcagent compare found a regression, or a submission "
    "was not accepted.",
    ExitCode.REBOOT_PENDING: "The host must be rebooted; the run continues afterwards.",
    ExitCode.INTERRUPTED: "The run was interrupted; vcagent resume continues it.",
    ExitCode.FLEET_PARTIAL: "Some hosts of a fleet failed, or vcagent diagnose did not find every host well.",
}
ENVIRONMENT = {
    "VCAGENT_PACKAGE_DIR": "The package folder; --package-dir takes precedence.",
    "XDG_CACHE_HOME": "The folder for caches of users other than root, instead of ~/.cache.",
    "HF_TOKEN": "The key for models and data sets of the Hugging Face hub; also read from .env. "
    "HUGGING_FACE_HUB_TOKEN, HUGGINGFACE_HUB_TOKEN, HUGGINGFACE_TOKEN and HUGGINGFACE_ACCESS_TOKEN mean the "
    "same.",
    "HF_HOME": "The folder of the hub's login and cache, instead of ~/.cache/huggingface.",
    "HF_ENDPOINT": "The address of another hub, such as a mirror.",
    "HF_HUB_OFFLINE": "If it is 1, only the hub's cache is used.",
    "HTTPS_PROXY": "The proxy for downloads, as HTTP_PROXY and NO_PROXY; also in lower case.",
    "PIP_INDEX_URL": "The package index; pip's other variables count too.",
    "SSL_CERT_FILE": "The certificates of authorities, such as that of a proxy that inspects TLS; "
    "also REQUESTS_CA_BUNDLE.",
    "CUDA_VISIBLE_DEVICES": "The GPUs of NVIDIA that may be used.",
    "HIP_VISIBLE_DEVICES": "The GPUs of AMD that may be used.",
    "DOCKER_HOST": "The address of Docker's engine; DOCKER_CONTEXT names a context instead.",
    "OTEL_EXPORTER_OTLP_HEADERS": "Headers for the sink otlp, such as a key.",
    "VCAGENT_SSH_PASSWORD": "The SSH password of fleet commands, instead of --ask-password.",
    "VCAGENT_SSH_PASSPHRASE": "The SSH key's passphrase, instead of --ask-passphrase.",
    "VCAGENT_SUDO_PASSWORD": "The password for sudo on the hosts, instead of --ask-sudo-password.",
    "VCAGENT_HOST_LOCK": "The lock file of changes to this host, instead of /run/vcagent-host.lock.",
    "VCAGENT_MACHINE_LOCK": "The lock file or folder of fleet runs on a host, for runs that may share it.",
    "VCAGENT_CLOUD_METADATA_URL": "The address of the cloud's metadata service; off: it is not asked.",
    "MLPERF_INFERENCE_REPO": "A checkout of mlcommons/inference, for vcagent submission check.",
    "MLPERF_SCRATCH_PATH": "The folder of models and data of PERF-GPU-MLPERF.",
    "FORCE_FREE_GPU": "If it is 1, runs end vcagent's own leftover processes on their GPUs.",
    "NO_COLOR": "If it is set, the output has neither colour nor bold text.",
}
"""Variables that the program reads. A profile reads others as ``{EnvironmentVariable:NAME}``."""


def man_page(program: Any) -> str:
    """Return the manual page of a program in man's format.

    Args:
        program: the click command of the whole program.
    """
    lines = [
        f'.TH VCAGENT 1 "" "vcagent {__version__}" "User Commands"',
        ".SH NAME",
        r"vcagent \- provision a host, run benchmarks, and judge the results",
        ".SH SYNOPSIS",
        r".B vcagent \-\-profile",
        r".I PROFILE",
        "[OPTIONS]",
        ".br",
        ".B vcagent",
        ".I COMMAND",
        "[OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        *_text(program.help or ""),
        ".SH OPTIONS",
        *_parameters(program),
        ".SH COMMANDS",
    ]
    for path, command in _commands(program, ()):
        lines += [
            f".SS vcagent {_escaped(' '.join(path))}",
            *_text(command.help or ""),
            *_parameters(command),
        ]
    lines.append(".SH EXIT STATUS")
    for code in ExitCode:
        lines += [".TP", f".B {code.value}", *_text(EXIT_CODES[code])]
    lines.append(".SH ENVIRONMENT")
    for name, meaning in ENVIRONMENT.items():
        lines += [".TP", f".B {_escaped(name)}", *_text(meaning)]
    return "\n".join(lines) + "\n"


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _parameters(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            metavar = (parameter.metavar or parameter.name.upper()).strip("[]").replace("]...", "...")
            yield from (".TP", f".I {_escaped(metavar)}")
        else:
            names = ", ".join(
                rf"\fB{_escaped(name)}\fR"
                for name in sorted((*parameter.opts, *parameter.secondary_opts), key=len)
            )
            value = "" if parameter.is_flag else rf" \fI{_value(parameter)}\fR"
            yield from (".TP", f"{names}{value}")
        yield from _text(parameter.help or "")


def _value(parameter: Any) -> str:
    return _escaped(str(parameter.metavar or parameter.name.replace("_", "-").upper()).strip("[]"))


def _text(text: str) -> Iterator[str]:
    """Yield a text's lines without rich's markup; paragraphs are separated."""
    plain = re.sub(r"\[/?(?:bold)?\]", "", text)
    for number, paragraph in enumerate(plain.split("\n\n")):
        if number:
            yield ".PP"
        line = _escaped(" ".join(paragraph.split()))
        yield rf"\&{line}" if line.startswith((".", "'")) else line


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def whole_program() -> Any:
    """Return the click command of the program with all groups of commands of this distribution."""
    from importlib.metadata import entry_points

    import typer.main

    from agent.cli.main import COMMANDS, app

    for point in sorted(entry_points(group=COMMANDS), key=lambda point: point.name):
        if point.dist and point.dist.name == "vcagent":
            app.add_typer(point.load(), name=point.name)
    return typer.main.get_command(app)


def main() -> None:
    """Print the manual page."""
    from agent.cli.output import say

    say(man_page(whole_program()), end="")


if __name__ == "__main__":
    main()
