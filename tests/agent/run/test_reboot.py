"""A run that needs a reboot asks for it, goes on after it, and makes only reboots that are allowed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from agent.component import registry
from agent.core.errors import ActionFailedError, DependencyFailedError, ExitCode, RebootPendingError
from agent.core.progress import RunProgress
from agent.core.secrets import MASK, Secrets
from agent.facts import Facts, LocalHost
from agent.facts.boot import BOOT, boot_identity
from agent.run.outcome import Outcome
from agent.run.reboot import Reboots, SystemdDoor, allows_reboot, requested
from agent.run.request import RunRequest
from agent.run.resume_unit import ResumeUnit, kept_environment, program
from agent.run.session import FinishedRun, resume, start
from agent.store.journal import Journal
from agent.store.results import JOURNAL, ResultsFolder
from tests.agent.conftest import records_of
from tests.agent.rebooting_components import FileDoor, register, run_until
from tests.agent.run.test_engine import element
from tests.forked import exit_code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch, without_facts: None) -> None:
    register()
    monkeypatch.setattr(SystemdDoor, "reboot", lambda _: pytest.fail("this machine is never rebooted"))


@pytest.fixture
def door(tmp_path: Path) -> FileDoor:
    return FileDoor(tmp_path)


def request_for(host: Path, *dependencies: dict[str, Any], **options: Any) -> RunRequest:
    profile = {
        "Description": "A test.",
        "Dependencies": list(dependencies) or [element("Driver", host=str(host))],
        "Actions": [element("Measuring", metric="x")],
        **options.pop("profile", {}),
    }
    (host / "TEST.json").write_text(json.dumps(profile))
    return RunRequest(
        (str(host / "TEST.json"),), results_dir=host / "results", package_dir=host / "packages", **options
    )


def go_on(host: Path, door: FileDoor, **options: Any) -> FinishedRun:
    return resume(host / "results", None, RunProgress(), door=door, **options)


def reason_of(finished: FinishedRun) -> str:
    return str(finished.description["exit_reason"])


def test_without_leave_the_host_stays_up_and_nothing_is_armed(tmp_path: Path, door: FileDoor) -> None:
    first = start(request_for(tmp_path), RunProgress(), door)
    assert first.outcome.exit_code is ExitCode.REBOOT_PENDING
    assert "the host must be rebooted: the new driver is not loaded" in reason_of(first)
    assert f"vcagent resume {first.run_dir} (with --yes vcagent reboots)" in reason_of(first)
    assert [step["status"] for step in first.description["steps"]] == ["done"]
    assert (door.boot(), door.armed()) == ("boot-0", [])
    assert first.report

    again = go_on(tmp_path, door)
    assert again.outcome.exit_code is ExitCode.REBOOT_PENDING
    assert (tmp_path / "effects").read_text() == "install\n"
    assert door.boot() == "boot-0"

    door.reboot()
    last = go_on(tmp_path, door)
    assert last.outcome.exit_code is ExitCode.OK
    assert [record["metric"] for record in records_of(last)] == ["x"]
    assert (tmp_path / "effects").read_text() == "install\n"


@pytest.mark.parametrize(
    ("options", "profile"),
    [
        ({"allow_reboot": True}, {}),
        ({}, {"Metadata": {"allow_reboot": True}}),
        ({}, {"Parameters": {"AllowReboot": True}}),
    ],
)
def test_with_leave_the_host_is_rebooted_and_the_unit_goes_on(
    tmp_path: Path, door: FileDoor, options: dict[str, Any], profile: dict[str, Any]
) -> None:
    first = start(request_for(tmp_path, profile=profile, **options), RunProgress(), door)
    assert first.outcome.exit_code is ExitCode.REBOOT_PENDING
    assert "the host is rebooted now" in reason_of(first)
    assert (door.boot(), door.armed()) == ("boot-1", [f"vcagent-resume-{first.run_dir.name}.service"])
    assert go_on(tmp_path, door).outcome.exit_code is ExitCode.OK
    assert (door.boot(), door.armed()) == ("boot-1", [])


def test_leave_may_come_with_the_resume(tmp_path: Path, door: FileDoor) -> None:
    start(request_for(tmp_path), RunProgress(), door)
    assert go_on(tmp_path, door, allow_reboot=True).outcome.exit_code is ExitCode.REBOOT_PENDING
    assert door.boot() == "boot-1"
    assert go_on(tmp_path, door).outcome.exit_code is ExitCode.OK


def test_armed_the_run_goes_on_after_a_reboot_by_the_user(tmp_path: Path, door: FileDoor) -> None:
    first = start(request_for(tmp_path, arm=True), RunProgress(), door)
    assert door.boot() == "boot-0"
    assert len(door.armed()) == 1
    assert "reboot it; the run then goes on by itself" in reason_of(first)


def test_a_host_that_cannot_be_rebooted_is_left_to_the_user(tmp_path: Path) -> None:
    door = FileDoor(tmp_path, obstacle="this host is not run by systemd")
    first = start(request_for(tmp_path, allow_reboot=True), RunProgress(), door)
    assert first.outcome.exit_code is ExitCode.REBOOT_PENDING
    assert "; this host is not run by systemd" in reason_of(first)
    assert (door.boot(), door.armed()) == ("boot-0", [])


def test_a_unit_that_cannot_be_written_is_told(tmp_path: Path, door: FileDoor) -> None:
    shutil.rmtree(tmp_path / "armed")
    first = start(request_for(tmp_path, allow_reboot=True), RunProgress(), door)
    assert "cannot be written" in reason_of(first)
    assert door.boot() == "boot-0"


def test_a_run_whose_secrets_are_not_kept_does_not_go_on_by_itself(tmp_path: Path, door: FileDoor) -> None:
    profile = {"Parameters": {"ApiToken": ""}}
    request = request_for(
        tmp_path, profile=profile, allow_reboot=True, parameters={"ApiToken": "hunter2-correct-horse"}
    )
    first = start(request, RunProgress(), door)
    assert "secrets are not kept: ApiToken" in reason_of(first)
    assert "--parameters ApiToken=…" in reason_of(first)
    assert (door.boot(), door.armed()) == ("boot-0", [])


def test_three_reboots_and_no_more(tmp_path: Path, door: FileDoor) -> None:
    never = element("Driver", host=str(tmp_path), loads=False)
    finished = start(request_for(tmp_path, never, allow_reboot=True), RunProgress(), door)
    for boot in (1, 2, 3):
        assert finished.outcome.exit_code is ExitCode.REBOOT_PENDING
        assert door.boot() == f"boot-{boot}"
        finished = go_on(tmp_path, door)
    assert finished.outcome.exit_code is ExitCode.DEPENDENCY_FAILED
    assert "another reboot is needed, and a run may have 3" in reason_of(finished)
    assert reason_of(finished).count("the new driver is not loaded") == 5
    assert (door.boot(), door.armed()) == ("boot-3", [])


def test_a_host_that_comes_up_in_the_same_boot_is_not_rebooted_for_ever(
    tmp_path: Path, door: FileDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(FileDoor, "reboot", lambda _: calls.append(1))
    start(request_for(tmp_path, allow_reboot=True), RunProgress(), door)
    codes = [go_on(tmp_path, door).outcome.exit_code for _ in range(3)]
    assert codes == [ExitCode.REBOOT_PENDING, ExitCode.REBOOT_PENDING, ExitCode.DEPENDENCY_FAILED]
    assert len(calls) == 3
    assert door.armed() == []


def test_a_host_that_refuses_says_so_and_stays_armed(
    tmp_path: Path, door: FileDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FileDoor) -> None:
        raise RebootPendingError("the host refused to reboot: inhibited")

    monkeypatch.setattr(FileDoor, "reboot", refuse)
    with pytest.raises(RebootPendingError, match="inhibited"):
        start(request_for(tmp_path, allow_reboot=True), RunProgress(), door)
    assert len(door.armed()) == 1


def reboot_system(**parameters: Any) -> dict[str, Any]:
    return element("RebootSystem", "boot", **parameters)


def test_reboot_system_reboots_once_for_each_reason(
    tmp_path: Path, door: FileDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dependencies.system.reboot_system.SYSTEMD", BOOT)  # true on every host
    wishes = [
        reboot_system(Reason="kernel"),
        reboot_system(Reason="firmware"),
        reboot_system(Reason="kernel"),
    ]
    finished = start(request_for(tmp_path, *wishes, allow_reboot=True), RunProgress(), door)
    while finished.outcome.exit_code is ExitCode.REBOOT_PENDING:
        finished = go_on(tmp_path, door)
    assert finished.outcome.exit_code is ExitCode.OK
    assert door.boot() == "boot-2"
    keys = [step["key"] for step in finished.description["steps"]]
    assert keys == ["dependencies[0]/reboot", "dependencies[1]/reboot", "1:actions[0]/measure-1"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("rebooted", [False, True])
def test_killed_at_every_moment_around_the_reboot_the_run_goes_on(tmp_path: Path, *, rebooted: bool) -> None:
    n = kills = 0
    code: int = -signal.SIGKILL
    while code == -signal.SIGKILL:
        n += 3
        host = tmp_path / str(n)
        host.mkdir()
        request = request_for(host, allow_reboot=True)
        file = host / "request.json"
        file.write_text(json.dumps(request.to_json()))
        door = FileDoor(host)
        if rebooted:
            start(request, RunProgress(), door)
        code = exit_code_of(run_until, n, str(file))
        kills += code == -signal.SIGKILL
        runs = ResultsFolder(request.results_dir).runs()
        if not runs:
            continue
        with Journal(runs[0] / JOURNAL) as journal:
            context, exit_code = journal.recall("context"), journal.recall("exit_code")
        if context is None:
            continue
        if exit_code == ExitCode.OK:
            assert go_on(host, door).outcome.exit_code is ExitCode.OK
        else:
            codes = [go_on(host, door).outcome.exit_code]
            while codes[-1] is ExitCode.REBOOT_PENDING and len(codes) < 3:
                codes.append(go_on(host, door).outcome.exit_code)
            assert codes[-1] is ExitCode.OK
        assert door.boot() == "boot-1"
        assert door.armed() == []
        assert set((host / "effects").read_text().split()) == {"install"}
        metrics = (runs[0] / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["metric"] for line in metrics] == ["x"]
    assert code == (ExitCode.OK if rebooted else ExitCode.REBOOT_PENDING)
    assert kills > 5


def test_a_unit_left_behind_by_a_complete_run_removes_itself(tmp_path: Path, door: FileDoor) -> None:
    start(request_for(tmp_path, allow_reboot=True), RunProgress(), door)
    unit = door.armed()[0]
    go_on(tmp_path, door)
    (tmp_path / "armed" / unit).touch()
    assert go_on(tmp_path, door).outcome.exit_code is ExitCode.OK
    assert door.armed() == []


BY_HAND = "reboot it, then go on with: vcagent resume"
PENDING = RebootPendingError("a step asked")


class UnitDoor(FileDoor):
    """Keeps the armed units as they are."""

    units: tuple[ResumeUnit, ...] = ()

    def arm(self, unit: ResumeUnit) -> None:
        self.units = (*self.units, unit)
        super().arm(unit)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while Asked.journals:
        Asked.journals.pop().close()


class Asked:
    """A run whose steps asked for reboots; its journal is closed at the end of the test."""

    journals: ClassVar[list[Journal]] = []

    def __init__(self, host: Path, *made: int, parameters: dict[str, str] | None = None) -> None:
        self.run_dir = host / "run-1"
        self.door = UnitDoor(host)
        self.journal = Journal(host / JOURNAL)
        self.journals.append(self.journal)
        self.journal.remember(request={"parameters": parameters or {}})
        self.reboots()
        for number, count in enumerate(made):
            self.journal.remember(**requested(self.journal, f"step-{number}", f"reason-{number}"))
            entries = self.journal.recall("reboots")
            self.journal.remember(reboots=[*entries[:-1], {**entries[-1], "made": count}])

    def reboots(self, **options: bool) -> Reboots:
        return Reboots(self.journal, self.door, self.run_dir, **options)

    def arrange(self, mask: Callable[[str], str] = str, **options: bool) -> tuple[Reboots, Outcome]:
        reboots, outcome = self.reboots(**options), Outcome(ExitCode.REBOOT_PENDING, PENDING)
        reboots.arrange(outcome, mask)
        return reboots, outcome


def test_the_journal_keeps_each_request_and_the_boot_that_answered_it(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    assert asked.journal.recall("boot") == "boot-0"
    assert not asked.reboots().pending
    assert asked.reboots().waiting() is None
    asked.journal.remember(**requested(asked.journal, "a/x", "first"))
    assert asked.journal.recall("reboots") == [{"step": "a/x", "reason": "first", "made": 0}]
    waits = asked.reboots()
    assert waits.pending
    assert waits.happened() == ()
    asked.door.reboot()
    assert asked.reboots().happened() == ("first",)
    asked.journal.remember(**requested(asked.journal, "b/y", "second"))
    asked.journal.remember(**requested(asked.journal, "c/z", "third"))
    error = asked.reboots().waiting()
    assert error
    assert error.message == "the host has not been rebooted yet: third"
    asked.door.reboot()
    done = asked.reboots()
    assert not done.pending
    assert done.happened() == ("first", "second", "third")
    entries = asked.journal.recall("reboots")
    assert [entry["booted"] for entry in entries] == ["boot-1", "boot-2", "boot-2"]


def test_nothing_is_arranged_for_a_run_that_ended_otherwise(tmp_path: Path) -> None:
    asked, outcome = Asked(tmp_path), Outcome(ExitCode.ACTION_FAILED, ActionFailedError("it failed"))
    reboots = asked.reboots(allowed=True)
    reboots.arrange(outcome, str)
    assert outcome == Outcome(ExitCode.ACTION_FAILED, outcome.error)
    assert str(outcome.error) == "it failed"
    assert reboots.goes_down is False


@pytest.mark.parametrize(
    ("made", "refused"),
    [((0, 0, 0), False), ((1, 1, 0), False), ((0, 0, 0, 0), True), ((1, 1, 1), True), ((3,), True)],
)
def test_the_bound_on_reboots_counts_requests_and_reboots(
    tmp_path: Path, made: tuple[int, ...], *, refused: bool
) -> None:
    reboots, outcome = Asked(tmp_path, *made).arrange(allowed=True)
    assert reboots.goes_down is not refused
    assert outcome.error
    assert outcome.exit_code is outcome.error.exit_code
    if refused:
        reason = f"reason-{len(made) - 1}"
        assert isinstance(outcome.error, DependencyFailedError)
        assert outcome.error.message == f"another reboot is needed, and a run may have 3: {reason}"
        remedy = "see in the logs of these steps why the host is not as it should be after a reboot"
        assert outcome.error.remedy == remedy
        assert outcome.error.details == tuple(f"step-{n}: reason-{n}" for n in range(len(made)))


def test_the_armed_unit_resumes_the_run_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "vcagent"
    script.touch()
    monkeypatch.setattr("sys.argv", [str(script), "run"])
    monkeypatch.setenv("LANG", "hunter2-correct-horse")
    monkeypatch.setenv("TZ", "UTC")
    asked = Asked(tmp_path, 0, 0, 1)
    mask = Secrets(["hunter2-correct-horse"]).mask
    reboots, outcome = asked.arrange(mask, allowed=True)
    (unit,) = asked.door.units
    environment = kept_environment(os.environ, mask)
    assert environment["TZ"] == "UTC"
    assert "LANG" not in environment
    command = (sys.executable, str(script), "resume", str(asked.run_dir))
    assert unit == ResumeUnit(asked.run_dir, command, Path.cwd(), environment)
    assert outcome.error
    assert outcome.error.message == "the host is rebooted now: reason-2"
    watch = f"the run then goes on by itself; watch it with: journalctl -fu {unit.name}"
    assert outcome.error.remedy == watch
    assert [entry["made"] for entry in asked.journal.recall("reboots")] == [0, 0, 2]
    reboots.conclude(outcome)
    assert asked.door.boot() == "boot-1"
    assert asked.door.armed() == [unit.name]
    # The user reboots instead.
    other = asked.reboots(arm=True)
    other.arrange(outcome, mask)
    assert outcome.error.message == "the host must be rebooted: reason-2"
    assert outcome.error.remedy == f"reboot it; {watch}"
    assert other.goes_down is False


@pytest.mark.parametrize(
    ("options", "obstacle", "parameters", "message", "more"),
    [
        ({}, "", {}, "", " (with --yes vcagent reboots)"),
        ({}, "", {"A": "<hidden>", "B": "1"}, "", " --parameters A=… (with --yes vcagent reboots)"),
        ({"allowed": True}, "no systemd", {}, "; no systemd", ""),
        ({"arm": True}, "no systemd", {}, "; no systemd", ""),
        (
            {"allowed": True},
            "",
            {"A": "x<hidden>", "B": "1", "C": "<hidden>"},
            "; it cannot go on by itself, because secrets are not kept: A, C",
            " --parameters A=… --parameters C=…",
        ),
    ],
)
def test_a_reboot_that_is_left_to_the_user_is_told_with_the_way_on(
    tmp_path: Path,
    options: dict[str, bool],
    *,
    obstacle: str,
    parameters: dict[str, str],
    message: str,
    more: str,
) -> None:
    hidden = {name: value.replace("<hidden>", MASK) for name, value in parameters.items()}
    asked = Asked(tmp_path, 0, 0, 0, parameters=hidden)
    asked.door = UnitDoor(tmp_path, obstacle)
    reboots, outcome = asked.arrange(str, **options)
    assert isinstance(outcome.error, RebootPendingError)
    assert outcome.error.message == f"the host must be rebooted: reason-2{message}"
    assert outcome.error.remedy == f"{BY_HAND} {asked.run_dir}{more}"
    assert reboots.goes_down is False
    assert asked.door.armed() == []


def test_without_a_unit_the_way_on_is_told(tmp_path: Path) -> None:
    asked = Asked(tmp_path, 0, 0, 0)
    shutil.rmtree(tmp_path / "armed")
    reboots, outcome = asked.arrange(allowed=True)
    (unit,) = asked.door.units
    assert outcome.error
    start = f"the host must be rebooted: reason-2; {unit.name} cannot be written: [Errno 2]"
    assert outcome.error.message.startswith(start)
    assert outcome.error.remedy == f"{BY_HAND} {asked.run_dir}"
    assert reboots.goes_down is False


def test_the_unit_is_removed_by_a_run_that_waits_for_no_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path, 0)
    asked.arrange(arm=True)
    asked.reboots().conclude(Outcome(ExitCode.REBOOT_PENDING, PENDING))
    assert len(asked.door.armed()) == 1
    asked.reboots().conclude(Outcome())
    assert asked.door.armed() == []
    assert asked.door.boot() == "boot-0"

    def refuse(_: FileDoor, name: str) -> None:
        raise PermissionError(name)

    monkeypatch.setattr(FileDoor, "disarm", refuse)
    asked.reboots().conclude(Outcome())


def test_a_profile_allows_reboots_by_true_alone() -> None:
    assert allows_reboot({}, {"allow-reboot": " True "})
    assert not allows_reboot({"allow_reboot": "no"}, {"reboot": True})


@pytest.mark.parametrize(
    ("boot_id", "stat", "identity"),
    [
        ("9c3\n", "1 (systemd) S 0 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 24 1000 9", "9c3/24"),
        ("9c3\n", "1 (a) b) S 0 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 77 1000 9", "9c3/77"),
        ("9c3\n", None, "9c3/?"),
        (None, "1 (init) S 0", "?/?"),
    ],
)
def test_boot_identity(boot_id: str | None, stat: str | None, identity: str) -> None:
    assert boot_identity(boot_id, stat) == identity


UNIT = ResumeUnit(
    Path("/srv/my results/20260401T120000Z-setup-3fa9"),
    ("/opt/v/bin/python", "/opt/v/bin/vcagent", "resume", '/srv/my results/20%/"x"$y'),
    Path("/root/50% off"),
    {"PATH": "/opt/v/bin:/usr/bin", "LANG": 'C "quoted" 5%'},
)


def test_the_unit_is_written_as_systemd_reads_it() -> None:
    lines = UNIT.text().splitlines()
    assert UNIT.name == "vcagent-resume-20260401T120000Z-setup-3fa9.service"
    assert 'Environment="LANG=C \\"quoted\\" 5%%"' in lines
    assert "WorkingDirectory=/root/50%% off" in lines
    assert (
        'ExecStart="/opt/v/bin/python" "/opt/v/bin/vcagent" "resume" "/srv/my results/20%%/\\"x\\"$$y"'
        in lines
    )
    assert "ConditionPathExists=/srv/my results/20260401T120000Z-setup-3fa9/journal.sqlite" in lines
    assert "WantedBy=multi-user.target" in lines


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    unit = ResumeUnit(tmp_path, ("/bin/true", "resume", "a b"), tmp_path, {"PATH": "/usr/bin", "LANG": "5%"})
    path = tmp_path / unit.name
    path.write_text(unit.text())
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert unit.name not in verified.stderr
    assert verified.returncode == 0, verified.stderr


def test_arming_and_disarming_leave_nothing(tmp_path: Path) -> None:
    door = SystemdDoor(tmp_path)
    door.arm(UNIT)
    door.arm(UNIT)
    link = tmp_path / "multi-user.target.wants" / UNIT.name
    assert link.readlink() == tmp_path / UNIT.name
    assert link.read_text() == UNIT.text()
    door.disarm(UNIT.name)
    door.disarm(UNIT.name)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    assert door.boot() == Facts(LocalHost())[BOOT]


def test_the_environment_of_the_unit_holds_no_secret() -> None:
    environment = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://user:hunter2@proxy:3128",
        "http_proxy": "http://proxy:3128",
        "HF_TOKEN": "hf_aaaaaaaaaaaaaaaaaaaaaaaa",
        "PIP_API_KEY": "hunter2-correct",
        "VCAGENT_RUN": "of another agent",
        "VCAGENT_PACKAGE_DIR": "/data",
        "LS_COLORS": "x",
    }
    assert kept_environment(environment, Secrets(mappings=[environment]).mask) == {
        "PATH": "/bin",
        "http_proxy": "http://proxy:3128",
        "VCAGENT_PACKAGE_DIR": "/data",
    }


def test_the_very_same_program_is_called_again(tmp_path: Path) -> None:
    script = tmp_path / "vcagent"
    script.touch()
    assert program(str(script), "/py") == ("/py", str(script))
    assert program("/x/agent/__main__.py", "/py") == ("/py", "-m", "agent")
    assert program(str(tmp_path / "pytest"), "/py") == ("/py", "-m", "agent")


def test_the_registered_type_is_the_class() -> None:
    assert registry.component_class("RebootSystem").__name__ == "RebootSystem"
