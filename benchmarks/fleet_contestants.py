"""Runs one tool's turn of fleet_64.py's job in the tool's own environment; started by fleet_64.py.

The job on each host: connect, run a command, put a file of 1 MiB, sleep 0.5 s there, get the file. Each tool
does it as its documentation has it, all hosts at once where it lets one choose; the files are compared
afterwards. Files go by SFTP, except with vcagent and ``asyncssh-cat``: those two send them through ``cat``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    from agent.fleet.ssh.session import Session

PUT = "/tmp/benchmark"  # noqa: S108 - on a host that is thrown away
PIECE = 1 << 16
LIMIT_S = 60


def run_vcagent(job: dict[str, Any]) -> None:
    """Run the job with the connections and the pool of ``vcagent fleet``, at its default size."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from agent.fleet.inventory.host import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.scheduling import Scheduler
    from agent.fleet.ssh.config import read_ssh_config
    from agent.fleet.ssh.connecting import Connector
    from agent.fleet.ssh.credentials import Credentials
    from agent.fleet.ssh.route import route_to

    options, config = FleetOptions(), read_ssh_config(Path("/dev/null"))
    connector, scheduler = Connector(options.connect_timeout_s), Scheduler(options.pool)

    def run(session: Session, shell: str) -> Generator[Any, bool, None]:
        command = session.start(shell, LIMIT_S)
        yield from command.line(LIMIT_S)
        assert command.ended().exit_code == 0

    def work(address: str) -> Generator[Any, bool, None]:
        host = FleetHost(address, address, None, "root", identity_files=(job["key"],))
        route = route_to(host, config, Path(job["known_hosts"]))
        session = yield from connector.connect(route, Credentials())
        yield from run(session, "true")
        put = session.start(f"cat >{PUT}", LIMIT_S)
        with Path(job["file"]).open("rb") as file:
            while piece := file.read(PIECE):
                put.write(piece)
        put.end_input()
        assert put.ended().exit_code == 0
        yield from run(session, "sleep 0.5")
        get = session.start(f"cat {PUT}", LIMIT_S)
        with (Path(job["folder"]) / address).open("wb") as file:
            while piece := get.read(PIECE):
                file.write(piece)
        assert get.ended().exit_code == 0
        session.close()

    def ended(_: object, error: BaseException | None) -> None:
        if error is not None:
            raise error

    for address in job["hosts"]:
        scheduler.start(work(address), ended)
    scheduler.run(lambda: True)
    scheduler.close()
    connector.close()


def run_asyncssh(job: dict[str, Any]) -> None:
    """Run the job for all hosts in one event loop."""
    import asyncio

    import asyncssh

    async def work(address: str) -> None:
        async with asyncssh.connect(
            address, username="root", client_keys=[job["key"]], known_hosts=job["known_hosts"], config=None
        ) as connection:
            await connection.run("true", check=True)
            async with connection.start_sftp_client() as sftp:
                await sftp.put(job["file"], PUT)
                await connection.run("sleep 0.5", check=True)
                await sftp.get(PUT, f"{job['folder']}/{address}")

    async def work_all() -> None:
        await asyncio.gather(*map(work, job["hosts"]))

    asyncio.run(work_all())


def run_asyncssh_cat(job: dict[str, Any]) -> None:
    """Run all hosts in one event loop; copy files by ``cat``, as vcagent does, not by SFTP."""
    import asyncio

    import asyncssh

    async def work(address: str) -> None:
        async with asyncssh.connect(
            address, username="root", client_keys=[job["key"]], known_hosts=job["known_hosts"], config=None
        ) as connection:
            await connection.run("true", check=True)
            await connection.run(f"cat >{PUT}", stdin=job["file"], encoding=None, check=True)
            await connection.run("sleep 0.5", check=True)
            target = f"{job['folder']}/{address}"
            await connection.run(f"cat {PUT}", stdout=target, encoding=None, check=True)

    async def work_all() -> None:
        await asyncio.gather(*map(work, job["hosts"]))

    asyncio.run(work_all())


def run_fabric(job: dict[str, Any]) -> None:
    """Run the job with ``ThreadingGroup``: a thread for each host."""
    from fabric import ThreadingGroup
    from paramiko import RejectPolicy

    group = ThreadingGroup(*job["hosts"], user="root", connect_kwargs={"key_filename": job["key"]})
    for connection in group:
        connection.client.load_host_keys(job["known_hosts"])
        connection.client.set_missing_host_key_policy(RejectPolicy())
    group.run("true", hide=True)
    group.put(job["file"], PUT)
    group.run("sleep 0.5", hide=True)
    group.get(PUT, f"{job['folder']}/{{host}}")
    group.close()


def run_pyinfra(job: dict[str, Any]) -> None:
    """Run the job with pyinfra's command, all hosts at once."""
    import runpy

    folder = Path(job["folder"])
    data = {
        "ssh_user": "root",
        "ssh_key": job["key"],
        "ssh_known_hosts_file": job["known_hosts"],
        "ssh_strict_host_key_checking": "yes",
    }
    (folder / "inventory.py").write_text(f"hosts = {[(address, data) for address in job['hosts']]!r}\n")
    (folder / "deploy.py").write_text(
        f"""from pyinfra import host
from pyinfra.operations import files, server

server.shell(commands=["true"])
files.put(src={job["file"]!r}, dest={PUT!r})
server.shell(commands=["sleep 0.5"])
files.get(src={PUT!r}, dest={str(folder)!r} + "/" + host.name)
"""
    )
    sys.argv = ["pyinfra", "-y", "--parallel", "64", str(folder / "inventory.py"), str(folder / "deploy.py")]
    runpy.run_module("pyinfra", run_name="__main__")


def run_ansible_core(job: dict[str, Any]) -> None:
    """Run the job with ansible's playbook command and 16 forks."""
    import os
    import runpy

    folder = Path(job["folder"])
    variables = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": job["key"],
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={job['known_hosts']} -o StrictHostKeyChecking=yes",
    }
    hosts: dict[str, dict[str, str]] = {address: {} for address in job["hosts"]}
    (folder / "inventory.yaml").write_text(json.dumps({"all": {"hosts": hosts, "vars": variables}}))
    tasks = [
        {"ansible.builtin.command": "true"},
        {"ansible.builtin.copy": {"src": job["file"], "dest": PUT}},
        {"ansible.builtin.command": "sleep 0.5"},
        {
            "ansible.builtin.fetch": {
                "src": PUT,
                "dest": "{{ folder }}/{{ inventory_hostname }}",
                "flat": True,
            }
        },
    ]
    play = {"hosts": "all", "gather_facts": False, "vars": {"folder": job["folder"]}, "tasks": tasks}
    (folder / "play.yaml").write_text(json.dumps([play]))
    os.environ["ANSIBLE_HOME"] = str(folder / "ansible")
    sys.argv = ["ansible", "playbook", "--forks=16", "-i", str(folder / "inventory.yaml")]
    sys.argv += [str(folder / "play.yaml")]
    runpy.run_module("ansible", run_name="__main__")


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[2]).read_text())
    {
        "vcagent": run_vcagent,
        "asyncssh": run_asyncssh,
        "asyncssh-cat": run_asyncssh_cat,
        "fabric": run_fabric,
        "pyinfra": run_pyinfra,
        "ansible-core": run_ansible_core,
    }[sys.argv[1]](given)
