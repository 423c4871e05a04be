"""The agent's own log: one JSON object per line, secrets masked, nothing on the console."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.core.errors import UsageError
from agent.core.safe_files import append_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from agent.core.secrets import Secrets

LEVELS = ("debug", "info", "warning", "error", "critical")
"""Ordered from the least important."""

_VIRTUALCLIENT = {"trace": "debug", "information": "info", "none": "critical"}
_NUMBERS = ("debug", "debug", "info", "warning", "error", "critical", "critical")
"""VirtualClient's levels 0 (Trace) to 6 (None)."""


def parse_level(text: str) -> str:
    """Read ``--log-level``: a name, or one of VirtualClient's names or numbers.

    Raises:
        UsageError: if it is none of these.
    """
    name = text.strip().lower()
    level = (
        _NUMBERS[int(name)]
        if name.isdigit() and int(name) < len(_NUMBERS)
        else _VIRTUALCLIENT.get(name, name)
    )
    if level not in LEVELS:
        raise UsageError(
            f"'{text}' is not a log level", remedy=f"write one of {', '.join(LEVELS)}, or 0 to 5"
        )
    return level


@contextmanager
def configure(path: Path, secrets: Secrets, level: str = "debug") -> Iterator[FilteringBoundLogger]:
    """Send every structlog event to a file while the context is open; afterwards events go nowhere.

    Args:
        path: ``logs/vcagent.jsonl`` of the run; appended to.
        secrets: the secrets to mask in each event's message, values and traceback.
        level: the least important events that are kept: debug, info, warning, error or critical.
    """
    import structlog

    def masked(_logger: Any, _method: str, event: Any) -> Any:
        return secrets.mask_value(event)

    def dropped(_logger: Any, _method: str, _event: Any) -> Any:
        raise structlog.DropEvent

    with append_to(path, errors="backslashreplace", buffering=1) as file:
        structlog.configure(
            processors=[
                structlog.contextvars.merge_contextvars,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                masked,
                structlog.processors.JSONRenderer(
                    ensure_ascii=False, default=lambda value: secrets.mask(str(value))
                ),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            logger_factory=structlog.WriteLoggerFactory(file=file),
            # Loggers that modules created on import must follow this configuration, too.
            cache_logger_on_first_use=False,
        )
        try:
            yield structlog.get_logger()
        finally:
            structlog.configure(processors=[dropped])
