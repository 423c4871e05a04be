"""The image of lab hosts: the base, its stand-in hardware, its trusted keys, and the agent."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.lab.host.agent_wheels import agent_wheel, dependency_wheels
from tests.lab.host.docker_engine import LABEL
from tests.lab.host.web.content import UBUNTU_ARCHIVE
from tests.lab.host.web.debian_packages import STANDINS

if TYPE_CHECKING:
    from tests.lab.host.docker_engine import DockerEngine

__all__ = ["base_image", "host_image"]

_KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_SOURCES = f"deb [signed-by={_KEYRING}] http://{UBUNTU_ARCHIVE} noble main\n"
_OS_RELEASE = """\
PRETTY_NAME="Ubuntu 24.04.1 LTS"
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION="24.04.1 LTS (Noble Numbat)"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=noble
"""
_DOCKERFILE = """\
FROM {base}
LABEL {label}=host
COPY lab-init lsblk modprobe rmmod update-initramfs /usr/local/sbin/
COPY os-release /usr/lib/os-release
COPY lab.crt /usr/local/share/ca-certificates/lab.crt
COPY archive.gpg {keyring}
COPY sources.list /etc/apt/sources.list
RUN chmod 755 /usr/local/sbin/* && update-ca-certificates
COPY wheels /opt/wheels
RUN python3 -m venv /opt/vcagent && /opt/vcagent/bin/pip install --quiet --no-index /opt/wheels/*
COPY {wheel} /opt/
RUN /opt/vcagent/bin/pip install --quiet --no-index --no-deps /opt/{wheel} \
 && ln -s /opt/vcagent/bin/vcagent /usr/local/bin/vcagent
STOPSIGNAL SIGRTMIN+3
CMD ["/usr/local/sbin/lab-init"]
"""


def base_image(engine: DockerEngine, base: Path) -> str:
    """Return the base as an image, imported once for each engine."""
    name = f"{LABEL}/{base.name}"
    if not engine.docker("images", "--quiet", name).strip():
        engine.docker("import", f"--change=LABEL {LABEL}=base", base / "root.tar", name)
    return name


def host_image(engine: DockerEngine, base: Path, web: Path) -> str:
    """Build the image; the engine repeats only the parts that have changed.

    Args:
        engine: the engine that builds it.
        base: the folder of the base.
        web: the folder that the web server serves; its authority is trusted.
    """
    wheel = agent_wheel()
    name = f"{LABEL}/host"
    with TemporaryDirectory() as folder:
        context = Path(folder)
        for standin in ("lab-init", "lsblk", "modprobe", "rmmod", "update-initramfs"):
            shutil.copy(STANDINS / standin, context)
        shutil.copy(web / "ca.crt", context / "lab.crt")
        shutil.copy(web / "archive.gpg", context)
        shutil.copy(wheel, context)
        shutil.copytree(dependency_wheels(), context / "wheels")
        (context / "os-release").write_text(_OS_RELEASE)
        (context / "sources.list").write_text(_SOURCES)
        (context / "Dockerfile").write_text(
            _DOCKERFILE.format(base=base_image(engine, base), label=LABEL, keyring=_KEYRING, wheel=wheel.name)
        )
        engine.docker("build", "--quiet", "--network=none", "--force-rm", f"--tag={name}", context)
    engine.docker("image", "prune", "--force", f"--filter=label={LABEL}=host")
    known = engine.docker("images", "--format={{.Repository}}", f"--filter=label={LABEL}=base").split()
    for old in set(known) - {base_image(engine, base)}:
        engine.docker("rmi", old)
    return name
