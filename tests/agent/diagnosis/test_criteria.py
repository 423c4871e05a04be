"""The expressions of rules: allowed constructs, and their values."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import UsageError
from agent.diagnosis import criteria
from agent.diagnosis.criteria import parse_criterion

VARIANCE = ("x", "z", "worse")


@pytest.mark.parametrize(
    ("text", "variables", "holds"),
    [
        ("x < -0.05", {"x": -0.06}, True),
        ("lambda x:x<-0.05", {"x": -0.05}, False),
        ("lambda value: value > 0.05", {"x": 0.06}, True),
        ("abs(x) > 0.05 and not z < 3", {"x": -0.1, "z": 4}, True),
        ("0 < x <= 1", {"x": 1}, True),
        ("bool(x) if z else x > 1", {"x": 0.5, "z": 0}, False),
        ("worse > 0.05 and abs(z) > 3.5", {"worse": 0.5, "z": -math.inf}, True),
        ("x % 2 == 1", {"x": 3}, True),
        ("1 / x > 0", {"x": 0}, None),
    ],
)
def test_is_worth(text: str, variables: dict[str, float], *, holds: bool | None) -> None:
    assert parse_criterion(text, VARIANCE).holds(variables) is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('lambda label: bool(label["a"]+label["b"]>=2)', True),
        ('lambda l: min(l["v"].values()) < 1', False),
        ('min(label["none"].values()) < 1', None),
        ('len(label["none"].values()) == 0', True),
        ('label["a"] > 2 or sum(label["v"].values()) / len(label["v"].values()) == 2', True),
    ],
)
def test_combines_outcomes(text: str, *, holds: bool | None) -> None:
    label = {"a": 1, "b": 1, "v": {"one": 1.0, "other": 3.0}, "none": {}}
    assert parse_criterion(text, ("label",)).holds({"label": label}) is holds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x <", "is not an expression"),
        ('lambda label: bool(min(label["r"].values()))<1)', "is not an expression"),
        ("x", "neither true nor false"),
        ("x - 1", "neither true nor false"),
        ("x < 1 or 5", "neither true nor false"),
        ("lambda x, y: x < y", "one argument"),
        ("lambda x=1: x < 1", "one argument"),
        ("lambda y: x < 1", "'x', which is not known"),
        ("wors > 1", "'wors', which is not known"),
        ("x.real > 1", "may not contain 'x.real'"),
        ("x ** 2 > 1", "may not contain"),
        ("x < 1 and __import__('os').system('true')", "may not contain"),
        ("(lambda: x)() < 1", "may not contain"),
        ("[x][0] < 1", "may not contain"),
        ("min(*[x]) < 1", "may not contain"),
        ("round(x, ndigits=1) < 1", "may not contain"),
        ("x in (1, 2)", "may not contain"),
        ("x < '1'", "may not contain"),
        ("(y := x) < 1", "may not contain"),
        ("-" * 200 + "x < 1", "nested deeper"),
        ("x < 1 or " * 500 + "x < 1", "longer than"),
    ],
)
def test_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_criterion(text, VARIANCE)


@pytest.mark.parametrize("text", ["label > 1", 'label["a"].pop() > 1', "label.values() > 1", "label[0] > 1"])
def test_of_outcomes_only_numbers_and_values_are_used(text: str) -> None:
    with pytest.raises(UsageError, match="may not contain"):
        parse_criterion(text, ("label",))


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        criterion = parse_criterion(text, VARIANCE)
    except UsageError:
        return
    assert set(criterion.names.values()) <= set(VARIANCE)


@pytest.mark.parametrize("text", ["True", "False", "x < 1 if x > 0 else False", "not x"])
def test_constants_and_choices_are_true_or_false(text: str) -> None:
    assert parse_criterion(text, ["x"]).text == text


@pytest.mark.parametrize("text", ["x < 1 if x > 0 else x", "x if x > 0 else x < 1", "x < 1 and x"])
def test_a_choice_of_a_number_is_not_true_or_false(text: str) -> None:
    with pytest.raises(UsageError, match="is neither true nor false") as caught:
        parse_criterion(text, ["x"])
    assert str(caught.value.remedy) == "compare something, such as x < -0.05"


@pytest.mark.parametrize("arguments", ["*x", "x, *y", "x, **y", "x, *, y", "x, /", "x=1", "x, y", ""])
def test_a_lambda_takes_exactly_one_plain_argument(arguments: str) -> None:
    with pytest.raises(UsageError, match="must take one argument"):
        parse_criterion(f"lambda {arguments}: 1 < 2", ["x"])


ALLOWED = (
    "a criterion has numbers, comparisons, + - * / // %, and, or, not, if else, abs, bool, float, int, len, "
    'max, min, round, sum, in multi_rules also label["rule"] and label["rule"].values()'
)


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("x\ud800", r"the criterion 'x\ud800' is not an expression: 'utf-8' codec can't encode", None),
        ("x" * 1001, "the criterion is longer than 1000 characters", None),
        ("-" * 60 + "x < 1", "the criterion is nested deeper than 50", None),
        ("lambda x, y: x < y", "the criterion 'lambda x, y: x < y' must take one argument", None),
        ("lambda v: v", "the criterion 'lambda v: v' is neither", "compare something, such as x < -0.05"),
        ("valu < 1", "the criterion 'valu < 1' uses 'valu', which is not known", "did you mean value?"),
        ("rounds(x) < 1", "the criterion 'rounds(x) < 1' may not contain 'rounds(x)'", ALLOWED),
        ("roun < 1", "the criterion 'roun < 1' uses 'roun', which is not known", "did you mean round?"),
        ("x.y < 1", "the criterion 'x.y < 1' may not contain 'x.y'", ALLOWED),
        ("label > 1", "the criterion 'label > 1' may not contain 'label'", ALLOWED),
        ("label[0] > 1", "the criterion 'label[0] > 1' may not contain 'label[0]'", ALLOWED),
    ],
)
def test_a_refusal_says_what_and_why(text: str, message: str, remedy: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_criterion(text, ["x", "value", "label"])
    assert caught.value.message.startswith(message)
    assert caught.value.remedy == remedy


def test_a_syntax_error_is_told_without_a_place() -> None:
    with pytest.raises(UsageError, match=r"^the criterion 'x <' is not an expression: invalid syntax$"):
        parse_criterion("x <", VARIANCE)


def test_a_criterion_says_what_it_uses() -> None:
    text = "lambda l: l['a'] + l['b'] > 1 and min(l['v'].values()) < 1"
    criterion = parse_criterion(text, ["label"])
    assert (criterion.text, criterion.names) == (text, {"l": "label"})
    assert (criterion.counts, criterion.values) == (frozenset("ab"), frozenset("v"))
    assert criterion.uses("label")
    assert not criterion.uses("l")


def test_a_criterion_that_fails_on_a_value_is_named() -> None:
    with pytest.raises(UsageError, match=r"^the criterion 'max\(x\) > 1' cannot be worked out: "):
        parse_criterion("max(x) > 1", VARIANCE).holds({"x": 1})


def test_the_limits_of_length_and_depth_are_exact() -> None:
    longest = "x < 1" + " " * (criteria._LONGEST - 5)
    assert parse_criterion(longest, ["x"]).text == longest
    with pytest.raises(UsageError, match="is longer than"):
        parse_criterion(f"{longest} ", ["x"])
    # not not … (x < 1): each "not" is a level, and the comparison with a name and its context are three.
    deepest = "not " * (criteria._DEEPEST - 3) + "x < 1"
    assert parse_criterion(deepest, ["x"]).holds({"x": 0.0}) is ((criteria._DEEPEST - 3) % 2 == 0)
    with pytest.raises(UsageError, match="is nested deeper than"):
        parse_criterion(f"not {deepest}", ["x"])
