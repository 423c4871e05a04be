"""The labels of Docker's images, as facts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agent.facts.base import Fact

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUSY_S = 120.0
"""An engine that has just built a large image may take long to answer."""


def image_labels(reference: str) -> Fact[Mapping[str, str] | None]:
    """Return the fact of an image's labels; None if it does not exist, or no engine answers."""
    command = ["docker", "image", "inspect", "--format={{json .Config.Labels}}", "--", reference]
    return Fact(
        f"image_labels[{reference}]",
        f"docker image inspect {reference}",
        lambda host: _labels(host.output(command, timeout_s=_BUSY_S)),
    )


def _labels(text: str | None) -> Mapping[str, str] | None:
    if text is None:
        return None
    labels = json.loads(text)
    return {str(name): str(value) for name, value in (labels or {}).items()}
