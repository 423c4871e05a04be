from __future__ import annotations

import base64
import json
import os
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import secrets as module
from agent.core.secret_shapes import is_secret_name, lower, secret_reference, unfinished_block
from agent.core.secrets import MASK, LineMasker, Secrets, is_reference

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "p@ss'w\"ord/+1 é"


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "hfToken",
        "GITHUB-TOKEN",
        "Password",
        "db_passwd",
        "ApiKey",
        "AWS_SECRET_ACCESS_KEY",
        "key",
        "ssh_private_key",
        "Credential",
        "passphrase",
        "NGC_API_KEY",
        "secrets",
        "HF_TOKEN_READ",
        "apikey",
        "GITHUB_TOKEN_2",
        "dbPassword",
        "AZURE_CLIENT_SECRET",
        "AccountKey",
        "PGPASSWORD",
        "api_keys",
        "MYSQL_PWD",
        "DB_PASS",
        "dbPass",
        "SMTPPASS",
        "pass",
        "Pwd",
        "AWS_CREDS",
        "GITHUB_PAT",
        "passcode",
        "keyPrimary",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokenizer",
        "TokenLatencies",
        "token_count",
        "key_path",
        "KeyFile",
        "keyboard",
        "monkey",
        "scenario_key",
        "PATH",
        "tokens_per_second",
        "TokensPerSecond",
        "passes",
        "KeyCount",
        "NumKeys",
        "key_space",
        "TokenLimit",
        "FirstTokenLimitMs",
        "time_to_first_token",
        "TimePerOutputToken",
        "eos_token",
        "apiKeyEnv",
        "ApiKeyHeader",
        "MaxOutputTokens",
        "TokenBudget",
        "secretName",
        "AWS_ACCESS_KEY_ID",
        "PasswordFile",
        "public_key",
        "sortkey",
        "ms_per_token",
        "EOT token",
        "PWD",
        "OLDPWD",
        "pass@1",
        "pass_rate",
        "first_pass",
        "TestsPass",
        "bypass",
        "compat",
        "pat",
        "PassThrough",
    ],
)
def test_names_that_only_look_like_it(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        json.dumps({"x": SECRET}),
        repr(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        base64.b64encode(f"a:{SECRET}:b".encode()).decode(),
        base64.urlsafe_b64encode(f"ab{SECRET}".encode()).decode(),
    ],
)
def test_a_secret_is_masked_in_every_form(text: str) -> None:
    secrets = Secrets([SECRET])
    masked = secrets.mask(f"before {text} after")
    assert MASK in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for piece in (SECRET, "ord/+1", "ord/%2B1", base64.b64encode(SECRET.encode()).decode()[4:12]):
        assert piece not in masked


PLANTED = "aB3dE5gH7jK9mN1pQ3sT5"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{PLANTED}@host/path",
        f"git clone https://{PLANTED}@github.com/a/b",
        f"postgres://user:{PLANTED}@db:5432/x",
        f"Authorization: Bearer {PLANTED}",
        f'{{"Authorization": "Basic {PLANTED}"}}',
        f"using bearer {PLANTED}",
        f"hf_{PLANTED}",
        f"url?token={PLANTED}&x=1",
        f"HF_TOKEN={PLANTED} python x.py",
        f'"api_key": "{PLANTED}"',
        f"login --password {PLANTED}",
        f"MYSQL_PWD={PLANTED} mysqldump",
        f"DB_PASS='{PLANTED}'",
        f'{{"smtp_pass": "{PLANTED}"}}',
        f"Server=x;Uid=me;Pwd={PLANTED};",
        f"login --registry-token '{PLANTED}'",
        f"ghp_{PLANTED}",
        f"nvapi-{PLANTED}",
        f"Authorization: ApiKey {PLANTED}",
        f"Authorization: {PLANTED} ",
        f"curl -H 'Authorization: Custom {PLANTED} more' https://host/",
        f'Authorization: Digest username="a", realm="b", response="{PLANTED}"',
        f'"Authorization": "Digest username=\\"a\\", response=\\"{PLANTED}\\""',
        f'{{\\"authorization\\": \\"ApiKey {PLANTED}\\"}}',
        f"Proxy-Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature={PLANTED}\r\nHost: x",
        f"https://a.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig={PLANTED}%3D",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={PLANTED}==;EndpointSuffix=x",
        f"Endpoint=sb://x/;SharedAccessKeyName=all;SharedAccessKey={PLANTED}=",
        f"BlobEndpoint=https://x/;SharedAccessSignature=sv=2022&sig={PLANTED}",
        f"SharedAccessSignature sig={PLANTED}&se=1&sr=x",
        f"https://s3.amazonaws.com/b?X-Amz-Credential=c&X-Amz-Signature={PLANTED}",
        f"X-Api-Key: {PLANTED}",
        f"api-key: {PLANTED}",
        f"PRIVATE-TOKEN: {PLANTED}",
        f"curl -H 'X-Auth-Token:{PLANTED}' https://host",
        f"got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{PLANTED}.{PLANTED}",
        f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{PLANTED}\n-----END RSA PRIVATE KEY--",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{PLANTED}\\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}",
        f"İ password={PLANTED}",
    ],
)
def test_secrets_are_known_by_their_shape(text: str) -> None:
    masked = Secrets().mask(text)
    pieces = [PLANTED[at : at + 3] for at in range(len(PLANTED) - 2)]
    assert [piece for piece in pieces if piece in masked] == []
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=1234567",
        "--max-tokens 1234567",
        "ssh://git@github.com/a/b.git",
        "hf_hub_download",
        "tokens: 123456789",
        "https://host/path?x=user:y@z",
        "mail me@example.org",
        "--token-file /etc/token-of-the-host --sort-key first-name",
        "KeyCount=1000000 TokenLimit=131072 apiKeyEnv=OPENAI_API_KEY",
        "design=modern&signal=strong",
        "print_info: EOT token        = 151645 '<|im_end|>'",
        '"ms_per_token": 12.3456, ms_per_token=12.3456789',
        "n_token=1234567",
        "PWD=/srv/workplace OLDPWD=/srv/elsewhere pass@1=0.98765 first_pass=1234567",
        "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBg\n-----END CERTIFICATE-----",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert Secrets(["unrelated"]).mask(text) == text


KEY_BEGINS, KEY_ENDS = "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", None),
        (KEY_BEGINS, 0),
        (f"see {KEY_BEGINS}aB3", 4),
        (f"{KEY_BEGINS}aB3\n{KEY_ENDS}", None),
        (f"{KEY_BEGINS}aB3\n{KEY_ENDS}{KEY_BEGINS}", 58),
        ("-----BEGIN CERTIFICATE-----", None),
    ],
)
def test_a_private_key_that_does_not_end(text: str, start: int | None) -> None:
    assert unfinished_block(text) == start


@pytest.mark.parametrize(("text", "small"), [("AbÉ", "abé"), ("İAİB", "iaib"), ("ΟΔΟΣ", "οδος")])
def test_small_letters_keep_their_places(text: str, small: str) -> None:
    assert lower(text) == small


def test_variables_that_are_short_and_plain_are_not_literals() -> None:
    secrets = Secrets(
        environment={
            "TOKEN": "abc", "PASSWORD": "enabled", "DB_KEY": "1000000", "ADMIN_KEY": "131072.5",
            "PGPASSWORD": "password", "A_TOKEN": "Secret", "PWD": "/srv/work",
        }
    )  # fmt: skip
    text = "abc enabled True None 1000000 keys 131072.5 password of a Secret /srv/work"
    assert secrets.mask(text) == text


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        ("orange", "xorangey oranges Orange", "x***y ***s Orange"),
        ("1234", "id 991234.5, 1234", "id 99***.5, ***"),
        (123456, "a123456b", "a***b"),
        ("abc", "abc abcd xabc a-abc-b", "*** abcd xabc a-***-b"),
        ("password", "a password of password1 is Password", "a *** of password1 is Password"),
        ("ab", "ab", "ab"),
        (True, "True true", "True true"),
        ("none", "none None", "none None"),
        (["{Key}", "first1", {"token": "sec2"}], "first1 sec2x", "*** ***x"),
        ({"token": "sec1"}, "sec1x", "***x"),
    ],
)
def test_the_value_of_a_secret_parameter_is_masked_wherever_it_stands(
    value: object, text: str, masked: str
) -> None:
    assert Secrets(mappings=[{"Password": value}]).mask(text) == masked


def test_a_number_too_long_for_a_count_is_a_secret() -> None:
    assert Secrets(["12345678901234567890"]).mask("x12345678901234567890") == f"x{MASK}"


def test_a_word_is_masked_only_where_it_stands_alone() -> None:
    secrets = Secrets(["orange"])
    assert secrets.mask("orange oranges --orange-juice ORANGE") == f"{MASK} oranges --{MASK}-juice ORANGE"
    assert secrets.mask(base64.b64encode(b"user:orange1").decode()) == f"dXNlcj{MASK}x"


def test_words_do_not_hide_a_secret_of_two_lines() -> None:
    words = "orange banana cherry damson quince medlar"
    assert Secrets([*words.split(), "planted-1-abc"]).mask(f"plan\nted-1-abc {words}") == " ".join([MASK] * 7)


def test_a_header_s_end_ends_its_secret() -> None:
    masked = Secrets().mask(f"curl -H 'Authorization: ApiKey {PLANTED}' https://host\nnext line")
    assert masked == f"curl -H 'Authorization: ApiKey {MASK}' https://host\nnext line"


HOSTILE = {
    "dashes": "-",
    "options": "--a",
    "option names": "--token-",
    "spaces": "token ",
    "authorization": "authorization:",
    "authorization in quotes": "'authorization': ",
    "bearers": "bearer ",
    "urls": "http://a:b",
    "credentials": "://:",
    "web tokens": "eyJaaaaaaaaaa-",
    "web tokens of parts": "eyJaaaaaaaaaa.a",
    "private keys": "-----BEGIN PRIVATE KEY-----",
    "beginnings": "-----BEGIN ",
    "headers": "x-x-x-x-x-",
    "hugging face": "hf_aaaaaaaa_",
    "signatures": "&sig=",
    "names": "password",
    "quotes": "token\\\\\\'",
    "prefixes": "sk-",
    "numbers": "9",
    "letters": "a",
    "blanks": " ",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("start", ["", "authorization: '", "://password="])
def test_no_text_makes_masking_slow(piece: str, start: str) -> None:
    secrets = Secrets(["planted-secret", "orange"])
    text = start + piece * (200_000 // len(piece))

    def seconds(length: int) -> float:
        shorter = text[:length]
        times = []
        for _ in range(2):
            started = time.process_time()
            secrets.mask(shorter)
            times.append(time.process_time() - started)
        return min(times)

    # Twice the text takes twice the time; at these lengths, four times the time would be noticed.
    assert seconds(200_000) < 3 * seconds(100_000) + 0.02


@given(st.lists(st.sampled_from([*HOSTILE.values(), "=", ":", "'", '"', "\n", "\\", "@", "{"]), max_size=40))
@hypothesis.settings(deadline=1000)
def test_any_mixture_is_masked(pieces: list[str]) -> None:
    assert isinstance(Secrets().mask("".join(pieces * 20)), str)


def test_values_come_from_environments_and_parameters_at_any_depth() -> None:
    secrets = Secrets(mappings=[{"env": {"HF_TOKEN": ' "first-secret" '}, "Passwords": ["second-secret"]}])
    assert secrets.mask("first-secret, second-secret, HF_TOKEN") == f"{MASK}, {MASK}, HF_TOKEN"


def test_a_longer_secret_wins_over_its_beginning() -> None:
    assert Secrets(["secret-1", "secret-1-and-more"]).mask("secret-1-and-more") == MASK


def test_a_private_key_is_masked_line_by_line() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----"
    assert Secrets([key]).mask("got MIIEvQIBADANBg\nkqhkiG9w0BAQEF.") == f"got {MASK}\n{MASK}."


def test_structures() -> None:
    secrets = Secrets(["planted-secret"])
    value = {
        "password": "abc",
        "token": None,
        "api_key": ["a", "b"],
        "credentials": {"user": "x"},
        "max_tokens": 10,
        "path": Path("/x/planted-secret"),
        "list": ["planted-secret", 3, 1.5, True],
        "raw": b"planted-secret",
    }
    assert secrets.mask_value(value) == {
        "password": MASK,
        "token": None,
        "api_key": [MASK, MASK],
        "credentials": {"user": MASK},
        "max_tokens": 10,
        "path": Path("/x") / MASK,
        "list": [MASK, 3, 1.5, True],
        "raw": MASK.encode(),
    }


@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=4, max_size=40).map("{}x7".format),
    st.text(max_size=20),
    st.sampled_from([str, quote, repr, json.dumps, lambda text: base64.b64encode(text.encode()).decode()]),
)
def test_any_secret_in_any_form_and_place(secret: str, around: str, form: Callable[[str], str]) -> None:
    secrets = Secrets()
    secrets.add(secret)
    bare = secret.strip().strip("\"'").strip()
    hypothesis.assume(len(bare) > 5)  # blanks are not counted, and neither are quotes at the ends
    masked = secrets.mask(f"{around} {form(bare)} {around}")
    assert MASK in masked
    hypothesis.assume(bare not in "***" + around)
    assert bare not in masked


def test_a_traceback_is_masked() -> None:
    try:
        raise ValueError(f"no access with {SECRET}")
    except ValueError:
        text = Secrets([SECRET]).mask(traceback.format_exc())
    assert SECRET not in text
    assert "ValueError: no access with ***" in text


@given(st.integers(0, 60), st.integers(0, 60), st.sampled_from(["\n", "\r\n", "\r", " "]))
def test_a_secret_split_over_pieces(first: int, second: int, separator: str) -> None:
    text = f"see {SECRET}{separator}and {SECRET}\n".encode()
    one, two = sorted((first, second))
    masker = LineMasker(Secrets([SECRET]))
    output = "".join(
        [masker.feed(text[:one]), masker.feed(text[one:two]), masker.feed(text[two:]), masker.close()]
    )
    expected = separator if separator == " " else "\n"
    assert output == f"see {MASK}{expected}and {MASK}\n"


@given(st.integers(1, 60))
def test_a_private_key_in_pieces_is_masked_as_a_whole(piece: int) -> None:
    lines = "".join(f"{PLANTED}{number}\n" for number in range(5))
    text = f"before\n-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\nafter\n".encode()
    masker = LineMasker(Secrets())
    output = "".join(
        [*(masker.feed(text[at : at + piece]) for at in range(0, len(text), piece)), masker.close()]
    )
    assert output == f"before\n-----BEGIN PRIVATE KEY-----{MASK}-----END PRIVATE KEY-----\nafter\n"


@given(st.integers(0, 300), st.integers(1, 40))
def test_a_line_without_end_is_passed_on_without_cutting_a_secret(padding: int, piece: int) -> None:
    text = ("x" * padding + "planted-secret-value" + "y" * 300).encode()
    masker = LineMasker(Secrets(["planted-secret-value"]), longest=64)
    parts = [masker.feed(text[at : at + piece]) for at in range(0, len(text), piece)]
    output = "".join([*parts, masker.close()])
    assert output == "x" * padding + MASK + "y" * 300 + "\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("apiKeyEnv", "environment"),
        ("PasswordEnvironmentVariable", "environment"),
        ("TokenFile", "file"),
        ("key_path", "file"),
        ("KeyFileName", "file"),
        ("SecretName", ""),
        ("public_key_path", ""),
        ("apiKey", ""),
        ("PATH", ""),
        ("DB_PASS_FILE", "file"),
        ("KeyFileCount", ""),
    ],
)
def test_parameters_that_name_a_secret(name: str, kind: str) -> None:
    assert secret_reference(name) == kind
    assert module._named_secret(name, "no-such-name") == ""


def test_tuples_stay_tuples_and_bytes_need_not_be_text() -> None:
    secrets = Secrets(["planted-secret"])
    assert secrets.mask_value(("planted-secret", 1)) == (MASK, 1)
    assert secrets.mask_value(b"\xffplanted-secret") == f"\ufffd{MASK}".encode()
    assert secrets.mask_value({"password": ""}) == {"password": ""}
    assert Secrets(mappings=[{"key": "abc"}]).mask("abc_ abc") == f"abc_ {MASK}"


@pytest.mark.parametrize(
    "value", ["$.Parameters.Token", "{Token}", "${HF_TOKEN}", "{PackagePath:token}", '{calculate("a" + "b")}']
)
def test_a_reference_to_a_secret_stays_readable(value: str) -> None:
    assert is_reference(value)
    assert Secrets(mappings=[{"Password": value}]).mask(f"login {value} now") == f"login {value} now"


@pytest.mark.parametrize(
    "value", ["{000000}", "{a}b7dE5gH", "${HF_TOKEN:-hf_value}", "$.9aB3dE5", "{a b c d}"]
)
def test_a_secret_that_begins_as_a_reference_is_masked(value: str) -> None:
    assert Secrets(mappings=[{"Password": value}]).mask(f"login {value} now") == f"login {MASK} now"


LONG = "".join(f"{number * number:05d}{chr(97 + number % 26)}" for number in range(60))
"""A secret of 360 characters, such as a web token or a cloud's key."""


@pytest.mark.parametrize("width", [20, 64, 257, 300, 359])
@pytest.mark.parametrize(
    "form", [str, lambda text: base64.b64encode(text.encode()).decode(), lambda text: text.encode().hex()]
)
def test_a_long_secret_over_many_lines_is_masked(form: Callable[[str], str], width: int) -> None:
    text = form(LONG)
    masker = LineMasker(Secrets([LONG]))
    output = masker.feed(b"begin\n")
    for at in range(0, len(text), width):
        output += masker.feed(f"{text[at : at + width]}\n".encode())
    assert output + masker.feed(b"end\n") + masker.close() == f"begin\n{MASK}\nend\n"


@pytest.mark.parametrize(
    ("secret", "text", "begun"),
    [
        ("a" * 260 + "b" * 10, "a" * 261, (1, 260)),
        ("none", "none", None),
        ("xy12zw", "xy12", (0, 4)),
        ("planted-1", "see %4", (4, 0)),
        ("planted-1", "-" * 2000 + "%4", (2000, 0)),
        ("planted-1", "-" * 2000 + "pla", (2000, 3)),
        (LONG[:256], LONG[:256], None),
        (LONG[:257], LONG[:256], (0, 256)),
    ],
)
def test_where_a_secret_begins(secret: str, text: str, begun: tuple[int, int] | None) -> None:
    assert Secrets([secret]).begun(text) == begun


def test_beginnings_are_indexed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = Secrets(["planted-1"])
    assert secrets.begun("see") is None
    monkeypatch.delattr(Secrets, "_index_beginnings")
    assert secrets.begun("see pla") == (4, 3)


def test_a_text_that_only_begins_like_a_long_secret_is_shown() -> None:
    masker = LineMasker(Secrets([LONG]))
    output = masker.feed(f"{LONG[:300]}\n".encode())
    assert output == ""
    assert masker.feed(b"end\n") + masker.close() == f"{LONG[:300]}\nend\n"


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        pytest.param("ab12c", "ab12c", "ab12c", id="five characters"),
        pytest.param("ab12cd", "xab12cdx", "x***x", id="six characters"),
        pytest.param("123456789012345", "123456789012345", "123456789012345", id="a number of 15 digits"),
        pytest.param("1234567890123456", "1234567890123456", "***", id="a number of 16 digits"),
        pytest.param("changeme", "changeme", "changeme", id="a word in place of a secret"),
        pytest.param("a" * 20, f"x{'a' * 20}", f"x{'a' * 20}", id="a word of 20 letters"),
        pytest.param("q" * 21, f"x{'q' * 21}", "x***", id="21 letters"),
        pytest.param("orange", "6f72616e6765", "***", id="a word of six letters in hexadecimal"),
        pytest.param("ab1ab1ab", "ab1ab1ab1ab", "***", id="two that overlap"),
        pytest.param("jkjkjk", "6A6B6A6B6A6B6A6B", "***", id="two that overlap in hexadecimal"),
        pytest.param("jkjkjk", "6a 6b 6a 6b 6a 6b 6a", "*** 6a", id="one with a blank after each byte"),
        pytest.param("jkjkjk", "6a:6b:6a:6b:6a:6b:6a:6b", "***", id="two that overlap with separators"),
        pytest.param("########", "#########", "***", id="two that share all but one character"),
        pytest.param("planted-1", "planted-1planted-1", "******", id="two side by side"),
        pytest.param("planted-1", "planted-1 planted-1 planted-1", "*** *** ***", id="three"),
        pytest.param("orange", "_orange orange_ orange", "_orange orange_ ***", id="parts of names"),
        pytest.param("orange", "éorange orangeé (orange)", "éorange orangeé (***)", id="parts of words"),
        pytest.param("???>>>???", "Pz8_Pj4-Pz8_ Pz8/Pj4+Pz8/", "*** ***", id="base64 of both kinds"),
        pytest.param("planted-1\\", "pla=\nnted-1\\\n>", "***\\\n>", id="its backslash ends a line"),
        pytest.param("planted-1X", "planted-1 planted-1X", "planted-1 ***", id="its last letter counts"),
        pytest.param("planted-12", "(BsYW50ZWQtMT)", "(***)", id="base64 without its beginning"),
        pytest.param("planted-12", "(kBsYW50ZWQtMT)", "(***)", id="base64 with one character before it"),
        pytest.param("planted-12", "cGxhbnRlZC0xM", "***", id="base64 without its end"),
        pytest.param("planted-1\nplanted-2", "planted-2 planted-1", "*** ***", id="two lines"),
        pytest.param("planted-1\n}", "} planted-1", "} ***", id="a line of one character"),
        pytest.param("planted-1\nab12c", "ab12c", "ab12c", id="a line of five characters"),
        pytest.param("planted-1\nab12cd", "ab12cd", "***", id="a line of six characters"),
        pytest.param("-----BEGIN X-----\nab12cd", "-----BEGIN X-----", "-----BEGIN X-----", id="a headline"),
        pytest.param("planted-1\\", "planted-1\\ x", "*** x", id="a backslash at its end"),
        pytest.param("planted-1", "x='' planted-1", "x='' ***", id="quotes of the shell"),
        pytest.param(" ' planted-1 \" ", "planted-1", "***", id="blanks within quotes"),
    ],
)
def test_where_values_of_the_environment_are_secret(value: str, text: str, masked: str) -> None:
    assert Secrets([value]).mask(text) == masked


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        pytest.param("a1b2", "xa1b2x", "x***x", id="four characters"),
        pytest.param("a1b", "xa1bx a1b", "xa1bx ***", id="three stand alone"),
        pytest.param("123456", "x123456x", "x***x", id="a number"),
        pytest.param("a1b2c", "a1b\n2c", "a1b\n2c", id="five characters in two lines"),
        pytest.param("a1b2c3", "a1b\n2c3", "***", id="six characters in two lines"),
        pytest.param("a1b2\\", "a1b2\\ x", "*** x", id="a backslash after four characters"),
        pytest.param("a%41b2", "xaAb2x", "x***x", id="four characters after decoding"),
        pytest.param("a%41b", "aAb", "aAb", id="three characters after decoding"),
        pytest.param("default", "def\nault", "def\nault", id="a word in two lines"),
        pytest.param("token", "746f6b656e", "746f6b656e", id="a short word in hexadecimal"),
        pytest.param("default", "64656661756c74 default", "*** ***", id="a longer word in hexadecimal"),
    ],
)
def test_where_values_of_secret_parameters_are_secret(value: str, text: str, masked: str) -> None:
    assert Secrets(mappings=[{"Password": value}]).mask(text) == masked


LATIN = b"pl\xe4nted 1"
"""A password in an encoding other than UTF-8."""


@pytest.mark.parametrize(
    "text",
    [
        os.fsdecode(LATIN),
        LATIN.decode("utf-8", "replace"),
        LATIN.decode("latin-1"),
        quote(LATIN),
        quote_plus(LATIN),
        repr(LATIN)[2:-1],
        base64.b64encode(LATIN).decode(),
        LATIN.hex(),
        LATIN.hex(":"),
    ],
)
def test_a_variable_that_is_not_utf_8_is_masked(text: str) -> None:
    masked = Secrets(environment={"DB_PASSWORD": os.fsdecode(LATIN)}).mask(f"<{text}>")
    assert masked.rstrip("=>") == f"<{MASK}"


def test_bytes_of_several_secrets_are_masked() -> None:
    values = ["planted-1", "planted-2"]
    text = " and ".join(value.encode().hex(":") for value in values)
    assert Secrets(values).mask(text) == f"{MASK} and {MASK}"


def test_half_of_a_surrogate_pair_is_masked() -> None:
    assert Secrets(["planted-\ud83d"]).mask("<planted-\ud83d>") == f"<{MASK}>"


def test_a_secret_is_masked_in_texts_that_were_seen_before_it() -> None:
    secrets = Secrets()
    assert secrets.mask("see planted-1") == "see planted-1"
    secrets.add("planted-1")
    assert secrets.mask("see planted-1") == f"see {MASK}"


def test_the_masked_forms_of_short_texts_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    masked: list[str] = []

    def covered(text: str, _: list[tuple[int, int]]) -> str:
        masked.append(text)
        return text

    monkeypatch.setattr(module, "_covered", covered)
    monkeypatch.setattr(module, "_KNOWN_LIMIT", 2)
    secrets = Secrets(["planted-1"])
    short, long = "x" * 200, "x" * 201
    for text in (short, "b", short, "c", "c", short, long, long):
        assert secrets.mask(text) == text
        secrets.add("planted-1")  # which it knows
    assert masked == [short, "b", "c", short, long, long]  # the third short text replaces the first two


def test_a_secret_that_comes_while_a_text_is_masked_is_masked_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets = Secrets()
    covered = module._covered

    def add_behind(text: str, spans: list[tuple[int, int]]) -> str:
        masked = covered(text, spans)
        secrets.add("planted-1")  # as another thread may
        return masked

    monkeypatch.setattr(module, "_covered", add_behind)
    assert secrets.mask("see planted-1") == "see planted-1"
    assert secrets.mask("see planted-1") == f"see {MASK}"


def test_a_file_that_a_parameter_names_is_read_if_it_is_one(tmp_path: Path) -> None:
    key, pipe = tmp_path / "key", tmp_path / "pipe"
    key.write_bytes(b"planted-\xff-secret\n")
    os.mkfifo(pipe)  # reading it would wait for ever
    for place in (key, pipe, tmp_path, tmp_path / "none", "~no-such-account/key", "\0"):
        secrets = Secrets(mappings=[{"apiKeyFile": str(place)}])
        for shown in ("planted-\ufffd-secret", b"planted-\xff-secret".hex()):
            assert secrets.mask(shown) == (MASK if place == key else shown)
        assert bool(module._named_secret("apiKeyFile", str(place))) is (place == key)
    for size, is_masked in ((65_536, True), (65_537, False)):
        key.write_text("planted-1".ljust(size))
        masked = Secrets(mappings=[{"apiKeyFile": str(key)}]).mask("planted-1")
        assert (masked == MASK) is is_masked


def test_names_and_kinds_of_values_in_structures() -> None:
    secrets = Secrets(["planted-thing", "planted_thing"])
    assert secrets.mask_value({"planted-thing": 1, "planted_thing": 2}) == {MASK: 1, "planted_thing": 2}
    assert secrets.mask_value({"token": 5, "password": True, "key": {"a"}}) == {
        "token": MASK,
        "password": True,
        "key": [MASK],
    }
    assert secrets.mask_value(frozenset({"planted-thing"})) == (MASK,)
    assert secrets.mask_value({"token": {"planted-thing": "x"}}) == {"token": {MASK: MASK}}
    assert secrets.mask_values("password=abcdef planted-thing") == f"password=abcdef {MASK}"


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
@pytest.mark.parametrize("secret", ["planted-1", "planted-12", "planted-123"])
def test_every_character_of_base64_with_bits_of_a_secret_is_masked(secret: str, offset: int) -> None:
    text = base64.b64encode(f"{'x' * offset}{secret}yyyy".encode()).decode()
    begin, end = offset * 8 // 6, -(-(offset + len(secret)) * 8 // 6)
    assert Secrets([secret]).mask(text) == text[:begin] + MASK + text[end:]


def test_a_stream_may_hold_and_end_with_bytes_that_are_no_text() -> None:
    masker = LineMasker(Secrets(["planted-1"]))
    assert masker.feed(b"a\xffb planted-1\n") == f"a\ufffdb {MASK}\n"
    assert masker.feed("é".encode()[:1]) == ""
    assert masker.close() == "\ufffd\n"
    assert masker.close() == ""


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ((b"one\r", b"\ntwo\n"), ("", "one\ntwo\n", "")),
        ((b"orange\n", b"orange\n"), (f"{MASK}\n", f"{MASK}\n", "")),
        ((b"one\r", b"two"), ("", "one\n", "two\n")),
        ((b"one\rtwo\rends with planted\n",), ("one\ntwo\n", "ends with planted\n")),
        ((b"one\rtwo\rthree",), ("one\ntwo\n", "three\n")),
        ((b"\rtwo",), ("\n", "two\n")),
        ((b"one\rx",), ("one\n", "x\n")),
        ((b"one\ntwo\nends with planted\n",), ("one\ntwo\n", "ends with planted\n")),
        ((b"\nplanted\n",), ("\n", "planted\n")),
        ((b"pl\n", b"ant\ned\n", b"-1-abc\n"), ("pl\n", "", f"{MASK}\n", "")),
        ((b"ends with pla\n",), ("ends with pla\n", "")),
        ((b"ends with plan\n",), ("", "ends with plan\n")),
        ((b"p\n", b"lanted-1-abc\n"), ("p\n", f"{MASK}\n", "")),
        ((b"ends with plan\r",), ("", "ends with plan\n")),
        ((b"ends with plan\rx",), ("", "ends with plan\nx\n")),
        ((b"\nends with planted\n",), ("\n", "ends with planted\n")),
        ((b"\rends with planted\n",), ("\n", "ends with planted\n")),
        (
            (f"one\n{KEY_BEGINS}aB3\n".encode(), KEY_ENDS.encode()),
            ("one\n", f"{KEY_BEGINS.strip()}{MASK}{KEY_ENDS}", ""),
        ),
        ((b"pl\n", b"anted-1-abc\n"), ("pl\n", f"{MASK}\n", "")),
        ((b"one\ntwo\nends with planted\r-1-abc\n",), (f"one\ntwo\nends with {MASK}\n", "")),
        ((b"ends with pl\n", b"x\nyy pl\nanted\n"), ("ends with pl\n", "x\n", "yy pl\nanted\n")),
    ],
)
def test_the_lines_that_a_piece_completes(pieces: tuple[bytes, ...], shown: tuple[str, ...]) -> None:
    masker = LineMasker(Secrets(["planted-1-abc", "orange"]))
    assert (*map(masker.feed, pieces), masker.close()) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LONG[:63], ""),
        (LONG[:64], f"{LONG[:64]}\n"),
        (f"{'x' * 30}\n{LONG[:20]}", f"{'x' * 30}\n"),
    ],
)
def test_how_much_of_a_secret_is_withheld(text: str, shown: str) -> None:
    assert LineMasker(Secrets([LONG]), longest=64).feed(f"{text}\n".encode()) == shown


@pytest.mark.parametrize(
    ("first", "shown", "second", "rest"),
    [
        (b"planted-\n", "planted-\n", b"1 x\n", f"{MASK} x\n"),
        (b"planted-1", MASK, b"2 x\n", f"{MASK} x\n"),
        (b"planted-1", MASK, b"x\n", "x\n"),
    ],
)
def test_a_secret_too_long_to_withhold_ends_in_the_next_piece(
    first: bytes, shown: str, second: bytes, rest: str
) -> None:
    masker = LineMasker(Secrets(["planted-1", "planted-12"]), longest=4)
    assert (masker.feed(first), masker.feed(second)) == (shown, rest)


@pytest.mark.parametrize(
    ("longest", "shown"), [(28, "x" * 40 + "\n"), (27, f"{'x' * 40}\n{KEY_BEGINS.strip()}{MASK}")]
)
def test_how_much_of_a_private_key_is_withheld(longest: int, shown: str) -> None:
    assert LineMasker(Secrets(), longest=longest).feed(f"{'x' * 40}\n{KEY_BEGINS}".encode()) == shown


@pytest.mark.parametrize(
    ("length", "shown", "rest"),
    [
        (64, "", "x" * 64),
        (65, "x" * 33, "x" * 32),
        (100, "x" * 68, "x" * 32),
    ],
)
def test_an_endless_line_keeps_half_of_the_longest(length: int, shown: str, rest: str) -> None:
    masker = LineMasker(Secrets(["planted-1-abc"]), longest=64)
    assert masker.feed(b"x" * length) == shown
    assert masker.close() == f"{rest}\n"


def test_a_line_is_endless_after_64_kib() -> None:
    assert LineMasker(Secrets()).feed(b"x" * 65_536) == ""
    assert LineMasker(Secrets()).feed(b"x" * 65_537) == "x" * 32_769


@pytest.mark.parametrize(
    ("before", "secret", "behind", "shown"),
    [
        pytest.param(40, 13, 20, "x" * 40, id="the middle is within the secret"),
        pytest.param(32, 13, 32, f"{'x' * 32}{MASK}", id="the middle is the secret's end"),
        pytest.param(45, 13, 19, "x" * 45, id="the middle is the secret's beginning"),
        pytest.param(0, 52, 14, MASK, id="the line begins with the secret"),
    ],
)
def test_an_endless_line_is_cut_beside_a_secret(before: int, secret: int, behind: int, shown: str) -> None:
    planted = LONG[:secret]
    masker = LineMasker(Secrets([planted]), longest=64)
    first = masker.feed(f"{'x' * before}{planted}{'y' * behind}".encode())
    assert first == shown
    assert first + masker.close() == f"{'x' * before}{MASK}{'y' * behind}\n"
