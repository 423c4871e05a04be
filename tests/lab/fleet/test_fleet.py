"""``vcagent fleet`` with real SSH servers: failures are named, and results are brought home."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.lab.fleet.controller import DEADLINE_S, await_
from tests.lab.fleet.ssh_host import SshHost, start_hosts
from tests.lab.fleet.ssh_image import SUDO_PASSWORD

if TYPE_CHECKING:
    from tests.lab.fleet.controller import Controller

pytestmark = pytest.mark.lab

ROOT = "uid=0(root)"
UNUSED = "192.0.2.1"
"""An address of RFC 5737, at which nothing answers."""


def latest(controller: Controller) -> Path:
    return controller.folder / "results" / "fleet" / "latest"


def gated(controller: Controller) -> str:
    """Return a profile that notes each start and goes on once a file exists."""
    return controller.write_profile(
        "sh -c 'echo once >>/root/effects; until [ -e /root/gate ]; do sleep 0.1; done'"
    )


def reset(hosts: list[SshHost]) -> None:
    for host in hosts:
        host.run("rm -f /root/gate /root/effects")


def test_unknown_keys_are_listed_and_refused_unless_accepted_once(
    controller: Controller, hosts: list[SshHost]
) -> None:
    controller.known_hosts.unlink()
    inventory = controller.write_inventory({host.name: {"address": host.address} for host in hosts[:3]})
    profile = controller.write_profile("true")
    arguments = ("run", "-i", inventory, "-p", profile)
    said = controller.refused(*arguments, exit_code=4)
    assert "3 host keys unknown; nothing was started" in said
    for host in hosts[:3]:
        fingerprint = host.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub").split()[1]
        assert f"{host.address} ssh-ed25519 {fingerprint}" in said
        assert host.run("ls /var/cache/vcagent", check=False).count("runs") == 0
    controller.fleet("retry", "--accept-new-host-keys", exit_code=0)
    controller.fleet(*arguments, exit_code=0)
    known = controller.known_hosts.read_text().split()
    controller.known_hosts.write_text(" ".join(known[:1] + hosts[3].host_key().split()[1:]) + "\n")
    changed = controller.fleet(
        *arguments, "--limit", f"{hosts[0].name},{hosts[1].name},{hosts[2].name}", "--accept-new-host-keys",
        exit_code=10,
    )  # fmt: skip
    reasons = [host["reason"] for host in changed["hosts"].values() if host["phase"] == "unreached"]
    assert len(reasons) == 1
    assert "is not accepted" in reasons[0]


def test_every_kind_of_host_in_one_fleet(controller: Controller, hosts: list[SshHost]) -> None:
    one, two, three, four, five, six, frozen, bare = hosts
    bare.run("chmod -x /usr/bin/python3.11")
    frozen.freeze()
    bastion = f"root@{two.address}"
    config = controller.folder / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text(
        f"Include {config.parent}/jumps\nHost *\n  IdentityFile {controller.key}\n"
        f"  UserKnownHostsFile {controller.known_hosts}\n"
    )
    (config.parent / "jumps").write_text(
        f"Host inner\n  HostName {four.address}\n  ProxyJump {bastion}\n  User root\n"
    )
    entries: dict[str, dict[str, Any]] = {
        "root": {"address": one.address, "parameters": {"Word": "servus"}},
        "same-machine": {"address": one.address},
        "sudo": {"address": three.address, "user": "easy", "sudo": True},
        "sudo-password": {"address": four.address, "user": "asked", "sudo": True},
        "no-sudo": {"address": five.address, "user": "plain", "sudo": True},
        "unprivileged": {"address": five.address, "user": "plain"},
        "behind-bastion": {"address": six.address, "proxy_jump": bastion},
        "two-jumps": {
            "address": six.address,
            "proxy_jump": [bastion, f"root@{three.address}"],
            "user": "easy",
        },
        "proxy-command": {
            "address": five.address,
            "proxy_command": f"ssh -i {controller.key} -o UserKnownHostsFile={controller.known_hosts} "
            f"-W %h:%p {bastion}",
        },
        "inner": {"sudo": False},
        "nobody": {"address": two.address, "user": "nosuchuser"},
        "down": {"address": two.address, "port": 9},
        "silent": {"address": UNUSED},
        "frozen": {"address": frozen.address},
        "no-python": {"address": bare.address},
        "no-name": {"address": "no-such-host.invalid"},
    }
    profile = controller.write_profile("sh -c 'echo $.Parameters.Word; id; hostname'")
    arguments = ("run", "-i", controller.write_inventory(entries), "-p", profile, "--connect-timeout=15")
    again_there = "same-machine,inner,proxy-command,two-jumps"  # one run at a time on a machine
    try:
        there = controller.fleet(*arguments, f"--limit={again_there}", exit_code=0)
        fleet = controller.fleet(
            *arguments, f"--limit=!{again_there.replace(',', ',!')}",
            exit_code=10, VCAGENT_SUDO_PASSWORD=SUDO_PASSWORD,
        )  # fmt: skip
    finally:
        frozen.thaw()
        bare.run("chmod +x /usr/bin/python3.11")
    found = {**fleet["hosts"], **there["hosts"]}
    wrong = {
        "no-sudo": "the agent cannot run as root",
        "nobody": "rejected the login",
        "down": "Connection refused",
        "silent": f"no connection to {UNUSED}:22",
        "frozen": "accepts connections but sends nothing",
        "no-python": "the agent needs Python 3.10 or newer",
        "no-name": "the host name no-such-host.invalid cannot be resolved",
    }
    for name, reason in wrong.items():
        assert reason in found[name]["reason"], name
        assert found[name]["phase"] in ("failed", "unreached")
    said = {}
    for name, host in found.items():
        if name not in wrong:
            assert host["phase"] == "done", (name, host["reason"])
            folder = Path((there if name in there["hosts"] else fleet)["folder"]) / "hosts" / host["folder"]
            said[name] = (folder / "logs" / "1-actions-0-execute.log").read_text().split()
    assert {"servus", ROOT, one.name} <= set(said["root"])
    assert {"none", ROOT, one.name} <= set(said["same-machine"])
    assert {ROOT, three.name} <= set(said["sudo"])
    assert {ROOT, four.name} <= set(said["sudo-password"])
    assert five.name in said["unprivileged"]
    assert ROOT not in said["unprivileged"]
    for name in ("behind-bastion", "two-jumps"):
        assert six.name in said[name]
    assert five.name in said["proxy-command"]
    assert four.name in said["inner"]
    again = yaml.safe_load((latest(controller) / "failed.yaml").read_text())
    assert set(again["hosts"]) == set(wrong)
    controller.fleet("retry", exit_code=10, VCAGENT_SUDO_PASSWORD=SUDO_PASSWORD)
    retried = controller.fleet("status", exit_code=0)
    assert {name for name, host in retried["hosts"].items() if host["phase"] == "done"} == {
        "frozen",
        "no-python",
    }


def test_a_wrong_sudo_password_is_told_before_anything_starts(
    controller: Controller, hosts: list[SshHost]
) -> None:
    entries = {"a": {"address": hosts[0].address, "user": "asked", "sudo": True}}
    arguments = ("run", "-i", controller.write_inventory(entries), "-p", controller.write_profile("true"))
    lacking = controller.fleet(*arguments, exit_code=10)
    assert "sudo wants a password" in lacking["hosts"]["a"]["reason"]
    wrong = controller.fleet(*arguments, exit_code=10, VCAGENT_SUDO_PASSWORD="wrong-horse-battery")
    assert "the sudo password is wrong" in wrong["hosts"]["a"]["reason"]
    assert wrong["hosts"]["a"]["started"] is None


def test_a_killed_controller_is_resumed_and_nothing_is_done_twice(
    controller: Controller, hosts: list[SshHost]
) -> None:
    reset(hosts)
    inventory = controller.write_inventory({host.name: {"address": host.address} for host in hosts[:4]})
    first = controller.start("run", "-i", inventory, "-p", gated(controller))
    await_(lambda: all(host.run("cat /root/effects", check=False) == "once\n" for host in hosts[:4]))
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert {host["phase"] for host in controller.status().values()} <= {"preparing", "running"}
    for host in hosts[:4]:
        host.run("touch /root/gate")
    resumed = controller.fleet("resume", exit_code=0)
    assert {host["phase"] for host in resumed["hosts"].values()} == {"done"}
    assert [host.run("cat /root/effects") for host in hosts[:4]] == ["once\n"] * 4
    assert "is complete" in controller.refused("resume", exit_code=2)


def test_a_connection_that_is_cut_costs_nothing(controller: Controller, hosts: list[SshHost]) -> None:
    reset(hosts)
    inventory = controller.write_inventory({host.name: {"address": host.address} for host in hosts[:2]})
    process = controller.start("run", "-i", inventory, "-p", gated(controller), "--json")
    cut = hosts[0]

    def all_run() -> bool:
        standings = controller.status().values()
        return len(standings) == 2 and all(host["phase"] == "running" and host["step"] for host in standings)

    await_(all_run)
    cut.run("pkill -f '[s]shd: root@notty'")
    await_(lambda: cut.run("pgrep -f '[s]shd: root@notty'", check=False) != "")
    for host in hosts[:2]:
        host.run("touch /root/gate")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err
    assert cut.run("cat /root/effects") == "once\n"


def test_a_lost_host_goes_on_alone_and_comes_home(controller: Controller, hosts: list[SshHost]) -> None:
    reset(hosts)
    host = hosts[0]
    entry = {"address": host.address, "user": "asked", "sudo": True}
    inventory = controller.write_inventory({"a": entry, "twin": entry})
    process = controller.start(
        *("run", "-i", inventory, "-p", gated(controller), "--json"),
        *("--connect-timeout=5", "--reconnect-timeout=1"),
        VCAGENT_SUDO_PASSWORD=SUDO_PASSWORD,
    )

    def phases() -> set[str]:
        return {one["phase"] for one in controller.status().values() if one["step"] or one["reason"]}

    await_(lambda: phases() == {"running", "failed"})
    host.deafen()
    out, err = process.communicate(timeout=DEADLINE_S)
    host.undeafen()
    assert process.returncode == 10, out + err
    found = {one["phase"]: one for one in json.loads(out)["hosts"]}
    name, run_id = found["unreached"]["name"], json.loads(out)["run_id"]
    assert f"vcagent fleet resume {run_id}" in found["unreached"]["reason"]
    assert f"already running host {name} of the same fleet run" in found["failed"]["reason"]
    retried = controller.fleet("retry", exit_code=10, VCAGENT_SUDO_PASSWORD=SUDO_PASSWORD)["hosts"]
    assert all(f"running fleet run {run_id}, as host {name}" in one["reason"] for one in retried.values())

    assert "sudo wants its password on 1 host" in controller.refused("resume", run_id, exit_code=2)
    host.run("touch /root/gate")
    resumed = controller.fleet("resume", run_id, exit_code=10, VCAGENT_SUDO_PASSWORD=SUDO_PASSWORD)["hosts"]
    assert resumed[name]["phase"] == "done"
    assert (Path(latest(controller).parent) / run_id / "hosts" / name / "run.json").is_file()
    assert host.run("cat /root/effects") == "once\n"


def test_an_interrupted_controller_leaves_the_hosts_at_work(
    controller: Controller, hosts: list[SshHost]
) -> None:
    reset(hosts)
    inventory = controller.write_inventory({hosts[0].name: {"address": hosts[0].address}})
    process = controller.start("run", "-i", inventory, "-p", gated(controller))
    await_(lambda: hosts[0].run("cat /root/effects", check=False) == "once\n")
    process.send_signal(signal.SIGTERM)  # a test run in the background ignores SIGINT
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 9
    assert "vcagent fleet resume" in out
    hosts[0].run("touch /root/gate")
    controller.fleet("resume", exit_code=0)
    assert hosts[0].run("cat /root/effects") == "once\n"


def test_a_failing_canary_stops_the_others(controller: Controller, hosts: list[SshHost]) -> None:
    inventory = controller.write_inventory({host.name: {"address": host.address} for host in hosts})
    profile = controller.write_profile("sh -c 'exit 3'")
    fleet = controller.fleet("run", "-i", inventory, "-p", profile, "--canary=2", exit_code=10)
    phases = [host["phase"] for host in fleet["hosts"].values()]
    assert phases == ["failed"] * 2 + ["not started"] * 6
    assert {host["exit_code"] for host in list(fleet["hosts"].values())[:2]} == {6}
    assert fleet["stopped"].startswith("the canary failed")


def test_a_host_that_takes_too_long_is_stopped_and_named(
    controller: Controller, hosts: list[SshHost]
) -> None:
    reset(hosts)
    inventory = controller.write_inventory({host.name: {"address": host.address} for host in hosts[:2]})
    hosts[0].run("touch /root/gate")
    fleet = controller.fleet(
        "run", "-i", inventory, "-p", gated(controller), "--host-timeout=00:01:00", exit_code=10
    )
    assert fleet["hosts"][hosts[0].name]["phase"] == "done"
    late = fleet["hosts"][hosts[1].name]
    assert "not done within 60 s" in late["reason"]
    home = latest(controller) / "hosts" / late["folder"]
    assert json.loads((home / "run.json").read_text())["exit_code"] == 9  # stopped, with its files fetched
    assert (home / "logs" / "1-actions-0-execute.log").is_file()
    await_(lambda: hosts[1].run("pgrep -f [r]oot/gate", check=False) == "")


def test_a_planted_secret_is_nowhere(controller: Controller, hosts: list[SshHost]) -> None:
    reset(hosts)
    token, other, host = "hf_PlantedParameterTokenValue99", "PlantedVariableValue-4711", hosts[0]
    parameters = {"ApiToken": token}
    entries = {"a": {"address": host.address, "user": "asked", "sudo": True, "parameters": parameters}}
    profile = controller.write_profile(
        "sh -c 'echo $.Parameters.ApiToken $OTHER_TOKEN | tee /dev/stderr | sha256sum >/tmp/got; "
        "echo once >>/root/effects; until [ -e /root/gate ]; do sleep 0.1; done'",
        parameters={"ApiToken": ""},
    )
    inventory = controller.write_inventory(entries)
    process = controller.start(
        "run", "-i", inventory, "-p", profile, "--env=OTHER_TOKEN",
        VCAGENT_SUDO_PASSWORD=SUDO_PASSWORD, OTHER_TOKEN=other,
    )  # fmt: skip
    # Values that the profile puts into a command line appear there: it all runs in this shell.
    everything = ["ps", "axww", "-o", "args"]
    lists = []
    while not host.run("cat /root/effects 2>/dev/null || true"):
        assert process.poll() is None, process.communicate()
        lists += host.run(" ".join(everything)).splitlines()
        lists += subprocess.run(everything, capture_output=True, text=True, check=True).stdout.splitlines()
    lists += host.run(" ".join(everything)).splitlines()
    host.run("touch /root/gate")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err
    assert (
        host.run("cut -d' ' -f1 /tmp/got").strip()
        == hashlib.sha256(f"{token} {other}\n".encode()).hexdigest()
    )
    (controller.folder / inventory).unlink()
    kept = [path for path in controller.folder.rglob("*") if path.is_file()]
    assert len(kept) > 5
    for secret in (token, other, SUDO_PASSWORD):
        assert not [line for line in lists if secret in line and "sh -c" not in line]
        assert secret not in out + err
        assert host.run(f"grep -rlF '{secret}' /var /tmp /home /root /run /etc 2>/dev/null || true") == ""
        assert not [path for path in kept if secret.encode() in path.read_bytes()]
    assert "***" in (latest(controller) / "hosts" / "a" / "logs" / "1-actions-0-execute.log").read_text()


def test_a_certificate_authority_vouches_for_a_host(controller: Controller, hosts: list[SshHost]) -> None:
    host = hosts[0]
    host.run(
        "cd /etc/ssh && [ -e ca ] || ssh-keygen -q -t ed25519 -N '' -f ca && "
        f"ssh-keygen -q -s ca -I host -h -n {host.address} -V +1h ssh_host_ed25519_key.pub && "
        "echo 'HostCertificate /etc/ssh/ssh_host_ed25519_key-cert.pub' >/etc/ssh/sshd_config.d/cert.conf && "
        "kill -HUP 1"
    )
    authority = host.run("cat /etc/ssh/ca.pub").strip()
    subnet = host.address.rsplit(".", 1)[0]
    controller.known_hosts.write_text(f"@cert-authority {subnet}.* {authority}\n")
    arguments = (
        *("run", "-i", controller.write_inventory({"a": {"address": host.address}})),
        *("-p", controller.write_profile("true")),
    )
    controller.fleet(*arguments, exit_code=0)
    other = host.run(
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/other; cat /tmp/other.pub; rm /tmp/other*"
    ).strip()
    controller.known_hosts.write_text(f"@cert-authority {subnet}.* {other}\n")
    assert "from an authority that is not trusted for it" in controller.refused(*arguments, exit_code=4)


def test_a_host_that_reboots_in_the_middle_goes_on(
    controller: Controller, docker_engine: Any, ssh_base: str
) -> None:
    public_key = Path(f"{controller.key}.pub")
    host = start_hosts(docker_engine, ssh_base, ["fleet-reboots"], public_key, systemd=True)[0]
    controller.known_hosts.write_text(host.host_key())
    reboot = {"type": "RebootSystem", "parameters": {"Reason": "a test"}}
    profile = controller.write_profile("sh -c 'echo acted >>/root/effects'", dependencies=(reboot,))
    before = host.boot()
    fleet = controller.fleet(
        "run", "-i", controller.write_inventory({"a": {"address": host.address}}), "-p", profile, "--yes",
        exit_code=0,
    )  # fmt: skip
    assert fleet["hosts"]["a"]["phase"] == "done"
    assert host.boot() != before
    assert host.run("cat /root/effects") == "acted\n"
    host.run("rm /root/effects")
    gated_profile = gated(controller)
    process = controller.start(
        "run",
        "-i",
        controller.write_inventory({"a": {"address": host.address}}),
        "-p",
        gated_profile,
        "--json",
    )
    await_(lambda: host.run("cat /root/effects", check=False) == "once\n")
    assert "vcagent-fleet-" in host.run("systemctl list-units --no-legend 'vcagent-fleet-*'")
    docker_engine.docker("kill", host.name)  # the power cut
    docker_engine.docker("start", host.name, check=False)
    await_(lambda: host.run("cat /root/effects", check=False) == "once\nonce\n")
    host.run("touch /root/gate")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err


def test_a_full_disk_is_named(controller: Controller, docker_engine: Any, ssh_base: str) -> None:
    public_key = Path(f"{controller.key}.pub")
    options = ["--tmpfs=/var/cache:size=8m,exec"]
    host = start_hosts(docker_engine, ssh_base, ["fleet-full"], public_key, options=options)[0]
    controller.known_hosts.write_text(host.host_key())
    fleet = controller.fleet(
        "run", "-i", controller.write_inventory({"a": {"address": host.address}}),
        "-p", controller.write_profile("true"), exit_code=10,
    )  # fmt: skip
    assert "MiB are free in /var/cache; the agent needs" in fleet["hosts"]["a"]["reason"]


def test_unusual_hosts_are_each_named(controller: Controller, docker_engine: Any, ssh_base: str) -> None:
    public_key = Path(f"{controller.key}.pub")
    options = ["--tmpfs=/var/cache:noexec"]
    host = start_hosts(docker_engine, ssh_base, ["fleet-odd"], public_key, options=options)[0]
    for user in ("noisy", "away", "late"):
        host.run(
            f"useradd --create-home --shell /bin/bash --password '*' {user}; "
            f"cp -r /home/easy/.ssh /home/{user}; chown -R {user}: /home/{user}"
        )
    host.run(
        "cd /home/noisy; (echo 'echo Welcome; echo to >&2; printf here'; cat .bashrc) >/b; mv /b .bashrc"
    )
    host.run("usermod --shell /usr/sbin/nologin away")
    host.run("echo 'Defaults requiretty' >/etc/sudoers.d/tty")
    host.run("printf '#!/bin/sh\\n[ $PAM_USER != late ] || sleep 600\\n' >/late; chmod +x /late")
    host.run("sed -i '1i account optional pam_exec.so quiet /late' /etc/pam.d/sshd")
    controller.known_hosts.write_text(host.host_key())
    config = controller.folder / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text(
        f"Host unknown\n  HostName {host.address}\n  HostKeyAlias elsewhere\n  KnownHostsCommand /bin/keys\n"
    )
    entries: dict[str, dict[str, Any]] = {
        "noexec": {},
        "noisy": {"user": "noisy"},
        "nologin": {"user": "away"},
        "slow": {"user": "late"},
        "requiretty": {"user": "easy", "sudo": True, "host_dir": "/srv/vcagent"},
    }
    entries = {name: {"address": host.address, **entry} for name, entry in entries.items()}
    fleet = controller.fleet(
        "run", "-i", controller.write_inventory({**entries, "unknown": {}}),
        "-p", controller.write_profile("true"), "--connect-timeout=20", exit_code=10,
    )  # fmt: skip
    found = {name: (one["phase"], one["reason"]) for name, one in fleet["hosts"].items()}
    assert found.pop("noisy") == ("done", "")
    told = {
        "noexec": "/var/cache is mounted noexec",
        "nologin": "the login shell runs no commands: This account is currently not available",
        "slow": "took longer than 20 s, although its sshd answers",
        "requiretty": "sudo on the host wants a terminal (requiretty)",
        "unknown": "KnownHostsCommand is not run",
    }
    assert found.keys() == told.keys()
    for name, (phase, reason) in found.items():
        assert phase in ("failed", "unreached")
        assert told[name] in reason, name
        assert "\n  → " in reason, f"{name} has no remedy"
        assert "defect" not in reason
