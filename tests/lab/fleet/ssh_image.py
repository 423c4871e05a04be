"""The image of SSH hosts: Debian with sshd, sudo, Python, and systemd, which only some hosts start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.host.base_image import base_folder, install_on_base
from tests.lab.host.cache import cached_folder, fingerprint
from tests.lab.host.docker_engine import LABEL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.host.docker_engine import DockerEngine

__all__ = ["SUDO_PASSWORD", "ssh_base", "ssh_image"]

SUDO_PASSWORD = "right-horse-battery"
"""Password of the user ``asked``, for sudo and for logging in."""

_PACKAGES = ("openssh-server", "libgomp1", "libstdc++6")
_USERS = f"""\
useradd --create-home --shell /bin/bash --password '*' easy
useradd --create-home --shell /bin/bash asked
useradd --create-home --shell /bin/bash --password '*' plain
echo 'asked:{SUDO_PASSWORD}' | chpasswd
echo 'easy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/easy
echo 'asked ALL=(ALL) ALL' >/etc/sudoers.d/asked
mkdir -p /run/sshd /root/.ssh
rm /etc/ssh/ssh_host_*
printf 'MaxStartups 100\\nPermitRootLogin prohibit-password\\nUseDNS no\\n' >/etc/ssh/sshd_config.d/lab.conf
"""
"""easy: sudo without a password; asked: with one; plain: no sudo. A password of ``*`` does not lock it."""


def ssh_base() -> Path:
    """Return the folder of ``root.tar``, made once from the file system of the lab hosts."""
    return cached_folder("fleet-base", fingerprint(base_folder().name, _PACKAGES, _USERS), _make)


def ssh_image(engine: DockerEngine) -> str:
    """Import the image."""
    base = ssh_base()
    name = f"{LABEL}/{base.name}"
    if not engine.docker("images", "--quiet", name).strip():
        engine.docker("import", f"--change=LABEL {LABEL}=fleet", base / "root.tar", name)
    return name


def _make(folder: Path) -> None:
    (folder / "users.sh").write_text(_USERS)
    install_on_base(_PACKAGES, folder / "users.sh", folder / "root.tar")
