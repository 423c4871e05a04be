"""A secret in every encoding that vcagent writes or a server returns; ``ENCODINGS`` counts them."""

from __future__ import annotations

import base64
import codecs
import html
import json
import random
import re
import shlex
import textwrap
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.secrets import MASK, LineMasker, Secrets, is_reference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Encoding = Callable[[str], str]


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def hex_of(text: str, separator: str = "") -> str:
    return text.encode().hex(separator) if separator else text.encode().hex()


def escaped(text: str, form: str) -> str:
    return "".join(form.format(ord(letter)) for letter in text)


def wrapped(text: str, width: int, line_end: str = "\n") -> str:
    return line_end.join(text[at : at + width] for at in range(0, len(text), width))


ENCODINGS: dict[str, Encoding] = {
    "plain": str,
    "percent": quote,
    "percent, slashes too": lambda text: quote(text, safe=""),
    "percent, small digits": lambda text: re.sub("%..", lambda code: code[0].lower(), quote(text, safe="")),
    "percent, every byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "percent, form": quote_plus,
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "base64": base64_of,
    "base64 of one byte more": lambda text: base64_of(f"u{text}"),
    "base64 of two bytes more": lambda text: base64_of(f"u:{text}"),
    "base64 of a login": lambda text: base64_of(f"user:{text}"),
    "base64 in the middle": lambda text: base64_of(f"a:{text}:b"),
    "base64 for addresses": lambda text: base64.urlsafe_b64encode(f"us{text}".encode()).decode(),
    "base64 without padding": lambda text: base64_of(text).rstrip("="),
    "base64, lines of 8": lambda text: wrapped(base64_of(text), 8),
    "base64, lines of 76": lambda text: wrapped(base64_of("x" * 50 + text), 76),
    "base64, lines for mail": lambda text: wrapped(base64_of(text), 64, "\r\n"),
    "base64, indented lines": lambda text: textwrap.indent(wrapped(base64_of(text), 16), "    ").strip(),
    "base64, lines in JSON": lambda text: json.dumps(wrapped(base64_of(text), 8)),
    "base64 in an address": lambda text: quote(base64_of(text), safe=""),
    "hex": hex_of,
    "hex, capitals": lambda text: hex_of(text).upper(),
    "hex, colons": lambda text: hex_of(text, ":"),
    "hex, blanks": lambda text: hex_of(text, " "),
    "hex, pairs as of xxd": lambda text: " ".join(re.findall("..?.?.?", hex_of(text))),
    "hex, C array": lambda text: ", ".join(f"0x{byte:02x}" for byte in text.encode()),
    "hex, C string": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "hex, lines": lambda text: wrapped(hex_of(text), 8),
    "hex, blanks, lines": lambda text: wrapped(hex_of(text, " "), 12),
    "hex, C array, lines": lambda text: wrapped(", ".join(f"0x{byte:02x}" for byte in text.encode()), 24),
    "hex, pairs, lines": lambda text: wrapped(" ".join(re.findall("..?.?.?", hex_of(text))), 15),
    "octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode() if byte < 0o400),
    "JSON": json.dumps,
    "JSON, not ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON, escaped slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "JSON, every letter": lambda text: escaped(
        text, "\\u{:04x}" if max(text) < "\U00010000" else "\\U{:08x}"
    ),
    "JSON within JSON": lambda text: json.dumps(json.dumps({"key": text})),
    "Python": repr,
    "Python bytes": lambda text: repr(text.encode()),
    "HTML": html.escape,
    "HTML, named": lambda text: text.replace("&", "&amp;").replace("+", "&plus;").replace("/", "&sol;"),
    "HTML, decimal": lambda text: escaped(text, "&#{};"),
    "HTML, hexadecimal": lambda text: escaped(text, "&#x{:x};"),
    "shell": shlex.quote,
    "shell, backslashes": lambda text: re.sub(r"([^\w])", r"\\\1", text),
    "split over lines": lambda text: wrapped(text, max(4, len(text) // 2 + 1)),
    "split over lines of Unicode": lambda text: wrapped(text, max(4, len(text) // 2 + 1), "\u2028"),
    "split over lines by the shell": lambda text: wrapped(text, max(4, len(text) // 2 + 1), "\\\n"),
}  # fmt: skip

SECRETS = (
    "p@ss'w\"ord/+1",
    "aB3dE5gH7jK9mN1pQ3sT5",
    "orange",
    "hunter2",
    "31415926",
    "correct horse/battery+staple",
    "ключ-от-двери",
    "pässwörd%41&amp;",
    "a\\b\\n%2Fc",
    "key=value;other&more",
    "🔑secret🔑",
    "aB3dE\x855g",
)
"""Secrets of many kinds: a word, digits, blanks, other scripts, what looks like an escape, a line end."""


def bits_in_common(secret: str, text: str) -> bool:
    """Return True if part of the secret is readable: unchanged, in hex or in base64, in any context."""
    part = secret[: max(4, len(secret) * 2 // 3)]
    if part in text or hex_of(part) in text.lower():
        return True
    return any(
        base64.b64encode(bytes(offset) + part.encode()).decode()[offset + 1 : -4] in text
        for offset in range(3)
        if len(part.encode()) >= 8
    )


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_masked_in_every_encoding(name: str, secret: str) -> None:
    text = ENCODINGS[name](secret)
    secrets = Secrets(mappings=[{"Password": secret}])
    masked = secrets.mask(f"before ({text}) after")
    assert masked.startswith("before (")
    assert masked.endswith(") after")
    assert MASK in masked
    assert len(masked) <= len("before () after") + 100
    assert not bits_in_common(secret, masked)
    assert secrets.mask(masked) == masked


LETTERS = st.characters(
    min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cn"]
)


@given(
    st.text(LETTERS, min_size=8, max_size=40),
    st.sampled_from(sorted(ENCODINGS)),
    st.text(st.sampled_from("ghxyz:, ("), max_size=12),
)  # fmt: skip
@hypothesis.settings(max_examples=200, deadline=None)
def test_any_secret_in_any_encoding(secret: str, name: str, around: str) -> None:
    bare = secret.strip().strip("\"'").strip()
    hypothesis.assume(len(bare) >= 8 and not is_reference(secret))
    masked = Secrets(mappings=[{"Password": secret}]).mask(f"{around} {ENCODINGS[name](bare)} {around}")
    assert MASK in masked
    assert not bits_in_common(bare, masked)


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_stream_cut_anywhere_gives_nothing_away(name: str) -> None:
    secret = "aB3dE5gH7jK9+mN1pQ3/sT5"
    data = f"one\nsee {ENCODINGS[name](secret)}\nend\n".encode()
    secrets = Secrets(mappings=[{"Password": secret}])
    for piece in (1, 3, 7, len(data)):
        masker = LineMasker(secrets)
        shown = [masker.feed(data[at : at + piece]) for at in range(0, len(data), piece)]
        output = "".join([*shown, masker.close()])
        assert output.startswith("one\nsee ")
        assert output.endswith("end\n")
        assert MASK in output
        assert not bits_in_common(secret, output)


SHOWN = 4
"""Characters of a secret that may be visible: a line that ends with fewer of its first ones is passed on."""
LINE_ENDS = ("\n", "\\\n", "=\n", "\r\n", "\n   ", "\u2028")
CUT = 'aB3"E5\\jK9+é🔑%sT'
"""A secret with characters that are escaped, or have several bytes."""


def visible(text: str) -> int:
    """Return the characters that are left of a code, without line ends and their marks."""
    return len(re.sub(r"\s|[\\=]\s|\*\*\*", "", text.removeprefix("so: ").removesuffix("uvw\n")))


@pytest.mark.parametrize("name", [name for name in ENCODINGS if name != "split over lines by the shell"])
def test_a_code_cut_at_any_place_shows_a_few_characters_at_most(name: str) -> None:
    """Cut by a line's end, or by the end of a block: within an escape, between a backslash and its letter."""
    secrets = Secrets(mappings=[{"Password": CUT}])
    code = ENCODINGS[name](CUT)
    most = visible(secrets.mask(code)) + SHOWN * -(-len(code) // len(CUT))
    for place in range(1, len(code)):
        for line_end in (*LINE_ENDS[:3], LINE_ENDS[3 + place % 3]):
            text = f"so: {code[:place]}{line_end}{code[place:]}\nuvw\n"
            masker = LineMasker(secrets)
            lines = text.encode().splitlines(keepends=True)
            for shown in ("".join([*map(masker.feed, lines), masker.close()]), secrets.mask(text)):
                assert MASK in shown, (place, line_end)
                assert visible(shown) <= most, (place, line_end, shown)
    data = f"so: {code}\nuvw\n".encode()
    for place in range(1, len(data)):
        masker = LineMasker(secrets)
        shown = masker.feed(data[:place]) + masker.feed(data[place:]) + masker.close()
        assert MASK in shown, place
        assert visible(shown) <= most, (place, shown)


@pytest.mark.parametrize("first", ["%", "%6", "&#", "\\", "\\u0", "\\x6"])
def test_a_secret_that_begins_within_a_cut_escape_is_masked(first: str) -> None:
    rest = {"%": "61", "%6": "1", "&#": "97;", "\\": "u0061", "\\u0": "061", "\\x6": "1"}[first]
    masker = LineMasker(Secrets(mappings=[{"Password": "aB3dE5gH7jK9"}]))
    assert masker.feed(f"so: {first}\n".encode()) == f"so: {first}\n"
    assert masker.feed(f"{rest}B3dE5gH7jK9 uvw\n".encode()) == f"{MASK} uvw\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\\n", "\n   "])
@pytest.mark.parametrize("name", [name for name in ENCODINGS if name.startswith("hex")])
def test_hex_broken_anywhere_is_masked_line_by_line(name: str, line_end: str) -> None:
    """Break lines also within a byte, and within ``0x``."""
    secret = "aB3dE5gH7+1/0pQ"
    secrets = Secrets(mappings=[{"Password": secret}])
    code = ENCODINGS[name](secret).replace("\n", "")
    for width in (2, 3, 5, 7, 8, 11, 13, 16, 23, 31):
        for first in (1, 2, 3, 5):
            broken = line_end.join([code[:first], wrapped(code[first:], width, line_end)])
            masker = LineMasker(secrets)
            lines = f"so: {broken}\nuvw\n".encode().splitlines(keepends=True)
            shown = "".join([*map(masker.feed, lines), masker.close()])
            assert MASK in shown, (width, first)
            digits = re.sub(r"\\x|0[\\\s]*x|[^0-9a-fA-F]", "", shown)
            assert len(digits) <= 4, (width, first, shown)


def test_a_line_that_begins_no_secret_is_passed_on_at_once() -> None:
    masker = LineMasker(Secrets(mappings=[{"Password": "aB3dE5gH7jK9"}]))
    assert masker.feed(b"server is listening\n") == "server is listening\n"
    assert masker.feed(b"ends with aB\n") == "ends with aB\n"
    assert masker.feed(b"3dE5gH7jK9 and more\n") == f"{MASK} and more\n"
    assert masker.feed(b"ends with aB3dE\n") == ""
    assert masker.feed(b"something else\n") == "ends with aB3dE\nsomething else\n"
    assert masker.feed(b"ends with aB3dE\n") == ""
    assert masker.close() == "ends with aB3dE\n"


def test_a_line_that_is_withheld_takes_the_secret_of_the_line_before_along() -> None:
    secrets = Secrets(mappings=[{"A_KEY": "aB3dE5gH7jK9mN1p", "B_KEY": "orange-battery-staple"}])
    masker = LineMasker(secrets)
    first = masker.feed(b"see aB3dE5gH\n7jK9mN1p; 6f 72 61 6e 67 65\n")
    shown = first + masker.feed(b"2d 62 61 74 74 65 72 79 2d 73 74 61 70 6c 65\n") + masker.close()
    assert shown == f"see {MASK}; {MASK}\n"


def test_overlapping_secrets_are_covered_as_one() -> None:
    secrets = Secrets(mappings=[{"A_KEY": "abcdefgh", "B_KEY": "efghijkl", "C_KEY": "ababab"}])
    assert secrets.mask("<abcdefghijkl>") == f"<{MASK}>"
    assert secrets.mask("<abababab>") == f"<{MASK}>"
    assert secrets.mask("password=xxabcdefghyy.") == f"password={MASK}"


def test_what_parameters_name_is_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN", "planted-in-a-variable")
    file = tmp_path / "key.txt"
    file.write_text("planted-in-a-file\n")
    secrets = Secrets(mappings=[{"apiKeyEnv": "MY_OWN", "inner": [{"TokenFile": str(file)}]}])
    assert secrets.mask("planted-in-a-variable planted-in-a-file") == f"{MASK} {MASK}"
    monkeypatch.setenv("MY_OWN", "12345")
    assert Secrets(mappings=[{"apiKeyEnv": "MY_OWN"}]).mask("x12345x") == f"x{MASK}x"
    monkeypatch.setenv("None", "not-a-name")
    assert Secrets(mappings=[{"apiKeyEnv": None}]).mask("not-a-name") == "not-a-name"
    Secrets(mappings=[{"apiKeyEnv": "NOT_SET", "TokenFile": str(tmp_path), "KeyPath": "\0"}])
    (tmp_path / "large").write_bytes(b"large-file" * 100_000)
    assert Secrets(mappings=[{"KeyFile": str(tmp_path / "large")}]).mask("large-file") == "large-file"


def test_names_of_parameters_that_programs_read_stay() -> None:
    secrets = Secrets(mappings=[{"Password": "reasons"}])
    assert secrets.mask_value({"reasons": ["reasons"], "x-reasons": 1}) == {"reasons": [MASK], f"x-{MASK}": 1}


def test_thousands_of_random_secrets() -> None:
    chance = random.Random(20)  # noqa: S311 - the same texts each time the test runs
    letters = codecs.decode(bytes(range(33, 127)), "ascii") + "äß€"
    for _ in range(60):
        secret = "".join(chance.choices(letters, k=chance.randint(8, 60)))
        secrets = Secrets(mappings=[{"token": secret}])
        bare = secret.strip("\"'")
        for name, encode in ENCODINGS.items():
            masked = secrets.mask(f"x {encode(bare)} y")
            assert not bits_in_common(bare, masked), (name, secret, masked)


BROKEN_ANYWHERE = [name for name in ENCODINGS if name not in {"base64, lines of 76", "base64, lines in JSON"}]
"""All encodings but those whose first line is another text, or whose escapes for line ends are broken."""
A_TOKEN = "".join(f"{number * number:04d}{chr(97 + number % 26)}" for number in range(20, 40))


@pytest.mark.parametrize("name", BROKEN_ANYWHERE)
def test_a_token_of_a_hundred_characters_is_masked_in_lines_of_64(name: str) -> None:
    encoded = ENCODINGS[name](A_TOKEN)
    lines = [wrapped(line, 64).split("\n") for line in encoded.split("\n")]
    pieces = [f"{piece}\n" for parts in lines for piece in parts]
    masker = LineMasker(Secrets([A_TOKEN]))
    output = "".join(masker.feed(piece.encode()) for piece in pieces) + masker.close()
    for text in (output, Secrets([A_TOKEN]).mask("".join(pieces))):
        assert MASK in text
        assert [piece for piece in pieces if len(piece) > 14 and piece.strip() in text] == []
