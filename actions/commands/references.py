"""``{ServiceUrl:name}`` and ``service:name`` in a command: filled in when the command is run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.component.component import SERVICE_PREFIX
from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from agent.component.component import StepContext

_REFERENCE = re.compile(r"\{Service(?P<what>Url|Host|Port|Model):(?P<name>[^{}]+)\}", re.IGNORECASE)


_ENDPOINT = re.compile(rf"(?<![^\s\"'=]){SERVICE_PREFIX}(?P<name>[A-Za-z][\w.-]*)(?=[\s\"'/]|$)")
"""A word that begins with a service, as other components have it for their endpoint."""


def filled_in(text: str, context: StepContext) -> str:
    """Return the text with URL, host, port or model of the services that it refers to.

    A word ``service:name``, or one that continues with a path, is the URL of the service.

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

    def url(match: re.Match[str]) -> str:
        return context.served_at(f"{SERVICE_PREFIX}{match['name']}")[0].rstrip("/")

    return _ENDPOINT.sub(url, _REFERENCE.sub(value, text))
