"""Rule files: the project's own, and SuperBench's."""

from pathlib import Path

import pytest

from agent.core.errors import UsageError
from agent.diagnosis.rules import Function, read_rules

SUPERBENCH = r"""
version: v0.12
superbench:
  var:
    slow: &slow
      function: variance
      criteria: lambda x:x<-0.05
  rules:
    failed:
      function: failure_check
      criteria: lambda x:x>0
      categories: Failed
      metrics:
        - copy-bw/return_code
    copies:
      <<: *slow
      store: True
      categories: Memory
      metrics: copy-bw/(in|out):\d+
    steps:
      categories: Training
      store: True
      metrics:
        - train-small/steps
    both:
      function: multi_rules
      criteria: 'lambda label: bool(label["copies"]>=2 and min(label["steps"].values())<10)'
      categories: Machine
"""


def test_superbench_is_read_as_it_is() -> None:
    failed, copies, steps, both = read_rules(SUPERBENCH, "rules.yaml")
    assert failed.function is Function.FAILURE_CHECK
    assert failed.categories == "Failed"
    assert copies.is_stored
    assert copies.criterion
    assert copies.criterion.holds({"x": -0.06})
    (pattern,) = copies.patterns
    matched = ["copy-bw/in:0", "copy-bw/out:7", "copy-bw/in", "other/copy-bw/in:0", "copy-bwx/in:0"]
    assert [name for name in matched if pattern.matches(name)] == ["copy-bw/in:0", "copy-bw/out:7"]
    assert pattern.matches("copy-bw:numa0/copy-bw/in:0"), "an annotation is not part of the benchmark's name"
    assert steps.function is Function.STORE
    assert both.sources == {"copies", "steps"}


def test_our_patterns() -> None:
    patterns = "['*/Offline/*_per_second', '~ttft_p9[59]$']"
    (rule,) = read_rules(f"rules:\n  r: {{function: value, criteria: x > 1, metrics: {patterns}}}", "r")
    names = ["a/Offline/samples_per_second", "a/Offline/x", "a/Server/ttft_p99", "a/Server/ttft_p999"]
    matched = [name for name in names if any(one.matches(name) for one in rule.patterns)]
    assert matched == ["a/Offline/samples_per_second", "a/Server/ttft_p99"]
    assert rule.categories == "r"


def test_the_rules_of_the_documentation_are_read() -> None:
    page = (Path(__file__).parents[3] / "docs/diagnosis.md").read_text(encoding="utf-8")
    rules = read_rules(page.split("```yaml\n")[1].split("```")[0], "diagnosis.md")
    assert [rule.name for rule in rules] == ["slow", "ran", "hot-gpus", "cooling"]


def _superbench(rule: str) -> str:
    return "superbench:\n  rules:\n    r:\n" + "".join(f"      {line}\n" for line in rule.split("; "))


STORED = "rules:\n  a: {function: value, criteria: x > 1, metrics: [m], store: true}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rules"),
        ("rules: {}", "no rules"),
        ("rules: [", "not valid YAML"),
        ("rule: {}", "did you mean rules"),
        ("rules:\n  a: {}\n  a: {}", "stands twice"),
        ("rules:\n  a: 5", "rules.yaml:2: rule a: it has no keys"),
        ("rules:\n  a: {function: varience, metrics: [m]}", "did you mean variance"),
        ("rules:\n  a: {metrics: [m]}", "there is no function"),
        ("rules:\n  a: {function: value, metrics: [m]}", "criteria is an expression"),
        ("rules:\n  a: {function: value, criteria: x > 1}", "metrics is a list"),
        ("rules:\n  a: {function: value, criteria: x > 1, metircs: [m]}", "did you mean metrics"),
        ("rules:\n  a: {function: value, criteria: z > 1, metrics: [m]}", "'z', which is not known"),
        ("rules:\n  a: {function: value, criteria: x > 1, metrics: ['~(']}", "not a regular expression"),
        ("rules:\n  a: {function: value, criteria: x > 1, metrics: [m], store: 1}", "true or false"),
        ("rules:\n  a: {function: value, criteria: x > 1, metrics: [m], suspect: 1}", "true or false"),
        (STORED.replace("store", "suspect: true, store"), "leave suspect out"),
        ("rules:\n  a: {function: value, criteria: x > 1, metrics: [m], verbosity: high}", "whole number"),
        ("rules:\n  a: {criteria: x > 1, metrics: [m], store: true}", "no function"),
        (STORED + "  b: {function: multi_rules, criteria: 'label[\"c\"] > 1'}", "no rule 'c' before it"),
        (STORED + "  b: {function: multi_rules, criteria: 'label[\"b\"] > 1'}", "no rule 'b' before it"),
        (
            STORED + "  b: {function: multi_rules, criteria: 'max(label[\"a\"].values()) > 1'}",
            "a number of defects",
        ),
        ("superbench: {enable: null, benchmarks: {}}", "format of before 0.4"),
        ("superbench: {rules: {}}", "no rules"),
        (_superbench("function: value; criteria: lambda x:x>0; metrics: [b/m]"), "categories is a text"),
        (_superbench("function: value; criteria: lambda x:x>0; categories: C; metrics: [m]"), "no benchmark"),
        (_superbench("function: failure_check; categories: C; metrics: [b/m]"), "criteria is an expression"),
        (
            _superbench("function: variance; criteria: z > 1; categories: C; metrics: [b/m]"),
            "'z', which is not",
        ),
        (
            _superbench("function: value; criteria: lambda x:x>0; categories: C; metrics: ['b/m\\']"),
            "regular",
        ),
    ],
)
def test_what_is_not_clear_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_rules(text, "rules.yaml")
    assert message in str(caught.value)
    assert "rules.yaml" in str(caught.value)


def own(rule: str, more: str = "") -> str:
    return f"rules:\n  a: {{{rule}}}\n{more}"


JUDGED = "function: value, criteria: x > 1, metrics: [m]"
AFTER = "  b: {function: multi_rules, criteria: 'CRITERIA'}"
PLACE = "rules.yaml:2"
NO_NAMES = "rule a: metrics is a list of names or patterns"


def after(criteria: str, stored: str = f"{JUDGED}, store: true") -> str:
    return own(stored, AFTER.replace("CRITERIA", criteria))


@pytest.mark.parametrize(
    ("text", "where", "message", "remedy"),
    [
        ("rules:\n  a: 1\n  a: 2", "rules.yaml:3", "rules.a: stands twice", "the first is in line 2"),
        ("rules: 5", "rules.yaml:1", "there are no rules", "they stand below rules:, by name"),
        ("[]", "rules.yaml", "there are no rules", "they stand below rules:, by name"),
        ("superbench: 5", "rules.yaml:1", "there are no rules", "they stand below rules:, by name"),
        ("rule: {}", "rules.yaml", "the key 'rule' is not known", "did you mean rules?"),
        (
            "superbench: {}\nversions: 1",
            "rules.yaml:1",
            "the key 'versions' is not known",
            "did you mean version?",
        ),
        ("superbench: {vars: 1}", "rules.yaml:1", "the key 'vars' is not known", "did you mean var?"),
        (
            "version: 1\nsuperbench: {benchmarks: {}}",
            "rules.yaml:2",
            "this is SuperBench's format of before 0.4, with criteria inside of benchmarks",
            "write its rules as SuperBench 0.4 and later have them: superbench: rules:",
        ),
        (
            "rules:\n  a: 5",
            PLACE,
            "rule a: it has no keys",
            "a rule has function, criteria, categories, metrics, store, verbosity, suspect",
        ),
        (
            own(f"{JUDGED}, metircs: 1"),
            PLACE,
            "rule a: the key 'metircs' is not known",
            "did you mean metrics?",
        ),
        (
            own(f"{JUDGED}, store: true, suspect: true"),
            PLACE,
            "rule a: a stored rule does not judge hosts by itself",
            "leave suspect out",
        ),
        (own(f"{JUDGED}, suspect: 1"), PLACE, "rule a: suspect is true or false", None),
        (own(f"{JUDGED}, store: 1"), PLACE, "rule a: store is true or false", None),
        (
            own(f"{JUDGED}, categories: ''"),
            PLACE,
            "rule a: categories is a text that names what its defects are",
            None,
        ),
        (
            own(f"{JUDGED}, verbosity: true"),
            PLACE,
            "rule a: verbosity is a whole number, 1 for headline numbers only",
            None,
        ),
        (
            own("metrics: [m]"),
            PLACE,
            "rule a: there is no function",
            "known: failure_check, multi_rules, value, variance",
        ),
        (own("function: valu"), PLACE, "rule a: there is no function 'valu'", "did you mean value?"),
        (own("function: store"), PLACE, "rule a: there is no function 'store'", None),
        (
            own("criteria: x > 1, metrics: [m], store: true"),
            PLACE,
            "rule a: it has criteria, but no function",
            "say what they are about: function: value",
        ),
        (
            own("function: variance, metrics: [m]"),
            PLACE,
            "rule a: criteria is an expression, such as x < -0.05",
            None,
        ),
        (
            own("function: value, criteria: x > 1"),
            PLACE,
            NO_NAMES,
            None,
        ),
        *(
            (own(f"function: value, criteria: x > 1, metrics: {metrics}"), PLACE, NO_NAMES, None)
            for metrics in ("[]", "5", "{m: 1}", "''", "[5]")
        ),
        (
            _superbench("function: value; criteria: lambda x:x>0; categories: C; metrics: b/m; verbosity: 1"),
            "rules.yaml:3",
            "rule r: the key 'verbosity' is not known",
            "known: categories, criteria, function, metrics, store",
        ),
        (
            own("function: value, criteria: x > 1, metrics: [m, '']"),
            PLACE,
            NO_NAMES,
            None,
        ),
        (
            after('label["c"] > 1'),
            "rules.yaml:3",
            "rule b: no rule 'c' before it keeps its outcome",
            "put it before this one, with store: true; known: a",
        ),
        (
            after('label["a"] > 1', JUDGED),
            "rules.yaml:3",
            "rule b: no rule 'a' before it keeps its outcome",
            "put it before this one, with store: true; none is known here",
        ),
        (
            after('max(label["a"].values()) > 1'),
            "rules.yaml:3",
            'rule b: a keeps a number of defects: use label["a"]',
            None,
        ),
        (
            after('label["a"] > 1', "metrics: [m], store: true"),
            "rules.yaml:3",
            'rule b: a keeps values: use label["a"].values()',
            None,
        ),
        (
            after('label["a"] + max(label["a"].values()) > 1', "metrics: [m], store: true"),
            "rules.yaml:3",
            'rule b: a keeps values: use label["a"].values()',
            None,
        ),
        (
            own("function: multi_rules, criteria: 1 > 2, metrics: [m]"),
            PLACE,
            "rule a: multi_rules judge the outcomes of other rules and take no metrics",
            None,
        ),
    ],
)
def test_a_refusal_names_place_cause_and_remedy(
    text: str, where: str, message: str, remedy: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        read_rules(text, "rules.yaml")
    error = caught.value
    assert (error.message, error.where) == (message, where)
    assert remedy is None or error.remedy == remedy


def test_all_keys_that_stand_twice_are_told() -> None:
    with pytest.raises(UsageError) as caught:
        read_rules("rules:\n  a: 1\n  a: 2\n  b: 1\n  b: 2", "rules.yaml")
    assert (caught.value.message, len(caught.value.details)) == ("2 problems", 2)


def test_rules_are_yaml_whatever_the_name_of_their_file() -> None:
    assert [rule.name for rule in read_rules(own(JUDGED), "rules.json")] == ["a"]


def test_every_key_of_a_rule() -> None:
    text = own(f"{JUDGED}, categories: C, suspect: true, verbosity: 1", "  b: {metrics: n, store: true}")
    first, second = read_rules(text, "r")
    assert first.criterion
    assert (first.name, first.function, first.categories) == ("a", Function.VALUE, "C")
    assert (first.criterion.text, first.is_stored, first.is_suspicion) == ("x > 1", False, True)
    assert (first.sources, second.sources) == (frozenset(), frozenset())
    assert (second.name, second.function, second.categories) == ("b", Function.STORE, "b")
    assert (second.criterion, second.is_stored, second.is_suspicion) == (None, True, False)
    assert [first.is_about("m", verbosity) for verbosity in (1, 2)] == [True, False]
    assert [second.is_about(metric, 5) for metric in ("n", "m")] == [True, False]
    (missing,) = read_rules("rules:\n  a: {function: failure_check, metrics: [m]}", "r")
    assert (missing.criterion, missing.function) == (None, Function.FAILURE_CHECK)


def test_what_a_rule_of_variances_may_use() -> None:
    names = "x z worse chance noise_chance worst worst_chance least_worse hosts"
    criteria = " and ".join(f"{name} > 0" for name in names.split())
    (rule,) = read_rules(f"rules:\n  a: {{function: variance, criteria: {criteria}, metrics: [m]}}", "r")
    assert rule.criterion
    assert set(rule.criterion.names) == set(names.split())
