"""Secure Boot, and whether this host's own module key is enrolled."""

from __future__ import annotations

import re

from agent.facts.base import Fact, Host

_VARIABLES = "/sys/firmware/efi/efivars"
_VARIABLE = f"{_VARIABLES}/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_KEYS = (
    "/var/lib/shim-signed/mok/MOK.der",  # Ubuntu: dkms signs with it (update-secureboot-policy)
    "/var/lib/dkms/mok.pub",  # Debian and dkms itself (dkms.conf: mok_certificate)
)


def sb_state(text: str | None) -> bool | None:
    """Return the state in the output of ``mokutil --sb-state``, or None if unknown."""
    match = re.search(r"SecureBoot (enabled|disabled)", text or "")
    return match.group(1) == "enabled" if match else None


def efi_variable(text: str | None) -> bool | None:
    """Return an EFI variable's last byte as a truth value: four bytes of attributes precede it (efivarfs)."""
    return None if not text else text[-1] == "\x01"


def key_enrolled(text: str | None) -> bool | None:
    """Read the output of ``mokutil --test-key``: ``is already enrolled`` or ``is not enrolled``."""
    match = re.search(r"is (already|not) enrolled", text or "")
    return match.group(1) == "already" if match else None


def _secure_boot(host: Host) -> bool | None:
    told = sb_state(host.output(["mokutil", "--sb-state"]))
    if told is None:
        told = efi_variable(host.text(_VARIABLE))
    if told is None and "kernel" in host.names("/sys") and not host.names("/sys/firmware/efi"):
        return False  # booted by BIOS: no Secure Boot
    return told


def _enrolled(host: Host) -> bool | None:
    # mokutil ends with 1 if the key is enrolled.
    command = 'for key; do [ -e "$key" ] && mokutil --test-key "$key"; done; :'
    return key_enrolled(host.output(["sh", "-c", command, "sh", *_KEYS]))


SECURE_BOOT: Fact[bool | None] = Fact("secure_boot", "mokutil --sb-state, efivars", _secure_boot)
MODULE_KEY_ENROLLED: Fact[bool | None] = Fact("module_key_enrolled", "mokutil --test-key", _enrolled)
