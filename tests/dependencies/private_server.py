"""A web server that requires a password, and checks meanwhile what every user of the host can see."""

from __future__ import annotations

import base64
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QUOTED_TOKEN", "PrivateServer", "serving"]

TOKEN = "s3cret/T0ken"
QUOTED_TOKEN = "s3cret%2FT0ken"


class PrivateServer(SimpleHTTPRequestHandler):
    """Serves files to ``user`` with the token.

    Attributes:
        seen: command lines that held the token.
        served: the files that were served.
    """

    seen: list[str]
    served: list[str]

    def do_GET(self) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "T0ken" in line:
                self.seen.append(line)
        expected = "Basic " + base64.b64encode(f"user:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") == expected:
            self.served.append(self.path)
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="private"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder; yield host and port."""
    PrivateServer.seen, PrivateServer.served = [], []
    handler = partial(PrivateServer, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
