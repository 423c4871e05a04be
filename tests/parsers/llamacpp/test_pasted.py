"""The forms of llama.cpp's output that people paste, and several runs in one file.

The files in ``pasted`` have the forms that tools/llama-bench, tools/server, tools/perplexity and tools/cli of
llama.cpp printed from 2023 to 2026, with invented numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity
from parsers.llamacpp.outputs import PARSER, parse_outputs, parse_text

PASTED = Path(__file__).parent / "pasted"


def numbers(output: ParsedOutput) -> dict[str, float]:
    found = {
        f"{metric.scenario}/{metric.name}" if metric.scenario else metric.name: metric.value
        for metric in output.metrics
    }
    assert len(found) == len(output.metrics)  # cases have different names
    return found


@pytest.mark.parametrize(
    ("name", "scenario", "expected"),
    [
        ("bench-markdown.txt", "bench", {
            "pp512/flash_attn=0/prompt_tokens_per_second": 2210.42,
            "pp512/flash_attn=1/prompt_tokens_per_second": 2410,
            "tg128/generation_tokens_per_second_stddev": 0.12,
            "tg128@d4096/generation_tokens_per_second": 44.21}),
        ("bench.sql", "bench", {
            "pp512/prompt_tokens_per_second": 2210.42, "tg128/generation_tokens_per_second": 51.03}),
        ("server-2024.log", "server", {
            "slot0-task0/prompt_tokens_per_second": 46.56, "slot0-task0/generated_tokens": 50,
            "slot0-task0/total_time": 2.30066}),
        ("server-2025.log", "server", {
            "slot1-task7/generation_tokens_per_second": 25, "slot0-task8/generation_tokens_per_second": 50}),
        ("server-2026.log", "server", {
            "slot0-task16/prompt_time": 0.25, "slot0-task16/draft_acceptance": 0.5}),
        ("chat.txt", "chat", {
            "reply-1/prompt_tokens_per_second": 312.5, "reply-2/generation_tokens_per_second": 41}),
        ("timings-spring-2023.log", "generate", {
            "prompt_tokens": 4, "prompt_tokens_per_second": 4, "generation_tokens_per_second": 5}),
        ("hellaswag-2023.txt", "hellaswag", {"hellaswag_acc_norm": 0.75, "hellaswag_tasks": 4}),
        ("hellaswag-2025.txt", "hellaswag", {
            "hellaswag_acc_norm": 0.75, "hellaswag_acc_norm_ci95_low": 0.300642}),
        ("winogrande.txt", "winogrande", {"winogrande_accuracy": 0.722772, "winogrande_tasks": 101}),
        ("kl-divergence-2024.txt", "kl-divergence", {
            "kl_divergence_mean": 0.445132, "kl_divergence_p10": 0.006013}),
        ("kl-divergence-2026.txt", "kl-divergence", {
            "perplexity": 7.082, "perplexity_base": 7.066, "kl_divergence_mean": 0.0009,
            "kl_divergence_p99_9": 0.05, "same_top_token": 0.98231}),
    ],
)  # fmt: skip
def test_every_form_is_read(name: str, scenario: str, expected: dict[str, float]) -> None:
    assert PARSER.recognise(PASTED / name)
    (output,) = PARSER.parse(PASTED / name)
    assert (output.scenario, output.complete, output.validity) == (scenario, True, None)
    found = numbers(output)
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("bench-markdown.txt", "2210.42 ±", "2210,42 ±"),
        ("bench-markdown.txt", "|         51.03 ± 0.12 |", "|         51.03 ± 0.12 | 7 |"),
        ("bench-markdown.txt", "  pp512 |      2210", "  xx512 |      2210"),
        ("bench.sql", "'51.030000'", "'51,030000'"),
        ("bench.sql", "'51.030000'", "'51.030000', '7'"),
        ("server-2025.log", "4000.00 ms", "4000.00 s"),
        ("server-2026.log", "6000.00 ms", "6000,00 ms"),
        ("server-2024.log", "2000.00 ms", "-2000.00 ms"),
        ("chat.txt", "40.5 t/s", "40.5 ms/t"),
        ("chat.txt", "40.5 t/s", "40,5 t/s"),
        ("timings-spring-2023.log", "12600.00 ms", "12,6 s"),
        ("winogrande.txt", "tasks): 72.2772", "tasks): 72,2772"),
        ("kl-divergence-2026.txt", "0.000900 ±", "0,000900 ±"),
        ("kl-divergence-2026.txt", "98.231 ± 0.580 %", "98.231 ± 0.580"),
    ],
)
def test_another_unit_or_a_decimal_comma_is_refused(name: str, old: str, new: str) -> None:
    text = (PASTED / name).read_text()
    assert old in text
    with pytest.raises(ParseError):
        parse_outputs(text.replace(old, new))


def test_a_decimal_comma_is_named_with_its_remedy() -> None:
    line = "llama_perf_context_print: prompt eval time =     927,17 ms /    49 tokens\n"
    with pytest.raises(ParseError, match="decimal comma") as refusal:
        parse_text(line)
    assert "LC_ALL=C" in str(refusal.value.remedy)


def test_timings_of_march_2023_are_refused_by_name() -> None:
    with pytest.raises(ParseError, match="March 2023"):
        parse_text("main:  predict time =  4587.24 ms / 56.63 ms per token\nmain:    total time =  9.0 ms\n")


def test_two_runs_in_one_file_are_two_results_with_their_own_timings() -> None:
    first, second = PARSER.parse(PASTED / "two-runs.log")
    assert (first.scenario, second.scenario) == ("run-1/perplexity", "run-2/perplexity")
    assert (numbers(first)["perplexity"], numbers(second)["perplexity"]) == (7.082, 9.082)
    rates = [numbers(output)["prompt_tokens_per_second"] for output in (first, second)]
    assert rates == [512, 256]


def test_runs_of_two_kinds_in_one_file_are_both_there() -> None:
    text = (PASTED / "two-runs.log").read_text().split("perplexity: tokenizing")[1]
    joined = f"perplexity: tokenizing{text}{(PASTED / 'winogrande.txt').read_text()}"
    assert [output.scenario for output in parse_outputs(joined)] == ["run-1/perplexity", "run-2/winogrande"]
    bench = (PASTED / "bench-markdown.txt").read_text()
    assert [output.scenario for output in parse_outputs(bench + joined)] == [
        "run-1/bench",
        "run-2/perplexity",
        "run-3/winogrande",
    ]


def test_a_run_that_failed_does_not_hide_the_other() -> None:
    text = (PASTED / "two-runs.log").read_text()
    failed = text.replace("PPL = 7.0820 +/- 0.41236", "PPL = nan +/- nan")
    first, second = parse_outputs(failed)
    assert first.validity is Validity.FAILED
    assert numbers(second)["perplexity"] == 9.082


def bench_row(**changes: Any) -> dict[str, Any]:
    row = {
        "build_commit": "a",
        "build_number": 1,
        "model_filename": "m",
        "n_prompt": 16,
        "n_gen": 0,
        "avg_ts": 5.5,
    }
    return row | {"stddev_ts": 0.1} | changes


@pytest.mark.parametrize(
    ("rows", "scenarios"),
    [
        ([bench_row(flash_attn=0), bench_row(flash_attn=1)], {"pp16/flash_attn=0", "pp16/flash_attn=1"}),
        ([bench_row(), bench_row(avg_ts=6)], {"pp16/run-1", "pp16/run-2"}),
        ([bench_row(), bench_row(n_prompt=32)], {"pp16", "pp32"}),
        (
            [bench_row(model_filename="a", type_k="f16"), bench_row(model_filename="b", type_k="q8_0")],
            {"pp16/model_filename=a/type_k=f16", "pp16/model_filename=b/type_k=q8_0"},
        ),
    ],
)
def test_rows_are_told_apart_by_what_differs(rows: list[dict[str, Any]], scenarios: set[str]) -> None:
    text = json.dumps(rows, indent=2)
    output = parse_text(text)
    assert {metric.scenario for metric in output.metrics} == scenarios
    assert all(metric.metadata["n_prompt"] for metric in output.metrics)  # for the deviations too
    two = parse_text(f"{text}\n{text}\n")
    assert len(two.metrics) == 2 * len(output.metrics)
    assert len(numbers(two)) == len(two.metrics)


def test_a_table_without_its_end_is_incomplete() -> None:
    text = (PASTED / "bench-markdown.txt").read_text()
    assert not parse_text(text[: text.index("\nbuild:")]).complete


def test_a_request_without_its_total_is_incomplete() -> None:
    text = (PASTED / "server-2025.log").read_text()
    output = parse_text(text[: text.rindex("      total")])
    assert not output.complete


def test_scores_without_all_tasks_are_incomplete() -> None:
    text = (PASTED / "hellaswag-2025.txt").read_text()
    output = parse_text(text[: text.index("4\t")])
    assert not output.complete
    assert numbers(output)["hellaswag_tasks"] == 3


def test_a_file_named_by_hand_may_have_any_ending(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text((PASTED / "bench-markdown.txt").read_text())
    assert PARSER.recognise(path)
    assert not PARSER.recognise(tmp_path)


def test_powershell_writes_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "bench.txt"
    path.write_bytes((PASTED / "bench-markdown.txt").read_text().encode("utf-16"))
    assert len(PARSER.parse(path)[0].metrics) == 8


def test_llama_bench_s_sql_until_2025_had_another_table() -> None:
    text = (PASTED / "bench.sql").read_text()
    assert numbers(parse_text(text.replace("llama_bench", "test"))) == numbers(parse_text(text))


def test_llama_bench_s_table_until_2024_had_a_blank_in_its_tests() -> None:
    text = (PASTED / "bench-markdown.txt").read_text()
    old = text.replace("pp512", "pp 512").replace("tg128", "tg 128")
    assert numbers(parse_text(old)) == numbers(parse_text(text))
