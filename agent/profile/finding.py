"""Finds the text of a profile by an installed name, a path, or a URI."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agent.core.errors import ProfileError
from agent.core.names import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import Traversable

MAXIMUM_BYTES = 1 << 20
"""A longer file is not a profile."""

_EXTENSIONS = (".yaml", ".yml", ".json")
_SHOWN = 5
"""Profiles of a folder that an error names."""
_EXAMPLES = "examples"
"""The subfolder of more installed profiles: examples/FIO."""
_PARAMETER = re.compile(r"  ['\"]?([\w.-]+)['\"]?\s*:")
_TIMEOUT_S = 30
_DEADLINE_S = 60.0
"""Longest time in seconds for receiving a profile, regardless of the server's pace."""


@dataclass(frozen=True)
class Source:
    """A profile's text.

    Args:
        name: the file name without its extension, which is the profile's name.
        label: its origin, safe to show: a URI without credentials and query.
        text: the text.
        format: ``json`` or ``yaml``.
    """

    name: str
    label: str
    text: str
    format: str

    def parameter_descriptions(self) -> dict[str, str]:
        """Return the comments above the profile's parameters, by the parameters' names as written.

        A comment describes the first parameter that follows it. JSON has no comments.
        """
        found: dict[str, str] = {}
        comment: list[str] = []
        is_inside = has_ended = False
        for line in self.text.splitlines() if self.format == "yaml" else ():
            if line and not line[0].isspace() and not line.startswith("#"):
                is_inside = line.split("#")[0].strip().lower() == "parameters:"
                comment = []
            elif not is_inside:
                continue
            elif not line.strip():
                comment = []
            elif line.startswith("  #"):
                comment = [line.strip("# ")] if has_ended else [*comment, line.strip("# ")]
                has_ended = False
            elif (match := _PARAMETER.match(line)) is not None:
                has_ended = True
                if comment:
                    found[match[1]] = " ".join(comment)
        return found


def source_from_text(text: str, *, label: str = "profile.yaml", format: str | None = None) -> Source:  # noqa: A002
    """Return a source for a given text; without a format, the label's extension decides."""
    path = PurePosixPath(label)
    return Source(path.stem, label, text, format or _format(path.suffix, text))


def installed(search: Sequence[Traversable] | None = None) -> dict[str, Traversable]:
    """Return the profiles in some folders by file name, sorted; by default those in the package ``profiles``.

    The profiles of a folder ``examples`` follow, with its name as a prefix.
    """
    folders = [resources.files("profiles")] if search is None else search
    found: dict[str, Traversable] = {}
    for prefix in ("", f"{_EXAMPLES}/"):
        here: dict[str, Traversable] = {}
        for folder in folders:
            place = folder / _EXAMPLES if prefix else folder
            for file in place.iterdir() if place.is_dir() else ():
                if file.name.lower().endswith(_EXTENSIONS) and file.is_file():
                    here.setdefault(f"{prefix}{file.name}", file)
        found |= dict(sorted(here.items()))
    return found


def find(reference: str, *, search: Sequence[Traversable] | None = None) -> Source:
    """Return the text of a profile.

    Args:
        reference: an http or https URI; the name of an installed profile, such as EXECUTE-COMMAND or
            examples/FIO, with or without extension and in any case; or a path.
        search: the folders of installed profiles; None for the package ``profiles``.

    Raises:
        ProfileError: if it does not exist, with the nearest name; or if it cannot be read or is too long.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", reference):
        return _fetch(reference)
    known = installed(search)
    wanted = reference.lower()
    if "\\" not in reference and (os.sep not in reference or wanted.startswith(f"{_EXAMPLES}/")):
        for name, file in known.items():
            if wanted in {name.lower(), str(PurePosixPath(name).with_suffix("")).lower()}:
                return _read(file, str(file))
    try:
        path = Path(reference).expanduser()
        found, is_folder = path.is_file(), path.is_dir()
    except (OSError, RuntimeError) as error:
        raise ProfileError(f"'{reference[:100]}' is not a path: {error}") from error
    if found:
        return _read(path, str(path))
    stem = re.sub(r"\.(ya?ml|json)$", "", wanted)
    by_stem = {str(PurePosixPath(name).with_suffix("")).lower(): file for name, file in known.items()}
    if stem in by_stem and stem != wanted:  # VirtualClient's name of a profile that vcagent has in YAML
        return _read(by_stem[stem], str(by_stem[stem]))
    what = "is a folder, not a profile" if is_folder else "is neither an installed profile nor a file"
    near = _files_near(path)
    remedy = f"did you mean {', '.join(map(str, near))}?" if near else _suggestion(path.name, known)
    raise ProfileError(f"'{reference}' {what}", remedy=remedy)


def _files_near(path: Path) -> list[Path]:
    """Return the profiles in a folder, or the files that a path without extension or in other case means."""
    with suppress(OSError):
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.name.lower().endswith(_EXTENSIONS))[:_SHOWN]
        meant = {path.name.lower() + ending for ending in ("", *_EXTENSIONS)}
        return sorted(file for file in path.parent.iterdir() if file.name.lower() in meant and file.is_file())
    return []


def _suggestion(reference: str, known: Mapping[str, Traversable]) -> str:
    """Return the nearest profiles with their descriptions: a similar name may be another workload's."""
    stem = re.sub(r"\.(ya?ml|json)$", "", reference, flags=re.IGNORECASE)
    files = {str(PurePosixPath(name).with_suffix("")): file for name, file in known.items()}
    if not (close := nearest(stem, files)):
        return did_you_mean(stem, files)
    described = [f"{name} ({_description(files[name])})" for name in close]
    if len(described) == 1:
        return f"did you mean {described[0]}?"
    return "\n      ".join(("did you mean one of these?", *described))


def _description(file: Traversable) -> str:
    match = re.search(
        r"""^\s*["']?description["']?\s*:\s*["']?(.*?)["']?,?\s*$""",
        _read(file, str(file)).text,
        re.IGNORECASE | re.MULTILINE,
    )
    return match[1] if match else "no description"


def _read(file: Traversable, label: str) -> Source:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise ProfileError(f"the profile cannot be read: {error.strerror or error}", where=label) from error
    return _source(content, label, PurePosixPath(file.name))


def _fetch(uri: str) -> Source:
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ProfileError("the profile's URI cannot be read", remedy="check its host name") from error
    label = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.scheme.lower() not in {"http", "https"} or not host:
        raise ProfileError(
            f"a profile cannot be read from '{label}'", remedy="use a path, or a URI with http or https"
        )
    bare = parts._replace(
        netloc=f"{f'[{host}]' if ':' in host else host}{f':{port}' if port else ''}"
    ).geturl()
    login = None
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    content, failure = _received(bare, login)
    if failure:
        raise ProfileError(
            f"the profile cannot be fetched: {failure.replace(uri, label).replace(bare, label)}",
            where=label,
            remedy="check the URI and the network",
        )
    return _source(content, label, PurePosixPath(parts.path))


def _received(uri: str, login: str | None) -> tuple[bytes, str]:
    """Return the content of a URI, or the reason for none, within the deadline."""
    import threading

    results: list[tuple[bytes, str]] = []
    # A server may send a byte now and then forever, which keeps the connection's own timeout from ending it.
    worker = threading.Thread(target=lambda: results.append(_response(uri, login)), daemon=True)
    worker.start()
    worker.join(_DEADLINE_S)
    return results[0] if results else (b"", f"it did not come within {_DEADLINE_S:g} s")


def _response(uri: str, login: str | None) -> tuple[bytes, str]:
    import base64
    from http.client import HTTPException
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    import agent

    class WebOnly(HTTPRedirectHandler):
        """Follows redirects to http and https, never from https to http."""

        def redirect_request(  # noqa: PLR0917 - its base's parameters
            self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
        ) -> Request | None:
            target = urlsplit(newurl)
            if target.scheme not in {"http", "https"} or (req.type == "https" and target.scheme != "https"):
                raise ValueError(f"redirected to {target.scheme}")
            new = super().redirect_request(req, fp, code, msg, headers, newurl)
            if new and login and (new.type, new.host) == (req.type, req.host):
                new.add_unredirected_header("Authorization", req.get_header("Authorization", ""))
            return new

    try:
        request = Request(uri, headers={"User-Agent": f"vcagent/{agent.__version__}"})  # noqa: S310 - checked by the caller
        if login:
            code = base64.b64encode(login.encode()).decode("ascii")
            request.add_unredirected_header("Authorization", f"Basic {code}")
        with build_opener(WebOnly).open(request, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(MAXIMUM_BYTES + 1)
            length = response.headers.get("Content-Length", "")
            if response.status != HTTPStatus.OK:  # such as 206, a part of the profile
                return b"", _status(response.status)
    except (OSError, HTTPException, ValueError) as error:
        return b"", _cause(error)
    if length.isdecimal() and len(content) < min(int(length), MAXIMUM_BYTES + 1):
        return b"", f"it ended after {len(content)} of {length} bytes"
    return content, ""


def _cause(error: Exception) -> str:
    """Return why nothing was received, without the server's own words: they may repeat the login."""
    from http.client import HTTPException, IncompleteRead, InvalidURL
    from urllib.error import HTTPError

    if isinstance(error, HTTPError):
        error.close()
        return _status(error.code)
    if isinstance(error, IncompleteRead):
        return "it ended in the middle"
    if isinstance(error, InvalidURL):
        return "a character of the URI must be percent-encoded"
    if isinstance(error, HTTPException):
        return f"the reply is not HTTP ({type(error).__name__})"
    return str(getattr(error, "reason", "") or error) or type(error).__name__


def _status(code: int) -> str:
    """Return an HTTP status in the standard's words."""
    if code in range(300, 400):
        return f"HTTP {code}: the redirect cannot be followed"
    with suppress(ValueError):
        return f"HTTP {code} {HTTPStatus(code).phrase}"
    return f"HTTP {code}"


def _source(content: bytes, label: str, path: PurePosixPath) -> Source:
    if len(content) > MAXIMUM_BYTES:
        raise ProfileError(f"longer than {MAXIMUM_BYTES >> 20} MiB: this is not a profile", where=label)
    encoding = "utf-16" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProfileError(
            "not a text file in UTF-8: this is not a profile", where=f"{label}:{line}"
        ) from error
    if "\0" in text:
        raise ProfileError("a binary file: this is not a profile", where=label)
    return Source(path.stem, label, text, _format(path.suffix, text))


def _format(extension: str, text: str) -> str:
    if extension.lower() in _EXTENSIONS:
        return "json" if extension.lower() == ".json" else "yaml"
    return "json" if text.lstrip()[:2] in {"//", "/*"} or text.lstrip()[:1] == "{" else "yaml"
