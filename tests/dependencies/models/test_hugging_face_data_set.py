"""A data set from a hub: the real huggingface_hub with a small hub."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import DependencyFailedError, HostError
from dependencies.models.hugging_face_data_set import HuggingFaceDataSet, HuggingFaceDataSetParameters
from tests.lab.hub_server import COMMIT, Hub, serving_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

NAME = "cais/mmlu"
FILES = {
    "README.md": b"# MMLU",
    "all/test-00000-of-00001.parquet": b"PAR1 test",
    "all/dev-00000-of-00001.parquet": b"PAR1 dev",
    "all/auxiliary_train-00000-of-00001.parquet": b"PAR1" * 1000,
    "astronomy/test-00000-of-00001.parquet": b"PAR1 once more",
}
TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVbNm012345"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with serving_hub(Hub({NAME: FILES})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        yield hub


@pytest.fixture
def environment(accuracy_python: Path) -> Path:
    return accuracy_python.parent.parent


def data_set(environment: Path, **parameters: Any) -> HuggingFaceDataSet:
    values = {
        "packageName": "questions", "repository": NAME, "include": "all/test-*,all/dev-*",
        "environment": environment, **parameters,
    }  # fmt: skip
    return HuggingFaceDataSet(HuggingFaceDataSetParameters.model_validate(values))


def present(host: RealHost) -> set[str]:
    folder = host.context.package_dir / "questions"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.engine
def test_the_files_asked_for_are_fetched_once(hub: Hub, real_host: RealHost, environment: Path) -> None:
    assert real_host.apply(data_set(environment)) == ["fetch"]
    assert present(real_host) == {"all/test-00000-of-00001.parquet", "all/dev-00000-of-00001.parquet"}
    before = len(hub.requests)
    assert real_host.apply(data_set(environment)) == []
    assert real_host.apply(data_set(environment, revision=COMMIT)) == ["fetch"]
    assert len(hub.requests) > before
    assert any(path.startswith("/api/datasets/cais/mmlu") for _, path, _ in hub.requests)


@pytest.mark.engine
@pytest.mark.usefixtures("hub")
def test_a_file_that_is_lost_is_fetched_again(real_host: RealHost, environment: Path) -> None:
    component = data_set(environment)
    assert real_host.apply(component) == ["fetch"]
    lost = real_host.context.package_dir / "questions" / "all" / "dev-00000-of-00001.parquet"
    lost.resolve().unlink()
    assert "dev-00000-of-00001.parquet is missing" in component.plan(real_host.facts.fresh()).steps[0].reason
    assert real_host.apply(component) == ["fetch"]
    assert lost.read_bytes() == b"PAR1 dev"


@pytest.mark.engine
def test_a_gated_data_set_needs_a_token(
    hub: Hub, real_host: RealHost, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated, hub.readers = frozenset({NAME}), frozenset({TOKEN})
    with pytest.raises(DependencyFailedError, match="datasets/cais/mmlu is gated") as refusal:
        real_host.apply(data_set(environment))
    assert "https://huggingface.co/datasets/cais/mmlu" in (refusal.value.remedy or "")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert real_host.apply(data_set(environment)) == ["fetch"]


@pytest.mark.engine
@pytest.mark.usefixtures("hub")
def test_patterns_that_fit_no_file_are_told(real_host: RealHost, environment: Path) -> None:
    with pytest.raises(DependencyFailedError, match=r"has no file of nothing\*"):
        real_host.apply(data_set(environment, include="nothing*"))


def test_a_folder_of_that_name_is_taken_in_place_of_the_hub(
    hub: Hub, real_host: RealHost, tmp_path: Path
) -> None:
    (tmp_path / NAME).mkdir(parents=True)
    (tmp_path / NAME / "test.jsonl").write_text("{}")
    component = data_set(tmp_path / "no-environment")
    assert real_host.apply(component) == ["link"]
    assert present(real_host) == {"test.jsonl"}
    assert real_host.apply(component) == []
    assert not hub.requests


def test_what_is_no_link_is_never_replaced(real_host: RealHost, tmp_path: Path) -> None:
    (real_host.context.package_dir / "questions").mkdir(parents=True)
    with pytest.raises(HostError, match="is not a link to a data set"):
        data_set(tmp_path).plan(real_host.facts.fresh())
