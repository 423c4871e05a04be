"""Records of a run's containers, for run.json; readable without the engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = "containers"
"""Folder in a run's folder with one file for each container's configuration."""


def has_containers(run_dir: Path) -> bool:
    """Return True if a run created containers."""
    return (run_dir / RECORDS).is_dir()


def container_records(run_dir: Path) -> list[dict[str, Any]]:
    """Return the run's records of its containers: image digests, configuration with secrets masked."""
    paths = sorted((run_dir / RECORDS).glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]
