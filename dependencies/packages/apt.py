"""Runs apt: without questions; waits for a held lock and names its holder."""

from __future__ import annotations

import re
import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING

from agent.component.component import Step, StepContext, StepOutcome
from agent.core.errors import ActionFailedError, DependencyFailedError
from agent.facts.bundle import bundle_of
from agent.facts.packages import APT_LISTS_AGE_S, AVAILABLE_PACKAGES, apt_names
from dependencies.packages.module_build import build_failure, build_words, shown_builds
from dependencies.packages.package_lock import LONGEST_S, remedy_among, wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from agent.facts import Facts
    from agent.host.processes import ProcessResult

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBIAN_PRIORITY": "critical",
    "APT_LISTCHANGES_FRONTEND": "none",
    # On Ubuntu, needrestart asks about, or restarts, services after an installation.
    "NEEDRESTART_MODE": "l",
    "NEEDRESTART_SUSPEND": "1",
}

# Edited configuration files stay; if dpkg would ask, the default is used.
_KEEP_CONFIGURATION = ("--force-confdef", "--force-confold")

APT_GET = (
    "apt-get",
    "--yes",
    "--quiet",
    *(f"--option=Dpkg::Options::={option}" for option in _KEEP_CONFIGURATION),
    "--option=APT::Status-Fd=1",
)

# Without the option apt-get succeeds even if it could fetch nothing; versions before 2.1 ignore it.
_ALL_OR_FAIL = "--option=APT::Update::Error-Mode=any"

APT_UPDATE = (*APT_GET, _ALL_OR_FAIL, "update")

DPKG_REPAIR = ("dpkg", "--configure", "-a", *_KEEP_CONFIGURATION)

# Without --no-remove: if a dependency is not available or conflicts with another package, removing a package
# is apt's only repair. Held and essential packages stay in any case.
FIX_BROKEN = (*APT_GET, "--fix-broken", "--no-install-recommends", "install")

_JUST_FETCHED_S = 600
"""Seconds; younger lists were fetched by the update that failed for another repository."""

_NETWORK = (
    "see whether this host reaches its package mirrors: network, DNS, proxy (http_proxy, "
    "Acquire::http::Proxy); take out of /etc/apt/sources.list.d what is no more"
)

_REMEDIES = (
    (
        r"Conflicting values set for option Signed-By regarding source (\S+)",
        "two files name {0} with different keys: remove one (grep -r {0} /etc/apt/sources.list*)",
    ),
    (
        r"is not valid yet",
        "the clock of this host is behind: set it (timedatectl set-ntp true), then run again",
    ),
    (
        r"Release file for (\S+) is expired",
        "{0} is an old mirror: take a current one, or see whether the clock of this host is ahead",
    ),
    (
        r"changed its '(\w+)' value from",
        "see that the repository is still what it was; then apt-get update --allow-releaseinfo-change",
    ),
    (
        r"The repository '(\S+).*' (?:does not have|no longer has) a Release file",
        "{0} has nothing for this release: correct or remove its file in /etc/apt/sources.list.d",
    ),
    (
        r"Mirror sync in progress|[Hh]ash [Ss]um mismatch|File has unexpected size",
        (
            "that repository is being changed, or a proxy has old files of it: run again in some minutes; "
            "if it lasts, empty the proxy's cache"
        ),
    ),
    (
        r"trying to overwrite '([^']+)', which is also in package (\S+)",
        "{1} owns {0}: it is of another driver; remove it (apt-get remove {1}), then run again",
    ),
    (
        r"\.deb\s+404\s+Not Found",
        "the mirror no longer has that version: apt-get update, then run again",
    ),
    (
        r"404\s+Not Found",
        "a repository has nothing for this release: correct or remove its file in /etc/apt/sources.list.d",
    ),
    (
        r"SHA1 is not considered secure|Policy rejected",
        "this apt refuses the repository's old key: take NVIDIA's debian13 instead of debian12, say",
    ),
    (
        r"[Cc]ertificate (?:verification failed|is NOT trusted|.*issuer)|self[- ]signed certificate",
        (
            "something on the way inspects TLS: put its authority into /usr/local/share/ca-certificates, and "
            "run update-ca-certificates"
        ),
    ),
    (
        r"[Rr]ead-only file system",
        "a file system became read-only: see dmesg, mend it and mount it writable again",
    ),
    (
        r"\S+ is a virtual package|select installed nor candidate version from package",
        "ask for what provides it: from branch 580 on NVIDIA's fabric manager is nvidia-fabricmanager",
    ),
    (
        r"Packages were downgraded and -y",
        "an older version is asked for: install it with --allow-downgrades",
    ),
    (
        r"Unable to locate package \S+?:(\S+)",
        "no repository of this host has it for {0}: see dpkg --add-architecture, or ask for no architecture",
    ),
    (
        r"Unable to locate package (\S+)",
        "no repository of this host has {0}; correct its name or add its repository",
    ),
    (
        r"Version '(\S+)' for '(\S+)' was not found",
        "see apt-cache madison {1} for the versions that there are",
    ),
    (r"has no installation candidate", "see apt-cache policy for what the repositories of this host offer"),
    (
        r"Temporary failure resolving|Could not (?:resolve|connect)|Connection timed out|is unreachable",
        _NETWORK,
    ),
    (
        r"[Nn]o space left on device|enough free space|[Dd]isk quota|Dynamic MMap ran out of room",
        "free some space: apt-get clean (/var/cache/apt), old kernels, old logs",
    ),
    (r"is not signed|NO_PUBKEY|EXPKEYSIG", "renew the key of that repository, or remove the repository"),
    (r"Failed to fetch|index files failed to download", _NETWORK),
    (
        r"remove is disabled",
        "it excludes a package that is installed: see apt-get --simulate install for which, and decide",
    ),
    (r"[Hh]eld packages were changed", "see apt-mark showhold"),
    (
        r"(\S+) : Depends: (\S+) \(= [^)]*\) but (\S+) is to be installed",
        "{1} is wanted in another version than {2}: name its version too, or pin it (apt_preferences(5))",
    ),
    (
        r"held broken packages|unmet dependencies",
        "see the lines above for what lacks what: apt-cache policy of these, and apt-mark showhold",
    ),
    (r"dpkg was interrupted|dpkg --configure -a", "run dpkg --configure -a"),
    (
        r"Could not get lock|is held by process",
        "wait for the process that holds the lock; never delete the lock",
    ),
)


def remedy_for(output: str, log: object) -> str:
    """Return the remedy for apt's output; if it is unknown, point to the log."""
    return known_remedy(output) or f"all of apt's output is in {log}"


def known_remedy(output: str) -> str | None:
    """Return the remedy for apt's output; None if it is unknown."""
    return remedy_among(_REMEDIES, output)


def apt_progress(line: str) -> tuple[str, float] | None:
    """Return message and percentage of a line of ``APT::Status-Fd`` (apt's README.progress-reporting)."""
    match = re.match(r"(?:dl|pm)status:[^:]*:([\d.]+):(.*)", line)
    return (match.group(2), float(match.group(1))) if match else None


def update_command(*options: str) -> list[str]:
    """Return ``apt-get update`` with further options; it fails if it cannot fetch everything."""
    return [*APT_UPDATE[:-1], *options, APT_UPDATE[-1]]


def failed_sources(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the addresses that ``apt-get update`` could read, and those that it could not.

    Args:
        lines: the output: ``Hit:2 address suite InRelease``, ``Get:``, ``Err:``; and the errors.
    """
    good: list[str] = []
    bad: list[str] = []
    for line in lines:
        if match := re.match(r"(Hit|Get|Err):\d+ (\S+) (\S+)", line):
            (bad if match.group(1) == "Err" else good).append(f"{match.group(2)} {match.group(3)}")
        elif match := re.match(
            r"[EW]: (?:The repository|Release file for|Failed to fetch) '?([^\s']+)", line
        ):
            bad.append(match.group(1))
    broken = list(dict.fromkeys(bad))
    return [one for one in dict.fromkeys(good) if one not in broken], broken


def update_step(reason: str, lock_timeout_s: float) -> Step:
    """Return the step that fetches apt's lists.

    A repository that cannot be read does not stop the others: missing packages are reported by name later.
    """

    def run(context: StepContext) -> StepOutcome:
        lines: list[str] = []
        try:
            result = run_apt(context, APT_UPDATE, lock_timeout_s, on_line=lines.append)
        except DependencyFailedError as error:
            good, bad = failed_sources(lines)
            age_s = context.facts.fresh()[APT_LISTS_AGE_S]
            if not (good and bad) or age_s is None or age_s > _JUST_FETCHED_S:
                raise
            told = f"read {len(good)}, not {', '.join(bad)}: {error.remedy}"
            context.progress.update(told)
            return StepOutcome(told)
        return StepOutcome(f"done in {result.duration_s:.0f} s")

    return Step("update", reason, run, shlex.join(APT_UPDATE))


def require_known(facts: Facts, names: Iterable[str]) -> None:
    """Check that apt knows each name; apt reads an unknown name as a pattern, ``gcc-1.`` for 700 packages.

    Raises:
        DependencyFailedError: if it does not know a name; with similar names.
    """
    available = facts[AVAILABLE_PACKAGES]
    for name in names:
        if name not in available and name not in facts[apt_names(name)]:
            near = ", ".join(get_close_matches(name, sorted(available), n=3, cutoff=0.8))
            remedy = f"no repository of this host has {name}; correct its name or add its repository"
            raise DependencyFailedError(
                f"apt knows no package {name}", remedy=f"{remedy}; near to it: {near}" if near else remedy
            )


def repair_step(broken: Iterable[str], lock_timeout_s: float, *, fix: bool = True) -> Step:
    """Return the step that completes an interrupted installation; apt's lists must exist.

    dpkg configures all that it can, and apt installs missing dependencies: dpkg alone fails at those, and apt
    does nothing while dpkg's own work is interrupted.

    Args:
        broken: the packages that are half installed.
        lock_timeout_s: seconds to wait for another package manager.
        fix: whether apt must install missing dependencies here; otherwise a later step can, and it is done
            only if nothing is removed or held for it.
    """

    def run(context: StepContext) -> StepOutcome:
        try:
            run_apt(context, DPKG_REPAIR, lock_timeout_s)
        except DependencyFailedError as error:
            context.progress.update(f"{error.message}: apt is to bring what is missing")
        if fix:
            run_apt(context, FIX_BROKEN, lock_timeout_s)
        else:
            _fix_where_nothing_goes(context, lock_timeout_s)
        return StepOutcome("done")

    reason = f"an earlier installation was cut short: {', '.join(broken)}"
    return Step("repair", reason, run, "; ".join(map(shlex.join, (DPKG_REPAIR, FIX_BROKEN))))


def _fix_where_nothing_goes(context: StepContext, lock_timeout_s: float) -> None:
    """Let apt install missing dependencies, unless it would remove a package or held packages prevent it."""
    try:
        simulated = run_apt(context, [*FIX_BROKEN, "--simulate"], lock_timeout_s)
    except DependencyFailedError:
        return
    removed, _ = simulated_changes(simulated.stdout)
    if not removed:
        run_apt(context, FIX_BROKEN, lock_timeout_s)


def simulated_changes(output: str) -> tuple[list[str], set[str]]:
    """Return the packages that ``apt-get --simulate`` would remove, and those that it would change."""
    removed = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", output, re.MULTILINE)
    changed = re.findall(r"^Inst ([^\s:]+)", output, re.MULTILINE)
    return list(dict.fromkeys(removed)), {*removed, *changed}


def run_apt(
    context: StepContext,
    command: Sequence[str],
    lock_timeout_s: float,
    *,
    on_line: Callable[[str], object] | None = None,
) -> ProcessResult:
    """Run apt or dpkg when its lock is free, and to its end even if the run is interrupted.

    If killed, it would leave packages half installed; an update alone can be repeated at any time.

    Args:
        context: the context of the step.
        command: the command.
        lock_timeout_s: seconds to wait for another package manager.
        on_line: called with each line of its output.

    Raises:
        DependencyFailedError: if it fails; with the end of its output and a remedy.
    """

    def show(line: str) -> None:
        if on_line:
            on_line(line)
        if told := apt_progress(line):
            context.progress.update(told[0], done=told[1], total=100)

    wait_for_lock(context, lock_timeout_s)
    bundle = bundle_of(context.facts)
    try:
        # Another process may take the lock between the check and the call: apt waits for that, too.
        lock = [f"--option=DPkg::Lock::Timeout={lock_timeout_s:.0f}"] if command[0] == "apt-get" else []
        with shown_builds(context):
            return context.processes.run(
                [command[0], *lock, *command[1:]],
                log=context.log,
                env={**ENVIRONMENT, **(bundle.apt_environment if bundle else {})},
                on_line=show,
                timeout_s=lock_timeout_s + LONGEST_S,
                uninterruptible=command[-1] != "update",
            )
    except ActionFailedError as error:
        output = "\n".join(error.details)
        told = [line for line in error.details if not apt_progress(line)]
        if build_words(output) and (failure := build_failure(context.facts.fresh())):
            message, remedy, lines = failure
            raise DependencyFailedError(message, remedy=remedy, details=(*told, *lines)) from error
        raise DependencyFailedError(
            error.message, remedy=remedy_for(output, context.log), details=tuple(told)
        ) from error
