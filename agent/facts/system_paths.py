"""Where the files of the system are: the root of the file system, unless somebody prepares another one."""

from __future__ import annotations

from pathlib import Path

from agent.facts.base import Fact

SYSTEM_ROOT: Fact[Path] = Fact("system_root", "/, unless modelled", lambda _host: Path("/"))
"""What ``/etc`` and ``/usr/local`` are below, for steps that write there; a test models another folder."""
