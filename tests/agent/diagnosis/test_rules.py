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
