"""What a run notes of its containers, for run.json; without the engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = "containers"
"""The folder of a run where a file says of each of its containers what it was made from."""


def has_containers(run_dir: Path) -> bool:
    """Whether a run made containers."""
    return (run_dir / RECORDS).is_dir()


def container_records(run_dir: Path) -> list[dict[str, Any]]:
    """What a run noted of its containers: image digests, configuration with secrets masked."""
    paths = sorted((run_dir / RECORDS).glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]
