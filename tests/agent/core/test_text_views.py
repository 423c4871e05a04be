"""The decoded and joined forms of a text, and the places in the text that they come from."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from agent.core.text_views import (
    begun_hex,
    cut_escape,
    decoded_forms,
    possible_ends,
    separated_hex,
    unfinished,
    views,
)


def encoded(text: str, times: int) -> str:
    for _ in range(times):
        text = quote(text, safe="")
    return text


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("%C3%A9x", "éx"),
        ("%FF%41", "ÿA"),
        ("\\x41\\x42", "AB"),
        ("\\xc3\\xa9\\xe9", "Ã©é"),
        ("\\101\\302\\265", "Aµ"),
        ("\\u0041\\ud83d\\ude00", "A😀"),
        ("\\u{1f600}\\U0001f600", "😀😀"),
        ("\\U0010ffff\\U00110000", "\U0010ffff\ufffd"),
        ("\\n\\t\\a\\b\\f\\r\\v", "\n\t\a\b\f\r\v"),
        ('\\"\\/', '"/'),
        ("a'\"'\"'b'\\''c", "a'b'c"),
        ("&amp;&lt;", "&<"),
        ("&#65;&#x42;&#X43;&#1114112;", "ABC\ufffd"),
        ("&unknown;%41", "&unknown;A"),
    ],
)
def test_each_kind_of_escape(text: str, decoded: str) -> None:
    assert list(decoded_forms(text))[1] == decoded


@pytest.mark.parametrize("times", range(6))
def test_a_text_is_decoded_three_times(times: int) -> None:
    forms = [encoded("a/b", times - done) for done in range(min(times, 3) + 1)]
    text = forms[0]
    assert list(decoded_forms(text)) == forms
    assert [view.text for view in views(text)] == forms
    assert [view.text for view in unfinished(text)] == forms


@pytest.mark.parametrize(
    ("text", "joined", "others"),
    [
        ("ab", [], []),
        ("ab\n", [], []),
        ("\nab", ["ab"], []),
        ("ab\n \n", [], []),
        ("ab\ncd\n", ["abcd"], []),
        ("a\nb\nc", ["abc"], []),
        ("ab  \\\n cd", ["abcd", "ab  \\cd"], []),
        ("ab=\ncd", ["abcd", "ab=cd"], []),
        ("ab   \ncd", ["ab cd"], []),
        (" \ncd", ["cd"], []),
        ("a%4\n1b", ["a%41b", "aAb"], []),
        ("a\\\nnb", ["anb", "a\\nb", "a\nb", "ab"], []),
        ("x%0Ay", ["xy"], ["x\ny"]),
        ("a%2541\nb%4\n1", ["a%2541b%41", "a%41bA", "aAbA", "a%41b%41", "aAbA", "aAb%41", "aAbA"],
         ["a%41\nb%4\n1", "aA\nb%4\n1"]),
    ],
)  # fmt: skip
def test_lines_are_joined_at_each_depth(text: str, joined: list[str], others: list[str]) -> None:
    found = list(views(text))
    assert [view.text for view in found if view.joined] == joined
    assert [view.text for view in found if not view.joined] == [text, *others]


@pytest.mark.parametrize(
    ("text", "form", "places"),
    [
        ("abc", "abc", [(0, 1), (1, 2), (2, 3)]),
        ("ab%C3%A9\\x41cd", "abéAcd", [(0, 1), (1, 2), (2, 8), (8, 12), (12, 13), (13, 14)]),
        ("%41b&lt;", "Ab<", [(0, 3), (3, 4), (4, 8)]),
        ("a%2541", "aA", [(0, 1), (1, 6)]),
        ("a\\101\\303\\251", "aAé", [(0, 1), (1, 5), (5, 13)]),
        ("a'\"'\"'b", "a'b", [(0, 1), (1, 6), (6, 7)]),
        ("%41\\n&lt;'\"'\"'", "A\n<'", [(0, 3), (3, 5), (5, 9), (9, 14)]),
        ("\\xff\\x41", "ÿA", [(0, 4), (4, 8)]),
        ("&bne;x", "=\u20e5x", [(0, 5), (0, 5), (5, 6)]),
        ("ab \\\n cd", "abcd", [(0, 1), (1, 2), (6, 7), (7, 8)]),
        ("\na%4\n1b", "aAb", [(1, 2), (2, 6), (6, 7)]),
    ],
)
def test_where_each_character_of_a_form_comes_from(
    text: str, form: str, places: list[tuple[int, int]]
) -> None:
    (view,) = [view for view in views(text) if view.text == form]
    assert [view.origin(at, at + 1) for at in range(len(form))] == places
    for start, (first, _) in enumerate(places):
        assert [view.origin(start, end + 1)[1] for end in range(start, len(form))] == [
            last for _, last in places[start:]
        ]
        assert view.origin(start, len(form))[0] == first


@pytest.mark.parametrize(
    ("text", "ends", "escape"),
    [
        ("ab", ["ab"], 0),
        (" ab \\ ", [" ab \\", " ab", " ab "], 0),
        ("ab=", ["ab=", "ab"], 0),
        ("ab%4", ["ab%4", "ab"], 2),
        ("ab%4=", ["ab%4=", "ab%4", "ab"], 0),
        ("ab\\u00", ["ab\\u00", "ab"], 4),
        ("ab&#", ["ab&#", "ab"], 2),
        ("ab%C3", ["ab%C3", "ab"], 3),
        ("ab'\"", ["ab'\"", "ab"], 2),
        ("ab\\", ["ab\\", "ab"], 1),
        ("%4", ["%4", ""], 2),
        (f"&{'a' * 31}", [f"&{'a' * 31}", ""], 32),
        (f"&{'a' * 32}", [f"&{'a' * 32}"], 0),
    ],
)
def test_where_a_text_may_end(text: str, ends: list[str], escape: int) -> None:
    assert list(possible_ends(text)) == ends
    assert cut_escape(text) == escape


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("ab ", ["ab"]),
        ("ab\\", ["ab\\", "ab"]),
        ("a%25", ["a%25", "a%", "a"]),
        ("a\nb%4", ["a\nb%4", "ab%4", "a\nb", "ab"]),
        ("a%4\n1\\", ["a%4\n1\\", "a%41\\", "a%4\n1", "a%41", "aA\\", "aA"]),
    ],
)
def test_forms_that_the_next_line_may_continue(text: str, forms: list[str]) -> None:
    assert {view.text for view in unfinished(text)} == set(forms)
    for view in unfinished(text):
        assert view.origin(0, 1) == (0, 1)


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("", None),
        ("g", None),
        ("61626", (0, 5)),
        ("x 61 62", (2, 4)),
        ("0x61, 0x62, 0", (2, 4)),
        ("0x61,\\\n0x6", (2, 3)),
        ("0x61, 0\\\nx62", (2, 4)),
        ("\\x61\\x62", (2, 4)),
        ("6 1 6", (0, 3)),
        ("60 61", (3, 2)),
        ("61 62 63", None),
        ("1661 6", (2, 3)),
        ("aa 6", (3, 1)),
        ("a 6", (2, 1)),
    ],
)
def test_where_hexadecimal_bytes_begin(text: str, begun: tuple[int, int] | None) -> None:
    for codes in (["616263"], ["616263", "1"], ["12ff", "616263"]):
        assert begun_hex(text, codes) == begun
    assert begun_hex(text, []) is None


@pytest.mark.parametrize(
    ("text", "codes", "begun"),
    [
        pytest.param("610\\x66", ["610661"], (0, 5), id="the second reading finds less than the first"),
        pytest.param("g 62", ["616263", "62"], None, id="a short secret is there as a whole"),
    ],
)
def test_the_longest_beginning_of_hexadecimal_bytes(
    text: str, codes: list[str], begun: tuple[int, int] | None
) -> None:
    assert begun_hex(text, codes) == begun


def test_hexadecimal_bytes_with_separators() -> None:
    text = "616263 61:62:63 0x61, 0x62, 0x63 \\x61\\x62\\x63 61 62 64 61    62 63"
    assert [text[start:end] for start, end in separated_hex(text, ["616263", "6264"])] == [
        "616263", "61:62:63", "61, 0x62, 0x63", "61\\x62\\x63", "62 64",
    ]  # fmt: skip
    assert list(separated_hex("66666", ["6666"])) == [(0, 4), (1, 5)]
