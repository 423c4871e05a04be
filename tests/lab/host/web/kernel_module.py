"""A kernel module in name only: an ELF object that modinfo and depmod read, but no kernel would load."""

from __future__ import annotations

import struct

__all__ = ["kernel_module"]

_HEADER = 64
_STRTAB = 3
_PROGBITS = 1


def kernel_module(name: str, version: str, licence: str) -> bytes:
    """Return the bytes of ``<name>.ko`` with a version and a licence (elf(5), modinfo(8)).

    Args:
        name: the module's name.
        version: the output of ``modinfo -F version``.
        licence: ``NVIDIA`` for the closed flavour, ``Dual MIT/GPL`` for the open one.
    """
    facts = {"version": version, "license": licence, "name": name, "depends": "", "vermagic": "lab SMP"}
    info = b"".join(f"{key}={value}\0".encode() for key, value in facts.items())
    names = b"\0.modinfo\0.shstrtab\0"
    body = info + names
    body += bytes(-len(body) % 8)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, _HEADER + len(body), 0, _HEADER, 0, 0, _HEADER, 3, 2
    )
    sections = bytes(_HEADER)
    for name_offset, kind, offset, size in (
        (names.index(b".modinfo"), _PROGBITS, _HEADER, len(info)),
        (names.index(b".shstrtab"), _STRTAB, _HEADER + len(info), len(names)),
    ):
        sections += struct.pack("<IIQQQQIIQQ", name_offset, kind, 0, 0, offset, size, 0, 0, 1, 0)
    return header + body + sections
