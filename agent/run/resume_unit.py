"""The text of the systemd unit that resumes a run after a reboot."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agent.core.secret_shapes import is_secret_name
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENVIRONMENT_FILE = "/etc/vcagent/environment"
"""File for variables that the unit must not hold, such as tokens and passwords (systemd.exec(5))."""

_KEPT = re.compile(
    r"PATH|HOME|LANG|LC_\w+|TZ|TMPDIR|SUDO_USER|VCAGENT_PACKAGE_DIR|XDG_CACHE_HOME|PYTHONPATH|VIRTUAL_ENV"
    r"|(?i:https?_proxy|no_proxy|all_proxy)|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|PIP_\w+|HF_HOME|HF_ENDPOINT"
    r"|DOCKER_(?:HOST|CONFIG)|CUDA_HOME|LD_LIBRARY_PATH"
)

_UNIT = """\
# Made by vcagent, which removes this unit when the run has ended.
[Unit]
Description=vcagent resumes run {run_id} after a reboot
Wants=network-online.target
After=network-online.target remote-fs.target docker.service nvidia-fabricmanager.service
ConditionPathExists={journal}

[Service]
# Not oneshot: that would delay the boot, and with it the services that the run may have to start.
Type=simple
WorkingDirectory={working_dir}
{environment}EnvironmentFile=-{environment_file}
ExecStart={command}
StandardOutput=journal
StandardError=journal
TimeoutStopSec=60
Restart=no

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class ResumeUnit:
    """The values that a unit needs to resume a run.

    Args:
        run_dir: the run's folder, absolute.
        command: the program and its arguments.
        working_dir: the folder that the run was started in.
        environment: variables of the program, without secrets.
    """

    run_dir: Path
    command: tuple[str, ...]
    working_dir: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The unit's name."""
        return f"vcagent-resume-{re.sub(r'[^A-Za-z0-9:_.-]', '-', self.run_dir.name)}.service"

    def text(self) -> str:
        """Return the unit's file (systemd.unit(5), systemd.service(5))."""
        variables = [f"{name}={value}" for name, value in sorted(self.environment.items())]
        return _UNIT.format(
            run_id=_plain(self.run_dir.name),
            journal=_plain(str(self.run_dir / JOURNAL)),
            working_dir=_plain(str(self.working_dir)),
            environment="".join(f"Environment={_quoted(variable)}\n" for variable in variables),
            environment_file=ENVIRONMENT_FILE,
            command=" ".join(_quoted(part).replace("$", "$$") for part in self.command),
        )


def _plain(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Return a text in double quotes, with specifiers and escapes doubled for systemd (systemd.syntax(7))."""
    escaped = _plain(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def kept_environment(environment: Mapping[str, str], mask: Callable[[str], str]) -> dict[str, str]:
    """Return the variables that a resumed run needs, such as paths and proxies, without secrets."""
    return {
        name: value
        for name, value in environment.items()
        if _KEPT.fullmatch(name) and not is_secret_name(name) and mask(value) == value
    }


def program(script: str, interpreter: str = sys.executable) -> tuple[str, ...]:
    """Return the command that starts this program again: its console script, else its package."""
    path = Path(script)
    if path.name.startswith("vcagent") and path.is_file():
        return interpreter, str(path.absolute())
    return interpreter, "-m", "agent"
