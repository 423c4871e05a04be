"""OpenPGP keyrings: reads the fingerprints in a file without gpg (which a minimal host lacks)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.facts.base import Fact, Host

if TYPE_CHECKING:
    from pathlib import Path

_SIGNATURE, _PUBLIC_KEY = 2, 6
_MARKER = 0x80
_NEW_FORMAT = 0x40


@dataclass(frozen=True)
class Keyring:
    """Content of a keyring file.

    Args:
        fingerprints: the fingerprints of its primary keys, in upper-case hexadecimal digits.
        problem: why it is not a keyring; empty if it is.
    """

    fingerprints: frozenset[str] = frozenset()
    problem: str = ""


def plain_fingerprint(text: str) -> str:
    """Return a fingerprint in the form for comparisons: without blanks, in upper case."""
    return re.sub(r"\s|^0x", "", text).upper()


def unarmored(data: bytes) -> bytes:
    """Return the bytes of a key, decoded if it is in text form (RFC 9580, section 6).

    Raises:
        ValueError: if the text form is cut short or damaged.
    """
    if b"-----BEGIN PGP" not in data[:1024]:
        return data
    blocks = re.findall(
        rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", data, re.DOTALL
    )
    if not blocks:
        raise ValueError("it is cut short: the end of the key is missing")
    keys = b""
    for block in blocks:
        body = re.sub(rb"^.*?\r?\n\r?\n", b"", block, count=1, flags=re.DOTALL)
        lines = [line.strip() for line in body.splitlines() if not line.startswith(b"=")]
        try:
            keys += base64.b64decode(b"".join(lines), validate=True)
        except binascii.Error as error:
            raise ValueError(f"its text is damaged: {error}") from error
    return keys


def keyring(data: bytes) -> Keyring:
    """Read a keyring, binary or text.

    The fingerprint of a version 4 key is the SHA-1 of 0x99, the length and the packet
    (RFC 9580, section 5.5.4.2).
    """
    found = set()
    try:
        data = unarmored(data)
        position = tag = 0
        while position < len(data):
            tag, body, position = _packet(data, position)
            if tag == _PUBLIC_KEY:
                if body[:1] != b"\x04":
                    raise ValueError(f"it holds a key of version {body[0] if body else '?'}, not 4")
                digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)  # noqa: S324 - as the RFC says
                found.add(digest.hexdigest().upper())
        if found and tag != _SIGNATURE:  # what binds the last name or subkey to the key
            raise ValueError("it is cut short: a signature is missing at its end")
    except (ValueError, IndexError) as error:
        return Keyring(problem=str(error))
    return Keyring(frozenset(found)) if found else Keyring(problem="it holds no public key")


def _packet(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Return tag and body of the packet at a position, and the next position (RFC 9580, section 4.2)."""
    header = data[position]
    if not header & _MARKER:
        raise ValueError("it is not OpenPGP data")
    if header & _NEW_FORMAT:
        tag, first = header & 0x3F, data[position + 1]
        if first < 192:  # noqa: PLR2004 - one octet
            start, length = position + 2, first
        elif first < 224:  # noqa: PLR2004 - two octets
            start, length = position + 3, ((first - 192) << 8) + data[position + 2] + 192
        elif first == 255:  # noqa: PLR2004 - five octets
            start, length = position + 6, int.from_bytes(data[position + 2 : position + 6], "big")
        else:
            raise ValueError("a key in pieces is not supported")
    else:
        tag, size = (header & 0x3C) >> 2, 1 << (header & 3)
        start = position + 1 + size
        length = int.from_bytes(data[position + 1 : start], "big")
    if start + length > len(data):
        raise ValueError("it is cut short")
    return tag, data[start : start + length], start + length


def keyring_of(path: Path) -> Fact[Keyring | None]:
    """Return the fact of one keyring file; None if it cannot be read."""

    def read(host: Host) -> Keyring | None:
        text = host.output(["base64", "--", str(path)])
        return None if text is None else keyring(base64.b64decode(text))

    return Fact(f"keyring[{path}]", str(path), read)
