"""Logins to a fleet's hosts, and a controller that has nothing but a bundle made beforehand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.fleet.controller import await_
from tests.lab.fleet.ssh_image import SUDO_PASSWORD

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fleet.controller import Controller
    from tests.lab.fleet.ssh_host import SshHost

pytestmark = pytest.mark.lab

PASSPHRASE = "opens-the-key-4711"


def test_passwords_passphrases_and_wrong_keys(controller: Controller, hosts: list[SshHost]) -> None:
    encrypted, other = controller.folder / "encrypted", controller.folder / "other"
    shutil.copy(controller.key, encrypted)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", encrypted], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    entries = {
        "password": {"address": hosts[0].address, "user": "asked", "identity_file": str(other)},
        "passphrase": {"address": hosts[1].address, "identity_file": str(encrypted)},
        "wrong-key": {"address": hosts[2].address, "identity_file": str(other)},
    }
    inventory = controller.write_inventory(entries)
    arguments = ("run", "-i", inventory, "-p", controller.write_profile("true"))
    given = controller.fleet(
        *arguments, exit_code=10, VCAGENT_SSH_PASSWORD=SUDO_PASSWORD, VCAGENT_SSH_PASSPHRASE=PASSPHRASE
    )["hosts"]
    assert {name: host["phase"] for name, host in given.items()} == {
        "password": "done",
        "passphrase": "done",
        "wrong-key": "unreached",
    }
    assert "rejected the login" in given["wrong-key"]["reason"]
    without = controller.fleet(*arguments, exit_code=10)["hosts"]
    assert {host["phase"] for host in without.values()} == {"unreached"}
    assert "rejected the login" in without["password"]["reason"]
    assert "is encrypted" in without["passphrase"]["reason"]
    kept = [path for path in controller.folder.rglob("*") if path.is_file()]
    for secret in (SUDO_PASSWORD, PASSPHRASE):
        assert not [path for path in kept if secret.encode() in path.read_bytes()]


def test_keys_of_the_agent_certificates_and_files_that_are_not_there(
    controller: Controller, hosts: list[SshHost]
) -> None:
    folder, agent = controller.folder / "keys", controller.folder / "agent"
    folder.mkdir()

    def call(*words: str | Path) -> None:
        subprocess.run(words, cwd=folder, check=True, capture_output=True, env={**os.environ, **environment})

    environment = {"SSH_AUTH_SOCK": str(agent)}
    for name in ("authority", "certified", "other"):
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name)
    call("ssh-keygen", "-q", "-s", "authority", "-I", "me", "-n", "root", "certified.pub")
    (folder / "certified-cert.pub").rename(folder / "signed.pub")
    authority = (folder / "authority.pub").read_text().strip()
    hosts[2].run(f"echo 'cert-authority {authority}' >>/root/.ssh/authorized_keys")
    shutil.copy(controller.key, folder / "locked")
    inventory = controller.write_inventory(
        {
            name: {"address": host.address}
            for name, host in zip(("locked", "gone", "signed"), hosts, strict=False)
        },
        identity_file="",
    )
    (controller.folder / "config").write_text(
        f"Host {hosts[0].address}\n  IdentityFile {folder}/locked\n  IdentitiesOnly yes # that one\n"
        f"Host {hosts[1].address}\n  IdentityFile {folder}/gone\n  IdentityFile {controller.key}\n"
        f"Host {hosts[2].address}\n  IdentityFile {folder}/certified\n  CertificateFile {folder}/signed.pub\n"
        "  IdentitiesOnly yes\n"
    )
    server = subprocess.Popen(["ssh-agent", "-D", "-a", agent], stdout=subprocess.DEVNULL)
    try:
        await_(agent.exists)
        call("ssh-add", "-q", "other", "locked")
        call("ssh-keygen", "-q", "-p", "-P", "", "-N", PASSPHRASE, "-f", "locked")
        arguments = ("run", "-i", inventory, "-p", controller.write_profile("true"), "--ssh-config=config")
        fleet = controller.fleet(*arguments, exit_code=0, **environment)
    finally:
        server.terminate()
        server.wait()
    assert {host["phase"] for host in fleet["hosts"].values()} == {"done"}


def test_a_bastion_that_turns_many_away_lets_all_through(
    controller: Controller, hosts: list[SshHost]
) -> None:
    bastion = hosts[0]
    bastion.run("echo MaxStartups 3 >/etc/ssh/sshd_config.d/startups.conf; kill -HUP 1")
    known = f"-o UserKnownHostsFile={controller.known_hosts}"
    proxy = f"ssh -i {controller.key} {known} -W %h:%p root@{bastion.address}"
    entries = {host.name: {"address": host.address, "proxy_command": proxy} for host in hosts[1:]}
    try:
        controller.fleet(
            "run",
            "-i",
            controller.write_inventory(entries),
            "-p",
            controller.write_profile("true"),
            exit_code=0,
        )
    finally:
        bastion.run("rm /etc/ssh/sshd_config.d/startups.conf; kill -HUP 1")


def test_a_bundle_made_beforehand_needs_no_index(controller: Controller, hosts: list[SshHost]) -> None:
    platform = f"3.11-{os.uname().machine}"
    command = [sys.executable, "-m", "agent", "bundle", f"--platform={platform}"]
    options = [f"--wheels={controller.wheels}", f"--output={controller.folder}"]
    made = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    bundle = made.stdout.strip()
    nothing = controller.folder / "nothing"
    nothing.mkdir()
    inventory = controller.write_inventory({"a": {"address": hosts[0].address}})
    fleet = controller.fleet(
        *("run", "-i", inventory, "-p", controller.write_profile("true"), f"--bundle={bundle}"),
        exit_code=0,
        VCAGENT_PACKAGE_DIR=str(nothing / "packages"),
        PIP_NO_INDEX="1",
    )
    assert fleet["hosts"]["a"]["phase"] == "done"
    assert not list(nothing.rglob("*.tar.gz"))
