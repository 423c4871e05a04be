"""Measures the cost of 64 hosts over SSH: vcagent's fleet beside asyncssh, Fabric, pyinfra and ansible-core.

    python benchmarks/fleet_64.py [--hosts 64] [--rounds 5] [--idle-s 60] [--results FILE]

Needs root and dockerd; the hosts are containers with sshd on this machine, so controller and hosts share its
processors. Three measurements:

- ``job``: connect, run, put 1 MiB, sleep 0.5 s, get (fleet_contestants.py). vcagent sends files by ``cat``,
  the others by SFTP; ``asyncssh-cat`` is asyncssh with ``cat``, so that like is compared with like. Each tool
  runs in a process of its own, in turn, so often; ansible-core, which is slow, once. CPU time is that of the
  controller and of all processes that it starts, the hosts not counted; memory is the largest sum of their
  resident sets, looked at ten times a second, or the largest of one.
- ``fleet_run``: the real ``vcagent fleet run`` of a profile that does nothing, whole.
- ``idle``: of one that sleeps: what the controller costs while nothing happens, without a terminal and with
  one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import pty
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.lab.fleet.ssh_host import SshHost, start_hosts  # noqa: E402
from tests.lab.fleet.ssh_image import ssh_image  # noqa: E402
from tests.lab.host.agent_wheels import dependency_wheels  # noqa: E402
from tests.lab.host.cache import CACHE, cached_folder, fingerprint  # noqa: E402
from tests.lab.host.docker_engine import running_engine  # noqa: E402

RESULTS = ROOT / "benchmarks/results/fleet_64.json"
CONTESTANTS = ROOT / "benchmarks/fleet_contestants.py"
PEERS = {
    "asyncssh": "asyncssh",
    "asyncssh-cat": "asyncssh",
    "fabric": "fabric",
    "pyinfra": "pyinfra>=3",
    "ansible-core": "ansible-core",
}
ONCE = ("ansible-core",)
FILES_BY = {"vcagent": "cat", "asyncssh-cat": "cat"}
"""How a tool transfers files; the others do so by SFTP."""
WANTED = {"wall_s": 2.5, "controller_cpu_s": 1.3, "peak_memory_mb": 60.0}
WANTED_IDLE_PERCENT = 2.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DEADLINE_S = 900
SETTLE_S = 15
PR_SET_CHILD_SUBREAPER = 36


def peer_python(tool: str) -> Path:
    """Return the Python of a peer's environment, created once."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", PEERS[tool]], check=True)

    recipe = fingerprint(PEERS[tool], sys.version)
    return cached_folder(f"benchmark-{tool}", recipe, make) / "bin/python"


def versions(python: Path | str) -> dict[str, str]:
    """Return the versions of an environment's relevant packages."""
    code = (
        "import json,importlib.metadata as m;"
        "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    )
    found = json.loads(subprocess.check_output([python, "-I", "-c", code]))
    wanted = (*PEERS, "vcagent", "paramiko", "cryptography")
    return {name: found[name] for name in wanted if name in found}


def children_of(process: int | str) -> list[int]:
    """Return the children of a process, including adopted ones."""
    found: list[int] = []
    with suppress(OSError):  # it may end meanwhile
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def resident_bytes(process: int) -> int:
    """Return the sum of the resident sets of a process and all of its descendants."""
    total, family = 0, [process]
    for one in family:
        family += children_of(one)
        with suppress(OSError, IndexError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE_BYTES
    return total


def measured(command: list[str | Path], output: Path) -> dict[str, float]:
    """Run a command to its end and measure it with all of its child processes."""
    ours = set(children_of("self"))
    peak, done = 0, threading.Event()

    def watch(process: int) -> None:
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, resident_bytes(process))

    with output.open("wb") as file:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    watcher = threading.Thread(target=watch, args=(process.pid,))
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    done.set()
    watcher.join()
    assert process.returncode == 0, output.read_text()[-3000:]
    cpu_s = usage.ru_utime + usage.ru_stime
    while left := set(children_of("self")) - ours:  # connections that ansible leaves open
        for one in left:
            os.kill(one, signal.SIGTERM)
            usage = os.wait4(one, 0)[2]
            cpu_s += usage.ru_utime + usage.ru_stime
    memory_mb = max(peak, usage.ru_maxrss * 1024) / 1e6
    return {"wall_s": wall_s, "controller_cpu_s": cpu_s, "peak_memory_mb": memory_mb}


def measure_job(hosts: list[SshHost], folder: Path, rounds: int) -> dict[str, Any]:
    """Measure all tools in turn, in several rounds; return medians and ranges."""
    (folder / "put").write_bytes(os.urandom(1 << 20))
    job = {
        "hosts": [host.address for host in hosts],
        "key": str(folder / "key"),
        "known_hosts": str(folder / "known_hosts"),
        "file": str(folder / "put"),
    }
    pythons = {"vcagent": Path(sys.executable), **{tool: peer_python(tool) for tool in PEERS}}
    runs: dict[str, list[dict[str, float]]] = {tool: [] for tool in pythons}
    for round_ in range(rounds):
        for tool, python in pythons.items():
            if round_ and tool in ONCE:
                continue
            with TemporaryDirectory(dir=folder) as home:
                (folder / "job.json").write_text(json.dumps({**job, "folder": home}))
                command: list[str | Path] = [python, CONTESTANTS, tool, folder / "job.json"]
                runs[tool].append(measured(command, folder / "output"))
                for host in hosts:
                    assert (Path(home) / host.address).read_bytes() == (folder / "put").read_bytes()
            shown = {name: round(value, 2) for name, value in runs[tool][-1].items()}
            print(round_, tool, shown, f"load {os.getloadavg()[0]:.1f}", flush=True)
    tools: dict[str, dict[str, Any]] = {
        tool: {
            **{name: round(statistics.median(values), 2) for name, values in columns(found).items()},
            "ranges": {
                name: [round(min(values), 2), round(max(values), 2)]
                for name, values in columns(found).items()
            },
            "rounds": len(found),
            "files_by": FILES_BY.get(tool, "SFTP"),
            "versions": versions(pythons[tool]),
        }
        for tool, found in runs.items()
    }
    return {
        "tools": tools,
        **{
            f"vcagent_over_{peer}": {
                name: round(tools["vcagent"][name] / tools[peer][name], 2) for name in WANTED
            }
            for peer in ("asyncssh", "asyncssh-cat")
        },
    }


def columns(found: list[dict[str, float]]) -> dict[str, list[float]]:
    """Return the measurements by name."""
    return {name: [run[name] for run in found] for name in found[0]}


class FleetRun:
    """``vcagent fleet run`` on all hosts.

    Args:
        folder: its working folder.
        shell: the command of its profile.
        terminal: True if it has a terminal.
    """

    def __init__(self, folder: Path, shell: str, *, terminal: bool = False) -> None:
        action = {"type": "ExecuteCommand", "parameters": {"scenario": "act", "command": shell}}
        profile = {"description": "A benchmark.", "actions": [action]}
        (folder / "P.yaml").write_text(yaml.safe_dump(profile))
        command = [
            sys.executable,
            "-m",
            "agent",
            "fleet",
            "run",
            "--inventory=hosts.yaml",
            "--profile=P.yaml",
        ]
        command += [f"--known-hosts={folder / 'known_hosts'}", f"--wheels={dependency_wheels()}"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "VCAGENT_PACKAGE_DIR": str(folder / "kept/packages"),
        }
        environment |= {"TERM": "xterm", "LINES": "80", "COLUMNS": "160"}
        ours, theirs = pty.openpty() if terminal else os.pipe()
        self._said = ""
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with suppress(OSError):  # a terminal whose program has ended
            while piece := os.read(descriptor, 1 << 16):
                self._said = (self._said + piece.decode(errors="replace"))[-400_000:]
        os.close(descriptor)

    def await_running(self, count: int) -> None:
        """Wait until that many hosts are at the sleep."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            lines = len(set(re.findall(r"(\S+): running: \S*act", self._said)))
            table = self._said.rpartition("┏")[2].count("actions[0]: execute")  # the last drawn state
            if count in (lines, table):
                return
            assert self._process.poll() is None, self._said[-3000:]
            assert time.monotonic() < deadline, self._said[-3000:]
            time.sleep(0.2)

    def cpu_percent(self, seconds: float) -> float:
        """Return its share of a core in the next seconds."""
        before, began = self._cpu_s(), time.monotonic()
        time.sleep(seconds)
        return 100 * (self._cpu_s() - before) / (time.monotonic() - began)

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def end(self) -> dict[str, float]:
        """Wait for its end; return its total cost."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - self._began
        self._reader.join()
        assert self._process.returncode == 0, self._said[-3000:]
        return {
            "wall_s": round(wall_s, 1),
            "controller_cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_memory_mb": round(usage.ru_maxrss * 1024 / 1e6, 1),
        }


def measure_fleet(hosts: list[SshHost], folder: Path) -> dict[str, Any]:
    """Measure the real fleet run, with a profile without work."""
    found: dict[str, Any] = {}
    for name in ("first", "again"):  # the first copies the agent to the hosts
        found[name] = FleetRun(folder, "true").end()
        cpu_ms = round(1000 * found[name]["controller_cpu_s"] / len(hosts), 1)
        found[name]["controller_cpu_ms_a_host"] = cpu_ms
        print("fleet run", name, found[name], flush=True)
    return found


def measure_idle(hosts: list[SshHost], folder: Path, idle_s: int) -> dict[str, Any]:
    """Measure the controller's cost while no host changes."""
    FleetRun(folder, "true").end()  # copies the agent, if not done yet
    found: dict[str, Any] = {}
    for name, terminal in (("lines", False), ("table", True)):
        run = FleetRun(folder, f"sleep {idle_s + 90}", terminal=terminal)
        run.await_running(len(hosts))
        time.sleep(SETTLE_S)
        found[f"idle_percent_of_a_core_{name}"] = round(run.cpu_percent(idle_s), 2)
        run.end()
        print("idle", name, found[f"idle_percent_of_a_core_{name}"], flush=True)
    return found


def main() -> None:
    """Start the hosts, measure, print and write the results."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--hosts", type=int, default=64)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--idle-s", type=int, default=60)
    options.add_argument("--only", choices=("job", "fleet_run", "idle"), action="append")
    options.add_argument("--results", type=Path, default=RESULTS)
    given = options.parse_args()
    for tool in PEERS:
        peer_python(tool)
    report: dict[str, Any] = json.loads(given.results.read_text()) if given.results.is_file() else {}
    report |= {
        "machine": {"platform": platform.platform(), "cpu": cpu_name(), "cores": os.cpu_count()},
        "python": platform.python_version(),
        "hosts": given.hosts,
        "wanted": {**WANTED, "idle_percent_of_a_core": WANTED_IDLE_PERCENT},
    }
    with running_engine() as engine, TemporaryDirectory(dir=CACHE, prefix="benchmark-") as name:
        folder = Path(name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
        names = [f"bench-{number:02}" for number in range(given.hosts)]
        hosts = start_hosts(engine, ssh_image(engine), names, folder / "key.pub")
        (folder / "known_hosts").write_text("".join(host.host_key() for host in hosts))
        inventory = {"variables": {"user": "root", "identity_file": str(folder / "key")}}
        addresses = {host.name: {"address": host.address} for host in hosts}
        (folder / "hosts.yaml").write_text(yaml.safe_dump({**inventory, "hosts": addresses}))
        # Adopt orphans of a tool, so that they can be measured.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        parts = {
            "job": lambda: measure_job(hosts, folder, given.rounds),
            "fleet_run": lambda: measure_fleet(hosts, folder),
            "idle": lambda: measure_idle(hosts, folder, given.idle_s),
        }
        for part in given.only or parts:
            load_before = os.getloadavg()[0]
            report[part] = {
                "command": " ".join(["python", "benchmarks/fleet_64.py", *sys.argv[1:]]),
                "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                **parts[part](),
                "load_average": {"before": round(load_before, 1), "after": round(os.getloadavg()[0], 1)},
            }
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_text(json.dumps(report, indent=2) + "\n")


def cpu_name() -> str:
    """Return the processor's name as reported by the kernel."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
