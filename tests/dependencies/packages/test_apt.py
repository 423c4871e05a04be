"""apt's command lines, the reading of its output, and the errors when it fails."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ActionFailedError, DependencyFailedError
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.dkms import DKMS_BUILDS, ModuleBuild
from agent.facts.packages import APT_LISTS_AGE_S, AVAILABLE_PACKAGES, PACKAGE_LOCK, apt_names
from dependencies.packages import apt
from dependencies.packages.apt import (
    APT_GET,
    APT_UPDATE,
    DPKG_REPAIR,
    ENVIRONMENT,
    FIX_BROKEN,
    apt_progress,
    remedy_for,
    repair_step,
    require_known,
    run_apt,
    simulated_changes,
    update_command,
    update_step,
)
from dependencies.packages.module_build import build_failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOG = Path("/logs/step.log")
LOCK = "--option=DPkg::Lock::Timeout=60"


@dataclass
class Apt:
    """Stands in for the host's apt; ``failing`` lists words of the commands that fail."""

    failing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    output: str = ""
    lines: tuple[str, ...] = ()
    calls: list[list[str]] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self, command: Sequence[str], **options: Any) -> SimpleNamespace:
        self.calls.append(list(command))
        self.options.append(options)
        for line in self.lines:
            options["on_line"](line)
        for word, details in self.failing.items():
            if word in command:
                raise ActionFailedError(f"{word} failed", details=details)
        return SimpleNamespace(stdout=self.output, duration_s=7.4)

    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        self.told.append((message, done, total))

    @property
    def context(self) -> Any:
        facts = Facts(None, {PACKAGE_LOCK.name: None, **self.facts})
        return SimpleNamespace(facts=facts, processes=self, progress=self, stop=threading.Event(), log=LOG)


def test_apt_waits_for_its_lock_and_asks_nothing() -> None:
    host = Apt()
    assert run_apt(host.context, ["apt-get", "install", "gcc"], 60).stdout == ""
    assert host.calls == [["apt-get", LOCK, "install", "gcc"]]
    (options,) = host.options
    assert options["env"] == ENVIRONMENT
    assert options["log"] == LOG
    assert options["timeout_s"] == 60 + 2 * 3600
    assert options["uninterruptible"] is True


def test_an_update_may_be_ended_and_dpkg_takes_no_option_of_apt() -> None:
    host = Apt()
    run_apt(host.context, APT_UPDATE, 60)
    run_apt(host.context, DPKG_REPAIR, 60)
    assert [options["uninterruptible"] for options in host.options] == [False, True]
    assert host.calls[1] == list(DPKG_REPAIR)


def test_its_progress_is_shown() -> None:
    host = Apt(lines=("dlstatus:1:12.5:Fetching", "noise", "pmstatus:gcc:80:Unpacking gcc: all"))
    run_apt(host.context, ["apt-get", "install"], 60)
    assert host.told == [("Fetching", 12.5, 100), ("Unpacking gcc: all", 80.0, 100)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("dlstatus:1:12.5:Fetching", ("Fetching", 12.5)),
        ("pmstatus:a:b", None),
        ("xdlstatus:1:12.5:Fetching", None),
        ("pmerror:a:1:text", None),
    ],
)
def test_lines_of_progress(line: str, told: tuple[str, float] | None) -> None:
    assert apt_progress(line) == told


def test_a_failure_has_its_remedy_and_no_lines_of_progress() -> None:
    details = ("pmstatus:a:1:Working", "E: Unable to locate package gcc-99", "more")
    host = Apt({"install": details})
    with pytest.raises(DependencyFailedError) as caught:
        run_apt(host.context, ["apt-get", "install"], 60)
    assert caught.value.message == "install failed"
    assert caught.value.remedy == (
        "no repository of this host has gcc-99; correct its name or add its repository"
    )
    assert caught.value.details == details[1:]


def test_the_remedy_is_looked_for_over_all_lines() -> None:
    host = Apt({"install": ("first", "No space left on device")})
    with pytest.raises(DependencyFailedError, match="install failed") as caught:
        run_apt(host.context, ["apt-get", "install"], 60)
    assert "free some space" in str(caught.value.remedy)
    host = Apt({"install": ("E: x No space", "left on device")})
    with pytest.raises(DependencyFailedError) as caught:
        run_apt(host.context, ["apt-get", "install"], 60)
    assert caught.value.remedy == f"all of apt's output is in {LOG}"


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("Unable to locate package a:arm64", "no repository of this host has it for arm64: see dpkg"),
        ("Unable to locate package abc", "no repository of this host has abc; correct"),
        ("Version '1.2' for 'gcc' was not found", "see apt-cache madison gcc for"),
        ("E: Could not get lock", "never delete the lock"),
        ("nothing known", f"all of apt's output is in {LOG}"),
    ],
)
def test_remedies(output: str, remedy: str) -> None:
    assert remedy in remedy_for(output, LOG)


def test_an_update_has_its_options_before_its_last_word() -> None:
    assert update_command("-a", "-b") == [*APT_UPDATE[:-1], "-a", "-b", "update"]


def test_a_step_that_updates() -> None:
    host, step = Apt(), update_step("old lists", 5)
    outcome = step.run(host.context)
    assert outcome
    assert outcome.message == "done in 7 s"
    assert (step.name, step.reason, step.command) == ("update", "old lists", " ".join(APT_UPDATE))
    assert host.calls == [["apt-get", "--option=DPkg::Lock::Timeout=5", *APT_UPDATE[1:]]]


READ = "Hit:1 http://good.example/ stable InRelease"
FAILED = ("Err:2 http://gone.example/ stable InRelease", "Err:3 http://old.example/ stable InRelease")


@pytest.mark.parametrize(
    ("lines", "age_s", "told"),
    [
        ((READ, *FAILED), 600, "read 1, not http://gone.example/ stable, http://old.example/ stable: "),
        ((READ, *FAILED), 601, None),
        ((READ, *FAILED), None, None),
        ((READ,), 0, None),
        (FAILED, 0, None),
    ],
)
def test_an_update_that_reads_some_repositories(
    lines: tuple[str, ...], age_s: int | None, told: str | None
) -> None:
    host = Apt({"update": ("E: broken",)}, lines=lines, facts={APT_LISTS_AGE_S.name: age_s})
    step = update_step("old lists", 5)
    if told is None:
        with pytest.raises(DependencyFailedError, match="update failed"):
            step.run(host.context)
    else:
        outcome = step.run(host.context)
        assert outcome
        assert outcome.message == f"{told}all of apt's output is in {LOG}"
        assert host.told == [(outcome.message, None, None)]


def test_apt_sees_the_packages_of_a_bundle() -> None:
    bundle = Bundle(Path("/bundle"), "ubuntu-24.04-x64", frozenset(), {"APT_CONFIG": "/bundle/apt.conf"})
    host = Apt(facts={BUNDLE: bundle})
    run_apt(host.context, ["apt-get", "install"], 60)
    assert host.options[0]["env"] == {**ENVIRONMENT, "APT_CONFIG": "/bundle/apt.conf"}


def test_a_module_that_could_not_be_built_is_the_failure() -> None:
    build = ModuleBuild("nvidia", "550.90.07", "/make.log", "gcc: command not found")
    host = Apt({"install": ("pmstatus:a:1:Working", "dkms: failed")}, facts={DKMS_BUILDS.name: (build,)})
    failure = build_failure(host.context.facts)
    assert failure
    with pytest.raises(DependencyFailedError) as caught:
        run_apt(host.context, ["apt-get", "install"], 60)
    assert (caught.value.message, caught.value.remedy) == failure[:2]
    assert caught.value.details == ("dkms: failed", "/make.log: gcc: command not found")


def test_builds_are_shown_while_apt_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []

    @contextmanager
    def shown(context: Any) -> Iterator[None]:
        events.append(context)
        yield
        events.append(len(host.calls))

    monkeypatch.setattr(apt, "shown_builds", shown)
    host = Apt()
    context = host.context
    run_apt(context, ["apt-get", "install"], 60)
    assert events == [context, 1]


def known(available: set[str], names: dict[str, set[str]]) -> Facts:
    read = {apt_names(name).name: found for name, found in names.items()}
    return Facts(None, {AVAILABLE_PACKAGES.name: available, **read})


def test_a_name_that_apt_takes_for_a_pattern_is_refused_with_those_near_it() -> None:
    facts = known({"gcc-12", "gcc-13", "gcc-11", "gcc-10", "make"}, {"gcc-1.": set(), "virtual": {"virtual"}})
    require_known(facts, ["make", "virtual", "gcc-12"])
    with pytest.raises(DependencyFailedError) as caught:
        require_known(facts, ["make", "gcc-1."])
    assert caught.value.message == "apt knows no package gcc-1."
    wish = "no repository of this host has gcc-1.; correct its name or add its repository; near to it: "
    start, _, near = str(caught.value.remedy).partition("near to it: ")
    assert f"{start}near to it: " == wish
    assert len(near.split(", ")) == 3
    assert all(name.startswith("gcc-1") for name in near.split(", "))


def test_a_name_that_is_like_no_other_has_none_near_it() -> None:
    facts = known({"make", "abcdefghij"}, {"zzz": set(), "abcdefgxyz": set()})
    for name in ("zzz", "abcdefgxyz"):  # 0.7 alike
        with pytest.raises(DependencyFailedError) as caught:
            require_known(facts, [name])
        assert caught.value.remedy == (
            f"no repository of this host has {name}; correct its name or add its repository"
        )


def test_a_repair_configures_and_then_brings_what_is_missing() -> None:
    host = Apt()
    step = repair_step(["a", "b"], 60)
    assert step.name == "repair"
    assert step.reason == "an earlier installation was cut short: a, b"
    assert step.command == (f"dpkg --configure -a --force-confdef --force-confold; {' '.join(FIX_BROKEN)}")
    outcome = step.run(host.context)
    assert outcome
    assert outcome.message == "done"
    assert host.calls == [list(DPKG_REPAIR), ["apt-get", LOCK, *FIX_BROKEN[1:]]]


def test_what_dpkg_cannot_configure_apt_is_to_bring() -> None:
    host = Apt({"--configure": ("broken",)})
    repair_step(["a"], 60).run(host.context)
    assert host.told == [("--configure failed: apt is to bring what is missing", None, None)]
    assert len(host.calls) == 2
    with pytest.raises(DependencyFailedError, match="--fix-broken failed"):
        repair_step(["a"], 60).run(Apt({"--fix-broken": ()}).context)


@pytest.mark.parametrize(
    ("output", "failing", "calls"),
    [
        ("Inst gcc (1)", {}, 3),
        ("Remv make [1]\nInst gcc (1)", {}, 2),
        ("Purg make [1]", {}, 2),
        ("", {"--simulate": ("held broken packages",)}, 2),
    ],
)
def test_where_a_later_step_can_repair_nothing_is_removed(
    output: str, failing: dict[str, tuple[str, ...]], calls: int
) -> None:
    host = Apt(failing, output)
    repair_step(["a"], 60, fix=False).run(host.context)
    assert len(host.calls) == calls
    assert host.calls[1] == ["apt-get", LOCK, *FIX_BROKEN[1:], "--simulate"]
    assert host.calls[2:] == [["apt-get", LOCK, *FIX_BROKEN[1:]]] * (calls - 2)


def test_what_a_simulation_says() -> None:
    output = "Inst gcc:amd64 (1)\nRemv make [1]\nPurg make [1]\nConf gcc (1)\n Inst no\nRemv old:i386 [2]\n"
    assert simulated_changes(output) == (["make", "old"], {"make", "old", "gcc"})
    assert simulated_changes("Note\nInst one (1)\nInst two (1)\n") == ([], {"one", "two"})
    assert simulated_changes("") == ([], set())


def test_the_lock_is_waited_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(apt, "wait_for_lock", lambda context, limit_s: waited.append((context.log, limit_s)))
    host = Apt()
    run_apt(host.context, ["apt-get", "install"], 7.6)
    assert waited == [(LOG, 7.6)]
    assert host.calls[0][1] == "--option=DPkg::Lock::Timeout=8"
    repair_step(["a"], 5, fix=False).run(Apt({"--configure": ()}).context)
    assert waited[1:] == [(LOG, 5)] * 3
    assert APT_GET[0] == "apt-get"
