"""Manual installations on a lab host, according to the publishers' instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.host.lab_host import LabHost

__all__ = ["DOWNLOAD", "add_repository", "install"]

DOWNLOAD = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())"


def add_repository(host: LabHost, name: str, key: str, line: str) -> None:
    """Add a repository according to its publisher's instructions."""
    host.run(f"python3 -c '{DOWNLOAD}' https://{key} >/usr/share/keyrings/{name}.asc")
    source = f"deb [signed-by=/usr/share/keyrings/{name}.asc] https://{line}\n"
    host.put(f"/etc/apt/sources.list.d/{name}.list", source)
    host.run("apt-get update -qq")


def install(host: LabHost, *packages: str) -> None:
    host.run(["apt-get", "install", "-qq", "--allow-downgrades", *packages])
