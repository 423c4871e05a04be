"""Properties that hold for every text: C#'s arithmetic, and errors that belong to the project."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import ProfileError, VcagentError
from agent.profile import Element, Profile, Variables, check, parse_parameters, parse_timeout, resolve, select
from agent.profile.finding import source_from_text
from agent.profile.loading import load_sources
from agent.profile.yaml_text import plain_scalar

HOST = Variables.of(Platform="linux-x64", LogicalCoreCount=8, Number=5)
PARAMETERS = {"A": "{B}", "B": "00:01:00", "C": "{D}", "D": "{C}", "E": 5, "F": [1, "{E}"]}
PIECES = st.sampled_from(
    [
        "{",
        "}",
        "{{",
        "}}",
        "${",
        "{A}",
        "{C}",
        "{F}",
        "{Platform}",
        "$.Parameters.",
        "$.Parameters.A",
        "{calculate(",
        "{calculat(",
        ")}",
        "(",
        ")",
        '"',
        "'",
        "\\",
        "@",
        "1",
        "2.5",
        "+",
        "-",
        "*",
        "/",
        "%",
        "?",
        ":",
        "&&",
        "||",
        "!",
        "==",
        "<",
        ">",
        "^",
        "|",
        ".",
        ",",
        " ",
        "\n",
        "{B.TotalSeconds}",
        "{PackageDir:",
        "{PackageDir:x}",
        "true",
        "null",
        "Math.Pow",
        "(int)",
        ".Length",
        ".StartsWith(",
        "00:01:00",
        "9" * 20,
        "1e300",
        "\x00",
        "é",
        "__class__",
    ]
)
TEXTS = st.text(max_size=30) | st.lists(PIECES, max_size=12).map("".join)


def value_of(text: Any) -> Any:
    element = Element("action", "X", "a", {"Text": text})
    return resolve(element, Profile("p", "d", parameters=PARAMETERS, actions=(element,)), HOST)["Text"]


@given(TEXTS | st.lists(TEXTS, max_size=3))
def test_any_text_resolves_or_is_refused(text: Any) -> None:
    element = Element("action", "X", "a", {"Text": text})
    profile = Profile("p", "d", parameters=PARAMETERS, actions=(element,))
    with contextlib.suppress(VcagentError):
        resolve(element, profile, HOST)
    with contextlib.suppress(VcagentError):
        check(profile, HOST)


@given(st.lists(PIECES, max_size=10).map("".join))
def test_any_calculation_has_a_value_or_is_refused(inner: str) -> None:
    with contextlib.suppress(ProfileError):
        value_of(f"{{calculate({inner})}}")


@given(st.text(st.characters(blacklist_characters="{}$"), max_size=50))
def test_a_text_without_expressions_stays(text: str) -> None:
    assert value_of(text) == text


@given(TEXTS, st.sampled_from(["profile.yaml", "profile.json"]))
def test_any_file_loads_or_is_refused(text: str, name: str) -> None:
    for content in (text, f"Description: d\nActions:\n- Type: X\n  Parameters: {{A: {text}}}\n"):
        with contextlib.suppress(ProfileError):
            load_sources([source_from_text(content, label=name)])


@given(TEXTS)
def test_any_argument_is_read_or_refused(text: str) -> None:
    for parse in (parse_parameters, parse_timeout):
        with contextlib.suppress(VcagentError):
            parse(text)
    with contextlib.suppress(VcagentError):
        select(Profile("p", "d", actions=(Element("action", "X", "a", {"Scenario": "s"}),)), text)


@given(st.text(max_size=20))
def test_a_scalar_that_is_a_number_keeps_its_digits(text: str) -> None:
    value = plain_scalar(text)
    if isinstance(value, int) and not isinstance(value, bool) and not text.startswith(("0x", "0o")):
        assert int(text) == value
        assert text.lstrip("+-") == str(abs(value))


NUMBERS = st.integers(-1000, 1000)


def quotient(left: int, right: int) -> int:
    """Divide as C# does: round towards zero."""
    return int(left / right)


def trees(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    def both(pair: tuple[tuple[str, Any], tuple[str, Any]], symbol: str) -> tuple[str, Any]:
        (left, a), (right, b) = pair
        text = f"({left} {symbol} {right})"
        if a is None or b is None or (symbol in "/%" and b == 0):
            return text, None
        values = {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "/": lambda: quotient(a, b),
            "%": lambda: a - b * quotient(a, b),
        }
        return text, values[symbol]()

    return st.builds(both, st.tuples(inner, inner), st.sampled_from("+-*/%"))


@given(st.recursive(NUMBERS.map(lambda number: (f"({number})", number)), trees, max_leaves=6))
def test_whole_numbers_calculate_as_in_c_sharp(tree: tuple[str, int | None]) -> None:
    text, expected = tree
    if expected is None:
        with pytest.raises(ProfileError, match="division by zero"):
            value_of(f"{{calculate({text})}}")
    elif abs(expected) < 2**50:
        assert value_of(f"{{calculate({text})}}") == expected


@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=6),
    st.lists(st.sampled_from("+-*"), min_size=5, max_size=5),
)
def test_precedence_is_python_s(numbers: list[int], symbols: list[str]) -> None:
    text = " ".join(f"{number} {symbol}" for number, symbol in zip(numbers, symbols, strict=False))
    text = text.rstrip("+-* ") if len(numbers) <= len(symbols) else f"{text} {numbers[-1]}"
    assert value_of(f"{{calculate({text})}}") == eval(text)  # noqa: S307 - numbers and operators, made above


@given(NUMBERS, NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS, NUMBERS)
def test_comparisons_and_conditionals(a: int, b: int, symbol: str, yes: int, no: int) -> None:
    holds = eval(f"{a} {symbol} {b}")  # noqa: S307 - numbers and an operator, made above
    assert value_of(f"{{calculate({a} {symbol} {b})}}") is holds
    assert value_of(f"{{calculate({a} {symbol} {b} ? {yes} : {no})}}") == (yes if holds else no)
    assert value_of(f"{{calculate(!({a} {symbol} {b}) && true)}}") is not holds


@given(st.text(st.characters(blacklist_characters='{}$\\"', blacklist_categories=["Cs"]), max_size=20))
def test_a_value_in_quotes_is_only_a_value(text: str) -> None:
    element = Element("action", "X", "a", {"Text": '{calculate("{Own}" == "x")}', "Own": text + '" == "'})
    assert resolve(element, Profile("p", "d"), HOST)["Text"] is False


def test_hostile_files_are_refused_fast() -> None:
    for name, text in {
        "a.yaml": "{" * 100_000,
        "b.yaml": "- " * 20_000,
        "c.json": '{"a":' * 20_000,
        "d.json": "[" + "1," * 100_000 + "1]",
        "e.yaml": "a: " + "&x " * 1000,
        "f.json": "/*" * 10_000,
    }.items():
        with contextlib.suppress(ProfileError):
            load_sources([source_from_text(text, label=name)])
