"""apt sources that exist already or are broken: the real apt reads them with the newly written ones."""

from __future__ import annotations

import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from agent.component.component import StepContext
from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts
from agent.facts.dkms import ModuleBuild, first_error, last_line
from agent.facts.repositories import conflicting_keys, deb822_repositories, one_line_repositories
from agent.host.processes import LocalProcesses
from dependencies.packages.apt import failed_sources, remedy_for, update_step
from dependencies.packages.apt_repository import AptRepositoryWish, require_readable_sources
from dependencies.packages.dnf import REMEDIES
from dependencies.packages.module_build import build_failure, build_remedy
from dependencies.packages.package_lock import remedy_among
from tests.dependencies.apt_lab import AptHost, apt_host
from tests.dependencies.conftest import Messages
from tests.dependencies.test_cases import facts_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from agent.host.processes import ProcessResult

needs_apt = pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt")
URI = "http://127.0.0.1:9/repository"


class OwnAptProcesses:
    """Runs apt with the lab's folders; see ``agent.host.processes.ProcessRunner``."""

    def __init__(self, host: AptHost, real: LocalProcesses) -> None:
        self.host = host
        self.real = real

    def run(
        self, command: Sequence[str], *, env: dict[str, str] | None = None, **options: Any
    ) -> ProcessResult:
        return self.real.run(command, env={**(env or {}), **self.host.environment}, **options)


def context_of(host: AptHost, tmp_path: Path) -> StepContext:
    stop = threading.Event()
    facts = Facts(host, {"package_lock": None, "apt_lists_age_s": 1})
    return StepContext(
        facts=facts,
        processes=OwnAptProcesses(host, LocalProcesses("test-sources", stop=stop)),  # type: ignore[arg-type]
        progress=Messages(),
        stop=stop,
        run_dir=tmp_path,
        package_dir=tmp_path,
        log=tmp_path / "step.log",
    )


def apt_says(host: AptHost) -> str:
    result = subprocess.run(
        ["apt-get", "indextargets"],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", **host.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stderr


@needs_apt
@pytest.mark.parametrize(
    ("name", "text", "signed_by"),
    [
        (
            "src.list",
            f"deb-src [signed-by=/usr/share/keyrings/x.gpg] {URI} stable main\n",
            "/usr/share/keyrings/x.gpg",
        ),
        ("zz-arch.list", f"deb [arch=arm64] {URI}/ stable main\n", ""),
        (
            "component.sources",
            f"Types: deb\nURIs: {URI}\nSuites: stable\nComponents: other\nSigned-By: /etc/y.asc\n",
            "/etc/y.asc",
        ),
    ],
)
def test_what_is_there_in_another_form_tells_the_key(
    tmp_path: Path, name: str, text: str, signed_by: str
) -> None:
    host = apt_host(tmp_path / "root")
    folder = host.root / "etc/apt"
    (folder / "sources.list.d" / name).write_text(text)
    wish = AptRepositoryWish("vcagent-x", URI, "stable", ("main",), "amd64", None, folder)
    facts = Facts(host, {"architecture": "x86_64"})
    written = next(step for step in wish.steps(facts, 1) if step.name == "repository")
    written.run(context_of(host, tmp_path))
    assert ("Signed-By" in wish.file.read_text()) is bool(signed_by)
    assert signed_by in wish.file.read_text()
    assert "Conflicting" not in apt_says(host)
    assert wish.steps(facts.fresh(), 1) == [], "it is adopted"

    wish.file.write_text(wish.text())  # with its own key, which must not happen
    assert "Conflicting values set for option Signed-By" in apt_says(host)
    with pytest.raises(HostError, match="apt cannot read its sources") as error:
        require_readable_sources(facts.fresh())
    assert "sources.list.d" in (error.value.remedy or "")


def test_a_key_that_is_written_into_the_file_of_another_entry(tmp_path: Path) -> None:
    text = f"Types: deb-src\nURIs: {URI}\nSuites: stable\nComponents: main\nSigned-By:\n -----BEGIN PGP\n"
    entries = deb822_repositories(text, "/etc/apt/sources.list.d/a.sources")
    facts = facts_of({"architecture": "x86_64"})
    facts._modelled["apt_repositories"] = entries
    wish = AptRepositoryWish("vcagent-x", URI, "stable", ("main",), "amd64", None, tmp_path)
    with pytest.raises(HostError, match="with a key of its own") as error:
        wish.steps(facts, 1)
    assert "a.sources" in (error.value.remedy or "")


def test_entries_that_differ_in_their_key() -> None:
    one = one_line_repositories("deb [signed-by=/a.gpg] https://x.example/y/ ./\n", "a.list")
    other = one_line_repositories("deb https://x.example/y /\n", "b.list")
    elsewhere = one_line_repositories("deb https://x.example/z /\n", "c.list")
    assert conflicting_keys([*one, *other]) == (one[0], other[0])
    assert conflicting_keys([*other, *one]) is None, "apt uses the first key"
    assert conflicting_keys([*one, *elsewhere]) is None
    assert conflicting_keys([*one, *one]) is None


@needs_apt
def test_a_broken_repository_does_not_stop_the_others(tmp_path: Path) -> None:
    host = apt_host(tmp_path / "root", "nvidia_ubuntu_580")
    (host.root / "etc/apt/sources.list.d/gone.list").write_text("deb [trusted=yes] file:/nowhere/at/all ./\n")
    outcome = update_step("old lists", 5).run(context_of(host, tmp_path))
    assert outcome
    assert "nowhere" in outcome.message
    (host.root / "etc/apt/sources.list").write_text("")
    with pytest.raises(DependencyFailedError):
        update_step("old lists", 5).run(context_of(host, tmp_path))


def test_which_repositories_could_be_read() -> None:
    lines = [
        "Hit:1 http://deb.debian.org/debian bookworm InRelease",
        "Err:2 https://gone.example/apt ./ InRelease",
        "E: The repository 'https://gone.example/apt ./ Release' does not have a Release file.",
    ]
    good, bad = failed_sources(lines)
    assert good == ["http://deb.debian.org/debian bookworm"]
    assert bad == ["https://gone.example/apt ./", "https://gone.example/apt"]


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (
            "E: Conflicting values set for option Signed-By regarding source https://x/ /: a.gpg != ",
            "remove one",
        ),
        (
            "E: Release file for https://x/InRelease is not valid yet (invalid for another 2h 15min 30s).",
            "clock",
        ),
        ("E: Release file for https://x/InRelease is expired (invalid since 3d).", "old mirror"),
        (
            "E: Repository 'https://x InRelease' changed its 'Label' value from 'a' to 'b'",
            "releaseinfo-change",
        ),
        (
            "E: The repository 'https://x focal Release' does not have a Release file.",
            "https://x has nothing",
        ),
        ("because: SHA1 is not considered secure since 2026-02-01T00:00:00Z", "debian13"),
        ("server certificate verification failed. CAfile: none", "inspects TLS"),
        ("dpkg: error: cannot open: Read-only file system", "writable again"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "apt-get clean"),
        ("The following signatures were invalid: EXPKEYSIG C45B1676A04EA552 NVIDIA", "renew the key"),
        (
            " nvidia-driver : Depends: nvidia-driver-bin (= 550.90.12-1) but 560.35.03-1 is to be installed",
            "pin it",
        ),
        ("Package nvidia-fabricmanager-580 is a virtual package provided by:", "nvidia-fabricmanager"),
        (
            "E: Can't select installed nor candidate version from package 'nvidia-imex-580' as",
            "580 on",
        ),
        ("E: Packages were downgraded and -y was used without --allow-downgrades.", "--allow-downgrades"),
        (
            (
                "E: Failed to fetch https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/"
                "Packages.gz  File has unexpected size (1797735 != 1778230). Mirror sync in progress?"
            ),
            "run again in some minutes",
        ),
        (
            (
                "trying to overwrite '/lib/udev/rules.d/71-nvidia.rules', which is also in package "
                "nvidia-kernel-common-418 418.56-0pop0"
            ),
            "apt-get remove nvidia-kernel-common-418",
        ),
        (
            (
                "E: Failed to fetch http://archive.ubuntu.com/ubuntu/pool/restricted/n/libnvidia-cfg1-535_535.129.03"
                "-0ubuntu0.22.04.1_amd64.deb  404  Not Found [IP: 91.189.91.81 80]"
            ),
            "apt-get update, then run again",
        ),
        ("Err:5 https://example.com/ubuntu noble Release\n  404  Not Found", "nothing for this release"),
    ],
)
def test_what_to_do_about_apt_s_words(output: str, told: str) -> None:
    assert told in remedy_for(output, "the log")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("nothing provides dkms needed by kmod-nvidia-latest-dkms-3:515.48.07-1.el8.x86_64", "epel-release"),
        ("nothing provides dkms >= 3.1.8 needed by kmod-nvidia-open-dkms-3:575.57.08-1", "3.1.8 or newer"),
        ("package nvidia-settings-3:580.65.06 is filtered out by modular filtering", "module reset"),
        ("All matches were filtered out by modular filtering for argument: cuda-drivers", "module reset"),
        ("package kernel-core-4.18.0-372.16.1.el8_6.x86_64 is filtered out by exclude filtering", "exclude="),
        (
            "NVIDIA driver: filtering kernel 4.18.0-553, no precompiled modules available for version",
            "exclude=",
        ),
        ("package a conflicts with kmod-nvidia-open-dkms provided by b", "--allowerasing"),
        (
            "Curl error (60): SSL certificate problem: self signed certificate in certificate chain",
            "inspects TLS",
        ),
        ("OSError: [Errno 30] Read-only file system: '/var/cache/dnf'", "writable again"),
        (
            (
                "Error: Transaction test error:\n  file /etc/X11/xorg.conf.d/10-nvidia.conf conflicts "
                "between attempted installs of xorg-x11-nvidia-3:560.35.03-2.el9.x86_64 and "
                "nvidia-driver-3:560.35.03-1"
            ),
            "xorg-x11-nvidia-3:560.35.03-2.el9.x86_64 and nvidia-driver-3:560.35.03-1 come from repositories",
        ),
        (
            (
                "  file /usr/lib/udev/rules.d/60-nvidia.rules from install of nvidia-kmod-common-3:440.95.01"
                "-1.noarch conflicts with file from package xorg-x11-drv-nvidia-3:440.82-1.x86_64"
            ),
            "xorg-x11-drv-nvidia-3:440.82-1.x86_64 owns /usr/lib/udev/rules.d/60-nvidia.rules",
        ),
        (
            (
                "  - Status code: 404 for https://example.com/fedora45/x86_64/repodata/repomd.xml (IP: 1.2)\n"
                "Error: Failed to download metadata for repo 'cuda': Cannot download repomd.xml"
            ),
            "does not have https://example.com/fedora45/x86_64/repodata/repomd.xml",
        ),
        ("Downloading successful, but checksum doesn't match. Calculated: 1(sha256)", "clean metadata"),
        ("error: %prein(broken-1-1.noarch) scriptlet failed, exit status 1", "package broken-1-1.noarch"),
        ("Error in PREIN scriptlet in rpm package broken", "a script of the package broken failed"),
        ("Error: This command has to be run with superuser privileges (under the root user).", "as root"),
        # dnf 5.4.6
        (">>> [RPM] %post(broken-1-1.noarch) scriptlet failed, exit status 1", "package broken-1-1.noarch"),
        ("  - nothing provides dkms >= 3.1.8 needed by a-1.0-1.noarch from f", "3.1.8 or newer"),
        ("Argument 'nvidia-driver' matches only excluded packages.", "exclude="),
        ("Argument 'lockme-0:2.0-1' matches only packages excluded by versionlock.", "versionlock delete"),
        ("Failed to resolve the transaction:\nNo match for argument: no-such", "has no-such"),
        ('OpenPGP check for package "a-1" (/a.rpm) from repo "g" has failed: not signed.', "renew the key"),
        (
            'Failed to download metadata for "g": GPG verification is enabled, but GPG signature is missing',
            "renew the key",
        ),
        (
            'Failed to download metadata for repository "g": Usable URL not found',
            "reaches its package mirror",
        ),
    ],
)
def test_what_to_do_about_dnf_s_words(output: str, told: str) -> None:
    assert told in (remedy_among(REMEDIES, output) or "")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/bin/sh: line 1: g++: command not found", "C++ compiler"),
        (
            "error: implicit declaration of function 'dma_buf_attachment_is_dynamic'",
            "too old for this kernel",
        ),
        ("gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'", "built the kernel"),
        ("*** Failed CC sanity check. Bailing out! ***", "built the kernel"),
        ("*** Unable to find the kernel source tree: kernel headers could not be found", "headers"),
        ("fatal error: error writing to /tmp/x.s: No space left on device", "free some space"),
        ("*** Failed PREEMPT_RT sanity check. Bailing out! ***", "without PREEMPT_RT"),
        (
            "FATAL: modpost: GPL-incompatible module nvidia.ko uses GPL-only symbol 'rcu_read_unlock_strict'",
            "keeps a symbol from this driver",
        ),
    ],
)
def test_the_first_error_of_a_build_is_told(line: str, told: str) -> None:
    text = f" CONFTEST: error_injection\n  CC [M]  nvidia/nv.o\n{line}\nmake: *** [modules] Error 2\n"
    assert first_error(text) == line
    assert told in (build_remedy(line) or "")
    facts = facts_of({})
    log = "/var/lib/dkms/nvidia/550.90.07/build/make.log"
    facts._modelled["dkms_builds"] = (ModuleBuild("nvidia", "550.90.07", log, line),)
    failure = build_failure(facts)
    assert failure
    compiling = " gcc-12 -O2 -c -o /b/nvidia/nv.o /b/nvidia/nv.c ; ./objtool /b/nv.o\n"
    assert last_line(compiling) == "compiling nv.c"
    assert last_line(" CONFTEST: error_injection\n\n") == "CONFTEST: error_injection"
    assert line in failure[0]
    assert build_failure(facts_of({})) is None
