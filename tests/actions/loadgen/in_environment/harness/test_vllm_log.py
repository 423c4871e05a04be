"""Progress of vLLM's start, read from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actions.loadgen.in_environment.harness.backends.vllm_log import last_news, news_of

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "(EngineCore pid=475) INFO 11-29 01:14:05 [gpu_model_runner.py:1234] "


@pytest.mark.parametrize(
    ("said", "words"),
    [  # messages of vLLM 0.22.1 on an H200
        ("Initializing a V1 LLM engine (v0.22.1) with config: model='/m'", "starting its processes"),
        ("rank 0 in world size 1 is assigned as DP rank 0, PP rank 0", "starting its processes"),
        ("Starting to load model /var/cache/vcagent/packages/llama3-model...", "reading weights"),
        ("Model loading took 8.51 GiB memory and 1.208936 seconds", "tracing the model"),
        ("Dynamo bytecode transform time: 11.85 s", "compiling"),
        ("Cache the graph of compile range (1, 8192) for later use", "compiling"),
        ("Compiling a graph for compile range (1, 8192) takes 11.62 s", "compiling"),
        ("Initial profiling/warmup run took 0.29 s", "measuring its memory"),
        ("Profiling CUDA graph memory: PIECEWISE=11 (largest=64), FULL=7", "measuring its memory"),
        ("Estimated CUDA graph memory: 0.07 GiB total", "measuring its memory"),
        ("Maximum concurrency for 1,024 tokens per request: 1853.86x", "measuring its memory"),
        ("init engine (profile, create kv cache, warmup model) took 47.41 s (compilation:", "warming up"),
    ],
)  # fmt: skip
def test_a_start_is_told_in_words(tmp_path: Path, said: str, words: str) -> None:
    log = tmp_path / "engine.log"
    log.write_text(f"{PREFIX}{said}\n{PREFIX}Using FlashAttention version 3\n")
    assert last_news(log) == words


def test_the_words_follow_the_start_of_an_engine() -> None:
    """Messages of vLLM 0.22.1 on an H200: ten silent seconds pass while the model is traced."""
    lines = """\
(EngineCore pid=1605) INFO 11-29 15:11:53 [weight_utils.py:922] Filesystem type for checkpoints: EXT4.
(EngineCore pid=1605) INFO 11-29 15:11:55 [default_loader.py:397] Loading weights took 1.51 seconds
(EngineCore pid=1605) WARNING 11-29 15:11:55 [kv_cache.py:123] Using KV cache scaling factor 1.0 for fp8_e4m3.
(EngineCore pid=1605) INFO 11-29 15:11:56 [gpu_model_runner.py:5132] Model loading took 8.51 GiB memory and \
3.299772 seconds
(EngineCore pid=1605) INFO 11-29 15:12:06 [backends.py:1089] Using cache directory: /root/.cache/vllm/\
torch_compile_cache/ac2e58de74/rank_0_0/backbone for vLLM's torch.compile
(EngineCore pid=1605) INFO 11-29 15:12:06 [backends.py:1148] Dynamo bytecode transform time: 9.84 s
(EngineCore pid=1605) INFO 11-29 15:12:27 [monitor.py:81] Initial profiling/warmup run took 0.32 s
""".splitlines()
    words = [news_of(line) for line in lines]
    assert words == [
        "", "reading weights", "", "tracing the model", "compiling", "compiling", "measuring its memory",
    ]  # fmt: skip


def test_bars_are_counts(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    bar = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  {}%|██▍   | {}/51 [00:01<00:03]"
    log.write_text(f"{PREFIX}Dynamo bytecode transform time: 5 s\n\r{bar.format(0, 0)}\r{bar.format(24, 12)}")
    assert last_news(log) == "capturing graphs, 12 of 51"


def test_weights_are_told_in_bytes_if_the_folder_has_the_files(tmp_path: Path) -> None:
    for number, gib in enumerate((1.0, 2.0, 5.0), 1):
        with (tmp_path / f"model-0000{number}-of-00003.safetensors").open("wb") as file:
            file.truncate(int(gib * 2**30))  # sparse
    log = tmp_path / "engine.log"
    log.write_text("\rLoading safetensors checkpoint shards:  67% Completed | 2/3 [00:01<00:00,  1.66it/s]\n")
    assert last_news(log, str(tmp_path)) == "reading weights, 3.0 of 8.0 GiB"
    assert last_news(log, "org/name-on-the-hub") == "reading weights, 2 of 3"


def test_other_messages_are_not_shown(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    assert not last_news(log)
    log.write_text(f"{PREFIX}Chunked prefill is enabled with max_num_batched_tokens=8192.\n")
    assert not last_news(log)
