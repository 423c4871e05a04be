"""Messages of the driver and its services when they do not start, from public reports, with remedies."""

from __future__ import annotations

import pytest

from agent.facts.kernel_headers import rpm_headers
from agent.facts.rpm_offers import repoquery
from dependencies.nvidia.failures import driver_remedy
from dependencies.packages.package_lock import remedy_among
from dependencies.packages.zypper import REMEDIES


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "mokutil --import"),
        ("Loading of module with unavailable key is rejected", "mok.pub"),
        (
            "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.17.0-41-generic",
            "no module was built for the kernel 6.17.0-41-generic",
        ),
        ("NVRM: installed in this system is not supported by open", "OpenSourceDriver=false"),
        ("modprobe: ERROR: could not insert 'nvidia': Exec format error", "built for another kernel"),
        ("nvidia: disagrees about version of symbol module_layout", "dkms autoinstall"),
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x1a:2631)", "OpenSourceDriver=true"),
        ("Failed to initialize NVML: Driver/library version mismatch", "reboot"),
        (
            (
                "nv-fabricmanager[3228]: fabric manager NVIDIA GPU driver interface version 530.30.02 don't "
                "match with driver version 530.41.03. Please update with matching NVIDIA driver package."
            ),
            "the fabric manager is 530.30.02 and the driver 530.41.03",
        ),
        (
            (
                "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING "
                "Nothing to do [NV_WARN_NOTHING_TO_DO]"
            ),
            "no NVSwitch",
        ),
        ("Error 802: system not yet initialized (Triggered internally at CUDAFunctions.cpp:109.)", "fabricm"),
    ],
)
def test_what_to_do_about_the_driver_s_words(said: str, told: str) -> None:
    assert told in (driver_remedy(said) or "")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Solution 1: install libsodium23-1.0.18-lp151.78.1.x86_64 (with vendor change)",
            "--allow-vendor-change",
        ),
        (
            (
                "conflicts with 'kernel-firmware-nvidia-gsp-G06.x86_64 < 535.54.03-150400.9.13.1' provided "
                "by the installed kernel-firmware-nvidia-gsp-G06-525.105.17-150400.9.5.1.x86_64"
            ),
            "kernel-firmware-nvidia-gsp-G06 must change with the driver",
        ),
        ("Download (curl) error: SSL certificate problem: self signed certificate", "inspects TLS"),
        (
            "error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Read-only file system)",
            "read-only",
        ),
        ("Valid metadata not found at specified URL", "nothing for this release"),
        (
            (
                "file /usr/bin/nvidia-modprobe conflicts between attempted installs of "
                "nvidia-modprobe-3:495.29.05-1.x86_64 and nvidia-modprobe-latest-3:495.29.05-1.x86_64"
            ),
            "repositories that do not go together",
        ),
        ("warning: %post(broken-1-1.noarch) scriptlet failed, exit status 1", "package broken-1-1.noarch"),
    ],
)
def test_what_to_do_about_zypper_s_words(said: str, told: str) -> None:
    assert told in (remedy_among(REMEDIES, said) or "")


@pytest.mark.parametrize(
    ("kernel", "package"),
    [
        ("5.14.0-503.14.1.el9_5.x86_64", "kernel-devel-5.14.0-503.14.1.el9_5.x86_64"),
        ("5.14.0-503.14.1.el9_5.aarch64+64k", "kernel-64k-devel-5.14.0-503.14.1.el9_5.aarch64"),
        ("5.15.0-304.171.4.el9uek.x86_64", "kernel-uek-devel-5.15.0-304.171.4.el9uek.x86_64"),
        ("6.1.155-176.282.amzn2023.x86_64", "kernel-devel-6.1.155-176.282.amzn2023.x86_64"),
        ("6.12.40-64.114.amzn2023.x86_64", "kernel6.12-devel-6.12.40-64.114.amzn2023.x86_64"),
    ],
)
def test_headers_are_those_of_the_kernel_s_flavour(kernel: str, package: str) -> None:
    """Offer headers under the name that is requested."""
    assert rpm_headers(kernel) == package
    release, _, machine = kernel.partition("+")[0].rpartition(".")
    name = package.removesuffix(f"-{release}.{machine}")
    (offer,) = repoquery(f"{name}\t0:{release}\t{machine}\trepository", {})
    assert offer.name == package
