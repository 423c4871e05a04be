"""Writes a llama GGUF as a folder in Hugging Face's format: ``hugging_face_folder.py GGUF FOLDER``.

Runs inside a benchmark environment with ``gguf`` and ``numpy``. The tests of the converter check that every
tensor is unchanged after conversion back. Source of the order of rows in the query and key weights:
llama.cpp, conversion/llama.py, LlamaModel.permute.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL = 3
"""The type of a token that does not stand for any text (gguf.TokenType.CONTROL)."""


def write(source: Path, folder: Path) -> None:
    """Write the folder, with the weights in F16, and the norms in F32 as in GGUF."""
    reader = gguf.GGUFReader(source)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if name.split(".")[0] in ("llama", "tokenizer")
    }
    folder.mkdir(parents=True, exist_ok=True)
    _config(fields, folder, len(fields["tokenizer.ggml.tokens"]))
    _tokenizer(fields, folder)
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    tensors = {}
    for tensor in reader.tensors:
        parts = tensor.name.split(".")
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        kind = parts[-2]
        if kind in heads:
            rows, columns = values.shape
            pairs = values.reshape(heads[kind], rows // heads[kind] // 2, 2, columns)
            values = pairs.swapaxes(1, 2).reshape(rows, columns)
        layer = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        tensors[f"{layer}{_NAMES[kind]}.weight"] = values.astype(
            np.float32 if values.ndim == 1 else np.float16
        )
    _safetensors(tensors, folder / "model.safetensors")


def _config(fields: dict[str, Any], folder: Path, vocabulary: int) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "max_position_embeddings": fields["llama.context_length"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": fields.get("llama.rope.freq_base", 10000.0),
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "float16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def _tokenizer(fields: dict[str, Any], folder: Path) -> None:
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    special = [
        {"id": index, "content": token, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == _CONTROL
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        }
        | dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
        | dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    named = {name: tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": named["bos"],
        "eos_token": named["eos"],
        "chat_template": fields.get("tokenizer.chat_template"),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))


def _safetensors(tensors: dict[str, Any], path: Path) -> None:
    """Write a safetensors file: header length, header in JSON, bytes (huggingface/safetensors, README)."""
    head, end = {}, 0
    for name, values in tensors.items():
        kind = {"float16": "F16", "float32": "F32"}[values.dtype.name]
        head[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps({"__metadata__": {"format": "pt"}, **head}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(np.ascontiguousarray(values).tobytes() for values in tensors.values())


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
