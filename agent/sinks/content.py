"""A run's files in a content store, each with VirtualClient's manifest: ``--sink content:URL``.

The files are sent after the run to ``URL/{experiment}/{client}/{run}/{path}``. Each manifest is sent after
its file, so that the existence of a manifest means that the file is complete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mimetypes
import os
import tempfile
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from typing_extensions import override

from agent.sinks.base import Piece, RecordsRefusedError, Sink
from agent.sinks.remote_files import RemoteFolder
from agent.sinks.settings import parse_settings
from agent.store.documents import RunDocument
from agent.store.results import JOURNAL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.core.records import MetricRecord
    from agent.sinks.opening import SinkContext
    from agent.store.documents import CasePart

_MEMORY_BYTES = 1 << 24
_MANIFEST = ".manifest.json"
_LOOKED_AT_BYTES = 8192
_REFUSED = frozenset({400, 405, 411, 413, 414, 415, 422, 431})
"""HTTP's statuses of a request that fails again. Not 401, 403, 404: a login or a container may be missing."""
_REFUSED_BY_FILES = frozenset({errno.ENAMETOOLONG, errno.EFBIG})


class ContentSink(Sink):
    """A content store.

    Args:
        folder: the folder in the store.
        context: the run.
    """

    batch = 1_000_000

    def __init__(self, folder: RemoteFolder, context: SinkContext) -> None:
        self.name = f"content {folder.name}"
        self._folder = folder
        self._context = context

    @override
    def write(self, records: list[MetricRecord], position: int) -> int:
        """Take no records: they are in the files that are sent at the end."""
        return position + len(records)

    @override
    def pieces(self) -> Iterator[Piece]:
        run_dir = self._context.run_dir
        run = RunDocument.read(run_dir)
        for path in sorted(run_dir.rglob("*")):
            # A name that is not UTF-8 is written with escapes: neither a store nor the journal holds it.
            name = os.fsencode(path.relative_to(run_dir)).decode("utf-8", "backslashreplace")
            if name.startswith((JOURNAL, ".")) or path.is_symlink() or not path.is_file():
                continue
            if path.stat().st_size:
                yield Piece(name, partial(self._send, run, path, name))

    def _send(self, run: RunDocument, path: Path, name: str) -> None:
        """Send a file, then its manifest.

        Raises:
            RecordsRefusedError: if this account cannot read the file, or the store will never take it.
        """
        place = f"{run.experiment_id}/{run.client_id}/{run.run_id}/{name}".lower()
        try:
            source = path.open("rb")
        except OSError as error:
            raise RecordsRefusedError(f"it cannot be read: {error.strerror}") from error
        with source as file, tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as clean:
            stream = cast("BinaryIO", clean)
            size, digest = _masked_copy(file, stream, self._context.mask)
            stream.seek(0)
            with _refusals():
                self._folder.put_stream(place, stream)
        manifest = self._manifest(run, path, name, place)
        manifest |= {"fileSizeBytes": size, "sha256": digest}
        text = json.dumps(manifest, indent=2) + "\n"
        # VirtualClient replaces the extension. It is kept here: x.log and x.csv would share a manifest.
        with _refusals():
            self._folder.put(f"{place}{_MANIFEST}", text.encode())

    def _manifest(self, run: RunDocument, path: Path, name: str, place: str) -> dict[str, Any]:
        """Return VirtualClient's manifest (Contracts/FileUploadDescriptorFactory.cs)."""
        created = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
        case = _case_of(run, name)
        values: dict[str, Any] = {
            "experimentId": run.experiment_id,
            "agentId": run.client_id,
            "appHost": run.client_id,
            "role": None,
            "platform": self._context.host.get("platform"),
            "toolName": case.tool_name if case else "vcagent",
            "toolArguments": None,
            "scenario": case.scenario if case else None,
            "blobPath": place,
            "blobContainer": self._folder.name,
            "contentType": mimetypes.guess_type(name)[0] or "application/octet-stream",
            "contentEncoding": "utf-8",
            "fileName": name.rpartition("/")[2],
            "fileCreationTime": created.isoformat(),
            "fileCreationTimeUtc": created.isoformat(),
            "runId": run.run_id,
        }
        added = {
            key: value
            for key, value in (*run.profile.parameters.items(), *run.metadata.items())
            if isinstance(value, (str, int, float, bool)) and (key not in values or key in run.metadata)
        }
        return {key: value for key, value in {**values, **added}.items() if value is not None}


@contextmanager
def _refusals() -> Iterator[None]:
    """Raise RecordsRefusedError for the errors with which a store refuses a file for good.

    The libraries of Azure and S3 give the status of the answer as ``status_code`` and ``response``; fsspec
    wraps them. A file system says that a name or a file is too long for it.
    """
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            response = getattr(cause, "response", None)
            status = getattr(cause, "status_code", None)
            if isinstance(response, dict):
                status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status in _REFUSED or (isinstance(cause, OSError) and cause.errno in _REFUSED_BY_FILES):
                raise RecordsRefusedError(" ".join(str(error).split()) or type(error).__name__) from error
            cause = cause.__cause__ or cause.__context__
        raise


def _case_of(run: RunDocument, name: str) -> CasePart | None:
    return next((case for case in run.cases if case.case_dir and name.startswith(f"{case.case_dir}/")), None)


def _masked_copy(source: BinaryIO, target: BinaryIO, mask: Any) -> tuple[int, str]:
    """Copy a file, with secrets removed from texts; return its size and SHA-256.

    Files of a tool are stored as the tool wrote them, and may contain secrets that it was given.
    """
    digest, size = hashlib.sha256(), 0
    is_text = b"\0" not in source.read(_LOOKED_AT_BYTES)
    source.seek(0)
    chunks = iter(source) if is_text else iter(lambda: source.read(1 << 20), b"")
    for chunk in chunks:
        if is_text:
            text = chunk.decode("utf-8", "surrogateescape")
            data = mask(text).encode("utf-8", "surrogateescape")
        else:
            data = chunk
        digest.update(data)
        size += target.write(data)
    return size, digest.hexdigest()


def open_content(settings: str, context: SinkContext) -> Sink:
    """Open ``content:URL[,option=value]``; the options are those of fsspec's file system for the URL."""
    read = parse_settings("content", settings, "az://container/path", None)
    return ContentSink(RemoteFolder("content", read.target, read.options, context.working_dir), context)
