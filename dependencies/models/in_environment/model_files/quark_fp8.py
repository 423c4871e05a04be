"""Quantises a model's weights and activations to fp8 with AMD's Quark.

Runs in an environment with amd-quark, torch and transformers. Quark compiles a part of itself when it is
first used, which needs a C++ compiler. Calls follow quark.experimental.cli.torch_llm_ptq of amd-quark 0.13.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelFilesError
from .prepared import unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SCHEME = "fp8"
_COPIED = ("tokenizer*", "special_tokens_map.json", "generation_config.json", "chat_template*")


def program(config: Mapping[str, Any], tell: Callable[..., None]) -> Mapping[str, Any]:
    """Quantise the model in ``source`` into ``output``.

    ``calibration`` is a file of JSON lines with ``token_ids``: the first ``samples`` are used, each cut to
    ``sequence_length`` tokens. ``kv_cache`` is fp8, or empty to leave the cache as it is.
    """
    source, output = Path(config["source"]), Path(config["output"])
    samples = calibration_samples(
        Path(config["calibration"]), count=config["samples"], longest=config["sequence_length"]
    )
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # each weight is quantised once: compiling takes longer
    tell("importing Quark")
    import torch
    from quark.torch import LLMTemplate, ModelQuantizer, export_safetensors
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"  # torch for ROCm says cuda too
    placed = {"device_map": "auto"} if device == "cuda" else {}
    tell(f"reading the model for {device}")
    model = AutoModelForCausalLM.from_pretrained(str(source), dtype="auto", **placed)
    model.eval()
    kind = model.config.model_type
    try:
        settings = LLMTemplate.get(kind).get_config(
            scheme=_SCHEME, kv_cache_scheme=config["kv_cache"] or None
        )
    except (KeyError, ValueError) as error:
        raise ModelFilesError(
            "quantization",
            f"Quark has no {_SCHEME} settings for models of the type {kind}: {error}",
            "use a checkpoint that is quantised already",
        ) from error
    tell(f"calibrating with {len(samples)} samples")
    first = next(model.parameters()).device
    batches = torch.utils.data.DataLoader(
        [torch.tensor(tokens, device=first) for tokens in samples], batch_size=1
    )
    quantizer = ModelQuantizer(settings)
    model = quantizer.freeze(quantizer.quantize_model(model, batches))
    tell("writing the quantised model")
    with torch.no_grad():
        export_safetensors(
            model=model, output_dir=str(output), custom_mode="quark", weight_format="real_quantized",
            pack_method="reorder",
        )  # fmt: skip
    for pattern in _COPIED:
        for path in source.glob(pattern):
            with suppress(FileExistsError), path.open("rb") as whole, (output / path.name).open("xb") as copy:
                shutil.copyfileobj(whole, copy)
    return {"quark": version("amd-quark"), "device": device, "samples": len(samples)}


def calibration_samples(path: Path, *, count: int, longest: int) -> list[list[int]]:
    """Return the first samples of a file, each cut to a number of tokens.

    Raises:
        ModelFilesError: (``dataset``) if the file cannot be read, or has a line without token ids.
    """
    remedy = "prepare MLPerf's calibration set with OpenOrcaDataSet, prompts: tokens"
    found: list[list[int]] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if len(found) == count:
                    break
                tokens = json.loads(line)["token_ids"]
                tokens = unpacked(tokens) if isinstance(tokens, str) else tokens
                if not tokens or not all(isinstance(token, int) for token in tokens):
                    raise ModelFilesError("dataset", f"{path}:{number} has no token ids", remedy)
                found.append(tokens[:longest])
    except OSError as error:
        raise ModelFilesError("dataset", f"{path} cannot be read: {error.strerror}", remedy) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFilesError("dataset", f"{path} has no token ids: {error}", remedy) from error
    if not found:
        raise ModelFilesError("dataset", f"{path} has no samples", remedy)
    return found
