"""CNN-DailyMail from each of its common forms, and from a small hub."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.in_environment.harness.dataset import read_dataset
from actions.loadgen.sample_sets import open_sample_set
from agent.core.errors import DependencyFailedError, HostError
from dependencies.models.cnn_dailymail_data_set import CnnDailyMailDataSet, CnnDailyMailDataSetParameters
from tests.lab.hub_server import Hub, serving_hub

if TYPE_CHECKING:
    from tests.dependencies.conftest import RealHost

ROWS = [
    {
        "id": f"{number:040x}",
        "article": f"Article {number}.\nIt says “a, b” twice.",
        "highlights": f"Says {number} .",
    }
    for number in range(12)
]
OPENING = (
    "Summarize the following news article in 128 tokens. Please output the summary only, without any other"
)
WRITE_PARQUET = (
    "import json, sys; import pyarrow as pa; from pyarrow import parquet\n"
    "parquet.write_table(pa.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])"
)
WRITE_TOKENIZER = (
    "import sys; from tokenizers import Tokenizer, models, pre_tokenizers, processors\n"
    "tokenizer = Tokenizer(models.BPE(vocab={**{letter: number for number, letter in enumerate(sorted("
    "pre_tokenizers.ByteLevel.alphabet()))}, '<begin>': 300}, merges=[]))\n"
    "tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)\n"
    "tokenizer.post_processor = processors.TemplateProcessing('<begin> $A', None, [('<begin>', 300)])\n"
    "tokenizer.enable_truncation(16); tokenizer.save(sys.argv[1])"
)


@pytest.fixture
def environment(accuracy_python: Path) -> Path:
    return accuracy_python.parent.parent


@pytest.fixture
def tokenizer(accuracy_python: Path, tmp_path: Path) -> Path:
    """Return a model's folder: one token per byte, after a token that marks the beginning."""
    folder = tmp_path / "model"
    folder.mkdir()
    subprocess.run([accuracy_python, "-c", WRITE_TOKENIZER, folder / "tokenizer.json"], check=True)
    return folder


def mlperf_rows() -> list[dict[str, Any]]:
    return [
        {
            "instruction": {"llama": "…"},
            "input": row["article"],
            "tok_input": [128000, place],
            "output": row["highlights"],
        }
        for place, row in enumerate(ROWS)
    ]


def write(form: str, path: Path, python: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        subprocess.run([python, "-c", WRITE_PARQUET, path], input=json.dumps(ROWS), text=True, check=True)
    elif form == "csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ROWS[0])
            writer.writeheader()
            writer.writerows(ROWS)
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        path.write_text(json.dumps(mlperf_rows(), indent=4, ensure_ascii=False), encoding="utf-8")


def data_set(**parameters: Any) -> CnnDailyMailDataSet:
    return CnnDailyMailDataSet(CnnDailyMailDataSetParameters.model_validate(parameters))


def made(host: RealHost) -> Path:
    return host.context.package_dir / "cnn-dailymail" / "samples.jsonl"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("parquet", "3.0.0/validation-00000-of-00001.parquet"),
        ("csv", "validation.csv"),
        ("jsonl", "validation.jsonl"),
        ("mlperf", "cnn_eval.json"),
    ],
)
def test_every_form_gives_the_same_samples(
    real_host: RealHost, accuracy_python: Path, tmp_path: Path, form: str, name: str
) -> None:
    write(form, tmp_path / "source" / name, accuracy_python)
    environment = accuracy_python.parent.parent
    asked = {"environment": environment, "source": tmp_path / "source", "prompts": "text"}

    assert real_host.apply(data_set(**asked)) == ["prepare"]
    assert real_host.apply(data_set(**asked)) == []

    samples = open_sample_set(str(made(real_host)))
    assert samples.has_references
    assert samples.ids[3] == (ROWS[3]["id"] if form != "mlperf" else "cnn-00003")
    prompts = [sample.prompt for sample in read_dataset(samples.path)]
    assert prompts[3] == f"{OPENING} text.\n\nArticle:\n{ROWS[3]['article']}\n\nSummary:"
    references = [
        json.loads(line)["reference"] for line in made(real_host).read_text("utf-8").split("\n") if line
    ]
    assert references == [row["highlights"] for row in ROWS]


@pytest.mark.engine
def test_tokens_come_from_the_models_tokenizer_whole_and_with_what_begins(
    real_host: RealHost, environment: Path, tmp_path: Path, tokenizer: Path
) -> None:
    write("jsonl", tmp_path / "validation.jsonl", Path())
    asked = {"environment": environment, "source": tmp_path / "validation.jsonl", "tokenizer": tokenizer}

    assert real_host.apply(data_set(**asked)) == ["prepare"]

    (first, *_) = read_dataset(made(real_host))
    text = f"{OPENING} text.\n\nArticle:\n{ROWS[0]['article']}\n\nSummary:"
    assert first.tokens[0] == 300
    assert len(first.tokens) == 1 + len(text.encode())
    assert first.prompt == ""


@pytest.mark.engine
def test_mlperfs_own_tokens_are_kept(real_host: RealHost, environment: Path, tmp_path: Path) -> None:
    write("mlperf", tmp_path / "cnn_eval.json", Path())
    assert real_host.apply(data_set(environment=environment, source=tmp_path / "cnn_eval.json")) == [
        "prepare"
    ]
    assert [list(sample.tokens) for sample in read_dataset(made(real_host))][:2] == [[128000, 0], [128000, 1]]


@pytest.mark.engine
def test_the_edge_set_is_numpys_shuffle_with_seed_42(
    real_host: RealHost, environment: Path, tmp_path: Path
) -> None:
    source = tmp_path / "validation.jsonl"
    source.write_text(
        "".join(
            json.dumps({"id": str(number), "article": "a", "highlights": "b"}) + "\n"
            for number in range(13368)
        )
    )
    asked = {"environment": environment, "source": source, "benchmark": "edge", "prompts": "text"}
    assert real_host.apply(data_set(**asked)) == ["prepare"]
    samples = open_sample_set(str(made(real_host)))
    assert len(samples.ids) == len(set(samples.ids)) == 5000
    assert samples.ids[:5] == ("1517", "10554", "910", "12519", "158")


@pytest.mark.engine
def test_the_hub_is_asked_where_there_is_no_copy(
    real_host: RealHost, accuracy_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "3.0.0" / "validation-00000-of-00001.parquet"
    write("parquet", path, accuracy_python)
    files = {f"3.0.0/{path.name}": path.read_bytes()}
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    with serving_hub(Hub({"abisee/cnn_dailymail": files})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert real_host.apply(data_set(environment=accuracy_python.parent.parent)) == ["prepare"]
    assert len(read_dataset(made(real_host))) == len(ROWS)


@pytest.mark.engine
@pytest.mark.parametrize(
    "case",
    [
        ("validation.parquet", "PAR1", "cannot be read"),
        ("cnn_eval.json", '[{"input": "a"', "cannot be read"),
        ("cnn_eval.json", '[{"input": "a"}]', "row 0 of"),
        ("cnn_eval.json", "[]", "holds no article"),
        ("other.txt", "", "holds no CNN-DailyMail"),
    ],
)
def test_what_is_no_whole_copy_is_refused(
    real_host: RealHost, environment: Path, tmp_path: Path, case: tuple[str, str, str]
) -> None:
    name, content, message = case
    source = tmp_path / "source"
    source.mkdir()
    (source / name).write_text(content)
    with pytest.raises(DependencyFailedError, match=message):
        real_host.apply(data_set(environment=environment, source=source))
    assert not made(real_host).exists()


@pytest.mark.engine
def test_another_source_or_a_changed_set_is_made_anew_and_undone(
    real_host: RealHost, environment: Path, tmp_path: Path
) -> None:
    source = tmp_path / "validation.jsonl"
    write("jsonl", source, Path())
    component = data_set(environment=environment, source=source, prompts="text")
    assert real_host.apply(component) == ["prepare"]
    made(real_host).write_text("cut")
    assert "was changed" in component.plan(real_host.facts.fresh()).steps[0].reason
    assert real_host.apply(component) == ["prepare"]
    source.write_text(source.read_text() + source.read_text().replace("Article", "Another"))
    (step,) = component.plan(real_host.facts.fresh()).steps
    assert real_host.apply(component) == ["prepare"]
    assert len(open_sample_set_text(made(real_host))) == 2 * len(ROWS)
    assert step.undo
    (undo,) = CnnDailyMailDataSet.undo(step.undo, real_host.facts.fresh()).steps
    undo.run(real_host.context)
    assert not made(real_host).exists()
    assert CnnDailyMailDataSet.undo(step.undo, real_host.facts.fresh()).nothing_to_do


def open_sample_set_text(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_a_source_that_is_not_there_is_refused(real_host: RealHost, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="none is not there"):
        data_set(environment=tmp_path, source=tmp_path / "none").plan(real_host.facts)
