"""MLPerf's samples of OpenOrca: found, refused with the places that were searched, and prepared."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.in_environment.harness.dataset import read_dataset
from agent.core.errors import DependencyFailedError, HostError
from dependencies.models.in_environment.model_files.errors import ModelFilesError
from dependencies.models.in_environment.model_files.open_orca import candidates, program
from dependencies.models.open_orca_data_set import OpenOrcaDataSet, OpenOrcaDataSetParameters

if TYPE_CHECKING:
    from tests.dependencies.conftest import RealHost

TABLE = Path(__file__).with_name("tables") / "pandas_2.3_protocol_4.pkl"
OWN_PYTHON = Path(sys.prefix)


def data_set(**parameters: Any) -> OpenOrcaDataSet:
    values = {"environment": OWN_PYTHON, "moved_by": "LAB_DATASET", **parameters}
    return OpenOrcaDataSet(OpenOrcaDataSetParameters.model_validate(values))


def test_it_is_found_in_a_folder_prepared_once_and_removed(real_host: RealHost, tmp_path: Path) -> None:
    folder = tmp_path / "lab" / "open_orca"
    folder.mkdir(parents=True)
    file = folder / "processed-data.pkl.gz"
    file.write_bytes(gzip.compress(TABLE.read_bytes()))

    assert real_host.apply(data_set(source=tmp_path / "lab")) == ["prepare"]
    assert real_host.apply(data_set(source=tmp_path / "lab")) == []
    assert real_host.apply(data_set(source=file)) == []

    samples = real_host.context.package_dir / "open-orca" / "samples.jsonl"
    found = read_dataset(samples)
    assert [list(sample.tokens) for sample in found] == [[1, 518, 25580], [1, 518], [1, 29961, 29871, 32000]]
    assert found[0].id == "orca-00000"
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [row["reference"] for row in rows] == ["First answer.", "Second answer, longer.", "Third answer."]
    note = json.loads(samples.with_name("data_set.json").read_text())
    assert (note["samples"], note["mean_tokens"], note["max_tokens"]) == (3, 3.0, 4)
    assert real_host.apply(data_set(source=file, prompts="text")) == ["prepare"]
    assert read_dataset(samples)[0].prompt == "[INST] One? [/INST]"


def test_a_damaged_table_is_an_error_with_a_remedy(real_host: RealHost, tmp_path: Path) -> None:
    (tmp_path / "processed-data.pkl").write_bytes(TABLE.read_bytes()[:700])
    (step,) = data_set(source=tmp_path).plan(real_host.facts.fresh()).steps
    with pytest.raises(DependencyFailedError, match="cannot be read as a pickled table") as caught:
        step.run(real_host.context)
    assert "fetch it again" in caught.value.remedy


def test_a_refusal_names_the_places_and_what_moves_them(real_host: RealHost, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is not a folder with samples of OpenOrca") as caught:
        data_set(source=tmp_path).plan(real_host.facts.fresh())
    assert "open_orca/processed-data.pkl.gz" in caught.value.message
    assert "LAB_DATASET" in caught.value.remedy
    with pytest.raises(HostError, match="is not there") as caught:
        data_set(source=tmp_path / "gone").plan(real_host.facts.fresh())
    assert "LAB_DATASET" in caught.value.remedy
    with pytest.raises(HostError, match="no place is given") as caught:
        data_set().plan(real_host.facts.fresh())
    assert "LAB_DATASET" in caught.value.remedy


def prepare(source: Path, output: Path, **config: Any) -> dict[str, Any]:
    asked = {"source": str(source), "prompts": "tokens", "output": str(output), **config}
    return dict(program(asked, lambda *_: None))


def test_json_lines_give_the_same_samples(tmp_path: Path) -> None:
    prepare(TABLE, tmp_path / "of_pickle.jsonl")
    rows = [
        {"input": "One?", "tok_input": [1, 518, 25580], "output": "First answer."},
        {"input": "Two?", "tok_input": [1, 518], "output": "Second answer, longer."},
        {"input": "Three?", "tok_input": [1, 29961, 29871, 32000], "output": "Third answer."},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(text)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.jsonl", "b.jsonl.gz"):
        prepare(tmp_path / name, tmp_path / "made.jsonl")
        assert (tmp_path / "made.jsonl").read_text() == (tmp_path / "of_pickle.jsonl").read_text()


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"input": "One?", "output": "Yes."}, "no tok_input"),
        ({"tok_input": [1, 2]}, "no output"),
        ({"tok_input": [1, -2], "output": "Yes."}, "not a list of token ids"),
        ({"tok_input": "1 2", "output": "Yes."}, "not a list of token ids"),
        ({"tok_input": [1, 2], "output": 5}, "has no text"),
    ],
)
def test_rows_that_are_no_samples(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ModelFilesError, match=why):
        prepare(tmp_path / "a.jsonl", tmp_path / "made.jsonl")


def test_the_guides_name_is_searched_first() -> None:
    assert candidates(Path("/d"))[0] == Path("/d/processed-data.pkl.gz")
