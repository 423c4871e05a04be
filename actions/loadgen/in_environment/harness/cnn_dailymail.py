"""CNN-DailyMail as MLPerf Inference prepares it for Llama 3.1 8B, as a data set of the harness.

``python -m harness.cnn_dailymail config.json`` runs in the benchmark's environment: with numpy for the edge
set, tokenizers for token ids, pyarrow for parquet, huggingface_hub for the hub. Facts: mlcommons/inference,
language/llama3.1-8b/download_cnndm.py: the prompt, the validation split in its order (13,368 articles), and
of it for the edge benchmark 5,000 by ``datasets``' shuffle with seed 42, which is numpy's ``default_rng``.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .dataset import pack_tokens
from .errors import HarnessError
from .hub import environment_token, explain
from .script import needed, run, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PROMPT = (
    "Summarize the following news article in 128 tokens. Please output the summary only, without any other "
    "text.\n\nArticle:\n{article}\n\nSummary:"
)
REPOSITORY = "abisee/cnn_dailymail"
_FILE = "3.0.0/validation-00000-of-00001.parquet"
_NAMES = ("cnn_eval.json", "sample_cnn_eval_5000.json", "cnn_eval_5000.json")
_PATTERNS = ("validation*.parquet", "3.0.0/validation*.parquet", "validation*.csv", "validation*.jsonl")
_EDGE_SAMPLES = 5000
_EDGE_SEED = 42
_ARTICLE, _SUMMARY = ("article", "input"), ("highlights", "output")
_CHUNK = 256


def _program(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """``source``, ``revision``, ``benchmark``, ``prompts``, ``tokenizer``, ``output``."""
    files = _files(Path(config["source"])) if config.get("source") else [_from_hub(config)]
    tell(f"reading {files[0].name}")
    rows = [row for file in files for row in _rows(file)]
    _check(rows, files[0])
    if config["benchmark"] == "edge" and len(rows) > _EDGE_SAMPLES:
        rows = _edge(rows)
    as_text = config["prompts"] == "text"
    tokens = None if as_text else _tokens(rows, config.get("tokenizer") or "")
    output = Path(config["output"])
    with output.open("w", encoding="utf-8") as file:
        for place, row in enumerate(rows):
            sample: dict[str, Any] = {"id": str(row.get("id") or f"cnn-{place:05d}")}
            if tokens is None:
                sample["prompt"] = _prompt(row)
            else:
                sample["token_ids"] = pack_tokens(tokens[place])
            sample["reference"] = _first(row, _SUMMARY)
            file.write(json.dumps(sample, ensure_ascii=False) + "\n")
    lengths = list(map(len, tokens)) if tokens is not None else []
    return {
        "source": ", ".join(map(str, files)),
        "samples": len(rows),
        "bytes": output.stat().st_size,
        "prompts": "text" if tokens is None else "tokens",
        "mean_tokens": sum(lengths) / len(lengths) if lengths else None,
        "max_tokens": max(lengths, default=None),
    }


def _files(source: Path) -> list[Path]:
    """The file, or those of a folder that hold the validation split."""
    if source.is_file():
        return [source]
    for name in _NAMES:
        if (source / name).is_file():
            return [source / name]
    for pattern in _PATTERNS:
        if found := sorted(source.glob(pattern)):
            return found
    raise HarnessError(
        "dataset",
        f"{source} holds no CNN-DailyMail",
        f"name a file, or a folder with {', '.join((*_NAMES, *_PATTERNS))}",
    )


def _from_hub(config: Mapping[str, Any]) -> Path:
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise needed("huggingface_hub", "huggingface_hub", "fetches data sets") from None
    token = environment_token(config)
    tell(f"fetching {REPOSITORY}")
    try:
        return Path(
            hf_hub_download(
                REPOSITORY,
                _FILE,
                repo_type="dataset",
                revision=config["revision"],
                token=token.value or False,
            )
        )
    except Exception as error:
        raise explain(error, f"datasets/{REPOSITORY}", token, config["revision"]) from error


def _rows(path: Path) -> Iterable[Mapping[str, Any]]:
    try:
        if path.suffix == ".parquet":
            return _parquet(path)
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                csv.field_size_limit(sys.maxsize)
                return list(csv.DictReader(file))
            if path.suffix == ".jsonl":
                return [json.loads(line) for line in file if line.strip()]
            rows = json.load(file)
            return rows if isinstance(rows, list) else []
    except (OSError, ValueError, csv.Error) as error:
        raise HarnessError(
            "dataset",
            f"{path} cannot be read: {error}",
            "it was cut, or is of another format: fetch it again",
        ) from error


def _parquet(path: Path) -> list[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise needed("pyarrow", "pyarrow", "reads parquet") from None
    try:
        rows: list[Mapping[str, Any]] = parquet.read_table(path).to_pylist()
    except ArrowException as error:
        raise ValueError(str(error)) from error
    return rows


def _check(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    if not rows:
        raise HarnessError("dataset", f"{path} holds no article", "name another file")
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or not _first(row, _ARTICLE) or not _first(row, _SUMMARY):
            raise HarnessError(
                "dataset",
                f"row {place} of {path} has no article and highlights (in MLPerf's file: input, output)",
                "name a file of CNN-DailyMail",
            )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(row[name]) for name in names if row.get(name)), "")


def _prompt(row: Mapping[str, Any]) -> str:
    return PROMPT.format(article=_first(row, _ARTICLE))


def _edge(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The edge benchmark's samples, in its order."""
    try:
        import numpy as np
    except ImportError:
        raise needed("numpy", "numpy", "shuffles as MLPerf does") from None
    order = np.random.default_rng(_EDGE_SEED).permutation(len(rows))
    return [rows[place] for place in order[:_EDGE_SAMPLES]]


def _tokens(rows: Sequence[Mapping[str, Any]], folder: str) -> list[list[int]] | None:
    """Each prompt's tokens: by the model's tokenizer, or those of MLPerf's file; None where neither is."""
    if not folder:
        return [row["tok_input"] for row in rows] if all(row.get("tok_input") for row in rows) else None
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise HarnessError("dataset", f"{path} is not there", "name the model's folder as tokenizer")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise needed("tokenizers", "tokenizers", "turns text into tokens") from None
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return list(_encoded(tokenizer, list(map(_prompt, rows))))


def _encoded(tokenizer: Any, prompts: Sequence[str]) -> Iterator[list[int]]:
    for start in range(0, len(prompts), _CHUNK):
        for encoded in tokenizer.encode_batch_fast(prompts[start : start + _CHUNK]):
            yield encoded.ids
        tell("turning text into tokens", min(start + _CHUNK, len(prompts)), len(prompts))


if __name__ == "__main__":
    sys.exit(run(_program, sys.argv[1:]))
