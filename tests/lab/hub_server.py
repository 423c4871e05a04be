"""A small hub: the part of Hugging Face's HTTP API that huggingface_hub uses to fetch a repository.

Sources: huggingface_hub's ``hf_api.py`` and ``file_download.py``: ``/api/models/NAME/revision/REV``, the tree
of files, and ``/NAME/resolve/REV/FILE`` with ``X-Repo-Commit``, ``ETag`` and ranges; refusals by
``X-Error-Code``, as the hub words them. No Xet: files come over plain HTTP.
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["COMMIT", "Hub", "serving_hub"]

COMMIT = "be673f326cab4cd22ccfef76109faf68e41aa5f1"


@dataclass
class Hub:
    """The content and the behaviour of the hub.

    Args:
        files: repositories' files by name, such as ``{"org/model": {"config.json": b"{}"}}``.
        gated: repositories that need a token of ``readers``.
        readers: tokens with access to gated repositories.
        tokens: tokens that are accepted at all.
        cut_after: bytes after which the next answer with a longer file is cut; None for never.
        url: the address that it listens on.
        requests: method, path and Range of the requests.
    """

    files: Mapping[str, Mapping[str, bytes]]
    gated: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    tokens: frozenset[str] = frozenset()
    cut_after: int | None = None
    url: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def fetched(self, name: str) -> list[str]:
        """Return the ranges in which a file was requested; an empty text stands for the whole file."""
        return [part for method, path, part in self.requests if method == "GET" and path.endswith(f"/{name}")]


@contextmanager
def serving_hub(hub: Hub) -> Iterator[Hub]:
    """Serve the hub on a free port while the context is open."""

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Ignore the message."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.served.requests.append((self.command, path, self.headers.get("Range", "")))
        kind = "datasets/" if path.startswith(("/api/datasets/", "/datasets/")) else ""
        plain = path.replace("/api/models/", "/").replace("/api/datasets/", "/").replace("/datasets/", "/")
        parts = plain.strip("/").split("/")
        name = "/".join(parts[:2])
        if not self._may_read(name):
            return
        files = self.served.files[name]
        if len(parts) > 3 and parts[3] not in ("main", COMMIT):
            self._refuse(404, "RevisionNotFound", "Invalid rev id")
        elif path.startswith("/api/"):
            recursive = "recursive=true" in urlsplit(self.path).query.lower()
            if parts[2:3] == ["tree"]:
                self._json(_tree(files, "/".join(parts[4:]), recursive=recursive))
            else:
                self._json(_description(kind, name, files))
        elif (file := "/".join(parts[4:])) in files:
            self._file(files[file])
        else:
            self._refuse(404, "EntryNotFound", "Entry not found")

    def _may_read(self, name: str) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.served.tokens | self.served.readers:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif name not in self.served.files:
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif name in self.served.gated and token not in self.served.readers:
            self._refuse(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted.")
        else:
            return True
        return False

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, content: bytes) -> None:
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        rest = content[start:]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if self.command == "HEAD":
            return
        cut = self.served.cut_after
        if cut is not None and cut < len(rest):
            self.served.cut_after = None
            self.wfile.write(rest[:cut])
            self.close_connection = True
            return
        self.wfile.write(rest)


def _tree(files: Mapping[str, bytes], folder: str, *, recursive: bool = True) -> list[dict[str, Any]]:
    """Return the files and folders in a folder; if recursive, also those in its folders."""
    start = f"{folder}/" if folder else ""
    folders = {str(parent) for file in files for parent in list(PurePosixPath(file).parents)[:-1]}
    entries = [{"type": "directory", "path": one, "size": 0, "oid": "0" * 40} for one in sorted(folders)]
    entries += [
        {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}  # noqa: S324
        for file, content in files.items()
    ]
    inside = (one for one in entries if str(one["path"]).startswith(start))
    return [one for one in inside if recursive or "/" not in str(one["path"])[len(start) :]]


def _description(kind: str, name: str, files: Mapping[str, bytes]) -> Any:
    siblings = [{"rfilename": file, "size": len(content)} for file, content in files.items()]
    return {
        "id": name,
        f"{kind.rstrip('s/') or 'model'}Id": name,
        "sha": COMMIT,
        "siblings": siblings,
        "tags": [],
    }
