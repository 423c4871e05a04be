"""``vcagent fleet``: one profile on many hosts, over SSH or through Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.completion import complete_fleet_runs
from agent.cli.options import (
    Arm,
    AsJson,
    ExperimentId,
    FailFast,
    KeepServing,
    LogLevel,
    Metadata,
    OnlyDependencies,
    Parameters,
    ProfileArguments,
    Profiles,
    Quiet,
    ResultsDir,
    RunId,
    Samples,
    Scenarios,
    Settings,
    Sinks,
    System,
    Timeout,
    named_profiles,
    pairs,
    request_of,
)
from agent.cli.output import print_document, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.fleet.cleaning import Cleaned
    from agent.fleet.inventory import Inventory
    from agent.fleet.run import FinishedFleet, Wishes

_SLURM = "slurm"

app = typer.Typer(no_args_is_help=True, help="Run one profile on many hosts.")

INVENTORY = typer.Option(
    "--inventory",
    "-i",
    help="A file (ours, a plain list, Ansible's), or hosts: a,b or user@host:port.",
    show_default=False,
)
Limit = Annotated[
    str, typer.Option("--limit", "-l", help="Only these hosts: names, groups, web*, ~regex, a:&b, !c, @file.")
]
FleetRun = Annotated[
    str | None,
    typer.Argument(
        help="The fleet run's id, its beginning, or folder.",
        show_default="the latest",
        autocompletion=complete_fleet_runs,
    ),
]
AskPassword = Annotated[bool, typer.Option("--ask-password", "-k", help="Ask for the SSH password, once.")]
AskPassphrase = Annotated[
    bool, typer.Option("--ask-passphrase", help="Ask for the passphrase of the SSH key, once.")
]
AskSudo = Annotated[bool, typer.Option("--ask-sudo-password", "-K", help="Ask for the sudo password, once.")]
AcceptKeys = Annotated[
    bool, typer.Option("--accept-new-host-keys", help="Store unknown host keys and trust them.")
]


@app.command()
def run(
    profiles: ProfileArguments = None,
    profile: Profiles = None,
    inventory: Annotated[list[str] | None, INVENTORY] = None,
    limit: Limit = "",
    parameters: Parameters = None,
    metadata: Metadata = None,
    scenarios: Scenarios = "",
    dependencies: OnlyDependencies = False,
    samples: Samples = None,
    settings: Settings = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Number of times to run all actions.")
    ] = None,
    timeout: Timeout = "",
    fail_fast: FailFast = False,
    keep_serving: KeepServing = False,
    run_id: RunId = "",
    system: System = "",
    log_level: LogLevel = "debug",
    sink: Sinks = None,
    package_dir: Annotated[
        Path | None,
        typer.Option(
            "--package-dir",
            help="The hosts' folder of environments and downloads.",
            show_default="each host's default",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", help="Give the agents this variable, such as HF_TOKEN.", show_default=False),
    ] = None,
    experiment_id: ExperimentId = "",
    results_dir: ResultsDir = Path("results"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Reboot hosts if a dependency needs it.")] = False,
    arm: Arm = False,
    sudo: Annotated[bool, typer.Option("--sudo", help="Run as root on the hosts, through sudo.")] = False,
    pool: Annotated[
        int,
        typer.Option(
            "--pool",
            min=1,
            help="Number of hosts that are connected, prepared or collected at the same time.",
        ),
    ] = 32,
    canary: Annotated[
        int,
        typer.Option(
            "--canary", min=0, help="Number of hosts that run first; if one fails, no other host starts."
        ),
    ] = 0,
    batch: Annotated[
        str, typer.Option("--batch", help="Number of hosts that run at the same time: 8, 25%.")
    ] = "",
    max_failures: Annotated[
        str, typer.Option("--max-failures", help="If more hosts fail, no other host starts: 3, 10%.")
    ] = "",
    connect_timeout: Annotated[
        float, typer.Option("--connect-timeout", min=1, help="Seconds for one connection.")
    ] = 20,
    host_timeout: Annotated[
        str, typer.Option("--host-timeout", help="Time limit for each host: 90 (minutes), 01:30:00.")
    ] = "",
    reconnect_timeout: Annotated[
        float,
        typer.Option("--reconnect-timeout", help="Seconds that a host may be unreachable during its run."),
    ] = 900,
    bundle: Annotated[
        list[Path] | None,
        typer.Option("--bundle", help="Agent file that vcagent bundle made.", show_default=False),
    ] = None,
    wheels: Annotated[
        Path | None, typer.Option("--wheels", help="Make bundles from these wheels.", show_default=False)
    ] = None,
    ssh_config: Annotated[Path, typer.Option("--ssh-config", help="The SSH configuration.")] = Path(
        "~/.ssh/config"
    ),
    known_hosts: Annotated[
        Path | None,
        typer.Option(
            "--known-hosts", help="File of known host keys.", show_default="as the SSH configuration says"
        ),
    ] = None,
    accept_new_host_keys: AcceptKeys = False,
    strict_host_keys: Annotated[
        bool, typer.Option("--strict-host-keys", help="Start nothing if a host key is unknown.")
    ] = False,
    host_dir: Annotated[
        str,
        typer.Option(
            "--host-dir", help="The agent's folder on the hosts.", show_default="in the user's cache there"
        ),
    ] = "",
    ask_password: AskPassword = False,
    ask_passphrase: AskPassphrase = False,
    ask_sudo_password: AskSudo = False,
    via: Annotated[
        str, typer.Option("--via", help="How hosts are reached: ssh, slurm, or an installed transport.")
    ] = "ssh",
    partition: Annotated[
        str,
        typer.Option(
            "--partition", help="Slurm partition; all its nodes if no nodes are named.", show_default=False
        ),
    ] = "",
    nodelist: Annotated[
        str, typer.Option("--nodelist", "-w", help="Slurm nodes: gpu-[01-16].", show_default=False)
    ] = "",
    sbatch: Annotated[
        list[str] | None,
        typer.Option(
            "--sbatch", help='More options for sbatch: "--account=a --gres=gpu:8".', show_default=False
        ),
    ] = None,
    client_id: Annotated[str, typer.Option("--client-id", "--agent-id", hidden=True)] = "",
    clean_first: Annotated[str, typer.Option("--clean", hidden=True)] = "",
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show a line for each step of each host instead of the table."),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Copy the agent to every host, run the profile there, and collect the results."""
    import shlex

    from agent.core.errors import UsageError
    from agent.fleet.assignment import FleetRequest
    from agent.fleet.inventory import limited
    from agent.fleet.options import FleetOptions
    from agent.fleet.run import start_fleet
    from agent.profile import parse_timeout

    _refuse_own_options(client_id, clean_first)
    if package_dir and not package_dir.is_absolute():
        raise UsageError(
            f"--package-dir {package_dir} is relative", remedy="write it with / at its beginning"
        )
    options = FleetOptions(
        pool=pool,
        canary=canary,
        batch=batch,
        max_failures=max_failures,
        connect_timeout_s=connect_timeout,
        host_timeout_s=parse_timeout(host_timeout).duration_s if host_timeout else None,
        reconnect_timeout_s=reconnect_timeout,
        sudo=sudo,
        ssh_config=ssh_config,
        known_hosts=known_hosts,
        accept_new_host_keys=accept_new_host_keys,
        strict_host_keys=strict_host_keys,
        host_dir=_absolute(host_dir),
        bundles=tuple(bundle or ()),
        wheels=wheels,
        via=via,
        partition=partition,
        sbatch=tuple(word for text in sbatch or () for word in shlex.split(text)),
    )
    request = request_of(
        named_profiles(profiles, profile),
        parameters,
        metadata,
        scenarios=scenarios,
        only_dependencies=dependencies,
        iterations=iterations,
        timeout=timeout,
        fail_fast=fail_fast,
        keep_serving=keep_serving,
        results_dir=results_dir,
        experiment_id=experiment_id,
        package_dir=package_dir,
        allow_reboot=yes,
        arm=arm,
        samples=samples,
        settings=settings,
        run_id=run_id,
        system=system,
        log_level=log_level,
        sinks=tuple(sink or ()),
    )
    hosts = limited(_hosts(inventory or [], via, partition, nodelist), limit, _warn)
    wishes = _wishes(ask_password, ask_passphrase, ask_sudo_password, quiet=quiet or as_json, verbose=verbose)
    _finish(start_fleet(FleetRequest(hosts, request, options, env or ()), wishes), as_json=as_json)


@app.command()
def stop(
    run: FleetRun = None,
    limit: Limit = "",
    results_dir: ResultsDir = Path("results"),
    ask_password: AskPassword = False,
    ask_passphrase: AskPassphrase = False,
    ask_sudo_password: AskSudo = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Stop the runs on the hosts of a fleet run, start no other host, and collect the results so far."""
    from agent.fleet.run import stop_fleet

    wishes = _wishes(ask_password, ask_passphrase, ask_sudo_password, quiet=quiet or as_json)
    stopped = stop_fleet(results_dir, run, limit, wishes)
    name = stopped.run_dir.name
    if as_json:
        from agent.store.command_documents import FleetStopDocument

        by = "this command" if stopped.finished else "the controller at work"
        print_document(FleetStopDocument, {"run_id": name, "hosts": list(stopped.hosts), "by": by})
    elif stopped.finished is None:
        say(f"the controller at work ends {len(stopped.hosts)} runs: vcagent fleet status {name}")
    else:
        from agent.core.terminal import safe_console
        from agent.fleet.terminal import render_fleet

        render_fleet(stopped.finished.description, safe_console())


@app.command()
def clean(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Fleet runs: ids, beginnings, folders.", show_default="all"),
    ] = None,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Keep runs that are newer: 12h, 7d, 4w.", show_default=False)
    ] = "",
    limit: Limit = "",
    force: Annotated[
        bool, typer.Option("--force", help="Also remove runs whose changes to their hosts are not undone.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    results_dir: ResultsDir = Path("results"),
    ask_password: AskPassword = False,
    ask_passphrase: AskPassphrase = False,
    ask_sudo_password: AskSudo = False,
    as_json: AsJson = False,
) -> None:
    """Remove the folders of fleet runs from their hosts, and the agent if no run needs it.

    The collected results stay: vcagent runs lists them.
    """
    import sys

    from agent.core.errors import ExitCode, UsageError
    from agent.fleet.cleaning import clean as clean_hosts
    from agent.fleet.cleaning import survey
    from agent.report.quantities import count_of

    older_than_s = _age_s(older_than) if older_than else None
    places, left = survey(results_dir, runs or [], limit, older_than_s)
    for text in left:
        _warn(text)
    count = sum(len(place.runs) for place in places)
    question = f"Remove {count_of(count, 'run')} from {count_of(len(places), 'host')}?"
    if places and not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError("nobody is here to ask", remedy=f"{question} add --yes")
        if not typer.confirm(question):
            return

    credentials = _wishes(ask_password, ask_passphrase, ask_sudo_password, quiet=True).credentials
    tell: Callable[[Cleaned], None] = _ignore if as_json else _tell_cleaned
    done = clean_hosts(places, credentials, tell, older_than_s=older_than_s, force=force)
    if as_json:
        from agent.store.command_documents import FleetCleanDocument

        print_document(FleetCleanDocument, {"hosts": [cleaned.to_json() for cleaned in done]})
    elif not places:
        say("Nothing to remove.")
    if any(cleaned.error for cleaned in done):
        raise typer.Exit(ExitCode.FLEET_PARTIAL)


def _ignore(_: Cleaned) -> None:
    """Say nothing."""


def _tell_cleaned(cleaned: Cleaned) -> None:
    from agent.core.terminal import printable
    from agent.report.quantities import count_of

    if cleaned.error:
        say(printable(f"{cleaned.host}: {cleaned.error}"))
        return
    what = f"{count_of(len(cleaned.removed), 'run')}, {count_of(len(cleaned.bundles), 'bundle')}"
    say(printable(f"{cleaned.host}: removed {what}, {cleaned.size_bytes / 2**20:.1f} MiB"))
    for name, why in cleaned.left.items():
        say(printable(f"{cleaned.host}: left {name}: {why}"))


def _age_s(text: str) -> float:
    """Return an age such as ``7d`` in seconds.

    Raises:
        UsageError: if it is none.
    """
    from agent.core.errors import UsageError

    units = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in units:
        raise UsageError(f"--older-than {text!r} is not an age", remedy="write it as 90m, 12h, 7d or 4w")
    return float(number) * units[unit]


def _add_follow_up(name: str, summary: str) -> None:
    """Add a command that takes a fleet run up again: ``<name>_fleet`` of ``agent.fleet.run``."""

    @app.command(name, help=summary)
    def follow_up(
        run: FleetRun = None,
        results_dir: ResultsDir = Path("results"),
        parameters: Parameters = None,
        accept_new_host_keys: AcceptKeys = False,
        ask_password: AskPassword = False,
        ask_passphrase: AskPassphrase = False,
        ask_sudo_password: AskSudo = False,
        quiet: Quiet = False,
        as_json: AsJson = False,
    ) -> None:
        from agent.fleet.run import resume_fleet, retry_fleet

        act = {"resume": resume_fleet, "retry": retry_fleet}[name]
        wishes = _wishes(ask_password, ask_passphrase, ask_sudo_password, quiet=quiet or as_json)
        finished = act(results_dir, run, pairs(parameters), wishes, accept_new_host_keys=accept_new_host_keys)
        _finish(finished, as_json=as_json)


_add_follow_up(
    "resume",
    "Continue a fleet run whose controller ended: running hosts are followed, the others are started.",
)
_add_follow_up(
    "retry", "Run again on the hosts that failed, were not reached or not started, as a new fleet run."
)


@app.command()
def status(run: FleetRun = None, results_dir: ResultsDir = Path("results"), as_json: AsJson = False) -> None:
    """Show the state of each host of a fleet run, from its journal."""
    from agent.fleet.display import host_table
    from agent.fleet.record import FleetRecord, is_worked_on, recorded
    from agent.store.journal import Journal
    from agent.store.results import JOURNAL

    run_dir = recorded(results_dir, run)
    is_alive = is_worked_on(run_dir)
    with Journal(run_dir / JOURNAL) as journal:
        record = FleetRecord(journal)
        statuses, exit_code = record.statuses(), record.recall("exit_code")
    if as_json:
        hosts = [one.to_json() for one in statuses.values()]
        from agent.store.command_documents import FleetStatusDocument

        print_document(
            FleetStatusDocument,
            {
                "run_id": run_dir.name,
                "folder": str(run_dir),
                "exit_code": exit_code,
                "controller": "alive" if is_alive else "gone",
                "hosts": hosts,
            },
        )
        return
    from agent.core.terminal import has_width, safe_console
    from agent.fleet.terminal import print_reasons

    console = safe_console()
    console.print(host_table(statuses, expand=has_width(console)))
    print_reasons(list(statuses.values()), console)
    say(str(run_dir))
    if not is_alive and any(not host.phase.is_final or host.may_go_on for host in statuses.values()):
        say("no controller is at work: hosts may be further than this tells, or have ended;")
        say(f"follow them again with: vcagent fleet resume {run_dir.name}")


@app.command()
def hosts(inventory: Annotated[list[str], INVENTORY], limit: Limit = "", as_json: AsJson = False) -> None:
    """List the hosts of an inventory; connects to none."""
    from agent.core.secrets import Secrets
    from agent.fleet.inventory import limited, read_inventory
    from agent.fleet.record import host_to_json

    chosen = limited(read_inventory(inventory), limit, _warn)
    secrets = Secrets(mappings=map(vars, chosen))
    found = [secrets.mask_value(host_to_json(host)) for host in chosen]
    if as_json:
        from agent.store.command_documents import FleetHostsDocument

        print_document(FleetHostsDocument, {"hosts": found})
        return
    from rich.table import Table

    from agent.core.terminal import safe_console

    table = Table("host", "address", "port", "user", "groups", "parameters")
    for host in found:
        parameters = ", ".join(f"{name}={value}" for name, value in host["parameters"].items())
        table.add_row(
            host["name"], host["address"], str(host["port"] or ""), host["user"] or "",
            ", ".join(host["groups"]), parameters,
        )  # fmt: skip
    safe_console().print(table)


def _refuse_own_options(client_id: str, clean_first: str) -> None:
    """Refuse options of ``vcagent run`` that make no sense for many hosts.

    Raises:
        UsageError: if one is given.
    """
    from agent.core.errors import UsageError

    if client_id:
        raise UsageError(
            "--client-id is one host's name",
            remedy="leave it out: records have each host's name of the inventory",
        )
    if clean_first:
        raise UsageError(
            "fleet run cleans no host",
            remedy="vcagent fleet clean removes what fleet runs left on their hosts",
        )


def _absolute(host_dir: str) -> str:
    """Return a folder on the hosts, as it is given.

    Raises:
        UsageError: if it depends on where a login begins.
    """
    from agent.core.errors import UsageError

    if host_dir and not host_dir.startswith(("/", "~/")):
        raise UsageError(
            f"--host-dir {host_dir} is relative", remedy="write it with / or ~/ at its beginning"
        )
    return host_dir


def _warn(text: str) -> None:

    say(f"warning: {text}", error=True)


def _hosts(inventory: list[str], via: str, partition: str, nodelist: str) -> Inventory:
    """Return the hosts of an inventory, or those in Slurm's options.

    Raises:
        UsageError: if it is neither, or both.
    """
    from agent.core.errors import UsageError
    from agent.fleet.inventory import Inventory, read_inventory

    if via != _SLURM and (partition or nodelist):
        raise UsageError("--partition and --nodelist are Slurm's", remedy="--via slurm")
    if inventory and nodelist:
        raise UsageError("--inventory and --nodelist both name hosts", remedy="leave one of them out")
    if inventory:
        return read_inventory(inventory)
    if via != _SLURM or not (partition or nodelist):
        needed = "--inventory" + (", --nodelist or --partition" if via == _SLURM else "")
        raise UsageError("no hosts are named", remedy=f"name them with {needed}")
    from agent.fleet.slurm.nodes import hosts_of

    return Inventory({host.name: host for host in hosts_of(partition, nodelist)})


def _wishes(
    ask_password: bool,  # noqa: FBT001
    ask_passphrase: bool,  # noqa: FBT001
    ask_sudo_password: bool,  # noqa: FBT001
    *,
    quiet: bool,
    verbose: bool = False,
) -> Wishes:
    import getpass
    import sys

    from agent.fleet.display import fleet_display
    from agent.fleet.run import Wishes
    from agent.fleet.ssh.credentials import asked

    wanted = {"password": ask_password, "passphrase": ask_passphrase, "sudo_password": ask_sudo_password}
    credentials = asked([name for name, is_wanted in wanted.items() if is_wanted])
    ask = (lambda: getpass.getpass("sudo password: ")) if sys.stdin.isatty() else None
    return Wishes(credentials, fleet_display(quiet=quiet, verbose=verbose), ask)


def _finish(finished: FinishedFleet, *, as_json: bool) -> None:
    """Print the result and end with the fleet run's exit code."""
    from agent.core.errors import ExitCode
    from agent.fleet.failed import FAILED_FILE

    run_dir = finished.run_dir
    if as_json:
        print_json({**finished.description, "exit_code": int(finished.exit_code), "folder": str(run_dir)})
    else:
        from agent.core.terminal import safe_console
        from agent.fleet.terminal import render_fleet

        render_fleet(finished.description, safe_console())
        say(f"Report: {run_dir}/report.html")
        if finished.exit_code is ExitCode.INTERRUPTED:
            say(f"the hosts go on; follow them again with: vcagent fleet resume {run_dir.name}")
            if finished.description["via"] == _SLURM:
                say(f"or cancel the jobs that are still queued: scancel --name={run_dir.name}")
        elif any(host["may_go_on"] for host in finished.description["hosts"]):
            say(f"runs on lost hosts may go on; collect them with: vcagent fleet resume {run_dir.name}")
        elif (run_dir / FAILED_FILE).is_file():
            say(f"run the failed hosts again: vcagent fleet retry {run_dir.name}")
    raise typer.Exit(finished.exit_code)
