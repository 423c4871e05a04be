"""Reads the public parts of keys and certificates in OpenSSH's files."""

from __future__ import annotations

import base64
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate, load_ssh_public_identity
from paramiko import Message
from paramiko.pkey import PublicBlob

_MAGIC = b"openssh-key-v1\0"


def public_part(file: str) -> bytes | None:
    """Return the public key of an identity file: from the .pub file beside it, or from the file itself.

    Args:
        file: a private or a public key.
    """
    for path in (f"{file}.pub", file):
        with suppress(OSError, ValueError):
            if found := _public_key(Path(path).read_bytes()):
                return found
    return None


def _public_key(data: bytes) -> bytes | None:
    """Return the public key in a file, if it has one (OpenSSH, PROTOCOL.key)."""
    if not data.startswith(b"-----"):
        return PublicBlob.from_string(data.decode()).key_blob
    body = Message(base64.b64decode(b"".join(data.split(b"-----")[2].split())))
    if body.get_bytes(len(_MAGIC)) != _MAGIC:
        return None
    for _ in range(3):  # cipher, key derivation and its options
        body.get_string()
    return body.get_string() if body.get_int() == 1 else None


def certified_key(file: str) -> bytes | None:
    """Return the public key that a certificate belongs to; None if the file is not a certificate."""
    try:
        certificate = load_ssh_public_identity(Path(file).read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm):
        return None
    if not isinstance(certificate, SSHCertificate):
        return None
    public = certificate.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return base64.b64decode(public.split()[1])
