"""The agent's own log: one JSON object a line, secrets masked, nothing on the console."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.core.safe_files import append_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from agent.core.secrets import Secrets

__all__ = ["configure"]


@contextmanager
def configure(path: Path, secrets: Secrets) -> Iterator[FilteringBoundLogger]:
    """Send every structlog event to a file while the context is open; afterwards events go nowhere.

    Args:
        path: ``logs/vcagent.jsonl`` of the run; appended to.
        secrets: what is masked in each event: its message, its values, tracebacks.
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
            wrapper_class=structlog.make_filtering_bound_logger("debug"),
            logger_factory=structlog.WriteLoggerFactory(file=file),
            # A logger that a module made when it was imported must obey this too.
            cache_logger_on_first_use=False,
        )
        try:
            yield structlog.get_logger()
        finally:
            structlog.configure(processors=[dropped])
