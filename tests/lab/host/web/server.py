"""Serves ``/srv/<host name>/…`` over HTTP and HTTPS, in its own container, which has only Python.

``server.py CERTIFICATE KEY``. Ranges are honoured. Only half of a file with a ``.cut`` next to it is sent, as
if the connection were lost, unless only a later part of it is requested.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

ROOT = Path("/srv")
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Answer with the headers alone."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """Answer with the file, or the requested part of it."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = unquote(self.path.partition("?")[0])
        if path == "/v2/":  # the answer of a registry without a password
            self._headers(200, 0, {})
            return
        host = self.headers.get("Host", "").partition(":")[0]
        file = Path(os.path.normpath(ROOT / host / path.lstrip("/")))
        if not file.is_relative_to(ROOT) or not file.is_file():
            self._headers(404, 0, {})
            return
        size = file.stat().st_size
        tag = f'"{size}-{file.stat().st_mtime_ns}"'
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if self.headers.get("If-Range", tag) != tag:
            asked = None
        start = int(asked.group(1)) if asked else 0
        end = min(int(asked.group(2) or size - 1), size - 1) if asked else size - 1
        if start >= size and asked:
            self._headers(416, 0, {"Content-Range": f"bytes */{size}"})
            return
        headers = {"Accept-Ranges": "bytes", "ETag": tag}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end}/{size}"
        if "/manifests/" in path:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            headers |= {"Content-Type": MANIFEST, "Docker-Content-Digest": f"sha256:{digest}"}
        self._headers(206 if asked else 200, end - start + 1, headers)
        if body:
            self._send(file, start, end - start + 1)

    def _headers(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send(self, file: Path, start: int, length: int) -> None:
        if start == 0 and file.with_name(f"{file.name}.cut").exists():
            length //= 2
            self.close_connection = True
        with file.open("rb") as source:
            source.seek(start)
            while length > 0 and (chunk := source.read(min(length, 1 << 20))):
                self.wfile.write(chunk)
                length -= len(chunk)


def main(certificate: str, key: str) -> None:
    """Serve until killed."""
    plain = ThreadingHTTPServer(("", 80), Handler)
    secure = ThreadingHTTPServer(("", 443), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The thread that answers does the handshake.
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    secure.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
