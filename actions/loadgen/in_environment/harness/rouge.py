"""Compute ROUGE of an accuracy run like MLPerf's evaluation, from LoadGen's accuracy log.

Runs in the benchmark's environment, which needs rouge_score and, if answers are token ids, tokenizers. The
arithmetic is that of mlcommons/inference, language/llama3.1-8b/evaluation.py (and
llama2-70b/evaluate-accuracy.py): only the first answer to each sample counts; special tokens are removed;
answers and references are stripped and split into one sentence per line; a score is the mean over samples of
the F-measure with stemming, in percent to four decimals; ``gen_len`` counts the characters of the scored
texts, including line ends between sentences.
"""

from __future__ import annotations

import json
import os
from array import array
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
TRAINED = "punkt_tab"
UNTRAINED = "untrained Punkt"
_ITEMS = {"int32": "i", "int64": "q"}
_CHUNK = 64
_FEWEST_A_PROCESS = 128


def rouge_scores(
    pairs: Sequence[tuple[str, str]], workers: int | None = None, tell: Callable[..., None] | None = None
) -> dict[str, Any]:
    """Score answers.

    Args:
        pairs: answer and reference of each sample.
        workers: processes; None for one per CPU, but no more than the number of samples justifies.
        tell: reports the progress: a message, samples done and their total.

    Returns:
        the four scores in percent, ``gen_len``, ``gen_num``, and the name of the ``sentence_tokenizer``.
    """
    chunks = [pairs[start : start + _CHUNK] for start in range(0, len(pairs), _CHUNK)]
    workers = workers or min(len(os.sched_getaffinity(0)), 1 + len(pairs) // _FEWEST_A_PROCESS)
    sums, characters, done, splitter = dict.fromkeys(TYPES, 0.0), 0, 0, ""
    for scores, length, count, used in _scored(chunks, workers):
        sums = {name: value + scores[name] for name, value in sums.items()}
        characters, done, splitter = characters + length, done + count, used
        if tell:
            tell(f"scored {done} of {len(pairs)} answers", done, len(pairs))
    means = {name: round(100 * value / len(pairs), 4) for name, value in sums.items()}
    return {
        **means,
        "gen_len": characters,
        "gen_num": len(pairs),
        "sentence_tokenizer": splitter,
    }


def _scored(
    chunks: Sequence[Sequence[tuple[str, str]]], workers: int
) -> Iterator[tuple[dict[str, float], int, int, str]]:
    if workers == 1:
        yield from map(_score, chunks)
        return
    # Spawn, do not fork: tokenizers has threads, which a fork would lose while they hold locks.
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(_score, chunks)


def _score(chunk: Sequence[tuple[str, str]]) -> tuple[dict[str, float], int, int, str]:
    """Return the sums of the F-measures and of the answers' characters, the number of answers, the splitter.

    The name of the splitter comes from here, as NLTK takes seconds to import in each process.
    """
    sums, characters = dict.fromkeys(TYPES, 0.0), 0
    for answer, reference in chunk:
        prediction = _by_sentence(answer)
        scores = _scorer().score(target=_by_sentence(reference), prediction=prediction)
        characters += len(prediction)
        sums = {name: value + scores[name].fmeasure for name, value in sums.items()}
    return sums, characters, len(chunk), sentence_splitter()[1]


@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(list(TYPES), use_stemmer=True)


def _by_sentence(text: str) -> str:
    return "\n".join(sentence_splitter()[0](text.strip()))


@lru_cache(maxsize=1)
def sentence_splitter() -> tuple[Callable[[str], list[str]], str]:
    """Return a function that splits a text into sentences, and its name.

    It is NLTK's punkt_tab for English if found, as in MLPerf: in NLTK's own folders (NLTK_DATA, ~/nltk_data,
    …), or in llama-index-core, which includes it. Otherwise it is the same algorithm without the list of
    abbreviations. That only affects rougeLsum, and gen_len by the number of line ends.
    """
    import nltk
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    carrier = find_spec("llama_index")
    for folder in carrier.submodule_search_locations or () if carrier else ():
        nltk.data.path.append(str(Path(folder) / "core" / "_static" / "nltk_cache"))
    try:
        from nltk.tokenize.punkt import PunktTokenizer

        return PunktTokenizer("english").tokenize, TRAINED
    except (ImportError, LookupError, PermissionError):  # NLTK refuses a file that has several links
        return PunktSentenceTokenizer().tokenize, UNTRAINED


def program(config: Mapping[str, Any], tell: Callable[..., None]) -> Mapping[str, Any]:
    """Score a run: ``accuracy_log``, ``dataset``, ``encoding`` (utf-8, int32, int64), ``tokenizer``."""
    for module in ("rouge_score", "nltk"):
        if find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
    references = _references(Path(config["dataset"]))
    answers = _answers(Path(config["accuracy_log"]), len(references))
    told: dict[str, Any] = {}
    if config["encoding"] == "utf-8":
        texts = [data.decode("utf-8", "replace") for data in answers.values()]
    else:
        tokens = [_tokens(data, config["encoding"]) for data in answers.values()]
        tell("turning tokens into text")
        texts = _decoded(tokens, config.get("tokenizer") or "")
        total = sum(map(len, tokens))
        told = {"gen_tok_len": total, "tokens_per_sample": round(total / len(tokens), 1)}
    pairs = [(text, references[index]) for index, text in zip(answers, texts, strict=True)]
    return {
        **rouge_scores(pairs, config.get("workers"), tell),
        **told,
        "versions": {name: metadata.version(name) for name in ("rouge_score", "nltk")},
    }


def _references(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    missing = [place for place, row in enumerate(rows) if not row.get("reference")]
    if missing:
        raise HarnessError(
            "dataset", f"sample {missing[0]} of {path} has no reference", "use a set in which each has one"
        )
    return [row["reference"] for row in rows]


def _answers(path: Path, samples: int) -> dict[int, bytes]:
    """Return each sample's first answer."""
    answers: dict[int, bytes] = {}
    try:
        for row in json.loads(path.read_text(encoding="utf-8")):
            answers.setdefault(int(row["qsl_idx"]), bytes.fromhex(row["data"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(
            "malformed_reply",
            f"LoadGen's accuracy log {path} cannot be read: {error}",
            "the accuracy run failed, or its log was shortened for a submission: run it again",
        ) from error
    if not answers:
        raise HarnessError("no_tokens", f"{path} contains no answer", "run the accuracy run again")
    foreign = max(answers)
    if foreign >= samples:
        raise HarnessError(
            "dataset",
            f"the accuracy log has an answer to sample {foreign}, but the data set has {samples}",
            "score with the data set that was run",
        )
    return answers


def _tokens(data: bytes, encoding: str) -> Sequence[int]:
    numbers = array(_ITEMS[encoding])
    if len(data) % numbers.itemsize:
        raise HarnessError("malformed_reply", f"an answer of {len(data)} bytes is not a list of {encoding}")
    numbers.frombytes(data)
    return numbers


def _decoded(answers: Sequence[Sequence[int]], folder: str) -> list[str]:
    """Return answers as text, decoded by the model's tokenizer, without special tokens."""
    from tokenizers import Tokenizer

    path = Path(folder) / "tokenizer.json"
    if not folder or not path.is_file():
        raise HarnessError(
            "dependency", f"{path} does not exist, but the answers are token ids", "give the model's folder"
        )
    texts: list[str] = Tokenizer.from_file(str(path)).decode_batch(list(map(list, answers)))
    return list(map(_cleaned, texts)) if _cleans_up(path.with_name("tokenizer_config.json")) else texts


_CLEANED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def _cleans_up(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")).get("clean_up_tokenization_spaces"))
    except (OSError, ValueError):
        return False


def _cleaned(text: str) -> str:
    """Return a text as transformers changes it if the tokenizer says so (``clean_up_tokenization``)."""
    for spaced in _CLEANED:
        text = text.replace(spaced, spaced.strip())
    return text
