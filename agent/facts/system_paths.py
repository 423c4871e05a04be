"""The root of the file system that steps change: ``/``, or another prepared root."""

from __future__ import annotations

from pathlib import Path

from agent.facts.base import Fact

SYSTEM_ROOT: Fact[Path] = Fact("system_root", "/, unless modelled", lambda _host: Path("/"))
"""Parent of ``/etc`` and ``/usr/local`` for steps that write there; tests use another folder."""
