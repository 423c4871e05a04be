"""VALID only if the logs prove it: each record once and well formed, detail log and summary of one run."""

# ruff: noqa: FBT001, PLR0917 - pytest passes parameters by name

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity
from parsers.loadgen import PARSER, parse_folder
from tests.parsers.loadgen.written_logs import DETAIL, RELEASES, STREAMS, SUMMARY, Run

if TYPE_CHECKING:
    from pathlib import Path

VALID, INVALID, FAILED = Validity.VALID, Validity.INVALID, Validity.FAILED
NOT_APPLICABLE = Validity.NOT_APPLICABLE
SCENARIOS = (*STREAMS, "Server", "Offline")
KINDS = [
    pytest.param(
        version,
        scenario,
        tokens,
        inferred,
        id=f"{version}-{scenario}{'-tokens' * tokens}{'-inferred' * inferred}",
    )
    for version, has in RELEASES.items()
    for scenario in SCENARIOS
    for tokens, inferred in ((False, False), (True, False), (False, True))
    if (not tokens or "tokens" in has) and (not inferred or ("inferred" in has and scenario not in STREAMS))
]
OUT_OF_QUERIES = "Ending early: Ran out of generated queries to issue before the minimum query count"


def validity(output: ParsedOutput) -> Validity:
    assert output.verdict is not None
    return output.verdict.validity


def codes(output: ParsedOutput) -> set[str]:
    assert output.verdict is not None
    return {reason.code for reason in output.verdict.reasons}


def messages(output: ParsedOutput) -> str:
    assert output.verdict is not None
    return "\n".join(reason.message for reason in output.verdict.reasons)


def rewrite(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
    assert count, f"{pattern} is not in {path.name}"
    path.write_text(text)


def set_record(folder: Path, key: str, value: str) -> None:
    """Replace the text of a record's value."""
    rewrite(
        folder / DETAIL, rf'("key": "{re.escape(key)}", "value": ).*?(, "time_ms")', rf"\g<1>{value}\g<2>"
    )


# ---- the output of each version and scenario


@pytest.mark.parametrize(("version", "scenario", "tokens", "inferred"), KINDS)
def test_what_a_version_writes_is_valid_as_a_pair_and_each_log_alone(
    tmp_path: Path,
    version: str,
    scenario: str,
    tokens: bool,
    inferred: bool,
) -> None:
    run = Run(version, scenario, tokens, inferred)
    for names in ((DETAIL, SUMMARY), (DETAIL,), (SUMMARY,)):
        output = parse_folder(run.write(tmp_path / str(len(list(tmp_path.iterdir()))), names))
        assert validity(output) is VALID, messages(output)
        assert output.complete


@pytest.mark.parametrize(("version", "scenario", "tokens", "inferred"), KINDS)
def test_each_constraint_that_is_missed_is_invalid(
    tmp_path: Path,
    version: str,
    scenario: str,
    tokens: bool,
    inferred: bool,
) -> None:
    whole = Run(version, scenario, tokens, inferred)
    for key in whole.met:
        run = Run(version, scenario, tokens, inferred, flags={key: False})
        for names in ((DETAIL, SUMMARY), (DETAIL,), (SUMMARY,)):
            output = parse_folder(run.write(tmp_path / f"{key}{len(names)}{names[0]}", names))
            assert validity(output) is INVALID, (key, names)


@pytest.mark.parametrize(("version", "scenario", "tokens", "inferred"), KINDS)
def test_without_any_record_that_the_version_writes_there_is_no_result(
    tmp_path: Path,
    version: str,
    scenario: str,
    tokens: bool,
    inferred: bool,
) -> None:
    run = Run(version, scenario, tokens, inferred)
    folder = run.write(tmp_path)
    lines = (folder / DETAIL).read_text().splitlines(keepends=True)
    needed = {"result_validity", *run.met, "loadgen_version", "effective_scenario"}
    needed |= {"num_errors"} if "num_errors" in run.has else set()
    needed.add(
        str(parse_folder(folder).metrics[0].metadata["loadgen_key"]).replace("generated_", "effective_")
    )
    for key in needed - {"effective_samples_per_query"}:
        (folder / DETAIL).write_text("".join(line for line in lines if f'"key": "{key}"' not in line))
        assert validity(parse_folder(folder)) is not VALID, key
        is_told_elsewhere = "inferred" not in key and (version, scenario) != ("1.1", "MultiStream")
        if key != "effective_scenario" and is_told_elsewhere:
            (folder / SUMMARY).unlink()
            assert validity(parse_folder(folder)) is not VALID, key
            run.write(folder, (SUMMARY,))


def test_a_lone_valid_summary_whose_early_stopping_was_unsuccessful(tmp_path: Path) -> None:
    folder = Run().write(tmp_path, (SUMMARY,))
    rewrite(folder / SUMMARY, "Run successful", "Run unsuccessful")
    assert validity(parse_folder(folder)) is FAILED


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("version", [".5a1", "2.1", "4.1", "6.0.17"])
def test_without_any_line_that_the_version_writes_a_summary_proves_nothing(
    tmp_path: Path, version: str, scenario: str, tokens: bool
) -> None:
    if tokens and "tokens" not in RELEASES[version]:
        return
    run = Run(version, scenario, tokens)
    lines = run.summary().splitlines(keepends=True)
    head = lines[: next(at for at, line in enumerate(lines) if "Additional Stats" in line)]
    needed = [line for line in head if (":" in line or "Results Summary" in line) and "SUT name" not in line]
    needed += [line for line in lines if "errors encountered" in line]
    for line in needed:
        told_twice = "first token" in line or "Completed tokens" in line or "99th percentile estimate" in line
        looks_older = scenario == "Offline" and "Early stopping satisfied" in line
        for names in ((DETAIL, SUMMARY), (SUMMARY,)):
            if names == (SUMMARY,) and (told_twice or looks_older or "99.0th percentile estimate" in line):
                continue
            folder = run.write(tmp_path, (DETAIL,)) if DETAIL in names else tmp_path
            (folder / SUMMARY).write_text("".join(other for other in lines if other is not line))
            if DETAIL not in names:
                (folder / DETAIL).unlink(missing_ok=True)
            try:
                output = parse_folder(folder)
            except ParseError:
                continue
            if not (told_twice and DETAIL in names and "estimate" not in line):
                assert validity(output) is not VALID, line


def test_the_limit_that_multi_stream_of_1_0_missed_is_named(tmp_path: Path) -> None:
    run = Run(".5a1", "MultiStream", flags={"result_perf_constraints_met": False})
    output = parse_folder(run.write(tmp_path))
    assert "latency_limit" in codes(output)


FORMS = ["1.1", "2.0", "4.0", "4.1", "5.0.15", "5.1.2", "6.0.17"]


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_detail_log_and_summary_of_two_versions_are_not_one_run(
    tmp_path: Path, scenario: str, tokens: bool
) -> None:
    for first in FORMS:
        for second in FORMS:
            if tokens and not {"tokens"} <= RELEASES[first] & RELEASES[second]:
                continue
            one, other = Run(first, scenario, tokens), Run(second, scenario, tokens)
            if re.sub(r"\s+", " ", one.summary()) == re.sub(r"\s+", " ", other.summary()):
                continue  # nothing in it distinguishes the two versions
            folder = tmp_path / f"{first}-{second}"
            one.write(folder, (DETAIL,))
            other.write(folder, (SUMMARY,))
            alike = sorted(one.summary().split()) == sorted(other.summary().split())  # in another order
            may_be_either = {first, second} <= {"4.0", "4.1", "5.0.15"}  # 4.0 may have all that 4.1 has
            alike |= (scenario, tokens) == ("Server", True) and may_be_either
            assert (validity(parse_folder(folder)) is VALID) == alike, (first, second)


@pytest.mark.parametrize(
    ("version", "foreign"),
    [("4.1", "num_errors"), ("1.1", "result_tokens_per_second"), ("6.0.17", "result_samples_per_second")],
)
def test_a_record_of_another_version_or_scenario_is_another_runs(
    tmp_path: Path, version: str, foreign: str
) -> None:
    folder = Run(version, "Server").write(tmp_path, (DETAIL,))
    line = next(
        line for line in (folder / DETAIL).read_text().splitlines() if "result_min_queries_met" in line
    )
    with (folder / DETAIL).open("a") as file:
        file.write(line.replace("result_min_queries_met", foreign).replace("true,", "0,", 1) + "\n")
    output = parse_folder(folder)
    assert validity(output) is INVALID
    assert foreign in messages(output)


@pytest.mark.parametrize("version", ["2.1", "6.0.17"])
@pytest.mark.parametrize("scenario", STREAMS)
def test_a_headline_in_the_form_of_another_version(tmp_path: Path, version: str, scenario: str) -> None:
    folder = Run(version, scenario).write(tmp_path)
    old, new = (r"^(\d\d)(th percentile)", r"\g<1>.0\g<2>")
    if version == "6.0.17":
        old, new = (r"^(\d\d)\.0(th percentile)", r"\g<1>\g<2>")
    rewrite(folder / SUMMARY, old, new)
    assert validity(parse_folder(folder)) is not VALID


@pytest.mark.parametrize("key", ["effective_scenario", "effective_test_mode"])
@pytest.mark.parametrize("value", ["{}", "null", '""', "[]"])
def test_scenario_and_mode_that_are_no_text_prove_nothing(tmp_path: Path, key: str, value: str) -> None:
    folder = Run().write(tmp_path)
    set_record(folder, key, value)
    assert validity(parse_folder(folder)) is FAILED


def test_a_version_that_is_none_proves_nothing(tmp_path: Path) -> None:
    folder = Run().write(tmp_path)
    set_record(folder, "loadgen_version", '"x.y @ NA"')
    output = parse_folder(folder)
    assert validity(output) is FAILED
    assert "LoadGen's version" in messages(output)


def test_a_newer_version_is_judged_as_the_newest_known_and_says_so(tmp_path: Path) -> None:
    folder = Run().write(tmp_path)
    set_record(folder, "loadgen_version", '"6.1.3 @ NA"')
    output = parse_folder(folder)
    assert validity(output) is VALID
    assert output.verdict is not None
    assert any("newer than this parser knows" in warning for warning in output.verdict.warnings)


# ---- seen VALID


@pytest.mark.parametrize(
    "value", ["NaN", "nan", '"VALIDX"', '"valid"', '""', "true", "1", "null", '"INVALID"']
)
@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (DETAIL,)])
def test_only_valid_itself_is_valid_in_the_detail_log(
    tmp_path: Path, value: str, names: tuple[str, ...]
) -> None:
    folder = Run().write(tmp_path, names)
    set_record(folder, "result_validity", value)
    assert validity(parse_folder(folder)) is (INVALID if value == '"INVALID"' else FAILED)


@pytest.mark.parametrize("value", ["NaN", "VALIDX", "valid", "", "VALID VALID", "INVALID"])
@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (SUMMARY,)])
def test_only_valid_itself_is_valid_in_the_summary(
    tmp_path: Path, value: str, names: tuple[str, ...]
) -> None:
    folder = Run().write(tmp_path, names)
    rewrite(folder / SUMMARY, "^Result is : VALID$", f"Result is : {value}")
    assert validity(parse_folder(folder)) is (INVALID if value == "INVALID" else FAILED)


@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (SUMMARY,)])
@pytest.mark.parametrize("word", ["NO", "No", "maybe", "true", "1", ""])
def test_a_summary_whose_constraints_say_no(tmp_path: Path, names: tuple[str, ...], word: str) -> None:
    folder = Run().write(tmp_path, names)
    rewrite(folder / SUMMARY, r"(satisfied ?:) Yes", rf"\g<1> {word}")
    assert validity(parse_folder(folder)) in {INVALID, FAILED}


@pytest.mark.parametrize(
    "key", ["result_perf_constraints_met", "result_min_duration_met", "early_stopping_met"]
)
@pytest.mark.parametrize("value", ["1", '"true"', "null", "NaN", "{}"])
def test_a_constraint_is_true_or_false(tmp_path: Path, key: str, value: str) -> None:
    folder = Run().write(tmp_path, (DETAIL,))
    set_record(folder, key, value)
    assert validity(parse_folder(folder)) is FAILED


@pytest.mark.parametrize(
    ("scenario", "key"),
    [
        ("Server", "result_completed_samples_per_sec"),
        ("Server", "result_99.00_percentile_latency_ns"),
        ("Offline", "result_samples_per_second"),
        ("SingleStream", "early_stopping_latency_ss"),
        ("MultiStream", "early_stopping_latency_ms"),
    ],
)
@pytest.mark.parametrize("value", ["NaN", "-inf", "-1", '"12"', "true", "1e999", "9" * 30, "[]"])
def test_the_score_and_what_it_rests_on_are_finite_and_well_formed(
    tmp_path: Path, scenario: str, key: str, value: str
) -> None:
    for tokens in (False, True):
        if tokens and key == "early_stopping_latency_ss":
            continue
        folder = Run(scenario=scenario, tokens=tokens).write(tmp_path / str(tokens), (DETAIL,))
        set_record(folder, key, value)
        assert validity(parse_folder(folder)) is not VALID


@pytest.mark.parametrize("key", ["result_99.00_percentile_latency_ns", "result_99.90_percentile_latency_ns"])
@pytest.mark.parametrize("value", ["0", "-5", "1.5e300"])
def test_a_latency_is_a_positive_number_of_64_bits(tmp_path: Path, key: str, value: str) -> None:
    folder = Run().write(tmp_path, (DETAIL,))
    set_record(folder, key, value)
    output = parse_folder(folder)
    assert validity(output) is FAILED
    assert f"{key} is not a positive number of nanoseconds" in messages(output)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_score_of_nothing_is_no_valid_result(tmp_path: Path, scenario: str) -> None:
    run = Run(scenario=scenario)
    key = str(parse_folder(run.write(tmp_path)).metrics[0].metadata["loadgen_key"])
    run.write(tmp_path, (DETAIL,))
    (tmp_path / SUMMARY).unlink()
    set_record(tmp_path, key, "0")
    output = parse_folder(tmp_path)
    assert validity(output) is INVALID
    assert "no_score" in codes(output)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_summary_of_an_accuracy_run_beside_a_performance_log(tmp_path: Path, scenario: str) -> None:
    folder = Run(scenario=scenario).write(tmp_path, (DETAIL,))
    (folder / SUMMARY).write_text(
        "\nNo warnings encountered during test.\n\nNo errors encountered during test.\n"
    )
    output = parse_folder(folder)
    assert validity(output) is INVALID
    assert "the summary is that of an accuracy run" in messages(output)


def test_the_summary_of_a_performance_run_beside_an_accuracy_log(tmp_path: Path, logs: Path) -> None:
    (tmp_path / DETAIL).write_text((logs / "accuracy_v6_0" / DETAIL).read_text())
    Run(scenario="Offline").write(tmp_path, (SUMMARY,))
    output = parse_folder(tmp_path)
    assert validity(output) is INVALID
    assert codes(output) == {"logs_disagree"}


@pytest.mark.parametrize("second", [*SCENARIOS, "the same"])
def test_two_runs_in_a_summary_are_no_result(tmp_path: Path, second: str) -> None:
    run = Run()
    other = run if second == "the same" else Run(scenario=second)
    for names in ((DETAIL, SUMMARY), (SUMMARY,)):
        folder = run.write(tmp_path / str(len(names)), names)
        (folder / SUMMARY).write_text(run.summary() + other.summary())
        output = parse_folder(folder)
        assert validity(output) is FAILED
        assert "several_runs" in codes(output)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("keep_heads", [True, False])
def test_the_logs_of_two_scenarios_joined_are_no_result(
    tmp_path: Path, scenario: str, keep_heads: bool
) -> None:
    other = "Offline" if scenario == "Server" else "Server"
    folder = Run(scenario=scenario).write(tmp_path, (DETAIL,))
    second = Run(scenario=other).detail().splitlines(keepends=True)
    if not keep_heads:
        second = [line for line in second if '"key": "result_' in line or "num_errors" in line]
    (folder / DETAIL).write_text((folder / DETAIL).read_text() + "".join(second))
    output = parse_folder(folder)
    assert validity(output) is FAILED
    assert "several_runs" in codes(output)


def test_the_summary_of_another_scenario_is_another_runs(tmp_path: Path) -> None:
    folder = Run(scenario="Server").write(tmp_path, (DETAIL,))
    Run(scenario="Offline").write(folder, (SUMMARY,))
    output = parse_folder(folder)
    assert validity(output) is not VALID
    assert "the scenario is Offline in the summary and Server in the detail log" in messages(output)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        (r"^(Mode     : ).*", r"\g<1>SubmissionRun"),
        (r"^(SUT name : ).*", r"\g<1>another"),
        (r"^(schedule_rng_seed : ).*", r"\g<1>16159082839903944937"),
        (r"^(qsl_rng_seed : ).*", r"\g<1>2085463073848966841"),
        (r"^(target_qps : ).*", r"\g<1>301"),
        (r"^(min_duration \(ms\): ).*", r"\g<1>60000"),
        (r"^(min_query_count : ).*", r"\g<1>101"),
        (r"^(performance_issue_same : ).*", r"\g<1>1"),
        (r"^(target_latency \(ns\): ).*", r"\g<1>130000001"),
        (r"^(Completed samples per second +: ).*", r"\g<1>299.83"),
        (r"^(99.00 percentile latency \(ns\) +: ).*", r"\g<1>97000292"),
        (r"^(Mean latency \(ns\) +: ).*", r"\g<1>53456788"),
    ],
)
def test_whatever_both_logs_say_is_the_same(tmp_path: Path, pattern: str, replacement: str) -> None:
    folder = Run().write(tmp_path)
    rewrite(folder / SUMMARY, pattern, replacement)
    output = parse_folder(folder)
    assert validity(output) is INVALID
    assert codes(output) == {"logs_disagree"}


@pytest.mark.parametrize(
    ("line", "logged", "agree"),
    [
        ("299.82", "299.819", True),
        ("299.82", "299.824", True),
        ("299.82", "299.826", False),
        ("299.819", "299.819", True),
        ("299.819", "299.820", False),
        ("1042113.42", "1.04211e+06", True),
        ("1042105.00", "1.04211e+06", True),
        ("1042104.00", "1.04211e+06", False),
        ("123456.78", "123457", True),
        ("123456.40", "123457", False),
    ],
)
def test_numbers_agree_to_the_digits_that_are_written(
    tmp_path: Path, line: str, logged: str, *, agree: bool
) -> None:
    folder = Run().write(tmp_path)
    rewrite(folder / SUMMARY, r"^(Completed samples per second +: ).*", rf"\g<1>{line}")
    set_record(folder, "result_completed_samples_per_sec", logged)
    assert ("logs_disagree" not in codes(parse_folder(folder))) == agree


@pytest.mark.parametrize("value", ["9" * 400, "-" + "9" * 400, "1e300"])
def test_a_number_beyond_64_bits_is_no_number(tmp_path: Path, value: str) -> None:
    folder = Run().write(tmp_path)
    for key in ("result_min_latency_ns", "effective_target_qps", "result_99.00_percentile_latency_ns"):
        set_record(folder, key, value)
        assert validity(parse_folder(folder)) is not VALID


def test_a_number_that_one_log_has_and_the_other_has_as_nan(tmp_path: Path) -> None:
    folder = Run().write(tmp_path)
    set_record(folder, "result_min_latency_ns", "NaN")
    assert validity(parse_folder(folder)) is INVALID


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("tokens", [False, True])
def test_token_latencies_are_in_both_logs_or_in_none(tmp_path: Path, scenario: str, tokens: bool) -> None:
    folder = Run("5.1.2", scenario, tokens).write(tmp_path, (DETAIL,))
    Run("5.1.2", scenario, not tokens).write(folder, (SUMMARY,))
    output = parse_folder(folder)
    assert validity(output) is not VALID
    assert "token latencies are in the" in messages(output) or validity(output) is FAILED


def test_a_name_that_ends_in_a_null_byte_is_the_same_name(tmp_path: Path) -> None:
    folder = Run().write(tmp_path)
    set_record(folder, "sut_name", r'"SUT\\u0000"')
    assert validity(parse_folder(folder)) is VALID


@pytest.mark.parametrize("content", [b"", b"\n", b"half a line", b"\xff\xfe"])
def test_a_summary_that_is_empty_or_none_is_incomplete(tmp_path: Path, content: bytes) -> None:
    folder = Run().write(tmp_path)
    (folder / SUMMARY).write_bytes(content)
    output = parse_folder(folder)
    assert validity(output) is FAILED
    assert "incomplete_log" in codes(output)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("result_50.00_percentile_latency_ns", "98000291"),
        ("result_max_latency_ns", "97000292"),
        ("result_min_latency_ns", "60000000"),
        ("requested_scenario", '"Offline"'),
        ("requested_test_mode", '"AccuracyOnly"'),
    ],
)
def test_records_that_contradict_each_other(tmp_path: Path, key: str, value: str) -> None:
    folder = Run().write(tmp_path, (DETAIL,))
    set_record(folder, key, value)
    output = parse_folder(folder)
    assert validity(output) is INVALID
    assert codes(output) == {"contradiction"}


@pytest.mark.parametrize(
    ("scenario", "key"),
    [("SingleStream", "early_stopping_latency_ss"), ("MultiStream", "early_stopping_latency_ms")],
)
def test_an_estimate_that_its_own_text_does_not_say(tmp_path: Path, scenario: str, key: str) -> None:
    folder = Run(scenario=scenario).write(tmp_path, (DETAIL,))
    set_record(folder, key, "99000457")
    output = parse_folder(folder)
    assert validity(output) is INVALID
    assert "contradiction" in codes(output)


# ---- seen INVALID or FAILED


@pytest.mark.parametrize("version", ["1.1", "2.1", "4.0", "5.1.0", "6.0.17"])
@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (SUMMARY,)])
def test_a_limit_of_100_ms_is_retinanets_own(tmp_path: Path, version: str, names: tuple[str, ...]) -> None:
    run = Run(version, settings={"target_latency_ns": 100_000_000})
    output = parse_folder(run.write(tmp_path, names))
    assert validity(output) is VALID, messages(output)


@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (SUMMARY,)])
def test_a_limit_of_100_ms_without_any_configuration_is_loadgens_default(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    seeds = dict.fromkeys(("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"), 0)
    run = Run(settings={"target_latency_ns": 100_000_000, **seeds})
    output = parse_folder(run.write(tmp_path, names))
    assert validity(output) is INVALID
    assert codes(output) == {"limits_default"}


def test_loadgen_1_0_gives_the_version_of_older_ones_and_is_read_as_1_0(tmp_path: Path) -> None:
    output = parse_folder(Run(".5a1").write(tmp_path))
    assert (output.tool_version, validity(output)) == ("1.0", VALID)
    assert output.details["loadgen_version"] == ".5a1 @ 0123456789"


AUDITS = {
    "TEST01": {"accuracy_log_sampling_target": 4096},
    "TEST01 of 1.0": {"accuracy_log_probability": 0.1},
    "TEST04-A": {"performance_issue_unique": True},
    "TEST04-B": {"performance_issue_same": True},
    "TEST06": {"accuracy_log_sampling_target": 100},
    "TEST07": {"accuracy_log_sampling_target": 990, "performance_issue_unique": True},
    "TEST09": {"accuracy_log_sampling_target": 10000, "performance_issue_unique": True},
}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("test", AUDITS)
@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (DETAIL,), (SUMMARY,)])
def test_the_invalid_of_an_audit_run_is_expected(
    tmp_path: Path, test: str, scenario: str, names: tuple[str, ...]
) -> None:
    run = Run(
        scenario=scenario,
        settings=AUDITS[test],
        flags={"result_min_duration_met": False},
        errors=(OUT_OF_QUERIES,),
    )
    output = parse_folder(run.write(tmp_path, names))
    assert validity(output) is NOT_APPLICABLE
    assert output.verdict is not None
    assert any("audit run" in warning for warning in output.verdict.warnings)


@pytest.mark.parametrize("test", AUDITS)
def test_the_valid_of_an_audit_run_is_no_result_where_it_repeats_samples(tmp_path: Path, test: str) -> None:
    repeats = any(name.startswith("performance_issue") for name in AUDITS[test])
    output = parse_folder(Run(settings=AUDITS[test]).write(tmp_path))
    assert validity(output) is (NOT_APPLICABLE if repeats else VALID)


def test_an_audit_run_with_an_error_that_is_not_its_own_is_invalid(tmp_path: Path) -> None:
    run = Run(settings=AUDITS["TEST04-B"], errors=(OUT_OF_QUERIES, "Attempted to complete a sample twice."))
    assert validity(parse_folder(run.write(tmp_path))) is INVALID


def test_an_audit_run_whose_logs_are_of_two_runs_is_invalid(tmp_path: Path) -> None:
    folder = Run(settings=AUDITS["TEST04-B"]).write(tmp_path)
    rewrite(folder / SUMMARY, r"^(Completed samples per second +: ).*", r"\g<1>1.00")
    assert validity(parse_folder(folder)) is INVALID


def test_an_error_makes_every_other_run_invalid(tmp_path: Path) -> None:
    for names in ((DETAIL, SUMMARY), (DETAIL,), (SUMMARY,)):
        output = parse_folder(Run(errors=(OUT_OF_QUERIES,)).write(tmp_path / str(names), names))
        assert (validity(output), codes(output)) == (INVALID, {"errors"})


def test_a_time_below_zero_is_left_out_and_told(tmp_path: Path) -> None:
    folder = Run().write(tmp_path)
    set_record(folder, "result_min_latency_ns", "-1587931")
    rewrite(folder / SUMMARY, r"^(Min latency \(ns\) +: ).*", r"\g<1>-1587931")
    output = parse_folder(folder)
    assert validity(output) is VALID
    assert "latency_min" not in {metric.name for metric in output.metrics}
    assert output.verdict is not None
    assert any("result_min_latency_ns (-1.58793e+06)" in warning for warning in output.verdict.warnings)


@pytest.mark.parametrize("scenario", ["Server", *STREAMS])
def test_a_summary_alone_says_how_many_queries_are_missing(tmp_path: Path, scenario: str) -> None:
    run = Run(scenario=scenario, flags={"early_stopping_met": False})
    output = parse_folder(run.write(tmp_path, (SUMMARY,)))
    assert validity(output) is INVALID
    assert "588 queries are too few, needs 47780 more" in messages(output)


# ---- the headline


@pytest.mark.parametrize(
    ("version", "scenario", "tokens", "first", "beside"),
    [
        ("1.1", "SingleStream", False, "latency_p90", None),
        (".5a1", "MultiStream", False, "samples_per_query", None),
        ("3.1", "Server", False, "scheduled_samples_per_second", "latency_p99"),
        ("4.1", "Server", False, "samples_per_second", "latency_p99"),
        ("2.0", "SingleStream", False, "early_stopping_latency_p90", "latency_p90"),
        ("6.0.17", "SingleStream", False, "early_stopping_latency_p90", "latency_p90"),
        ("6.0.17", "MultiStream", False, "early_stopping_query_latency_p99", "query_latency_p99"),
        ("6.0.17", "SingleStream", True, "latency_p90", "early_stopping_ttft_p90"),
        ("6.0.17", "Server", True, "tokens_per_second", "samples_per_second"),
        ("6.0.17", "Offline", True, "tokens_per_second", "samples_per_second"),
        ("2.1", "Offline", False, "samples_per_second", None),
    ],
)
def test_the_first_number_is_the_score_of_the_submission_checker(
    tmp_path: Path,
    version: str,
    scenario: str,
    tokens: bool,
    first: str,
    beside: str | None,
) -> None:
    for names in ((DETAIL, SUMMARY), (SUMMARY,)):
        metrics = parse_folder(
            Run(version, scenario, tokens).write(tmp_path / str(len(names)), names)
        ).metrics
        assert (metrics[0].name, metrics[0].verbosity) == (first, 1)
        headlines = {metric.name for metric in metrics if metric.verbosity == 1}
        assert beside is None or beside in headlines


def test_inferred_tokens_are_the_score_where_there_are_any(tmp_path: Path) -> None:
    for scenario in ("Server", "Offline"):
        metrics = parse_folder(Run("5.0.22", scenario, inferred=True).write(tmp_path / scenario)).metrics
        assert metrics[0].name == "inferred_tokens_per_second"


# ---- too old

OLD_DETAIL = (
    '"pid": 81735, "tid": 81735, "ts": {}ns : LoadgenVersionInfo:\n'
    '"pid": 81735, "tid": 81735, "ts": 1ns : version : .5a1\n'
)


def old_summary() -> str:
    """Return a summary as LoadGen 0.5 and 0.7 write it."""
    text = Run(".5a1", "SingleStream").summary()
    for new, old in (
        ("PerformanceOnly", "Performance"),
        ("SingleStream", "Single Stream"),
        ("print_timestamps : 0", "print_timestamps : false"),
    ):
        assert new in text
        text = text.replace(new, old)
    return text


@pytest.mark.parametrize("time", ["10200", "-2253564194"])
@pytest.mark.parametrize("names", [(DETAIL, SUMMARY), (DETAIL,), (SUMMARY,)])
def test_loadgen_0_5_and_0_7_are_refused_as_too_old(
    tmp_path: Path, time: str, names: tuple[str, ...]
) -> None:
    for name, text in ((DETAIL, OLD_DETAIL.format(time)), (SUMMARY, old_summary())):
        if name in names:
            (tmp_path / name).write_text(text)
    with pytest.raises(ParseError, match=r"LoadGen 0.5 or 0.7, which is too old"):
        parse_folder(tmp_path)
    for name in names:
        assert PARSER.recognise(tmp_path / name)
        with pytest.raises(ParseError, match="too old"):
            PARSER.parse(tmp_path / name)


def test_an_accuracy_run_that_permutes_samples_says_the_setting_before_5_0_11(
    tmp_path: Path, logs: Path
) -> None:
    """Use a v4.1 submission of dlrm that answered 330067 samples, and whose log says 660 per query."""
    text = (logs / "accuracy_v6_0" / DETAIL).read_text().replace("6.0.17 @", "4.1 @")
    assert "4.1 @" in text
    record = next(line for line in text.splitlines(keepends=True) if '"power_begin"' in line)
    value = re.search(r'"value": (".*?"), "time_ms"', record)
    assert value is not None

    def judged(samples: int) -> ParsedOutput:
        loaded = record.replace('"power_begin"', '"loaded_qsl_set"').replace(
            value[1], str(list(range(samples))).replace(" ", "")
        )
        (tmp_path / DETAIL).write_text(text.replace(record, loaded + record))
        set_record(tmp_path, "generated_samples_per_query", "7")
        set_record(tmp_path, "effective_accuracy_sample_count", str(30000))
        return parse_folder(tmp_path)

    assert validity(judged(30000)) is NOT_APPLICABLE
    output = judged(29999)
    assert validity(output) is FAILED
    assert "1 of 30000 samples" in messages(output)


@pytest.mark.parametrize("key", ["result_query_count", "result_overlatency_query_count"])
def test_a_count_in_quotes_is_a_number(tmp_path: Path, key: str) -> None:
    """Read both values as numbers: LoadGen 1.1 and 2.0 of early 2022 wrote them as text."""
    folder = Run("2.0").write(tmp_path)
    set_record(folder, key, '"17820"')
    output = parse_folder(folder)
    assert validity(output) is VALID
    assert 17820 in {metric.value for metric in output.metrics}
