"""Errors of the driver, its module and its services, with their remedies.

The texts are from public reports; the module's own are in the kernel's log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dependencies.packages.package_lock import remedy_among

if TYPE_CHECKING:
    from agent.component.component import StepContext

_LINES = 40

_REMEDIES = (
    (
        r"Key was rejected by service|unavailable key is rejected|PKCS#7 signature not signed",
        (
            "Secure Boot refuses its signature: enrol the key that signed it (mokutil --import "
            "/var/lib/shim-signed/mok/MOK.der on Ubuntu, /var/lib/dkms/mok.pub elsewhere; confirm at the "
            "console), "
            "take KernelModule=prebuilt, or turn Secure Boot off"
        ),
    ),
    (
        r"Module nvidia not found in directory /lib/modules/(\S+)",
        "no module was built for the kernel {0}: install its headers, then dkms autoinstall",
    ),
    (
        r"Invalid module format|Exec format error|disagrees about version of symbol|version magic",
        (
            "the module was built for another kernel: reboot into the newest one, or rebuild it for this one "
            "(dkms autoinstall; SUSE: reinstall its kmp package)"
        ),
    ),
    (
        r"installed in this system is not supported by open",
        "this GPU needs the closed kernel module (OpenSourceDriver=false), and a driver of 580 at most",
    ),
    (
        r"RmInitAdapter failed! \(0x62:0x1a",
        "this GPU needs the open kernel module: OpenSourceDriver=true",
    ),
    (
        r"API mismatch|[Dd]river/library version mismatch",
        "the loaded module is not of the installed libraries' version: reload the modules, or reboot",
    ),
    (
        r"interface version (\S+) don'?t match with driver version (\S+?)\.?(?:\s|$)",
        "the fabric manager is {0} and the driver {1}: install the one of the driver's full version",
    ),
    (
        r"NV_WARN_NOTHING_TO_DO",
        "this host has no NVSwitch: FabricManager=false, and systemctl disable nvidia-fabricmanager",
    ),
    (
        r"Error 802|system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY",
        (
            "the NVSwitches are not set up: start nvidia-fabricmanager (with NVLink 5 also its subnet "
            "manager), see nvidia-smi -q | grep -A2 Fabric"
        ),
    ),
)


def driver_remedy(text: str) -> str | None:
    """Return the remedy for the output of the driver or its services; None if unknown."""
    return remedy_among(_REMEDIES, text)


def kernel_words(context: StepContext) -> tuple[str, ...]:
    """Return the last messages of NVIDIA's module and of the signature check in the kernel's log."""
    said = context.processes.run(["dmesg"], log=context.log, check=False).stdout.splitlines()
    told = [line for line in said if "NVRM" in line or "nvidia" in line.lower() or "PKCS#7" in line]
    return tuple(told[-_LINES:])
