"""Parts of llama.cpp's output that are easy to misread."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from parsers.llamacpp.bench import batched_rows
from parsers.llamacpp.devices import devices_of, no_gpu
from parsers.llamacpp.multiple_choice import task_results
from parsers.llamacpp.outputs import PARSER, parse_text

if TYPE_CHECKING:
    from agent.core.records import ParsedOutput


def part(name: str, ms: float, count: int, unit: str, rate: float | str) -> str:
    """Return a line of the timings, without the name of the function that printed it."""
    each = f"({ms / count:8.2f} ms per token, {rate:>8} tokens per second)"
    return f"{name:>16} time = {ms:10.2f} ms / {count:5d} {unit:6} {each}\n"


def timings(function: str, *parts: str) -> str:
    return "".join(f"{function}:{line}" for line in parts)


PROMPT = part("prompt eval", 31.02, 9, "tokens", 290.14)
OUTPUT = part("eval", 772.11, 63, "runs", 81.59)
LOAD = "        load time =     112.51 ms\n"
TOTAL = "       total time =     823.06 ms /    72 tokens\n"
OLD_TIMINGS = timings(
    "llama_print_timings", LOAD, part("sample", 8.31, 64, "runs", 7702.49), PROMPT, OUTPUT, TOTAL
)
NEW_TIMINGS = timings(
    "common_perf_print",
    "    sampling time =       2.81 ms\n",
    "    samplers time =       1.60 ms /    73 tokens\n",
    LOAD,
    PROMPT,
    OUTPUT,
    TOTAL,
    " unaccounted time =      17.12 ms /   2.1 %      (total - sampling - prompt eval - eval) / (total)\n",
    "    graphs reused =         62\n",
)
NOTHING_GENERATED = timings(
    "llama_perf_context_print",
    LOAD,
    part("prompt eval", 2000, 1000, "tokens", 500.0),
    part("eval", 0, 1, "runs", "inf"),
    TOTAL,
)
RUNNING = "\ntask\tacc_norm\n1\t100.00000000\n2\t50.00000000\n3\t66.66666667\n4\t50.00000000\n\n"
PERPLEXITY = "perplexity: calculating perplexity over 9 chunks, n_ctx=512\n"
FINAL = "Final result: 50.0000 +/- 28.8675\nRandom chance: 25.0000 +/- 25.0000\n\n"


def values(output: ParsedOutput) -> dict[str, float]:
    return {metric.name: metric.value for metric in output.metrics}


@pytest.mark.parametrize(
    "text", [OLD_TIMINGS, NEW_TIMINGS, OLD_TIMINGS.replace("llama_print_timings", "llama_perf_print")]
)
def test_timings_of_all_times(text: str) -> None:
    output = parse_text(text)
    assert values(output) == {
        "load_time": pytest.approx(0.11251),
        "prompt_tokens_per_second": 290.14,
        "prompt_time": pytest.approx(0.03102),
        "prompt_tokens": 9,
        "generation_tokens_per_second": 81.59,
        "generation_time": pytest.approx(0.77211),
        "generated_tokens": 63,
        "total_time": pytest.approx(0.82306),
    }
    assert output.complete


def test_infinite_tokens_per_second_were_not_measured() -> None:
    found = values(parse_text(NOTHING_GENERATED))
    assert found["prompt_tokens_per_second"] == 500
    assert "generation_tokens_per_second" not in found
    assert "generated_tokens" not in found


@pytest.mark.parametrize(
    "text",
    [
        RUNNING + FINAL + NOTHING_GENERATED,
        NOTHING_GENERATED + RUNNING + FINAL,
        FINAL + NOTHING_GENERATED + RUNNING,
    ],
)
def test_the_final_result_stands_anywhere(text: str) -> None:
    output = parse_text(text)
    assert output.complete
    found = values(output)
    assert found["multiple_choice_accuracy"] == 0.5  # a ratio instead of percent
    assert found["multiple_choice_accuracy_stderr"] == pytest.approx(0.288675)
    assert found["multiple_choice_random_chance"] == 0.25
    assert found["multiple_choice_tasks"] == 4
    assert (
        next(m for m in output.metrics if m.name == "multiple_choice_accuracy").metadata["tool_value"] == 50
    )


def test_what_was_copied_from_a_terminal_has_blanks_for_tabs() -> None:
    assert values(parse_text((RUNNING + FINAL).replace("\t", "   ")))["multiple_choice_tasks"] == 4


def test_running_scores_tell_each_task() -> None:
    assert task_results(RUNNING) == [True, False, True, False]
    with pytest.raises(ParseError, match="after 1 tasks"):
        task_results("1\t100.00000000\n3\t66.66666667\n")


@given(st.lists(st.booleans(), min_size=1, max_size=3000))
def test_running_scores_of_any_length(results: list[bool]) -> None:
    right, lines = 0, []
    for number, result in enumerate(results, 1):
        right += result
        lines.append(f"{number}\t{100 * right / number:.8f}\n")
    assert task_results("".join(lines)) == results


def test_a_score_that_was_cut_is_incomplete() -> None:
    output = parse_text(RUNNING[:-20])
    assert not output.complete
    assert values(output)["multiple_choice_accuracy"] == 0.5
    assert "multiple_choice_accuracy_stderr" not in values(output)


def test_a_single_task_has_no_error() -> None:
    output = parse_text("\ntask\tacc_norm\n1\t100.00000000\n\nFinal result: 100.0000 +/- -nan\n")
    assert values(output) == {"multiple_choice_accuracy": 1, "multiple_choice_tasks": 1}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (
            (
                "\ntask\tacc_norm\n"
                "multiple_choice_score : task 0 does not fit in the context window (requires 2100 tokens)\n"
            ),
            "does not fit",
        ),
        ("multiple_choice_score : calculating TruthfulQA score over 3 tasks.\n", ""),
        (
            (
                "perplexity: calculating perplexity over 2 chunks, n_ctx=512\n"
                "Final estimate: PPL = nan +/- nan\n"
            ),
            "",
        ),
        ("llama_model_quantize: failed to quantize: requantizing\nmain: quantizing 'a' to 'b' as Q4_0\n", ""),
        ('{"build_commit": "a", "n_prompt": 0, "n_gen": 0}\n', ""),
        ("nothing of llama.cpp\n", ""),
    ],
)
def test_no_numbers_are_an_error(text: str, detail: str) -> None:
    with pytest.raises(ParseError) as refusal:
        parse_text(text)
    assert detail in "\n".join(refusal.value.details)


@pytest.mark.parametrize(
    "text",
    [
        PERPLEXITY + "Final estimate: PPL = -9.5 +/- 0.1\n",
        PERPLEXITY + "Final estimate: PPL = 9.5 +/- -0.1\n",
        PERPLEXITY + "[1]-9.5000,",
        RUNNING + FINAL.replace("28.8675", "-28.8675"),
        "Final Winogrande score(4 tasks): 50.0 +/- -1.0\n",
    ],
)
def test_a_perplexity_or_an_error_below_0_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="which is below 0"):
        parse_text(text)


def test_a_perplexity_that_was_cut_is_incomplete() -> None:
    output = parse_text(
        "perplexity: calculating perplexity over 9 chunks, n_ctx=512\n[1]9.5000,[2]10.2500,[3]"
    )
    assert not output.complete
    assert values(output) == {"perplexity": 10.25, "perplexity_chunks": 2}


def test_a_json_array_that_was_cut_is_an_error() -> None:
    with pytest.raises(ParseError, match="was cut"):
        parse_text('[\n  {\n    "build_commit": "a",\n    "n_prompt": 5')


def test_a_cut_line_of_json_is_left_out(tmp_path: Path) -> None:
    row = '{"build_commit": "a", "model_filename": "m", "n_prompt": 16, "n_gen": 0, "avg_ts": 5.5'
    row += ', "stddev_ts": 0.1}\n'
    path = tmp_path / "bench.log"
    path.write_text("$ llama-bench\nload_backend: loaded\n" + row + row[:40])
    assert PARSER.recognise(path)
    (output,) = PARSER.parse(path)
    assert [(m.name, m.value, m.scenario) for m in output.metrics] == [
        ("prompt_tokens_per_second", 5.5, "pp16"),
        ("prompt_tokens_per_second_stddev", 0.1, "pp16"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Final estimate: PPL = -nan(ind) +/- -nan(ind)\n",
        "perplexity: calculating perplexity over 5 chunks\n[1]abc,",
        '{"build_commit": "a", "model_filename": "m", "n_prompt": "x", "n_gen": 0, "avg_ts": 5.5}',
        '{"pp": [], "tg": 8, "pl": 1, "speed_pp": 2.0, "speed_tg": 3.0}',
        '{"pp": 8, "tg": 8, "pl": Infinity, "speed_pp": 2.0, "speed_tg": 3.0}',
    ],
)
def test_what_stands_for_a_number_and_is_none(text: str) -> None:
    with pytest.raises(ParseError):
        parse_text(text)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for whole in (text, OLD_TIMINGS + text, RUNNING + text, "Final estimate: PPL = 3.0 +/- 0.1\n" + text):
        try:
            parse_text(whole)
        except ParseError:
            continue


@given(st.integers(0, len(RUNNING + FINAL + NEW_TIMINGS)))
def test_a_log_cut_at_any_byte(end: int) -> None:
    try:
        output = parse_text((RUNNING + FINAL + NEW_TIMINGS)[:end])
    except ParseError:
        return
    assert 0 <= values(output).get("multiple_choice_accuracy", 0) <= 1


@pytest.mark.parametrize(
    ("text", "layers", "told"),
    [
        ("warning: no usable GPU found, --gpu-layers option will be ignored\nmore", 99, "no usable GPU"),
        (
            "warning: not compiled with GPU offload support, --gpu-layers option will be ignored",
            1,
            "compiled",
        ),
        (
            "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient",
            None,
            "insufficient",
        ),
        ('{"gpu_info": "", "n_gpu_layers": 99}', 99, "gpu_info"),
        ('{"gpu_info": "", "n_gpu_layers": -1}', None, ""),
        ('{"gpu_info": "NVIDIA H100 80GB HBM3", "n_gpu_layers": 99}', 99, ""),
        ("ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", 0, ""),
        ("warning: no usable GPU found, --gpu-layers-draft option will be ignored", 99, ""),
    ],
)
def test_what_a_program_says_of_a_gpu_that_it_does_not_use(text: str, layers: int | None, told: str) -> None:
    assert told in no_gpu(text, layers)
    assert bool(no_gpu(text, layers)) is bool(told)


@pytest.mark.parametrize(
    ("text", "devices", "used"),
    [
        ("Available devices:\n  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80559 MiB free)\n",
         ("CUDA0: NVIDIA H100 80GB HBM3",), True),
        ("load_backend: loaded RPC backend\nAvailable devices:\n  (none)\n", (), False),
        ("Available devices:\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)\n", (), False),
        ("error: invalid parameter for argument: --list-devices\n", None, True),
    ],
)  # fmt: skip
def test_devices_tell_where_a_program_that_says_nothing_computes(
    text: str, devices: tuple[str, ...] | None, *, used: bool
) -> None:
    assert devices_of(text) == devices
    assert bool(no_gpu("", 99, devices)) is not used
    assert not no_gpu("", 0, devices)
    assert not no_gpu("", None, devices)


def test_a_row_behind_a_message_without_an_end_of_line_is_read() -> None:
    row = '{"n_kv_max": 256, "pp": 16, "tg": 4, "pl": 2, "speed_pp": 100.5, "speed_tg": 50.25}'
    (found,) = batched_rows(f"loading: ....{row}\n")
    assert (found["pl"], found["speed_tg"]) == (2, 50.25)
    with pytest.raises(ParseError, match="was cut"):
        batched_rows(f"loading: ....{row[:60]}\n")


@pytest.mark.parametrize(
    ("file", "pattern", "piece"),
    [
        ("kl-divergence-2026.txt", r"(?m)^(Mean +KLD: +)\S+", "0.001\u00b1"),
        ("kl-divergence-2026.txt", r"(?m)^(Mean +KLD: +)\S+", "+/-1"),
        ("kl-divergence-2026.txt", r"(?m)^(Mean +KLD: +)\S+", "<a>"),
    ],
)
def test_a_line_of_any_length_is_read_or_refused_at_once(
    tmp_path: Path, file: str, pattern: str, piece: str
) -> None:
    """Check that no pattern backtracks over a long line."""
    text = (Path(__file__).parent / "pasted" / file).read_text()
    changed, count = re.subn(pattern, lambda found: found[1] + piece * 40_000, text, count=1)
    assert count == 1
    (tmp_path / file).write_text(changed)
    with suppress(ParseError):
        assert parse_path(tmp_path / file)
