"""A profile is found by name, path or URI, and other files are not mistaken for profiles."""

from __future__ import annotations

import base64
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import ProfileError
from agent.profile import find, finding, installed
from agent.profile.finding import MAXIMUM_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = "Description: a profile\nActions: [{Type: X}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "profiles"
    found.mkdir()
    (found / "PERF-GPU-MLPERF.yaml").write_text(TEXT)
    (found / "SETUP-GPU.json").write_text('{"Description": "d"}')
    (found / "__init__.py").write_text("")
    return found


@pytest.mark.parametrize(
    "reference",
    [
        "PERF-GPU-MLPERF",
        "perf-gpu-mlperf",
        "PERF-GPU-MLPERF.yaml",
        "perf-gpu-mlperf.YAML",
        "PERF-GPU-MLPERF.json",
    ],
)
def test_an_installed_name(folder: Path, reference: str) -> None:
    source = find(reference, search=[folder])
    assert (source.name, source.format, source.text) == ("PERF-GPU-MLPERF", "yaml", TEXT)
    assert list(installed([folder])) == ["PERF-GPU-MLPERF.yaml", "SETUP-GPU.json"]


def test_the_package_s_profiles_are_searched() -> None:
    assert isinstance(installed(), dict)


def test_a_path_and_a_file_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(str(folder / "SETUP-GPU.json"), search=[]).format == "json"
    monkeypatch.chdir(folder)
    assert find("SETUP-GPU.json", search=[]).label == "SETUP-GPU.json"


def test_a_missing_one_names_the_nearest(folder: Path) -> None:
    with pytest.raises(ProfileError, match="'PERF-GPU-MLPREF' is neither") as caught:
        find("PERF-GPU-MLPREF", search=[folder])
    assert caught.value.remedy == "did you mean PERF-GPU-MLPERF (a profile)?"
    with pytest.raises(ProfileError, match="is a folder") as caught:
        find(str(folder), search=[folder])
    assert f"{folder / 'SETUP-GPU.json'}" in (caught.value.remedy or "")
    for name in ("SETUP-GPU", "setup-gpu", "setup-gpu.Json"):
        with pytest.raises(ProfileError, match="is neither") as caught:
            find(str(folder / name), search=[])
        assert caught.value.remedy == f"did you mean {folder / 'SETUP-GPU.json'}?"


@pytest.mark.parametrize("reference", ["", "~nobody-of-that-name/x.yaml", "x" * 5000, "a/\0"])
def test_what_is_no_path(folder: Path, reference: str) -> None:
    with pytest.raises(ProfileError):
        find(reference, search=[folder])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x00\x01\xff\xfe", "not a text file"),
        (b"Description: \x00", "binary"),
        (b"a" * (MAXIMUM_BYTES + 1), "longer than 1 MiB"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(content)
    with pytest.raises(ProfileError, match=message):
        find(str(file))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_editors_of_windows_write(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes("Description: é\n".encode(encoding))
    assert find(str(file)).text == "Description: é\n"


@pytest.mark.parametrize(("text", "expected"), [('{"a": 1}', "json"), ("// c\n{}", "json"), ("a: 1", "yaml")])
def test_the_format_of_a_file_without_extension(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "profile"
    file.write_text(text)
    assert find(str(file)).format == expected


LOGIN = "Basic " + base64.b64encode(b"me:p@ss/w").decode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if "missing" in self.path:
            self.send_error(404)
            return
        if "redirect" in self.path:
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
            return
        if "login" in self.path and self.headers.get("Authorization") != LOGIN:
            self.send_error(401)
            return
        if "echo" in self.path:  # a server that repeats the login, or the URI, in its status
            login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            self.send_response(404, f"{login} {self.path} \x1b[31m")
            self.end_headers()
            return
        if "alien" in self.path:
            self.wfile.write(f"\x1b[31m {self.path}\r\n\r\n".encode())
            return
        if "chunks" in self.path:
            head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.wfile.write(f"{head}{len(TEXT) + 1:x}\r\n{TEXT}".encode())
            return
        self.send_response(206 if "part" in self.path else 200)
        if "cut" in self.path:
            self.send_header("Content-Length", str(len(TEXT) + 1))
        self.end_headers()
        if "slow" in self.path:
            for _ in range(200):  # ten times the test's deadline
                self.wfile.write(b"#")
                self.wfile.flush()
                time.sleep(0.01)
        self.wfile.write(b"a" * (MAXIMUM_BYTES + 1) if "huge" in self.path else TEXT.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_login_is_sent_to_its_own_host_alone(server: str) -> None:
    user = "me:p%40ss%2Fw"
    assert find(f"http://{user}@{server}/login.yaml").text == TEXT
    assert find(f"http://{user}@{server}/redirect?/login.yaml").text == TEXT
    other = server.replace("127.0.0.1", "localhost")
    for address in (f"{server}/login.yaml", f"{user}@{server}/redirect?http://{other}/login.yaml"):
        with pytest.raises(ProfileError, match=r"Unauthorized|401") as caught:
            find(f"http://{address}")
        assert "p%40ss" not in str(caught.value)


def test_a_profile_that_was_cut_is_none(server: str) -> None:
    with pytest.raises(ProfileError, match=r"it ended after \d+ of \d+ bytes"):
        find(f"http://{server}/cut.yaml")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("part.yaml", "HTTP 206 Partial Content"),
        ("chunks.yaml", "it ended in the middle"),
        ("echo.yaml?sig=hunter2", "HTTP 404 Not Found$"),
        ("alien.yaml?sig=hunter2", r"the reply is not HTTP \(BadStatusLine\)$"),
        ("redirect?/redirect?/redirect?", "HTTP 302: the redirect cannot be followed"),
        ("a b?sig=hunter2", "a character of the URI must be percent-encoded"),
    ],
)
def test_no_reply_is_taken_for_a_whole_profile_or_shown(server: str, path: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        find(f"http://me:hunter2@{server}/{path}")
    assert re.search(message, caught.value.message)
    assert "hunter2" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_server_that_never_ends_is_left(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_DEADLINE_S", 0.2)
    with pytest.raises(ProfileError, match=r"it did not come within 0\.2 s"):
        find(f"http://{server}/slow.yaml")


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/hostname", "gopher://x/"])
def test_redirects_lead_to_the_web_alone(server: str, target: str) -> None:
    with pytest.raises(ProfileError, match="redirect"):
        find(f"http://{server}/redirect?{target}")


def test_a_uri(server: str) -> None:
    source = find(f"http://{server}/some/PERF-X.yml?sig=hunter2")
    assert (source.name, source.format, source.text) == ("PERF-X", "yaml", TEXT)
    assert source.label == f"http://{server}/some/PERF-X.yml"


@pytest.mark.parametrize(
    ("path", "message"),
    [("missing.yaml", "cannot be fetched: HTTP Error 404|Not Found"), ("huge.yaml", "1 MiB")],
)
def test_a_uri_that_gives_no_profile(server: str, path: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as caught:
        find(f"http://{server}/{path}?sig=hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://host/x.yaml",
        "file:///etc/passwd",
        "http://127.0.0.1:1/x.yaml?sig=hunter2",
        "http://user:hunter2@127.0.0.1:1/x.yaml",
        "http://[bad/x",
        "http://host:hunter2/x",
        "https:///x",
    ],
)
def test_a_uri_that_leads_nowhere(uri: str) -> None:
    with pytest.raises(ProfileError) as caught:
        find(uri)
    if "@" in uri or "?" in uri:
        assert "hunter2" not in str(caught.value)


def test_a_name_that_is_close_is_told_with_what_it_is() -> None:
    with pytest.raises(ProfileError) as caught:
        find("PERF-GPU-MLPERF-LLAMA2")
    remedy = caught.value.remedy or ""
    assert "PERF-GPU-MLPERF-LLAMA3 (MLPerf LoadGen and MMLU with Llama 3.1 8B on vLLM, " in remedy
    assert "PERF-GPU-MLPERF (NVIDIA's MLPerf Inference code in its container" in remedy


def test_an_example_by_its_name() -> None:
    assert find("examples/fio").name == "FIO"
    assert "examples/FIO.yaml" in list(installed())
    assert list(installed()).index("examples/FIO.yaml") > list(installed()).index("SETUP-GPU-NVIDIA.yaml")


def test_a_file_here_before_an_installed_one_of_another_format(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "PERF-GPU-MLPERF.json").write_text('{"Description": "mine"}')
    assert find("PERF-GPU-MLPERF.json", search=[folder]).format == "json"
