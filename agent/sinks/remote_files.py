"""A folder of files on this host or in an object store, by its URL."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agent.core.safe_files import make_folder, replacing
from agent.sinks.settings import local_path, needed, without_credentials

if TYPE_CHECKING:
    from collections.abc import Mapping


class RemoteFolder:
    """A folder for files; a path without a scheme needs no further library, all other URLs use fsspec.

    Args:
        sink: the sink that writes to it, for errors.
        url: the folder, such as ``/data/runs``, ``s3://bucket/path``, ``az://container/path``.
        options: fsspec's options of the file system, such as ``endpoint_url``. Credentials belong in the
            variables that the store's own library reads.
        working_dir: the folder at which a relative path starts.

    Raises:
        UsageError: if a library for the URL is not installed.
    """

    def __init__(self, sink: str, url: str, options: Mapping[str, str], working_dir: Path) -> None:
        self.name = without_credentials(url) if "://" in url else url
        scheme, separator, path = url.partition("://")
        self._local = not separator or scheme == "file"
        self._path = path if separator else str(local_path(sink, url, "/data/runs", working_dir))
        self._scheme = scheme
        self._options = dict(options)
        self._opened: Any = None
        if not self._local:
            fsspec = needed(sink, "content", "fsspec")
            try:
                fsspec.get_filesystem_class(scheme)
            except (ImportError, ValueError) as error:
                from agent.core.errors import UsageError
                from agent.core.extras import extra_remedy

                raise UsageError(
                    f"the sink {sink} cannot write to {scheme}://: {error}",
                    remedy=f"for s3:// and az://, {extra_remedy('content')}; "
                    "other addresses need the package that fsspec names",
                ) from error

    def put(self, name: str, data: bytes) -> None:
        """Write a file, completely or not at all; an existing file with that name is replaced."""
        import io

        self.put_stream(name, io.BytesIO(data))

    def put_stream(self, name: str, stream: BinaryIO) -> None:
        """Write a file from the content of a stream."""
        if self._local:
            target = Path(self._path) / name
            make_folder(target.parent)
            with replacing(target) as file:
                shutil.copyfileobj(stream, file)
                file.flush()
                os.fsync(file.fileno())
            return
        with self._file_system().open(f"{self._path}/{name}", "wb") as file:
            shutil.copyfileobj(stream, file, 1 << 22)

    def _file_system(self) -> Any:
        if self._opened is None:
            import fsspec

            # No listing of the store is requested; a shared instance may have other credentials.
            self._opened = fsspec.filesystem(self._scheme, skip_instance_cache=True, **self._options)
        return self._opened
