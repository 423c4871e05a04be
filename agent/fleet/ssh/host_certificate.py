"""Verifies host certificates of servers (OpenSSH, PROTOCOL.certkeys)."""

from __future__ import annotations

import base64
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.hazmat.primitives.serialization.ssh import (
    SSHCertificate,
    SSHCertificateType,
    load_ssh_public_identity,
)
from paramiko import Message

if TYPE_CHECKING:
    from collections.abc import Iterable


def certificate_problem(
    blob: bytes, name: str, authorities: Iterable[bytes], now_s: float | None = None
) -> str:
    """Return the reason why a certificate is not valid for a server; empty if it is valid.

    Args:
        blob: the certificate as received.
        name: the server's name.
        authorities: the public keys of the authorities that are trusted for this server.
        now_s: the time in seconds since 1970; the current time by default.
    """
    try:
        text = Message(blob).get_text().encode() + b" " + base64.b64encode(blob)
        certificate = load_ssh_public_identity(text)
        if not isinstance(certificate, SSHCertificate) or certificate.type is not SSHCertificateType.HOST:
            return "its certificate is not a host certificate"
        signer = certificate.signature_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        if base64.b64decode(signer.split()[1]) not in authorities:
            return "its certificate is from an authority that is not trusted for it"
        certificate.verify_cert_signature()
        return _unfit(certificate, name, time.time() if now_s is None else now_s)
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        return f"its certificate is not authentic: {error or type(error).__name__}"


def _unfit(certificate: SSHCertificate, name: str, now_s: float) -> str:
    """Return the reason why an authentic certificate is not valid for a server now."""
    if not certificate.valid_after <= now_s < certificate.valid_before:
        return "its certificate has expired or is not valid yet"
    principals = [principal.decode(errors="replace") for principal in certificate.valid_principals]
    if principals and not any(fnmatchcase(name, principal) for principal in principals):
        return f"its certificate is for {', '.join(principals)}"
    if certificate.critical_options:
        return "its certificate has unknown options"
    return ""
