"""A web server for a runfile: on request it loses connections, ignores ranges or omits the length."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAILING", "STUB", "Site", "serve"]

STUB = rb"""#!/bin/sh
# Stands in for NVIDIA's runfile: takes its options, and leaves a toolkit of two files.
log=@LOG@
for option; do
  case $option in
    --silent | --toolkit | --override | --no-man-page | --no-opengl-libs | --no-drm) ;;
    --toolkitpath=*) path=${option#*=} ;;
    --tmpdir=*) [ -d "${option#*=}" ] || exit 3 ;;
    *) echo "Unknown option: $option"; exit 1 ;;
  esac
done
mkdir -p "$path/bin" "$path/lib64"
echo '{"cuda": {"name": "CUDA SDK", "version": "12.4.0"}}' > "$path/version.json"
touch "$path/bin/nvcc"
ln -sfn "$path" "$(dirname "$path")/cuda"
"""
FAILING = rb"""#!/bin/sh
mkdir -p "$(dirname @LOG@)"
echo "[ERROR]: An NVIDIA kernel module 'nvidia-drm' appears to be in use. Abort installation." > @LOG@
echo " Installation failed."
exit 1
"""


@dataclass
class Site:
    """The content of a server, its behaviour, and the requests that it got.

    Args:
        files: content by path.
        cuts: the number of bytes of each of the next answers before the connection is lost.
        ranges: whether it answers requests for a part.
        lengths: whether it sends the length.
        etag: the name of this version of the files; empty for none.
    """

    files: dict[str, bytes]
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    lengths: bool = True
    etag: str = '"one"'
    asked: list[tuple[str, str]] = field(default_factory=list)
    address: str = ""


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            site.asked.append((self.path, wanted))
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            same = self.headers.get("If-Range", site.etag) == site.etag
            match = re.fullmatch(r"bytes=(\d+)-", wanted) if site.ranges and same else None
            start = int(match.group(1)) if match else 0
            if match and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if match else 200)
            if match:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if site.lengths:
                self.send_header("Content-Length", str(len(content) - start))
            if site.etag:
                self.send_header("ETag", site.etag)
            self.end_headers()
            large = self.path.endswith(".run")
            end = start + site.cuts.pop(0) if large and site.cuts else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
            pass

    return Handler


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serve a site on this host while the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
