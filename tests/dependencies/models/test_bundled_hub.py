"""Models and data sets come from a bundle: huggingface_hub fills it, and the host asks no hub."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.downloads import Fetching, lacking
from agent.core.errors import HostError, InterruptedRunError
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from dependencies.llamacpp.installation import LlamaCppInstallation
from dependencies.models.cnn_dailymail_data_set import CnnDailyMailDataSet, CnnDailyMailDataSetParameters
from dependencies.models.hugging_face_data_set import HuggingFaceDataSet, HuggingFaceDataSetParameters
from dependencies.models.hugging_face_model import HuggingFaceModel, HuggingFaceModelParameters
from dependencies.models.open_orca_data_set import OpenOrcaDataSet, OpenOrcaDataSetParameters
from dependencies.models.quark_quantization import QuarkQuantization
from tests.dependencies.conftest import RealHost
from tests.lab.hub_server import COMMIT, Hub, serving_hub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.component.component import Dependency
    from dependencies.models.bundled_hub import HubFiles

MODEL, DATA = "org/model", "cais/mmlu"
MODEL_FILES = {
    "config.json": b'{"model_type": "llama"}',
    "generation_config.json": b'{"model_type": "llama"}',  # the hub's cache holds equal files once
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "original/consolidated.00.pth": b"no engine reads this",
}
DATA_FILES = {"README.md": b"# MMLU", "all/test-0.parquet": b"PAR1 test", "all/train-0.parquet": b"PAR1"}
NOWHERE = Path("/nowhere/environment")


@pytest.fixture(autouse=True)
def without_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def model(**parameters: Any) -> HuggingFaceModel:
    values = {"packageName": "llama", "repository": MODEL, "environment": NOWHERE, **parameters}
    return HuggingFaceModel(HuggingFaceModelParameters.model_validate(values))


def data_set(**parameters: Any) -> HuggingFaceDataSet:
    values = {"packageName": "questions", "repository": DATA, "include": "all/test-*", **parameters}
    return HuggingFaceDataSet(HuggingFaceDataSetParameters.model_validate({"environment": NOWHERE, **values}))


def put(bundle: Path, files: HubFiles, contents: Mapping[str, bytes]) -> None:
    """Write files as a bundle has them."""
    for name, content in contents.items():
        path = files._folder(bundle) / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def with_bundle(host: RealHost, bundle: Path, *components: Dependency) -> RealHost:
    """Return the host with a bundle that has the downloads of components."""
    contents = frozenset(
        (one.kind, name)
        for component in components
        for one in component.downloads(Facts(None))
        for name in one.names
    )
    given = {"package_dir": host.context.package_dir, BUNDLE: Bundle(bundle, "debian-12-x64", contents)}
    facts = Facts(LocalHost(), given)
    return RealHost(facts, replace(host.context, facts=facts), host.messages)


def test_a_model_goes_from_the_bundle_into_the_hubs_cache(real_host: RealHost, tmp_path: Path) -> None:
    component = model()
    put(tmp_path / "bundle", component._files, MODEL_FILES)
    host = with_bundle(real_host, tmp_path / "bundle", component)
    (step,) = component.plan(host.facts).steps
    assert step.fetches_from is None
    assert step.command.startswith(f"cp -r {tmp_path / 'bundle' / 'hub'}")
    assert lacking(component.downloads(host.facts), host.facts) is None
    assert host.apply(component) == ["fetch"]
    stored = tmp_path / "cache" / "hub" / "models--org--model"
    assert (stored / "refs" / "main").read_text() == COMMIT
    assert (host.context.package_dir / "llama").resolve() == stored / "snapshots" / COMMIT
    # The bundle is needed no more, and an element that refers to the model asks for nothing.
    assert component.downloads(host.facts.fresh()) == ()
    assert host.apply(model(packageName="other")) == ["link"]


def test_the_cache_may_lie_behind_a_link_and_whole_files_are_kept(
    real_host: RealHost, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    component = model()
    put(tmp_path / "bundle", component._files, MODEL_FILES)
    host = with_bundle(real_host, tmp_path / "bundle", component)
    assert host.apply(component) == ["fetch"]
    snapshot = tmp_path / "disk" / "hub" / "models--org--model" / "snapshots" / COMMIT
    before = (snapshot / "config.json").stat().st_ino
    (snapshot / "model.safetensors").unlink()
    assert host.apply(component) == ["fetch"]
    assert (snapshot / "model.safetensors").read_bytes() == MODEL_FILES["model.safetensors"]
    assert (snapshot / "config.json").stat().st_ino == before


def test_copying_ends_when_the_run_is_stopped_or_the_cache_cannot_be_written(
    real_host: RealHost, tmp_path: Path
) -> None:
    component = model()
    put(tmp_path / "bundle", component._files, MODEL_FILES)
    host = with_bundle(real_host, tmp_path / "bundle", component)
    (step,) = component.plan(host.facts).steps
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "hub").touch()  # a file in the folder's place
    with pytest.raises(HostError, match="the hub's cache"):
        step.run(host.context)
    (tmp_path / "cache" / "hub").unlink()
    host.context.stop.set()
    with pytest.raises(InterruptedRunError, match=r"before config\.json was copied"):
        step.run(host.context)
    assert not (host.context.package_dir / "llama").exists()


def test_an_incomplete_model_of_a_bundle_is_refused(real_host: RealHost, tmp_path: Path) -> None:
    component = model(revision=COMMIT)
    put(tmp_path / "bundle", component._files, {"config.json": b"{}"})
    host = with_bundle(real_host, tmp_path / "bundle", component)
    (step,) = component.plan(host.facts).steps
    with pytest.raises(Exception, match="org/model is not whole"):
        step.run(host.context)
    assert not (host.context.package_dir / "llama").exists()


def test_a_data_set_goes_from_the_bundle_into_the_hubs_cache(real_host: RealHost, tmp_path: Path) -> None:
    component = data_set()
    put(tmp_path / "bundle", component._files, {"all/test-0.parquet": b"PAR1 test"})
    host = with_bundle(real_host, tmp_path / "bundle", component)
    assert host.apply(component) == ["fetch"]
    link = host.context.package_dir / "questions"
    assert (link / "all" / "test-0.parquet").read_bytes() == b"PAR1 test"
    (link / "all" / "test-0.parquet").unlink()
    assert host.apply(component) == ["fetch"]
    assert (tmp_path / "bundle").is_dir()


def test_a_plan_names_the_model_and_the_data_set_that_a_bundle_lacks(
    real_host: RealHost, tmp_path: Path
) -> None:
    host = with_bundle(real_host, tmp_path / "bundle", model(loadFormat="dummy"), data_set())
    for component, missing in (
        (model(), "lacks model org/model at main$"),
        (model(revision="v2", loadFormat="dummy"), "lacks model org/model at v2, without weights$"),
        (data_set(include=""), "lacks data set cais/mmlu at main$"),
        (data_set(include="a,b"), "lacks data set cais/mmlu at main: a, b$"),
    ):
        assert component.plan(host.facts).steps  # the hub, which cannot be reached, is not asked
        refusal = lacking(component.downloads(host.facts), host.facts)
        assert refusal is not None
        with pytest.raises(HostError, match=f"(?m){missing}"):
            raise refusal
    assert lacking(model(loadFormat="dummy").downloads(host.facts), host.facts) is None


def test_a_folder_of_the_host_takes_the_place_of_the_hub(real_host: RealHost, tmp_path: Path) -> None:
    (tmp_path / "cais" / "mmlu").mkdir(parents=True)
    host = with_bundle(real_host, tmp_path / "bundle")
    assert data_set().downloads(host.facts) == ()
    assert host.apply(data_set()) == ["link"]
    assert model(repository="", path="/data/model").downloads(Facts(None)) == ()
    assert model(llmConfig={"model": "/data/model"}).downloads(Facts(None)) == ()


def test_a_model_that_the_engine_fetches_is_refused_when_the_bundle_is_made() -> None:
    with pytest.raises(
        HostError, match="a bundle cannot carry the model org/other, which the engine fetches"
    ):
        model(llmConfig={"model": "org/other"}).downloads(Facts(None))


def test_data_sets_are_made_from_the_files_of_a_bundle(real_host: RealHost, tmp_path: Path) -> None:
    common = {"environment": NOWHERE, "prompts": "text"}
    articles = CnnDailyMailDataSet(CnnDailyMailDataSetParameters.model_validate(common))
    table = "3.0.0/validation-00000-of-00001.parquet"
    questions = OpenOrcaDataSet(
        OpenOrcaDataSetParameters.model_validate({**common, "repository": "org/orca"})
    )
    for component, name in ((articles, table), (questions, "data/processed-data.pkl.gz")):
        assert component.hub_files is not None
        put(tmp_path / "bundle", component.hub_files, {name: b"rows"})
        host = with_bundle(real_host, tmp_path / "bundle", component)
        (step,) = component.plan(host.facts).steps  # the hub is not asked
        folder = component.hub_files.in_bundle(host.facts)
        assert step.command.endswith(f"# {folder}")
        assert step.fetches_from is None
        assert component._in_bundle(host.facts) == folder
        (one,) = component.downloads(Facts(None))
        assert one.kind == "data set"
        assert lacking([one], host.facts) is None
    own = CnnDailyMailDataSet(CnnDailyMailDataSetParameters.model_validate({**common, "source": "/data"}))
    assert own.downloads(Facts(None)) == ()


def test_samples_without_a_place_are_refused_when_the_bundle_is_made() -> None:
    nowhere = OpenOrcaDataSetParameters.model_validate({"environment": NOWHERE})
    with pytest.raises(HostError, match="no place is given for the samples of OpenOrca"):
        OpenOrcaDataSet(nowhere).downloads(Facts(None))


def test_only_what_is_not_on_the_host_is_downloaded() -> None:
    quantised = {"packageName": "q", "source": "/m", "calibration": "/c.jsonl", "environment": NOWHERE}
    parameters = QuarkQuantization.Parameters.model_validate(quantised)
    assert QuarkQuantization(parameters).downloads(Facts(None)) == ()
    for source, is_fetched in (
        ("/src/llama.cpp", False),
        ("/src/llama.cpp.tar.gz", False),
        ("https://example.com/llama.cpp.tar.gz", True),
        ("https://example.com/llama.cpp", True),
        ("package-index", True),
    ):
        program = LlamaCppInstallation(LlamaCppInstallation.Parameters.model_validate({"source": source}))
        assert bool(program.downloads(Facts(None))) == is_fetched


@pytest.mark.engine
def test_huggingface_hub_fills_a_bundle(real_host: RealHost, tmp_path: Path) -> None:
    said: list[str] = []
    fetching = Fetching(tmp_path / "bundle", tmp_path / "scratch", Facts(None), say=said.append)
    components = (model(), data_set())
    with (
        serving_hub(Hub({MODEL: MODEL_FILES, DATA: DATA_FILES})) as hub,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("HF_ENDPOINT", hub.url)
        for component in components:
            (download,) = component.downloads(Facts(None))
            download.fetch(fetching)
        (absent,) = data_set(include="validation-*").downloads(Facts(None))
        with pytest.raises(HostError, match="cais/mmlu has no file of validation-"):
            absent.fetch(fetching)
        (unknown,) = model(repository="org/none").downloads(Facts(None))
        with pytest.raises(HostError, match="org/none is not there, or is private"):
            unknown.fetch(fetching)
    assert said[:2] == ["model org/model at main", "data set cais/mmlu at main: all/test-*"]
    files = [path for path in (tmp_path / "bundle").rglob("*") if not path.is_dir()]
    assert not any(path.is_symlink() for path in files)
    assert {path.relative_to(tmp_path / "bundle").parts[3:] for path in files} == {
        ("config.json",), ("generation_config.json",), ("tokenizer.json",), ("model.safetensors",),
        ("all", "test-0.parquet"),
    }  # fmt: skip
    host = with_bundle(real_host, tmp_path / "bundle", *components)
    for component in components:
        assert host.apply(component) == ["fetch"]
    assert (
        json.loads((host.context.package_dir / "llama" / "config.json").read_text())["model_type"] == "llama"
    )
    assert (host.context.package_dir / "llama" / "model.safetensors").read_bytes() == b"weights" * 1000
