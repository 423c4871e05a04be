"""Converts CNN-DailyMail, as in MLPerf Inference for Llama 3.1 8B, to a data set of the harness.

Runs in the benchmark's environment. It needs numpy for the edge set, tokenizers for token ids, pyarrow for
parquet, and huggingface_hub for the hub. Source: mlcommons/inference, language/llama3.1-8b/download_cnndm.py:
the prompt, the validation split in its order (13,368 articles), and for the edge benchmark 5,000 of them by
``datasets``' shuffle with seed 42, which is numpy's ``default_rng``.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelFilesError
from .hub import environment_token, explain
from .prepared import note_of, packed, parquet_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

PROMPT = (
    "Summarize the following news article in 128 tokens. Please output the summary only, without any other "
    "text.\n\nArticle:\n{article}\n\nSummary:"
)
REPOSITORY = "abisee/cnn_dailymail"
FILE = "3.0.0/validation-00000-of-00001.parquet"
_NAMES = ("cnn_eval.json", "sample_cnn_eval_5000.json", "cnn_eval_5000.json")
_PATTERNS = ("validation*.parquet", "3.0.0/validation*.parquet", "validation*.csv", "validation*.jsonl")
_EDGE_SAMPLES = 5000
_EDGE_SEED = 42
_ARTICLE, _SUMMARY = ("article", "input"), ("highlights", "output")
_CHUNK = 256


def program(config: Mapping[str, Any], tell: Callable[..., None]) -> Mapping[str, Any]:
    """Prepare it: ``source``, ``revision``, ``benchmark``, ``prompts``, ``tokenizer``, ``output``."""
    files = _files(Path(config["source"])) if config.get("source") else [_from_hub(config, tell)]
    tell(f"reading {files[0].name}")
    rows = [row for file in files for row in _rows(file)]
    _check(rows, files[0])
    if config["benchmark"] == "edge" and len(rows) > _EDGE_SAMPLES:
        rows = _edge(rows)
    as_text = config["prompts"] == "text"
    tokens = None if as_text else _tokens(rows, config.get("tokenizer") or "", tell)
    output = Path(config["output"])
    output.unlink(missing_ok=True)
    with output.open("x", encoding="utf-8") as file:
        for place, row in enumerate(rows):
            sample: dict[str, Any] = {"id": str(row.get("id") or f"cnn-{place:05d}")}
            if tokens is None:
                sample["prompt"] = _prompt(row)
            else:
                sample["token_ids"] = packed(tokens[place])
            sample["reference"] = _first(row, _SUMMARY)
            file.write(json.dumps(sample, ensure_ascii=False) + "\n")
    lengths = list(map(len, tokens)) if tokens is not None else []
    return note_of(", ".join(map(str, files)), len(rows), output, lengths)


def _files(source: Path) -> list[Path]:
    """Return the given file, or the files of a folder that contain the validation split."""
    if source.is_file():
        return [source]
    for name in _NAMES:
        if (source / name).is_file():
            return [source / name]
    for pattern in _PATTERNS:
        if found := sorted(source.glob(pattern)):
            return found
    raise ModelFilesError(
        "dataset",
        f"{source} holds no CNN-DailyMail",
        f"name a file, or a folder with {', '.join((*_NAMES, *_PATTERNS))}",
    )


def _from_hub(config: Mapping[str, Any], tell: Callable[..., None]) -> Path:
    from huggingface_hub import hf_hub_download

    token = environment_token(config)
    tell(f"fetching {REPOSITORY}")
    try:
        return Path(
            hf_hub_download(
                REPOSITORY,
                FILE,
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
            return parquet_rows(path)
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                csv.field_size_limit(sys.maxsize)
                return list(csv.DictReader(file))
            if path.suffix == ".jsonl":
                return [json.loads(line) for line in file if line.strip()]
            rows = json.load(file)
            return rows if isinstance(rows, list) else []
    except (OSError, ValueError, csv.Error) as error:
        raise ModelFilesError(
            "dataset",
            f"{path} cannot be read: {error}",
            "it was cut, or is of another format: fetch it again",
        ) from error


def _check(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    if not rows:
        raise ModelFilesError("dataset", f"{path} holds no article", "name another file")
    for place, row in enumerate(rows):
        if not isinstance(row, dict) or not _first(row, _ARTICLE) or not _first(row, _SUMMARY):
            raise ModelFilesError(
                "dataset",
                f"row {place} of {path} has no article and highlights (in MLPerf's file: input, output)",
                "name a file of CNN-DailyMail",
            )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str:
    return next((str(row[name]) for name in names if row.get(name)), "")


def _prompt(row: Mapping[str, Any]) -> str:
    return PROMPT.format(article=_first(row, _ARTICLE))


def _edge(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the samples of the edge benchmark in order."""
    import numpy as np

    order = np.random.default_rng(_EDGE_SEED).permutation(len(rows))
    return [rows[place] for place in order[:_EDGE_SAMPLES]]


def _tokens(
    rows: Sequence[Mapping[str, Any]], folder: str, tell: Callable[..., None]
) -> list[list[int]] | None:
    """Return each prompt's tokens, from the model's tokenizer or MLPerf's file; None if neither exists."""
    if not folder:
        return [row["tok_input"] for row in rows] if all(row.get("tok_input") for row in rows) else None
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise ModelFilesError("dataset", f"{path} is not there", "name the model's folder as tokenizer")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return list(_encoded(tokenizer, list(map(_prompt, rows)), tell))


def _encoded(tokenizer: Any, prompts: Sequence[str], tell: Callable[..., None]) -> Iterator[list[int]]:
    for start in range(0, len(prompts), _CHUNK):
        for encoded in tokenizer.encode_batch_fast(prompts[start : start + _CHUNK]):
            yield encoded.ids
        tell("turning text into tokens", min(start + _CHUNK, len(prompts)), len(prompts))
