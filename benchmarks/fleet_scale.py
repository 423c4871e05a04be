"""Measure the CPU time, memory, threads and descriptors of the controller in a fleet run with many hosts.

    python benchmarks/fleet_scale.py [--simulated 64,256,1000] [--sshd 256] [--run-s 20] [--results FILE]

The controller is the product's own: connector, scheduler, journal, gathering, report. The hosts are

- ``simulated``: one asyncssh server in a process of its own. It speaks SSH and answers as the agent does, at
  another address of 127.0.0.0/8 for each host.
- ``sshd``: real sshd processes, one a host, each at an address and on a port of its own. Login, channels and
  bytes are OpenSSH's; a small program in C (fleet_scale_host.c) answers the commands as ForceCommand, with
  the same answers. An agent in Python for each command of 256 hosts would keep two processors busy for
  minutes, and the hosts would be measured, not the controller. Takes root, OpenSSH's server, a C compiler.

Each host tells where it stands once a second, and sends three files home. Only the controller and the
programs that it starts are measured. What is wanted at 1,000 hosts: at most 200 MB and 60 s of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/fleet_scale.json"
WANTED = {"hosts": 1000, "peak_memory_mb": 200.0, "controller_cpu_s": 60.0}
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LOOK_S = 0.5
BEGIN = "vcagent-begins-here"
FILES = {"run.json": b"{}", "metrics.jsonl": b"", "logs/act.log": b"x" * 20_000}
PROBE = {
    "python": "/usr/bin/python3", "version": "3.11", "machine": os.uname().machine, "libc": "glibc",
    "host_name": "h", "sudo": "", "base": "/var/cache/vcagent/fleet", "problem": "",
}  # fmt: skip


def kind_of(command: str) -> str:
    """Return the part of the host that a command asks."""
    return next((verb for verb in ("watch", "send", "stop") if f"fleet-host {verb} " in command), "doorstep")


def standing(state: str, number: int) -> bytes:
    """Return a status line of the run."""
    values = {
        "state": state, "boot": "b", "exit_code": 0 if state == "ended" else None, "error": "",
        "step": "act", "done": 1, "message": f"request {number}",
    }  # fmt: skip
    return json.dumps(values).encode() + b"\n"


def probe() -> bytes:
    """Return the host's description of itself."""
    return json.dumps({**PROBE, "clock_s": time.time()}).encode() + b"\n"


def listed() -> bytes:
    """Return the files that a host offers."""
    from hashlib import sha256

    files = [[name, len(data), sha256(data).hexdigest()] for name, data in FILES.items()]
    return json.dumps({"files": files}).encode() + b"\n"


def wanted_files(line: bytes) -> bytes:
    """Return the requested parts of the files."""
    return b"".join(FILES[name][at:] for name, at in json.loads(line))


def write_answers(folder: Path, run_s: float) -> None:
    """Write what a host answers, for fleet_scale_host.c."""
    folder.mkdir()
    running = [standing("running", number) for number in range(int(run_s))]
    everything = json.dumps([[name, 0] for name in FILES]).encode() + b"\n"
    answers = {
        "probe": json.dumps(PROBE).encode() + b"\n",
        "begun": running[0],
        "watch": b"".join(running) + standing("ended", 0),
        "listed": listed(),
        "all_of_them": everything,
        "files": wanted_files(everything),
    }
    for name, answer in answers.items():
        (folder / name).write_bytes(answer)


def serve(folder: Path, run_s: float) -> None:
    """Be all simulated hosts, on one port; write it to a file."""
    import asyncio

    import asyncssh

    async def answer(process: Any) -> None:
        process.stdout.write(f"{BEGIN}\n".encode())
        kind = kind_of(process.command)
        if kind == "watch":
            await asyncio.sleep(random.random())  # noqa: S311 - so that not all speak at once
            for number in range(int(run_s)):
                process.stdout.write(standing("running", number))
                await asyncio.sleep(1)
            process.stdout.write(standing("ended", 0))
        elif kind == "send":
            process.stdout.write(listed())
            process.stdout.write(wanted_files(await process.stdin.readline()))
        elif kind == "doorstep":
            await process.stdin.readexactly(int(await process.stdin.readline()))
            if json.loads(await process.stdin.readline())["do"] == "probe":
                process.stdout.write(probe())
            else:
                process.stdout.write(b'{"missing": false}\n')
                await process.stdin.read()
                process.stdout.write(standing("running", 0))
        process.exit(0)

    async def main() -> None:
        server = await asyncssh.listen(
            "0.0.0.0",  # noqa: S104 - all of 127.0.0.0/8 is meant; only the run's own key opens it
            0, server_host_keys=[str(folder / "host_key")], process_factory=answer,
            authorized_client_keys=str(folder / "key.pub"), encoding=None, backlog=1024, keepalive_interval=0,
        )  # fmt: skip
        (folder / "port.part").write_text(str(server.get_port()))
        (folder / "port.part").rename(folder / "port")
        await asyncio.Event().wait()

    soft_to_hard()
    asyncio.run(main())


def soft_to_hard() -> None:
    """Open as many files as may be."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def control(folder: Path, ports: list[int]) -> None:
    """Be the controller of one fleet run, a host for each port."""
    sys.path.insert(0, str(ROOT))
    from agent.fleet.assignment import FleetRequest
    from agent.fleet.display import FleetDisplay
    from agent.fleet.inventory import FleetHost
    from agent.fleet.options import FleetOptions
    from agent.fleet.run import Wishes, start_fleet
    from agent.fleet.ssh.credentials import Credentials
    from agent.run.request import RunRequest

    profile = folder / "P.yaml"
    command = {"scenario": "act", "command": "true"}
    profile.write_text(
        json.dumps({"description": "x", "actions": [{"type": "ExecuteCommand", "parameters": command}]})
    )
    user = os.environ.get("USER") or "root"
    hosts = [
        FleetHost(f"h{number:04d}", address_of(number), port, user, (str(folder / "key"),))
        for number, port in enumerate(ports)
    ]
    options = FleetOptions(
        known_hosts=folder / "known_hosts", ssh_config=folder / "ssh_config",
        bundles=(bundle(folder),), connect_timeout_s=300.0,
    )  # fmt: skip
    request = RunRequest((str(profile),), results_dir=folder / "results")
    finished = start_fleet(FleetRequest(hosts, request, options), Wishes(Credentials(), FleetDisplay()))
    good = sum(host["good"] for host in finished.description["hosts"])
    reasons = sorted({host["reason"] for host in finished.description["hosts"] if host["reason"]})
    (folder / "ended.json").write_text(json.dumps({"good": good, "reasons": reasons[:5]}))


def address_of(number: int) -> str:
    """Return an address of this machine."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def bundle(folder: Path) -> Path:
    """Return a bundle that every simulated host already has."""
    from importlib import metadata

    described = {"platform": f"py3.11-{os.uname().machine}-glibc", "version": metadata.version("vcagent")}
    path = folder / "bundle.tar.gz"
    data = json.dumps(described).encode()
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("bundle.json")
        entry.size = len(data)
        archive.addfile(entry, BytesIO(data))
    return path


def look(process: int) -> dict[str, float]:
    """Return what a process uses and has used, including the programs that it waited for."""
    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{process}/status").read_text()
    resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "cpu_s": round(sum(map(int, stat[11:15])) * TICK_S, 2),
        "memory_mb": round(resident_kb * 1024 / 1e6, 1),
        "threads": int(stat[17]),
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),  # noqa: PTH208 - many files, often
    }


def measured(folder: Path, ports: list[int]) -> dict[str, Any]:
    """Run the controller in a process of its own and watch it."""
    (folder / "ports.json").write_text(json.dumps(ports))
    (folder / "ended.json").unlink(missing_ok=True)
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, __file__, "--control", folder])
    curve: list[dict[str, float]] = []
    while process.poll() is None:
        with suppress(OSError, StopIteration):
            curve.append({"at_s": round(time.monotonic() - began, 1), **look(process.pid)})
        time.sleep(LOOK_S)
    wall_s = time.monotonic() - began
    assert process.returncode == 0, f"the controller ended with {process.returncode}"
    ended = json.loads((folder / "ended.json").read_text())
    shutil.rmtree(folder / "results")
    step = max(1, len(curve) // 60)
    return {
        "hosts": len(ports),
        "good": ended["good"],
        "reasons": ended["reasons"],
        "wall_s": round(wall_s, 1),
        "controller_cpu_s": max(point["cpu_s"] for point in curve),
        "peak_memory_mb": max(point["memory_mb"] for point in curve),
        "peak_threads": max(point["threads"] for point in curve),
        "peak_descriptors": max(point["descriptors"] for point in curve),
        "curve": curve[::step],
    }


def make_keys(folder: Path) -> None:
    """Return a key for the controller and one for all hosts."""
    for name in ("key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        subprocess.run(command, check=True)


@contextmanager
def simulated(folder: Path, run_s: float) -> Iterator[int]:
    """Return the port of the simulated hosts."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.fleet_64 import peer_python

    command = [peer_python("asyncssh"), __file__, "--serve", folder, "--run-s", str(run_s)]
    process = subprocess.Popen(command)
    try:
        while not (folder / "port").exists():
            assert process.poll() is None, "the simulated hosts ended"
            time.sleep(0.1)
        yield int((folder / "port").read_text())
    finally:
        process.terminate()
        process.wait()


@contextmanager
def real(folder: Path, count: int, run_s: float) -> Iterator[list[int]]:
    """Return the ports of real sshd processes."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "sshd"
    Path("/run/sshd").mkdir(exist_ok=True)
    processes, ports = [], []
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    write_answers(folder / "answers", run_s)
    source = Path(__file__).with_name("fleet_scale_host.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", folder / "host", source], check=True)
    for number in range(count):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = folder / f"sshd-{number}"
        config.write_text(
            f"ListenAddress {address_of(number)}:{port}\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPermitRootLogin yes\nMaxStartups 1000\n"
            f"ForceCommand {folder}/host {folder}/answers\n"
            "SetEnv SHLVL=1\n"  # bash then skips this machine's own .bashrc, once for each command
        )
        processes.append(subprocess.Popen([program, "-D", "-f", config], stderr=subprocess.DEVNULL))
        ports.append(port)
    try:
        for number, port in enumerate(ports):
            until = time.monotonic() + 60
            while True:
                with suppress(OSError), socket.create_connection((address_of(number), port), 5):
                    break
                assert time.monotonic() < until, f"no sshd on port {port}"
                time.sleep(0.05)
        yield ports
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def know(folder: Path, ports: list[int]) -> None:
    """Write the hosts' key down."""
    kind, key = (folder / "host_key.pub").read_text().split()[:2]
    lines = "".join(
        f"[{address_of(number)}]:{ports[number % len(ports)]} {kind} {key}\n" for number in range(1000)
    )
    (folder / "known_hosts").write_text(lines)
    (folder / "ssh_config").write_text("")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--simulated", default="64,256,1000")
    parser.add_argument("--sshd", type=int, default=0)
    parser.add_argument("--run-s", type=float, default=20)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--serve", type=Path)
    parser.add_argument("--control", type=Path)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.run_s)
        return
    if options.control:
        control(options.control, json.loads((options.control / "ports.json").read_text()))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    soft_to_hard()
    found: dict[str, list[dict[str, Any]]] = {"simulated": [], "sshd": []}
    with TemporaryDirectory(prefix="fleet-scale-") as name:
        folder = Path(name)
        make_keys(folder)
        counts = [int(count) for count in options.simulated.split(",") if count]
        if counts:
            with simulated(folder, options.run_s) as port:
                know(folder, [port])
                for count in counts:
                    found["simulated"].append(measured(folder, [port] * count))
                    print(json.dumps({**found["simulated"][-1], "curve": "…"}), flush=True)
        if options.sshd:
            with real(folder, options.sshd, options.run_s) as ports:
                know(folder, ports)
                found["sshd"].append(measured(folder, ports))
                print(json.dumps({**found["sshd"][-1], "curve": "…"}), flush=True)
    load = os.getloadavg()
    options.results.write_text(
        json.dumps(
            {
                "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "python": platform.python_version(),
                "processors": os.cpu_count(),
                "load_at_the_end": [round(one, 1) for one in load],
                "run_s": options.run_s,
                "wanted": WANTED,
                **found,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
