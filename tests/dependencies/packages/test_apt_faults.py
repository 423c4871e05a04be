"""A full cache and a network cut during a download: the real apt's messages have a remedy.

apt works on a separate state; it neither reads nor changes anything of this host.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from dependencies.packages.apt import remedy_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt")

CONTENT = b"a package" * 50_000
CONF = """\
Dir "{root}/";
Dir::State::status "{root}/status";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "0";
Acquire::http::Proxy "DIRECT";
Debug::NoLocking "true";
"""


@contextmanager
def repository(size: int) -> Iterator[str]:
    """Serve a repository of one package, whose connection is cut after half of its file.

    Args:
        size: the package's size in the index.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            digest = hashlib.sha256(CONTENT).hexdigest()
            index = (
                f"Package: big\nVersion: 1\nArchitecture: amd64\nFilename: ./big.deb\nSize: {size}\n"
                f"SHA256: {digest}\nMaintainer: t <t@example.com>\nDescription: t\n\n"
            ).encode()
            known = {"/Packages": index, "/big.deb": CONTENT}
            path = self.path.replace("/./", "/")
            if path not in known:
                self.send_error(404)
                return
            content = known[path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content if content is index else content[: len(content) // 2])
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Ignore the message."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def install(root: Path, size: int) -> str:
    """Return apt's output when it fails to install the package."""
    for folder in ("etc/apt/sources.list.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    (root / "apt.conf").write_text(CONF.format(root=root))
    environment = {**os.environ, "APT_CONFIG": str(root / "apt.conf"), "LC_ALL": "C"}
    with repository(size) as uri:
        (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] {uri} ./\n")
        fetched = subprocess.run(
            ["apt-get", "update", "-q"], env=environment, check=False, capture_output=True, text=True
        )
        assert fetched.returncode == 0, fetched.stdout + fetched.stderr
        command = ["apt-get", "install", "-q", "-y", "--download-only", "big"]
        ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode != 0
    return ended.stdout + ended.stderr


def test_a_network_that_is_cut_while_a_package_comes(tmp_path: Path) -> None:
    assert "mirror" in remedy_for(install(tmp_path, len(CONTENT)), "the log")


def test_a_cache_that_is_too_small(tmp_path: Path) -> None:
    said = install(tmp_path, 10**15)
    assert "apt-get clean" in remedy_for(said, "the log"), said
