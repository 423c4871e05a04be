"""Recognises a secret that nobody declared, by its name or by the shape of the text.

Every pattern takes time proportional to the text's length, for any text: repetitions are bounded, or a
position that one of them skipped is not the start of the next.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_NOUN = re.compile(
    r"(?:token|(?:passwd|password|passphrase|passcode|secret|credential|key)s?)$"
    # Short ones end many other words: bypass, cwd, compat.
    r"|^(?:admin|bind|db|ftp|git|http|https|ldap|login|my|mysql|pg|postgres|proxy|redis|root|smtp|ssh|sudo"
    r"|user|vnc)?(pass|pwd|creds?|pat)$"
)
_DESCRIBED = re.compile(
    r"""algorithm|authentication|bits|board|budget|bytes|column|cost|counts?|data|dir|enabled|endpoint
    |env|environment|error|exchange|expiry|field|file|folder|format|header|host|ids?|index|kind|latency|latencies
    |len|length|limits?|list|ms|names?|num|number|path|pattern|per|policy|position|prefix|price|range|rate
    |ref|reference|required|ring|rotation|s|sec|seconds|server|size|space|stroke|suffix|throughput|time
    |timeout|ttl|types?|uri|url|usage|version|word""",
    re.VERBOSE,
)
"""Words after the noun by which a name is not the secret's own, but that of a property."""

_NO_KEY = re.compile(
    r"""cache|cmp|dict|don|foreign|group|hoc|hot|index|joc|map|max|min|mon|n|num|partition|per|primary|public
    |scenario|sort|tur|unique|whis""",
    re.VERBOSE,
)
_NO_TOKEN = re.compile(
    r"""audio|avg|bos|completion|eos|first|input|mask|max|mean|min|n|num|output|pad|per|prompt|sep|special|stop
    |total|unk|cls|each|eod|eog|eom|eot|fim|image|last|lf|new|newline|next|nl|padding|prev|previous|start|that
    |this|time|user""",
    re.VERBOSE,
)
"""Words before the noun by which it is a key of a table, or a token of a language model."""


_NO_PASS = re.compile(
    r"""accuracy|all|any|backward|band|build|bwd|by|can|check|correct|does|each|fail|fast|first|forward|fwd
    |high|last|low|max|mean|min|multi|must|n|new|num|number|old|one|or|per|pre|prefill|second|single|tests?|two
    |warmup|work|working""",
    re.VERBOSE,
)
"""Words before ``pass`` by which it is a pass over something, and before ``pwd`` by which it is a folder."""


def is_secret_name(name: str) -> bool:
    """Return True if a parameter, variable or key of this name contains a secret.

    True for ``HF_TOKEN``, ``ApiKey``, ``MYSQL_PWD`` and ``db-password``. False for ``max_tokens``,
    ``tokenizer``, ``key_path``, ``apiKeyEnv``, ``PWD``, ``first_pass`` and ``FirstTokenLimitMs``.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    return any(_is_secret(words, at, name) and not _described(words[at + 1 :]) for at in range(len(words)))


def secret_reference(name: str) -> str:
    """Return how a parameter of this name refers to a secret.

    Returns:
        ``environment`` for a variable that holds it (``apiKeyEnv``), ``file`` for a file (``TokenFile``,
        ``key_path``), or an empty text for any other parameter.
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    for at in range(len(words)):
        behind = words[at + 1 :]
        if behind and _is_secret(words, at, name):
            if all(map(_VARIABLE.fullmatch, behind)) and behind != ["name"]:
                return "environment"
            if all(map(_FILE.fullmatch, behind)) and behind != ["name"]:
                return "file"
    return ""


_VARIABLE = re.compile(r"env|environment|variable|var|name")
_FILE = re.compile(r"file|path|name")


def _described(words: list[str]) -> bool:
    return any(map(_DESCRIBED.fullmatch, words))


def _is_secret(words: list[str], at: int, name: str) -> bool:
    """Return True if a word of a name is a noun for a secret, whatever follows it."""
    word = words[at]
    noun = _NOUN.search(word)
    if noun is None:
        return False
    if noun[1]:
        if word != noun[1]:  # dbpass
            return True
        if len(words) == 1:  # PWD is the folder that a shell is in
            return word != "pat" and name.lower() == word and name != "PWD"
        return at > 0 and not _NO_PASS.fullmatch(words[at - 1])
    before = word[: noun.start()] or (words[at - 1] if at else "")
    ordinary = {"key": _NO_KEY, "keys": _NO_KEY, "token": _NO_TOKEN}.get(noun[0])
    return ordinary is None or not ordinary.fullmatch(before)


class _Shape(NamedTuple):
    """One way to recognise a secret.

    Args:
        needles: substrings of the lower-cased text; without any of them the search is skipped.
        pattern: its last group is the secret; a group ``name`` must be a secret's name, or its end.
        any_case: True if the pattern is in lower case and searched in the lower-cased text, which is several
            times as fast as a case-insensitive pattern.
    """

    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    any_case: bool = False


_SCHEME = r"(?:(?:bearer|basic|token|digest|negotiate|ntlm|api-?key|key|aws4-hmac-sha256)[ \t]+)?"
_NOUNS = (
    r"(?:token|passwd|password|passphrase|secret|credentials?|sharedaccesssignature"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|account[_-]?key|auth[_-]?key|signing[_-]?key"
    r"|encryption[_-]?key|subscription[_-]?key)"
)
_QUOTE = r"\\{0,3}[\"']"
_LINE_END = r"(?=[\r\n]|\Z)"
_LONGEST_NAME = 80
_NAME_BEFORE = re.compile(r"(?:[A-Za-z][\w.-]{0,40}[ ])?[\w.-]*\Z")
_BLOCK = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

_SHAPES = (
    _Shape(("://",), re.compile(r"://[^\s/?#\"'<>:@]*:([^\s/?#\"'<>]+)@")),
    _Shape(("://",), re.compile(r"https?://([^\s/?#\"'<>:@]+)@")),
    # The whole value of the header, except a known scheme: to the closing quote, or the end of the line.
    _Shape(
        ("authorization",),
        re.compile(
            rf"""(?x)
            ({_QUOTE})(?:proxy-)?authorization[ \t]*:[ \t]*{_SCHEME}
              ([^\s\"'][^\r\n]*?)(?:(?<!\\)\1|{_LINE_END})
            | authorization{_QUOTE}[ \t]*[:=,][ \t]*({_QUOTE})?{_SCHEME}
              ([^\s\"'][^\r\n]*?)(?:(?<!\\)\3|{_LINE_END})
            | authorization[ \t]*:[ \t]*{_SCHEME}([^\s\"'][^\r\n]*)
            | authorization[ \t]*=[ \t]*[\"']?{_SCHEME}([^\s\"',;&]+)
            """
        ),
        any_case=True,
    ),
    _Shape(("bearer",), re.compile(r"\bbearer\s+([\w.~+/=-]{6,})"), any_case=True),
    _Shape(
        ("token", "key", "secret"),
        re.compile(
            r"(?:api[_-]?|private[_-]?|job[_-]?|deploy[_-]?|auth[_-]?|access[_-]?|security[_-]?|session[_-]?"
            r"|subscription[_-]?|x-(?:\w{1,30}-){0,4})(?:token|key|secret)"
            rf"(?:{_QUOTE})?[ \t]*:[ \t]*(?:{_QUOTE})?(?![${{])([^\s\"',;]{{6,}})"
        ),
        any_case=True,
    ),
    _Shape(("hf_",), re.compile(r"(?<![A-Za-z0-9])(hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{20,}))")),
    _Shape(
        ("github_pat_", "ghp_", "gho_", "ghs_", "ghu_"), re.compile(r"\b((?:gh[opsu]_|github_pat_)\w{16,})")
    ),
    _Shape(("glpat-", "nvapi-", "sk-"), re.compile(r"\b((?:glpat|nvapi|sk)-[\w-]{16,})")),
    _Shape(("akia",), re.compile(r"\b(AKIA[0-9A-Z]{16})\b")),
    # A JSON web token: header, claims, signature.
    _Shape(("eyj",), re.compile(r"(?<![\w-])(eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*){0,3})")),
    # The query of a URL that is signed: Azure's, Amazon's, Google's.
    _Shape(
        ("sig=", "signature="),
        re.compile(
            r"(?:(?<=[?&;])|(?<=sharedaccesssignature ))(?:sig|(?:x-(?:amz|goog)-)?signature)="
            r"([^\s\"'&,;<>]{8,})"
        ),
        any_case=True,
    ),
    _Shape(("private key",), re.compile(rf"{_BLOCK}((?:[^-]|-(?!----))+)")),
    # name=value and "name": "value", as in an environment, a URL's query or a JSON text.
    _Shape(
        ("token", "passw", "passphrase", "secret", "credential", "key", "signature"),
        re.compile(
            rf"(?P<name>{_NOUNS})(?:(?:{_QUOTE})?\s*=\s*|{_QUOTE}\s*:\s*)(?:{_QUOTE})?(?![${{])"
            r"([^\s\"'&,;]{6,})"
        ),
        any_case=True,
    ),
    # The same for short names: their values may be anything, so the name must be a secret's.
    _Shape(
        ("pass", "pwd", "creds"),
        re.compile(
            rf"(?P<name>(?:pass|pwd|creds))(?:(?:{_QUOTE})?=|{_QUOTE}[ \t]*:[ \t]*)(?:{_QUOTE})?(?![${{/])"
            r"([^\s\"'&,;]{4,})"
        ),
        any_case=True,
    ),
    # --name value
    _Shape(
        ("--",),
        re.compile(r"--(?<![\w-]--)(?P<name>[\w-]{1,80})\s+[\"']?(?![${])([^\s\"'-][^\s\"']*)"),
    ),
)


def lower(text: str) -> str:
    """Return the text in small letters, each in its place: a letter such as ``İ`` would become two."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(letter.lower()[:1] for letter in text)


def shaped(text: str) -> Iterator[tuple[int, int]]:
    """Yield positions in a text that look like a secret: pairs of start and end, in any order."""
    lowered = lower(text)
    for needles, pattern, any_case in _SHAPES:
        if any(needle in lowered for needle in needles):
            named = "name" in pattern.groupindex
            for match in pattern.finditer(lowered if any_case else text):
                if not named or is_secret_name(_whole_name(text, *match.span("name"))):
                    yield match.span(match.lastindex or 0)


def _whole_name(text: str, start: int, end: int) -> str:
    """Return the name that ends in a text at ``end``, with the word before it: ``EOT token``."""
    before = _NAME_BEFORE.findall(text[max(0, start - _LONGEST_NAME) : start])[0]
    return f"{before}{text[start:end]}"


_BEGINNING = re.compile(_BLOCK)


def unfinished_block(text: str) -> int | None:
    """Return the start of a private key that does not end within the text, or None."""
    start = text.rfind("-----BEGIN ")
    if start < 0 or not _BEGINNING.match(text, start) or "-----END " in text[start:]:
        return None
    return start
