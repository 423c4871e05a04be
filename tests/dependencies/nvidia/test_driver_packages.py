"""Every field of the steps that install a driver, and their commands; packages are modelled."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.component import Step, StepOutcome
from agent.core.errors import DependencyFailedError, HostError
from agent.facts.dkms import ModuleBuild
from agent.facts.packages import PackageLock
from dependencies.nvidia.driver import DriverWish
from dependencies.nvidia.driver_packages import DriverPackages
from dependencies.nvidia.repository import NvidiaRepository
from dependencies.packages.apt import APT_GET
from tests.dependencies.nvidia.test_driver_refusals import DEBIAN, POLICY
from tests.dependencies.nvidia.test_nvidia_driver_steps import Processes, context, facts, run, steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from agent.facts import Facts
    from dependencies.nvidia.candidates import Candidate

KERNEL = "6.8.0-1021-azure"
HEADERS = f"linux-headers-{KERNEL}"
OFFERS = "package_offers[nvidia]"
OLD, NEW, NEXT = "550.90.07-0ubuntu0.22.04.1", "550.163.01-0ubuntu0.22.04.2", "570.86.15-0ubuntu0.22.04.1"
INSTALL = f"{shlex.join(APT_GET)} install --no-install-recommends --allow-downgrades"
INSTALL += " --allow-change-held-packages --fix-broken"
ROOT = Path("/host")
EXCLUSIONS = f"{ROOT}/etc/apt/apt.conf.d/52vcagent-nvidia"


def names(branch: str, *more: str) -> list[str]:
    fixed = [f"{name}-{branch}-server" for name in ("libnvidia-cfg1", "libnvidia-compute", "nvidia-dkms")]
    return sorted([*fixed, f"nvidia-fabricmanager-{branch}", f"nvidia-utils-{branch}-server", *more])


def driver(branch: str, *more: str) -> list[str]:
    """Return the packages of a driver with all that its main package depends on."""
    whole = ("nvidia-driver", "nvidia-kernel-common", "nvidia-kernel-source")
    return names(branch, *(f"{name}-{branch}-server" for name in whole), *more)


def pinned(version: str, *names: str) -> str:
    branch = version[:3]
    return " ".join(f"{name.format(branch)}={version}" for name in names)


WANTED = ("libnvidia-compute-{}-server", "nvidia-dkms-{}-server", "nvidia-fabricmanager-{}")
TOOLS = ("nvidia-utils-{}-server", "libnvidia-cfg1-{}-server")
WHOLE = (
    "nvidia-driver-{}-server",
    "nvidia-dkms-{}-server",
    "nvidia-fabricmanager-{}",
    "libnvidia-compute-{}-server",
    *TOOLS,
    "nvidia-kernel-common-{}-server",
    "nvidia-kernel-source-{}-server",
)
KEEP = "a driver works only in one version"
AUTOMATIC = "unattended-upgrades is on and would change the driver under a run"


def told(step: Step) -> tuple[str, str, Any, float | None, bool]:
    return step.reason, step.command, step.undo, step.estimate_s, step.holds is not None


def test_every_field_of_the_steps() -> None:
    installed = {"linux-azure": ["6", "ii"], "nvidia-x": ["1", "ii"], "nvidia-y": ["1", "rc"]}
    held = ["nvidia-dkms-550-server"]
    fresh = steps(facts("fresh", ROOT, installed_packages=installed, held_packages=held))
    limit = {"lock_timeout_s": 600}
    assert {name: told(fresh[name]) for name in ("driver", "exclude", "hold")} == {
        "driver": (
            "no driver is installed",
            f"{INSTALL} {pinned(NEW, *WANTED, *TOOLS)}",
            {"driver": "", "before": ["nvidia-x"], **limit},
            180,
            True,
        ),
        "exclude": (AUTOMATIC, f"write {EXCLUSIONS}", {"file": EXCLUSIONS}, None, True),
        "hold": (
            KEEP,
            f"apt-mark hold {' '.join(names('550'))}",
            {"unhold": held, "kernel": [], **limit},
            None,
            True,
        ),
    }


def asked(version: str = "550", **more: Any) -> DriverWish:
    return DriverWish(version, KERNEL, **more)


def test_the_steps_to_another_branch_on_a_host_that_holds_its_driver() -> None:
    host = facts("healthy", ROOT, unattended_upgrades={"enabled": False})
    parameters = {"LinuxDriverVersion": "570", "OpenSourceDriver": False, "LockTimeout": 7}
    there = {step: told(made) for step, made in steps(host, **parameters).items()}
    gone = " ".join(f"{name}-" for name in driver("550"))
    assert there["driver"] == (
        "driver 550.90.07 is installed: it is not 570",
        f"{INSTALL} {pinned(NEXT, *WHOLE)} {gone}",
        {"driver": "550.90.07", "before": [n for n in driver("550") if "nvidia" in n], "lock_timeout_s": 7},
        180,
        True,
    )
    # What holds now may not hold after the change.
    reason = "an automatic upgrade could change the driver under a run"
    assert there["exclude"] == (reason, f"write {EXCLUSIONS}", {"file": EXCLUSIONS}, None, False)
    undo = {"unhold": driver("550"), "kernel": [], "lock_timeout_s": 7}
    assert there["hold"] == (KEEP, f"apt-mark hold {' '.join(driver('570'))}", undo, None, False)


def test_the_steps_before_the_lists_are_there() -> None:
    host = facts("fresh", ROOT, apt_lists_age_s=None, **{OFFERS: []})
    planned = steps(host, LinuxDriverVersion="", AddRepository=False)
    assert list(planned)[:2] == ["update", "driver"]
    assert planned["driver"].command == "apt-get install a driver, exact versions solved from the new lists"
    assert planned["hold"].command == "apt-mark hold the driver's packages"
    rpm = DriverPackages(asked("570", rpm=True))._install_step(host, ["one", "two"], None)
    assert (rpm.reason, rpm.command) == (
        "one; two", "dnf install driver 570, exact versions solved from the new lists"
    )  # fmt: skip


def test_the_driver_is_there_when_nothing_is_wrong_with_it() -> None:
    made = steps(facts("fresh", ROOT))
    for base, there in (("fresh", False), ("healthy", True)):
        host = facts(base, ROOT)
        checks = [made[name].holds for name in ("driver", "exclude", "hold")]
        assert [check is not None and check(host) for check in checks] == [there] * 3


KINDS = [
    *("linux-azure", "linux-azure-6.8", "linux-azure-edge", "linux-headers-azure-hwe-24.04"),
    *("linux-image-azure", "linux-image-azure-lts-22.04"),
]


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (KERNEL, KINDS),
        ("6.8.0-1021-nvidia-64k", ["linux-image-nvidia-64k"]),
        ("6.8.0-1021-az.re", []),
        ("6.8.0", []),
    ],
)
def test_packages_that_bring_a_kernel(kernel: str, found: list[str]) -> None:
    kinds = (
        "azure",
        "azure-6.8",
        "azure-edge",
        "image-azure",
        "image-azure-lts-22.04",
        "headers-azure-hwe-24.04",
    )
    others = (
        "tools-azure",
        "image-gcp",
        "image-azure-fde",
        f"image-{KERNEL}",
        "image-64k",
        "image-nvidia-64k",
    )
    installed = {f"linux-{kind}": ["6", "ii"] for kind in (*kinds, *others)} | {
        "linux-headers-azure": ["6", "rc"]
    }
    host = facts("fresh", ROOT, installed_packages=installed)
    assert sorted(DriverPackages(replace(asked(), kernel=kernel))._kernel_names(host)) == found


def test_a_signed_module_is_held_with_its_kernel() -> None:
    signed = f"linux-modules-nvidia-550-server-{KERNEL}"
    offers = [
        *(f"{name}-550-server {NEW} Ubuntu" for name in ("nvidia-headless-no-dkms", "libnvidia-compute")),
        f"{signed} 6.8.0-1021.25 Ubuntu nvidia-kernel-common-550-server (>= 550.163.01)",
    ]
    host = facts("fresh", ROOT, installed_packages={"linux-azure": ["6", "ii"]}, **{OFFERS: offers})
    hold = steps(host, KernelModule="prebuilt", FabricManager="false")["hold"]
    coming = f"libnvidia-compute-550-server linux-azure {signed} nvidia-headless-no-dkms-550-server"
    assert hold.command == f"apt-mark hold {coming}"
    assert hold.undo == {"unhold": [], "kernel": ["linux-azure"], "lock_timeout_s": 600}


@pytest.mark.parametrize(
    ("age_s", "reason"),
    [
        (None, "apt has no package lists"),
        (24 * 3600, ""),
        (24 * 3600 + 1, "apt's package lists are 24 hours old"),
        (49.5 * 3600, "apt's package lists are 49.0 hours old"),
    ],
)
def test_lists_are_updated_once_a_day(tmp_path: Path, age_s: float | None, reason: str) -> None:
    host = facts("fresh", tmp_path, apt_lists_age_s=age_s)
    update = steps(host, LockTimeout=7).get("update")
    assert (update.reason if update else "") == reason
    if update:
        processes = Processes()
        run(update, host, tmp_path, processes)
        assert "DPkg::Lock::Timeout=7 " in processes.commands[0]


HAS = f"server {NEW} Ubuntu"
NEEDED = f"{HEADERS} 6.8.0-1021.25 Ubuntu"


class Added(NvidiaRepository):
    """A repository with one step that counts its runs, and whose effect is modelled."""

    runs: list[float] = []  # noqa: RUF012 - counted by the class: its instances are frozen
    effect: Callable[[Facts], bool] | None = None

    def steps(self, facts: Facts, lock_timeout_s: float) -> list[Step]:
        del facts

        def run(_: Any) -> StepOutcome:
            self.runs.append(lock_timeout_s)
            return StepOutcome("added")

        return [Step("added", "it is needed", run, "add it", self.effect, 3, {"file": "x"})]


@pytest.mark.parametrize(
    ("wish", "changes", "added"),
    [
        ({}, {}, True),
        ({}, {OFFERS: []}, True),
        ({}, {"repository": None}, False),
        ({"prebuilt": True}, {}, False),
        ({"maximum_branch": 550}, {}, True),
        ({"maximum_branch": 549}, {}, False),
        ({"maximum_branch": 549, "version": ""}, {}, True),
        ({"headers": False}, {OFFERS: []}, True),
        ({"headers": False}, {}, False),
        ({"headers": False}, {OFFERS: [NEEDED]}, True),
        ({}, {OFFERS: ["nvidia-x 1 NVIDIA", "nvidia-y 1 Ubuntu"]}, False),
        ({}, {OFFERS: ["nvidia-x 1 developer.download.nvidia.com"]}, False),
    ],
)
def test_when_nvidias_repository_is_added(
    wish: dict[str, Any], changes: dict[str, Any], *, added: bool
) -> None:
    settings = {"repository": Added(), "lock_timeout_s": 7} | {
        key: value for key, value in changes.items() if key != OFFERS
    }
    host = facts("fresh", ROOT, **{OFFERS: changes.get(OFFERS, ["nvidia-x 1 Ubuntu"])})
    packages = DriverPackages(asked(**wish), **settings)
    if not added:
        with pytest.raises(HostError):
            packages.steps(host)
        return
    step = packages.steps(host)[0]
    what = "driver 550" if packages.wish.version else "a driver"
    reason = f"no repository that is known has {what} as a whole, and it is needed"
    assert told(step) == (reason, "add it", {"file": "x"}, 3, False)


@pytest.mark.parametrize("effect", [None, lambda _: True, lambda _: False])
def test_a_repository_is_added_only_if_the_new_lists_lack_the_driver(
    tmp_path: Path, effect: Callable[[Facts], bool] | None
) -> None:
    packages = DriverPackages(asked(), repository=Added(), lock_timeout_s=7)
    lacking = facts("fresh", tmp_path, **{OFFERS: ["nvidia-x 1 Ubuntu"]})
    having = facts("fresh", tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Added, "effect", effect and staticmethod(effect))
        patch.setattr(Added, "runs", [])
        step = packages.steps(lacking)[0]
        needless = run(step, having, tmp_path, Processes())
        assert (needless.message, Added.runs) == ("not needed: Ubuntu has driver 550.163.01", [])
        assert (run(step, lacking, tmp_path, Processes()).message, Added.runs) == ("added", [7])
    if effect is None:
        assert step.holds is None
    else:
        assert step.holds
        assert (step.holds(having), step.holds(lacking)) == (True, effect(lacking))


def test_debians_components_come_first(tmp_path: Path) -> None:
    host = facts("fresh", tmp_path, **{OFFERS: [], **DEBIAN})
    packages = DriverPackages(asked("535"), repository=Added(), non_free=True, lock_timeout_s=7)
    made = packages.steps(host)
    assert [step.name for step in made] == ["repository", "refresh", "driver", "exclude", "hold"]
    lead = "no repository that is known has driver 535 as a whole, and "
    assert all(step.reason.startswith(lead) for step in made[:2])
    processes = Processes()
    run(made[1], host, tmp_path, processes)
    assert "DPkg::Lock::Timeout=7 " in processes.commands[0]
    with pytest.raises(HostError, match="NonFree=true"):
        replace(packages, non_free=False, repository=None).steps(host)


@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        ({}, ""),
        ({"nvidia-dkms-550-server": NEW}, "nvidia-dkms-550-server"),
        ({"nvidia-dkms-550-server": OLD}, ""),
        ({"nvidia-dkms-535-server": "535.1.2-1"}, ""),
        ({"somebody-s-tool": "1"}, "somebody-s-tool"),
        (
            {"nvidia-dkms-535-server": "535.1.2-1", "somebody-s-tool": "1"},
            "nvidia-dkms-535-server, somebody-s-tool",
        ),
    ],
)
def test_only_packages_that_stay_are_repaired(tmp_path: Path, broken: dict[str, str], repaired: str) -> None:
    installed = {name: [version, "iF"] for name, version in broken.items()}
    host = facts("fresh", tmp_path, installed_packages=installed)
    repair = steps(host, LockTimeout=7).get("repair")
    assert (repair.reason if repair else "") == (
        f"an earlier installation was cut short: {repaired}" if repaired else ""
    )
    if repair:
        processes = Processes(output="Remv somebody-s-tool [1]\n")
        run(repair, host, tmp_path, processes)
        assert "DPkg::Lock::Timeout=7 " in processes.commands[1]


def test_the_half_installed_wait_for_the_lists(tmp_path: Path) -> None:
    broken = {"nvidia-dkms-535-server": ["535.1.2-1", "iF"]}
    host = facts("fresh", tmp_path, installed_packages=broken, apt_lists_age_s=None, **{OFFERS: []})
    assert list(steps(host, AddRepository=False))[:3] == ["update", "repair", "driver"]


def test_the_headers_of_the_running_kernel(tmp_path: Path) -> None:
    packages = DriverPackages(asked())
    command = [*APT_GET, "--no-remove", "install", "--no-install-recommends", HEADERS]
    assert packages.headers_command(facts("fresh", ROOT)) == command
    processes, host = Processes(), facts("fresh", tmp_path)
    replace(packages, lock_timeout_s=7).run_manager(context(host, tmp_path, processes), ["apt-get", "x"])
    assert processes.commands == ["apt-get --option=DPkg::Lock::Timeout=7 x"]
    with pytest.raises(HostError) as error:
        packages.headers_command(facts("fresh", ROOT, **{OFFERS: [HAS]}))
    assert (
        error.value.message
        == f"the driver has no module for the kernel {KERNEL}, and no repository has its headers"
    )
    assert error.value.remedy == f"install {HEADERS} by hand, or boot a kernel whose headers are offered"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("Remv a [1]\nPurg b:amd64 [1]\n", "driver 550.163.01 would remove a, b"),
        (
            "Inst c [1] (2 x)\nInst b [1] (2 x)\nInst free [1] (2 x)\n",
            "driver 550.163.01 would change what is held: b, c",
        ),
        ("Remv nvidia-utils-535 [1]\nInst nvidia-dkms-550-server (2 x)\nInst ours [1] (2 x)\n", ""),
    ],
)
def test_what_may_change_with_the_driver(tmp_path: Path, lines: str, message: str) -> None:
    held = ["b", "c", "ours", "nvidia-dkms-550-server"]
    ours = {f"text[{tmp_path}/etc/apt/apt.conf.d/52vcagent-nvidia]": '"^ours$";'}
    host = facts("fresh", tmp_path, held_packages=held, **ours)
    step, processes = steps(host, LockTimeout=7)["driver"], Processes(output=lines)
    if message:
        with pytest.raises(DependencyFailedError) as error:
            run(step, host, tmp_path, processes)
        assert error.value.message == message
        assert (
            error.value.remedy == "decide yourself: remove it or release it (apt-mark unhold), then run again"
        )
    else:
        assert run(step, host, tmp_path, processes).message == "driver 550.163.01 from Ubuntu"
    shown = step.command.replace("apt-get ", "apt-get --option=DPkg::Lock::Timeout=7 ", 1)
    assert processes.commands == [f"{shown} --simulate", shown][: 1 if message else 2]


def test_the_driver_waits_for_another_package_manager(tmp_path: Path) -> None:
    step = DriverPackages(asked(), lock_timeout_s=0).steps(facts("fresh", tmp_path))[0]
    busy = facts("fresh", tmp_path, package_lock=PackageLock(7, "apt", "/lock"))
    with pytest.raises(DependencyFailedError) as error:
        run(step, busy, tmp_path, Processes())
    assert error.value.message == "apt (process 7) has held /lock for more than 0 s"


@pytest.mark.parametrize(("module", "built"), [("550.163.01", True), ("550.90.07", False), (None, False)])
def test_a_module_that_was_not_built(tmp_path: Path, module: str | None, *, built: bool) -> None:
    host = facts("fresh", tmp_path, nvidia_module_file=module)
    host._modelled["dkms_builds"] = (ModuleBuild("nvidia", "550.163.01", "make.log", "error: it broke"),)
    step = steps(host)["driver"]
    if built:
        assert run(step, host, tmp_path, Processes()).message == "driver 550.163.01 from Ubuntu"
        return
    with pytest.raises(DependencyFailedError) as error:
        run(step, host, tmp_path, Processes())
    assert error.value.message == "the kernel module nvidia/550.163.01 could not be built: error: it broke"


def test_a_driver_that_is_gone_from_the_new_lists_is_refused_with_its_details(tmp_path: Path) -> None:
    step = steps(facts("fresh", tmp_path))["driver"]
    offers = [HAS, NEEDED]
    with pytest.raises(DependencyFailedError) as error:
        run(step, facts("fresh", tmp_path, **{OFFERS: offers}), tmp_path, Processes())
    assert error.value.message == "no repository has driver 550 as a whole for this host"
    assert error.value.remedy == POLICY
    assert (
        error.value.details[0]
        == "not 550.163.01 from Ubuntu (server packages, closed kernel module): no fabric manager 550.163.01"
    )


@pytest.mark.parametrize(
    ("held", "ours", "foreign"),
    [
        (
            ["nvidia-utils-550-server", "nvidia-dkms-550-server"],
            "",
            "nvidia-dkms-550-server nvidia-utils-550-server",
        ),
        (
            ["nvidia-utils-550-server", "nvidia-dkms-550-server"],
            '"^nvidia-utils-550-server$";',
            "nvidia-dkms-550-server",
        ),
        (["libc6", "nvidia-fabricmanager-570", "libnvidia-cfg1-570-server"], "", ""),
        (["nvidia-dkms-570-server"], "", "nvidia-dkms-570-server"),
    ],
)
def test_packages_that_somebody_holds(tmp_path: Path, held: list[str], ours: str, foreign: str) -> None:
    more = {
        "nvidia-fabricmanager-570": [NEXT, "ii"],
        "libnvidia-cfg1-570-server": ["570.1.2-1", "rc"],
        "nvidia-dkms-570-server": ["570.1.2-1", "ii"],
    }
    text = f"text[{tmp_path}/etc/apt/apt.conf.d/52vcagent-nvidia]"
    there = {name: [OLD, "ii"] for name in driver("550")} | more
    host = facts("healthy", tmp_path, installed_packages=there, held_packages=held, **{text: ours})
    if not foreign:
        assert "driver" in steps(host, LinuxDriverVersion="570")
        return
    with pytest.raises(HostError) as error:
        steps(host, LinuxDriverVersion="570")
    assert error.value.message == f"driver 570.86.15 would change packages that somebody holds: {foreign}"
    assert error.value.remedy == f"apt-mark unhold {foreign}, or ask for the version that is installed"


def test_a_held_package_that_would_get_another_release(tmp_path: Path) -> None:
    text = f"text[{tmp_path}/etc/apt/apt.conf.d/52vcagent-nvidia]"
    host = facts("healthy", tmp_path, held_packages=["nvidia-utils-550-server"], **{text: ""})
    with pytest.raises(HostError) as error:
        steps(host, LinuxDriverVersion="550.163.01")
    told = "driver 550.163.01 would change packages that somebody holds: nvidia-utils-550-server"
    assert error.value.message == told


def test_exclusions_and_holds_are_written_anew(tmp_path: Path) -> None:
    made = steps(facts("fresh", tmp_path), LockTimeout=7)
    installed = {name: [OLD, "ii"] for name in driver("550")} | {"linux-azure": ["6", "ii"]}
    after = facts("healthy", tmp_path, installed_packages=installed)
    for _ in range(2):
        assert run(made["exclude"], after, tmp_path, Processes()).message == "8 packages"
    processes = Processes()
    assert run(made["hold"], after, tmp_path, processes).message == "8 packages"
    assert processes.commands == [f"apt-mark hold {' '.join(driver('550'))}"]


def test_packages_in_the_drivers_version_that_are_offered_count() -> None:
    # A library of another version is a fault only if the driver's own version of it is offered.
    installed = {name: [OLD, "ii"] for name in driver("550")} | {"nvidia-settings": ["550.1.1-1", "ii"]}
    for version, wrong in ((OLD, ["nvidia-settings is 550.1.1, the driver 550.90.07"]), (NEW, [])):
        host = facts(
            "healthy", ROOT, installed_packages=installed, **{OFFERS: [f"nvidia-settings {version} Ubuntu"]}
        )
        assert DriverPackages(asked()).faults(host) == wrong


def test_the_packages_of_the_installed_driver_go_with_it() -> None:
    signed = "linux-modules-nvidia-550-server-open-{}"
    installed = {
        "libcuda1": ["550.90.07-1", "ii"],
        "nvidia-kernel-dkms": ["550.90.07-1", "ii"],
        signed.format(KERNEL): ["6", "ii"],
        signed.format("6.8.0-1-azure"): ["6", "ii"],
    }
    host = facts("fresh", ROOT, installed_packages=installed)
    command = steps(host)["driver"].command
    assert command.endswith(f" libcuda1- {signed.format(KERNEL)}- nvidia-kernel-dkms-")


def chosen_of(packages: DriverPackages, host: Facts) -> Candidate:
    found = packages.chosen(host)
    assert found
    return found


def test_packages_that_stay_are_held_with_those_that_come() -> None:
    installed = {name: [OLD, "ii"] for name in driver("550")} | {"nvidia-settings": ["550.1.1-1", "ii"]}
    host = facts("fresh", ROOT, installed_packages=installed)
    packages = DriverPackages(asked("550.163.01", display=True, fabric_manager=True))
    assert packages._coming_names(host) == {*driver("550"), "nvidia-settings"}
    gone = replace(packages, wish=asked("570", display=True, fabric_manager=True))
    assert gone._coming_names(host) == {*driver("570"), "nvidia-settings"} - {
        *gone._superseded(host, chosen_of(gone, host))
    }
