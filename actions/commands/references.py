"""Replace references such as ``{ServiceUrl:name}`` in a command by values of running services."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.component.component import SERVICE_PREFIX
from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from agent.component.component import StepContext

_REFERENCE = re.compile(r"\{Service(?P<what>Url|Host|Port|Model):(?P<name>[^{}]+)\}", re.IGNORECASE)


def named_services(text: str) -> set[str]:
    """Return the names of the services that a text refers to."""
    return {match["name"].strip() for match in _REFERENCE.finditer(text)}


def filled_in(text: str, context: StepContext) -> str:
    """Return the text with references replaced by the URL, host, port or model of the services.

    Raises:
        ActionFailedError: if no such service is running, or the service does not have this value.
    """

    def value(match: re.Match[str]) -> str:
        name, what = match["name"].strip(), match["what"].lower()
        url, values = context.served_at(f"{SERVICE_PREFIX}{name}")
        parts = urlsplit(url)
        found = {"url": url, "host": parts.hostname, "port": parts.port, "model": values.get("model")}[what]
        if found is None or found == "":
            raise ActionFailedError(
                f"the service {name} does not have a {what}", remedy="set it in the service's parameters"
            )
        return str(found)

    return _REFERENCE.sub(value, text)
