"""Downloads one large file: resumed after an interruption, verified, and complete or absent."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.counts import count_of
from agent.core.errors import DependencyFailedError, InterruptedRunError
from agent.core.safe_files import make_folder, open_file, replace_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.component.component import StepContext

_BLOCK_BYTES = 1 << 20
_TIMEOUT_S = 60
_ATTEMPTS = 6
_LENGTHS = {32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}
_NOT_SATISFIABLE = 416
_PARTIAL = 206
_LISTING_BYTES = 1 << 20


@dataclass(frozen=True)
class Checksum:
    """The expected checksum of a file.

    Args:
        algorithm: the algorithm, such as ``md5`` or ``sha256``.
        digest: the digest in hexadecimal, lower case.
    """

    algorithm: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Checksum:
        """Parse ``sha256:…``, or a digest alone, whose length determines the algorithm.

        Raises:
            ValueError: if the text has another form.
        """
        algorithm, _, digest = text.strip().lower().rpartition(":")
        if not re.fullmatch(r"[0-9a-f]+", digest) or len(digest) not in _LENGTHS:
            raise ValueError(f"{text!r} is not a checksum: write md5:… or sha256:…")
        if algorithm and algorithm != _LENGTHS[len(digest)]:
            raise ValueError(f"{text!r} is not a {algorithm} checksum: it has {len(digest)} digits")
        return cls(_LENGTHS[len(digest)], digest)

    def check(self, path: Path, context: StepContext) -> None:
        """Compare the checksum with a file's content.

        Raises:
            DependencyFailedError: if they differ.
            InterruptedRunError: if the run is interrupted.
        """
        digest = hashlib.new(self.algorithm, usedforsecurity=False)
        size, done = path.stat().st_size, 0
        with path.open("rb") as file:
            while block := file.read(8 * _BLOCK_BYTES):
                if context.stop.is_set():
                    raise InterruptedRunError(f"told to stop while {path.name} was checked")
                digest.update(block)
                done += len(block)
                context.progress.update(f"checking {path.name}", done=done, total=size)
        if digest.hexdigest() != self.digest:
            raise DependencyFailedError(
                f"{path.name} is not what was published: its {self.algorithm} is {digest.hexdigest()}, "
                f"not {self.digest}",
                remedy="run again to fetch it; if the error returns, correct the checksum or the address",
            )


def download(
    url: str,
    path: Path,
    checksum: Checksum | None,
    context: StepContext,
    *,
    check_space: Callable[[int], None] = lambda _size: None,
    pause_s: float = 2.0,
) -> None:
    """Fetch a file; continue a partial download, which is kept in ``<name>.part``.

    Args:
        url: the HTTP address.
        path: the file; it is created by renaming when it is complete and correct.
        checksum: the expected checksum; None if unknown.
        context: the context of the step.
        check_space: called with the number of bytes to come before the first is written, if the server sends
            it.
        pause_s: seconds before the second attempt; doubled for each further one.

    Raises:
        DependencyFailedError: if the server refuses, the connection breaks repeatedly, or the content is
            wrong; wrong content is deleted.
        InterruptedRunError: if the run is interrupted.
    """
    make_folder(path.parent)
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, _ATTEMPTS + 1):
        before = _size(part)
        try:
            _fetch(url, part, context, check_space)
            break
        except (OSError, http.client.HTTPException) as error:
            reason = _refusal(url, error)
            if reason or attempt == _ATTEMPTS:
                raise DependencyFailedError(
                    reason or f"{url} broke off {count_of(attempt, 'time')}: {error}",
                    remedy="see whether this host reaches it (proxy, route, DNS), then run again: what has "
                    "arrived is kept",
                ) from error
            gained = _size(part) - before
            context.progress.update(f"the connection broke after {gained} bytes: {error}; trying again")
            if context.stop.wait(pause_s * 2 ** (attempt - 1)):
                raise InterruptedRunError(f"told to stop while {path.name} was fetched") from error
    if checksum:
        try:
            checksum.check(part, context)
        except DependencyFailedError:
            part.unlink()
            _validator(part).unlink(missing_ok=True)
            raise
    part.replace(path)
    _validator(part).unlink(missing_ok=True)


def published_checksum(url: str, name: str) -> Checksum:
    """Return the checksum of a file in a list such as NVIDIA's ``md5sum.txt``.

    Raises:
        DependencyFailedError: if the list cannot be read or does not have the file.
    """
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked by the caller
            text = answer.read(_LISTING_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise DependencyFailedError(
            f"the published checksums cannot be read: {url}: {error}",
            remedy="give Checksum, or the address of a list in Md5sumUri",
        ) from error
    for line in text.splitlines():
        digest, *names = line.split()[:2] or [""]
        if names and names[0].lstrip("*").rpartition("/")[2] == name:
            return Checksum.parse(digest)
    raise DependencyFailedError(f"{url} has no checksum of {name}", remedy="give Checksum")


def _fetch(url: str, part: Path, context: StepContext, check_space: Callable[[int], None]) -> None:
    """Fetch the missing part of a file.

    Raises:
        OSError, http.client.HTTPException: if the connection breaks or the server refuses.
    """
    have = _size(part)
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})  # noqa: S310 - likewise
    tag = _validator(part)
    if have and tag.exists():
        # If the file has changed since, the server sends all of it.
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", tag.read_text(encoding="utf-8"))
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310 - likewise
    except urllib.error.HTTPError as error:
        if error.code == _NOT_SATISFIABLE:  # the local part is larger than the server's file
            part.unlink()
        raise
    with answer:
        resumed = answer.status == _PARTIAL and _range_start(answer.headers.get("Content-Range")) == have
        if not resumed:
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        if total:
            check_space(total - have)
        _note_validator(tag, answer.headers)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if resumed else os.O_TRUNC)
        with os.fdopen(open_file(part, flags), "ab" if resumed else "wb") as file:
            while block := answer.read(_BLOCK_BYTES):
                if context.stop.is_set():
                    raise InterruptedRunError(f"told to stop while {url} was fetched")
                file.write(block)
                have += len(block)
                message = f"fetching {part.stem} ({have >> 20} MiB)"
                context.progress.update(message, done=have if total else None, total=total)
            file.flush()
            os.fsync(file.fileno())
        if total is not None and have < total:
            raise ConnectionError(f"{total - have} bytes are missing")


def _note_validator(tag: Path, headers: http.client.HTTPMessage) -> None:
    """Store the identity of the file's version: a strong ETag, or its last change (RFC 9110, 13.1.5)."""
    etag = headers.get("ETag")
    validator = etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
    if validator:
        replace_text(tag, validator)
    else:
        tag.unlink(missing_ok=True)


def _range_start(content_range: str | None) -> int | None:
    match = re.match(r"bytes (\d+)-", content_range or "")
    return int(match.group(1)) if match else None


def _refusal(url: str, error: Exception) -> str:
    """Return a permanent error; empty for an error that may not occur again."""
    if isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500:  # noqa: PLR2004 - client errors
        if error.code in (_NOT_SATISFIABLE, 408, 429):
            return ""
        return f"{url} answers {error.code} {error.reason}"
    no_space = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return f"no space is left for {url}" if no_space else ""


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _validator(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")
