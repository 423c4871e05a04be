"""A model from a hub, from its cache, from a folder: the real huggingface_hub with a small hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.core.errors import DependencyFailedError, HostError
from dependencies.models.hugging_face_model import HuggingFaceModel, HuggingFaceModelParameters, hub_cache
from dependencies.models.in_environment.model_files.hub import find_token
from tests.lab.hub_server import COMMIT, Hub, serving_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dependencies.conftest import RealHost

NAME = "meta-llama/Llama-3.1-8B-Instruct"
TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVbNm012345"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", SHARDS, strict=True))}).encode(),
    SHARDS[0]: os.urandom(300_000),
    SHARDS[1]: os.urandom(200_000),
    "pytorch_model.bin": b"the same once more",
    "original/consolidated.00.pth": b"and once more",
}


Refusal = tuple[dict[str, str], str, str, str]
"""Requested model, token, and the expected error with its remedy."""


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


def model(**parameters: Any) -> HuggingFaceModel:
    values = {"packageName": "llama", **parameters}
    return HuggingFaceModel(HuggingFaceModelParameters.model_validate(values))


def present(host: RealHost) -> set[str]:
    folder = host.context.package_dir / "llama"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.engine
def test_it_is_fetched_once_and_without_what_no_engine_reads(
    hub: Hub, real_host: RealHost, environment: Path
) -> None:
    asked = {"repository": NAME, "environment": environment, "revision": COMMIT}
    assert real_host.apply(model(**asked)) == ["fetch"]
    assert present(real_host) == {*FILES} - {"pytorch_model.bin", "original/consolidated.00.pth"}
    assert (real_host.context.package_dir / "llama" / SHARDS[0]).read_bytes() == FILES[SHARDS[0]]
    before = len(hub.requests)
    assert real_host.apply(model(**asked)) == []
    assert real_host.apply(model(**asked, packageName="other")) == ["link"]
    assert len(hub.requests) == before
    assert real_host.messages.texts[0] == f"asking the hub for {NAME}"


@pytest.mark.engine
def test_a_broken_connection_is_taken_up_where_it_broke(
    hub: Hub, real_host: RealHost, environment: Path
) -> None:
    large = os.urandom(1_000_000) * 25  # huggingface_hub writes parts of 10 MB
    hub.files, hub.cut_after = {NAME: {**FILES, SHARDS[1]: large}}, 15_000_000
    assert real_host.apply(model(repository=NAME, environment=environment)) == ["fetch"]
    whole, rest = hub.fetched(SHARDS[1])
    assert (whole, rest[:8]) == ("", "bytes=10")
    assert (real_host.context.package_dir / "llama" / SHARDS[1]).read_bytes() == large


@pytest.mark.engine
def test_files_that_are_whole_are_not_fetched_again(hub: Hub, real_host: RealHost, environment: Path) -> None:
    component = model(repository=NAME, environment=environment)
    assert real_host.apply(component) == ["fetch"]
    (real_host.context.package_dir / "llama" / SHARDS[1]).resolve().unlink()
    hub.requests.clear()
    assert "1 of 2 files of weights are missing" in component.plan(real_host.facts.fresh()).steps[0].reason
    assert real_host.apply(component) == ["fetch"]
    assert (hub.fetched(SHARDS[0]), hub.fetched(SHARDS[1])) == ([], [""])


@pytest.mark.engine
def test_random_weights_need_no_weights(hub: Hub, real_host: RealHost, environment: Path) -> None:
    asked = {"repository": NAME, "environment": environment, "loadFormat": "dummy"}
    assert real_host.apply(model(**asked)) == ["fetch"]
    assert present(real_host) == {"config.json", "tokenizer.json", "model.safetensors.index.json"}
    assert hub.fetched(SHARDS[0]) == []


@pytest.mark.engine
@pytest.mark.parametrize("place", ["variable", "old variable", "dotenv", "login"])
def test_a_gated_model_opens_with_a_token_that_nothing_shows(
    hub: Hub, real_host: RealHost, environment: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    hub.gated, hub.readers = frozenset({NAME}), frozenset({TOKEN})
    if place == "dotenv":
        Path(".env").write_text(f"# mine\nexport HF_TOKEN = ' {TOKEN} '\n")
    elif place == "login":
        Path("cache").mkdir()
        Path("cache", "token").write_text(f"{TOKEN}\n")
    else:
        name = "HF_TOKEN" if place == "variable" else "HUGGING_FACE_HUB_TOKEN"
        monkeypatch.setenv(name, f'"{TOKEN}"')
    assert real_host.apply(model(repository=NAME, environment=environment)) == ["fetch"]
    kept = [path for path in real_host.context.run_dir.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if TOKEN in path.read_text(errors="replace")]


@pytest.mark.engine
@pytest.mark.parametrize(
    "case",
    [
        (
            {},
            "",
            f"{NAME} is gated",
            f"accept its licence at https://huggingface.co/{NAME}, then set HF_TOKEN",
        ),
        (
            {},
            "hf_other",
            "token of the variable HF_TOKEN may not read it (403)",
            f"https://huggingface.co/{NAME}",
        ),
        ({}, "hf_wrong", "token of the variable HF_TOKEN is refused", "has not expired"),
        ({"repository": "org/none"}, "", "org/none is not there, or is private", "HF_TOKEN"),
        ({"repository": "org/none"}, "hf_other", "org/none is not on the hub (404)", "correct its name"),
        ({"repository": "org/open", "revision": "v9"}, "", "org/open has no revision v9", "commits/main"),
        ({"repository": "org/open"}, "", "no config.json", "name another"),
    ],
)
def test_refusals_are_explained(
    hub: Hub, real_host: RealHost, environment: Path, monkeypatch: pytest.MonkeyPatch, case: Refusal
) -> None:
    asked, token, message, remedy = case
    hub.files = {NAME: FILES, "org/open": {"README.md": b"nothing"}}
    hub.gated, hub.tokens = frozenset({NAME}), frozenset({"hf_other"})
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises((HostError, DependencyFailedError)) as caught:
        real_host.apply(model(**{"repository": NAME, "environment": environment, **asked}))
    assert message in caught.value.message
    assert remedy in str(caught.value.remedy)
    assert not token or token not in str(caught.value)


@pytest.mark.engine
def test_offline_only_the_cache_counts(
    hub: Hub, real_host: RealHost, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DependencyFailedError, match="HF_HUB_OFFLINE forbids"):
        real_host.apply(model(repository=NAME, environment=environment))
    assert hub.requests == []


@pytest.mark.engine
def test_a_hub_out_of_reach_is_told(
    hub: Hub, real_host: RealHost, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DependencyFailedError, match="cannot be fetched") as caught:
        real_host.apply(model(repository=NAME, environment=environment))
    assert "HTTPS_PROXY" in str(caught.value.remedy)


def test_a_folder_is_linked_and_a_part_of_a_model_refused(real_host: RealHost, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name, content in FILES.items():
        if "/" not in name:
            (folder / name).write_bytes(content)
    assert real_host.apply(model(path=folder)) == ["link"]
    assert real_host.apply(model(path=folder)) == []
    (folder / SHARDS[0]).write_bytes(b"")
    with pytest.raises(HostError, match="1 of 2 files of weights are missing, such as model-00001"):
        model(path=folder).plan(real_host.facts.fresh())
    assert model(path=folder, loadFormat="dummy").plan(real_host.facts.fresh()).nothing_to_do
    (folder / "config.json").unlink()
    with pytest.raises(HostError, match=r"config\.json is not there"):
        model(path=folder, loadFormat="dummy").plan(real_host.facts.fresh())


def test_what_is_no_link_is_never_replaced(real_host: RealHost, tmp_path: Path) -> None:
    (real_host.context.package_dir / "llama").mkdir()
    with pytest.raises(HostError, match="is not a link"):
        model(path=tmp_path).plan(real_host.facts)


def test_space_is_looked_for_before_anything(real_host: RealHost, tmp_path: Path) -> None:
    asked = {"repository": NAME, "environment": tmp_path, "requiredSpace": 1e9, "cacheDir": tmp_path}
    with pytest.raises(HostError, match="GiB free"):
        model(**asked).plan(real_host.facts)


@pytest.mark.parametrize("values", [{}, {"path": "/a", "repository": "a/b"}, {"repository": "a/b"}])
def test_exactly_one_source(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"give either|environment is missing"):
        model(**values)


@pytest.mark.parametrize(
    ("environment", "cache"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_huggingface_hub_has_it(environment: dict[str, str], cache: str) -> None:
    assert hub_cache(environment) == Path(cache)


@pytest.mark.parametrize(
    "line",
    [
        f"HF_TOKEN={TOKEN}",
        f'export HF_TOKEN = "{TOKEN}"  # mine',
        f"HF_TOKEN='{TOKEN}'# mine",
        f"HF_TOKEN={TOKEN} # mine",
        f"# HF_TOKEN=another\n  HF_TOKEN=\t{TOKEN}\t#",
    ],
)
def test_a_token_of_a_dotenv(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(f"OTHER=1\n{line}\n")
    assert find_token({}, tmp_path / ".env").value == TOKEN


@pytest.mark.parametrize(
    ("variable", "value", "login"),
    [
        ("HF_TOKEN_PATH", "my/login", "my/login"),
        ("HF_HOME", "hf", "hf/token"),
        ("XDG_CACHE_HOME", "caches", "caches/huggingface/token"),
        ("HOME", "home", "home/.cache/huggingface/token"),
    ],
)
def test_a_token_of_a_login(tmp_path: Path, variable: str, value: str, login: str) -> None:
    (tmp_path / login).parent.mkdir(parents=True)
    (tmp_path / login).write_text(f"{TOKEN}\n")
    found = find_token({variable: str(tmp_path / value)}, tmp_path / ".env")
    assert found.value == TOKEN
    assert found.source == f"the login in {tmp_path / login}"


def test_no_token_is_no_error(tmp_path: Path) -> None:
    assert find_token({"HOME": str(tmp_path), "HF_TOKEN": ' "" '}, tmp_path / ".env").value == ""
    (tmp_path / ".env").write_text("HF_TOKEN=  # none yet\n")
    assert find_token({"HOME": str(tmp_path)}, tmp_path / ".env").value == ""


def test_a_shipped_configuration_is_for_random_weights_alone(real_host: RealHost) -> None:
    assert real_host.apply(model(path="shipped:llama3.1-8b", load_format="dummy")) == ["link"]
    assert present(real_host) == {"config.json"}
    with pytest.raises(HostError, match="there are no weights"):
        model(path="shipped:llama3.1-8b").plan(real_host.context.facts)
    with pytest.raises(ValidationError, match=r"no configuration of gpt is shipped; there is llama3\.1-8b"):
        model(path="shipped:gpt", load_format="dummy")
