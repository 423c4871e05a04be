from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_configs.model_identity import model_fingerprint, own_name

LLAMA = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
SMALL = {**LLAMA, "hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152}


def model(folder: Path, config: dict[str, Any] | str) -> str:
    folder.mkdir(parents=True)
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "config.json").write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama3.1-8b"),
        ({**LLAMA, "_name_or_path": "my/finetuned"}, "llama3.1-8b"),
        (SMALL, "SmolLM2"),
        ({**SMALL, "_name_or_path": "HuggingFaceTB/SmolLM2-135M"}, "SmolLM2-135M"),
        ({"model_type": "unknown"}, "llama3.1-8b"),
        ("{", "llama3.1-8b"),
        ("[]", "llama3.1-8b"),
    ],
)
def test_another_model_has_its_own_name(tmp_path: Path, config: dict[str, Any] | str, name: str) -> None:
    assert own_name("llama3.1-8b", model(tmp_path / "SmolLM2", config)) == name


def test_a_snapshot_of_the_hub_is_called_as_there(tmp_path: Path) -> None:
    folder = tmp_path / "models--HuggingFaceTB--SmolLM2-360M" / "snapshots" / "abc"
    model(folder, SMALL)
    link = tmp_path / "llama3-model"
    link.symlink_to(folder)
    assert own_name("llama3.1-8b", str(link)) == "SmolLM2-360M"


def test_no_other_name_is_made_up(tmp_path: Path) -> None:
    assert own_name("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct") == "llama3.1-8b"
    assert own_name("my-model", model(tmp_path / "x", SMALL)) == "my-model"
    assert own_name("llama3.1-8b", model(tmp_path / "llama3.1-8b", SMALL)) == "not-llama3.1-8b"


def test_a_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    first, second = (Path(model(tmp_path / name, SMALL)) for name in ("first", "second"))
    for folder in (first, second):
        with (folder / "model.safetensors").open("wb") as weights:
            weights.truncate(40 * 2**20)
    found = model_fingerprint(first)
    assert len(found) == 64
    assert model_fingerprint(second) == found
    with (second / "model.safetensors").open("r+b") as weights:
        weights.seek(20 * 2**20)
        weights.write(b"other")
    assert model_fingerprint(second) != found
    (first / "tokenizer.json").write_text("{}")
    assert model_fingerprint(first) != found
    assert model_fingerprint(tmp_path) == ""
    assert model_fingerprint(Path("meta-llama/Llama-3.1-8B-Instruct")) == ""
