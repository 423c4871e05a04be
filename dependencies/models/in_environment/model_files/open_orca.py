"""Converts MLPerf's OpenOrca samples for Llama 2 70B to a data set of the harness.

Runs in the benchmark's environment; pyarrow reads parquet, huggingface_hub fetches from the hub. The source
is the table that mlcommons/inference, language/llama2-70b/processorca.py makes: 24,576 questions with their
tokens (``tok_input``) and answers (``output``). Pickles are read without running their content.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelFilesError
from .hub import environment_token, explain
from .pickled_table import read_table
from .prepared import note_of, packed, parquet_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STEMS = ("processed-data", "open_orca_gpt4_tokenized_llama.sampled_24576")
"""The names of files that it reads, without their ends."""
ENDS = (".pkl.gz", ".pkl", ".parquet", ".jsonl", ".jsonl.gz")
"""The ends of the names of files that it reads."""
_FOLDERS = ("", "open_orca", "processed-openorca")
_INPUT, _TOKENS, _OUTPUT = "input", "tok_input", "output"
_COLUMNS = (_INPUT, _TOKENS, _OUTPUT)


def candidates(folder: Path) -> list[Path]:
    """Return the places in a folder where the samples are looked for, in this order."""
    return [folder / part / f"{stem}{end}" for part in _FOLDERS for stem in STEMS for end in ENDS]


def program(config: Mapping[str, Any], tell: Callable[..., None]) -> Mapping[str, Any]:
    """Prepare it: ``source`` or ``repository`` and ``revision``, ``prompts``, ``output``."""
    path = _find(Path(config["source"])) if config.get("source") else _from_hub(config, tell)
    tell(f"reading {path.name}")
    rows = _rows(path)
    as_text = config["prompts"] == "text"
    _check(rows, path, _INPUT if as_text else _TOKENS)
    output, lengths = Path(config["output"]), []
    output.unlink(missing_ok=True)
    with output.open("x", encoding="utf-8") as file:
        for place, row in enumerate(rows):
            sample: dict[str, Any] = {"id": f"orca-{place:05d}"}
            if as_text:
                sample["prompt"] = row[_INPUT]
            else:
                sample["token_ids"] = packed(row[_TOKENS])
                lengths.append(len(row[_TOKENS]))
            sample["reference"] = row[_OUTPUT]
            file.write(json.dumps(sample, ensure_ascii=False) + "\n")
    return note_of(str(path), len(rows), output, lengths)


def _find(source: Path) -> Path:
    if source.is_file():
        return source
    for path in candidates(source):
        if path.is_file():
            return path
    raise ModelFilesError("dataset", f"{source} has no samples of OpenOrca", "name the file")


def _from_hub(config: Mapping[str, Any], tell: Callable[..., None]) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    repository, revision = config["repository"], config["revision"]
    token = environment_token(config)
    tell(f"fetching {repository}")
    try:
        present = HfApi(token=token.value or False).list_repo_files(
            repository, repo_type="dataset", revision=revision
        )
    except Exception as error:
        raise explain(error, f"datasets/{repository}", token, revision) from error
    name = next((str(path) for path in candidates(Path()) if str(path) in present), None)
    if name is None:
        raise ModelFilesError(
            "dataset",
            f"{repository} has none of {', '.join(f'{stem}{end}' for stem in STEMS for end in ENDS)}",
            "name another repository, or a file of this host",
        )
    try:
        return Path(
            hf_hub_download(
                repository, name, repo_type="dataset", revision=revision, token=token.value or False
            )
        )
    except Exception as error:
        raise explain(error, f"datasets/{repository}", token, revision) from error


def _rows(path: Path) -> Sequence[Mapping[str, Any]]:
    name = path.name.removesuffix(".gz")
    try:
        if name.endswith(".parquet"):
            return parquet_rows(path, _COLUMNS)
        if name.endswith(".jsonl"):
            with gzip.open(path) if path.name != name else path.open("rb") as file:
                return [json.loads(line) for line in file if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise ModelFilesError(
            "dataset",
            f"{path} cannot be read: {error}",
            "it was cut, or is of another format: fetch it again",
        ) from error
    table = read_table(path, _COLUMNS)
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def _check(rows: Sequence[Mapping[str, Any]], path: Path, wanted: str) -> None:
    if not rows:
        raise ModelFilesError("dataset", f"{path} holds no sample", "name another file")
    for place, row in enumerate(rows):
        missing = [name for name in (wanted, _OUTPUT) if not isinstance(row, dict) or not row.get(name)]
        if missing:
            raise ModelFilesError(
                "dataset",
                f"row {place} of {path} has no {' and no '.join(missing)}",
                "name the table of mlcommons/inference, language/llama2-70b/processorca.py",
            )
        if not isinstance(row[_OUTPUT], str) or (wanted == _INPUT and not isinstance(row[_INPUT], str)):
            raise ModelFilesError("dataset", f"row {place} of {path} has no text", "name another file")
        if wanted == _TOKENS and not _are_tokens(row[_TOKENS]):
            raise ModelFilesError(
                "dataset", f"row {place} of {path}: {_TOKENS} is not a list of token ids", "name another file"
            )


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(type(token) is int and 0 <= token < 1 << 31 for token in value)
