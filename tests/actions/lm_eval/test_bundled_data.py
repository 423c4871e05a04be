"""Data sets of lm-eval's tasks come from a bundle: lm-eval fills it, and asks no hub afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.lm_eval.bundled_data import _fetch, _requirements, data_download, provide, tables_folder
from actions.lm_eval.executor import LmEvalExecutor
from actions.lm_eval.parameters import LmEvalParameters
from agent.component.downloads import Fetching, lacking
from agent.core.errors import HostError, InterruptedRunError
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from tests.lab.hub_server import COMMIT, Hub, serving_hub
from tests.waiting import LIMIT_S

if TYPE_CHECKING:
    from agent.component.component import StepContext

ECHO_SERVER = Path(__file__).parents[2] / "lab" / "echo_server.py"
TABLE = f"org___questions/geography/0.0.0/{COMMIT}/questions-test.arrow"
CARD = b"""---
configs:
- config_name: geography
  data_files:
  - split: test
    path: geography/test-*
---
"""
TASK = """\
task: TASK
dataset_path: org/questions
dataset_name: geography
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""
LOCAL = TASK.replace("dataset_path: org/questions", "dataset_path: json").replace(
    "dataset_name: geography", "dataset_kwargs:\n  data_files:\n    test: rows.jsonl"
)
_WRITE_TABLE = """\
import sys
import pyarrow as pa, pyarrow.parquet as pq
rows = [{"question": f"city {i}?", "choices": [f"town {i}", f"hill {i}"], "answer": 1} for i in range(4)]
pq.write_table(pa.Table.from_pylist(rows), sys.argv[1])
"""


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there


def asked(**parameters: Any) -> LmEvalParameters:
    given = {"model": "m", "environment": "/env", "model_path": "/models/m", **parameters}
    return LmEvalParameters.model_validate(given)


def with_bundle(context: StepContext, folder: Path, *tasks: str) -> StepContext:
    contents = frozenset(("data sets of task", task) for task in tasks)
    given = {"gpus": (), "amd_gpus": (), "visible_devices": None}
    return replace(context, facts=Facts(None, {**given, BUNDLE: Bundle(folder, "debian-12-x64", contents)}))


def put(bundle: Path, name: str, content: bytes) -> None:
    path = bundle / "data_sets" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def test_a_bundle_names_the_tasks_whose_data_it_has(context: StepContext, tmp_path: Path) -> None:
    (download,) = LmEvalExecutor(asked(tasks="mmlu, arc_easy")).downloads(Facts(None))
    assert (download.kind, download.names) == ("data sets of task", ("mmlu", "arc_easy"))
    facts = with_bundle(context, tmp_path, "mmlu").facts
    refusal = lacking([download], facts)
    assert refusal is not None
    assert "lacks data sets of task arc_easy" in refusal.message


def test_nothing_is_fetched_for_a_full_cache_or_for_random_weights() -> None:
    for given in ({"offline": True}, {"load_format": "dummy"}):
        assert LmEvalExecutor(asked(**given)).downloads(Facts(None)) == ()


def test_a_model_that_lm_eval_fetches_is_refused() -> None:
    with pytest.raises(HostError, match="a bundle cannot carry the model org/model, which lm-eval") as caught:
        LmEvalExecutor(asked(model_path="org/model")).downloads(Facts(None))
    assert "HuggingFaceModel" in str(caught.value.remedy)


def test_the_bundle_s_tables_go_into_the_cache_and_whole_ones_are_kept(
    context: StepContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "bundle", TABLE, b"ARROW1 rows")
    here = with_bundle(context, tmp_path / "bundle", "mmlu")
    table = tmp_path / "home" / "datasets" / TABLE
    assert provide(asked(offline=True), here) == {}
    assert provide(asked(), context) == {}  # without a bundle
    assert not table.exists()
    assert provide(asked(), here) == {"HF_DATASETS_CACHE": str(tmp_path / "home" / "datasets")}
    assert table.read_bytes() == b"ARROW1 rows"
    before = table.stat().st_ino
    provide(asked(), here)
    assert table.stat().st_ino == before
    table.write_bytes(b"cut")
    provide(asked(), here)
    assert table.read_bytes() == b"ARROW1 rows"
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "own"))
    assert tables_folder(asked()) == tmp_path / "own"
    # A container has the hub's folder alone.
    assert tables_folder(asked(container="image")) == tmp_path / "home" / "datasets"


def test_copying_ends_when_the_run_is_stopped_or_the_cache_cannot_be_written(
    context: StepContext, tmp_path: Path
) -> None:
    put(tmp_path / "bundle", TABLE, b"ARROW1 rows")
    here = with_bundle(context, tmp_path / "bundle", "mmlu")
    (tmp_path / "home").touch()  # a file in the folder's place
    with pytest.raises(HostError, match="the cache of data sets"):
        provide(asked(), here)
    here.stop.set()
    with pytest.raises(InterruptedRunError, match="before questions-test"):
        provide(asked(), here)


def test_lm_eval_has_the_version_of_the_bundle(tmp_path: Path) -> None:
    fetching = Fetching(tmp_path, tmp_path / "scratch", Facts(None))
    assert _requirements(fetching) == ["lm-eval", "datasets"]
    (tmp_path / "wheels").mkdir()
    for name in (
        "lm_eval-0.4.9-py3-none-any",
        "lm_eval-0.4.13-py3-none-any",
        "torch-2.9-cp312-cp312-any",
        "x",
    ):
        (tmp_path / "wheels" / f"{name}.whl").touch()
    assert _requirements(fetching) == ["lm-eval==0.4.13", "datasets"]


def test_task_files_must_be_where_the_bundle_is_made(tmp_path: Path) -> None:
    fetching = Fetching(tmp_path, tmp_path / "scratch", Facts(None))
    with pytest.raises(HostError, match="is not a folder of this machine"):
        _fetch(asked(include_path=tmp_path / "none"), fetching)


@pytest.mark.engine
def test_lm_eval_fills_a_bundle_and_answers_come_from_it(
    context: StepContext, accuracy_python: Path, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    for name, text in (("hub_one", TASK), ("hub_two", TASK), ("of_a_file", LOCAL)):
        (tasks / f"{name}.yaml").write_text(text.replace("TASK", name))
    row = {"question": "own?", "choices": ["town", "hill"], "answer": 1}
    (tasks / "rows.jsonl").write_text(json.dumps(row) + "\n")
    table = tmp_path / "test.parquet"
    subprocess.run([accuracy_python, "-c", _WRITE_TABLE, table], check=True)
    files = {"README.md": CARD, "geography/test-00000-of-00001.parquet": table.read_bytes()}
    said: list[str] = []
    fetching = Fetching(tmp_path / "bundle", tmp_path / "scratch", Facts(None), say=said.append)
    fetching.scratch.mkdir()
    (fetching.scratch / "lm-eval-environment").symlink_to(accuracy_python.parents[1])
    given = {"include_path": tasks, "tasks": "hub_one, hub_two, of_a_file"}
    with serving_hub(Hub({"org/questions": files})) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        data_download(asked(**given)).fetch(fetching)
        (tasks / "words.yaml").write_text(
            TASK.replace("TASK", "words").replace(
                "doc_to_target: answer", "doc_to_target: !function words.target"
            )
        )
        (tasks / "words.py").write_text(
            "import nltk\nnltk.download('punkt_tab')\ndef target(doc): return 1\n"
        )
        with pytest.raises(HostError, match="cannot carry the data of the task words: NLTK's punkt_tab"):
            data_download(asked(**{**given, "tasks": "words"})).fetch(fetching)
    assert said[0] == "data sets of hub_one, hub_two, of_a_file"
    # The tables and their description; nothing of a file of this machine, no locks.
    found = {path.relative_to(tmp_path / "bundle" / "data_sets") for path in tmp_path.glob("bundle/**/*.*")}
    names = {str(path) for path in found if (tmp_path / "bundle" / "data_sets" / path).is_file()}
    assert names == {TABLE, str(Path(TABLE).with_name("dataset_info.json"))}

    known = tmp_path / "known.txt"
    known.write_text("".join(f"Question: city {i}?\nAnswer: hill {i}\n" for i in range(4)))
    server = subprocess.Popen([sys.executable, ECHO_SERVER, known], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        executor = LmEvalExecutor(
            asked(
                environment=accuracy_python.parents[1], model_path="", backend="local-completions",
                endpoint=url, **{**given, "tasks": "hub_one"},
            )
        )  # fmt: skip
        here = with_bundle(context, tmp_path / "bundle", "hub_one")
        (step,) = executor.plan(here.facts).steps
        outcome = step.run(here)
    finally:
        server.terminate()
        server.communicate(timeout=LIMIT_S)
    assert outcome is not None
    (output,) = outcome.outputs
    scores = {metric.scenario: metric.value for metric in output.metrics if metric.name == "acc"}
    assert scores == {"m/hub_one": 1.0}
    assert (tmp_path / "home" / "datasets" / TABLE).is_file()
