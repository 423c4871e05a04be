"""Makes a llama GGUF of 5 M random parameters with SmolLM2's tokenizer: ``tiny_gguf.py SOURCE OUT``.

Runs inside a benchmark environment with ``gguf`` and ``numpy``. Equal sources give equal bytes. The model
answers as fast as an engine can run, and its answers are nonsense, as the tests require.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH = 96
HEADS = 3
LAYERS = 2
FEED_FORWARD = 256
CONTEXT = 2048
SEED = 20240613


def _tokenizer(reader: Any) -> dict[str, Any]:
    return {name: field for name, field in reader.fields.items() if name.startswith("tokenizer.")}


def _copy(writer: Any, name: str, field: Any) -> None:
    kind = field.types[0]
    writer.add_key_value(name, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None)


def make(source: Path, out: Path) -> None:
    """Write the model to ``out``, completely or not at all."""
    fields = _tokenizer(gguf.GGUFReader(source))
    vocabulary = len(fields["tokenizer.ggml.tokens"].data)
    partial = out.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "llama")
    writer.add_name("tiny random llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for name, field in fields.items():
        _copy(writer, name, field)

    random = np.random.default_rng(SEED)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = random.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        writer.add_tensor(name, values.astype(np.float16))

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    matrix("token_embd.weight", vocabulary, WIDTH)
    norm("output_norm.weight")
    for layer in range(LAYERS):
        norm(f"blk.{layer}.attn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        norm(f"blk.{layer}.ffn_norm.weight")
        matrix(f"blk.{layer}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        matrix(f"blk.{layer}.ffn_up.weight", FEED_FORWARD, WIDTH)
        matrix(f"blk.{layer}.ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(out)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
