"""A registry of images in a folder: ``registry_server.py FOLDER PORT``; see ``image_registry.write_image``.

It prints ``ready`` when it listens. On the next port the same images require ``user`` with the password
``open-sesame``. The layers of ``stalled/…`` never end.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CREDENTIALS = base64.b64encode(b"user:open-sesame").decode()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """Answer with the headers alone."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """Answer with a manifest or a layer."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        private = self.server.server_address[1] != int(sys.argv[2])
        if private and self.headers.get("Authorization") != f"Basic {CREDENTIALS}":
            self._send(401, b"{}", body=body, challenge='Basic realm="lab"')
            return
        if self.path == "/v2/":
            self._send(200, b"{}", body=body)
            return
        file = Path(sys.argv[1]) / self.path.lstrip("/")
        if not file.is_file():
            self._send(
                404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}', body=body
            )
            return
        self._send(
            200, file.read_bytes(), body=body, stalled="/stalled/" in self.path and "/blobs/" in self.path
        )

    def _send(
        self, status: int, content: bytes, *, body: bool, challenge: str = "", stalled: bool = False
    ) -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        is_manifest = "/manifests/" in self.path and status == 200
        self.send_header("Content-Type", MANIFEST if is_manifest else "application/json")
        self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(content).hexdigest()}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and stalled:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            time.sleep(600)
        elif body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Ignore the message."""


if __name__ == "__main__":
    port = int(sys.argv[2])
    servers = [ThreadingHTTPServer(("127.0.0.1", number), Handler) for number in (port, port + 1)]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
