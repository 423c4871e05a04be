"""An image goes through a bundle as the file that docker save writes and docker load reads."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.bundled_images import bundled_tag, image_download, image_file
from agent.component.component import StepContext
from agent.component.container_parameters import ContainerParameters
from agent.component.downloads import Fetching, lacking
from agent.component.open_container import load_image
from agent.core.errors import ActionFailedError, HostError
from agent.core.progress import RunProgress
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from pathlib import Path

_DOCKER = """\
#!/bin/sh
# Docker's command line: notes its calls, and saves an image as a text.
echo "$@" >>{folder}/calls
case "$1" in
  pull) for image; do :; done; test "$image" != absent/image:1 || {{ echo "not found" >&2; exit 1; }} ;;
  save) echo "an image" >"${{2#--output=}}" ;;
  load) grep -q "an image" "${{3#--input=}}" ;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a docker on PATH that notes its calls in the file that is returned."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(_DOCKER.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return tmp_path / "calls"


def context(tmp_path: Path, facts: Facts) -> StepContext:
    progress: Any = RunProgress()
    stop = threading.Event()
    processes = LocalProcesses("test", stop=stop)
    return StepContext(facts, processes, progress, stop, tmp_path, tmp_path, tmp_path / "step.log")


def test_an_image_through_a_bundle(tmp_path: Path, calls: Path) -> None:
    bundle, image = tmp_path / "bundle", "registry.example:5000/some/image:1.2"
    fetching = Fetching(bundle, tmp_path, Facts(None, {"architecture": "aarch64"}))
    image_download(image).fetch(fetching)
    file = bundle / "images" / "registry.example_5000_some_image_1.2.tar"
    assert file.read_text() == "an image\n"

    there = Bundle(bundle, "test", frozenset({("image", image)}))
    step = context(tmp_path, Facts(None, {BUNDLE: there}))
    assert load_image(image, step)
    assert calls.read_text().splitlines() == [
        f"pull --quiet --platform=linux/arm64 {image}",
        f"save --output={file} {image}",
        f"load --quiet --input={file}",
    ]
    # Without a bundle, Docker pulls; with one, it never does, even if the image is not in it.
    assert not load_image(image, replace(step, facts=Facts(None)))
    assert load_image("another:1", step)
    assert len(calls.read_text().splitlines()) == 3

    image_file(bundle, image).write_text("rubbish")
    with pytest.raises(ActionFailedError):
        load_image(image, step)


def test_an_image_that_is_not_available(tmp_path: Path, calls: Path) -> None:
    fetching = Fetching(tmp_path / "bundle", tmp_path, Facts(None, {"architecture": "x86_64"}))
    with pytest.raises(HostError, match="the image absent/image:1 cannot be fetched") as caught:
        image_download("absent/image:1").fetch(fetching)
    assert caught.value.details == ("not found",)
    assert "save" not in calls.read_text()


def test_an_image_of_a_digest_gets_a_name_of_its_own(tmp_path: Path, calls: Path) -> None:
    bundle, image = tmp_path / "bundle", "some/image@sha256:00"
    image_download(image).fetch(Fetching(bundle, tmp_path, Facts(None, {"architecture": "x86_64"})))
    tag = bundled_tag(image)
    assert tag.startswith("vcagent-bundled-")
    assert calls.read_text().splitlines() == [
        f"pull --quiet --platform=linux/amd64 {image}",
        f"tag {image} {tag}",
        f"save --output={image_file(bundle, image)} {tag}",
    ]
    there = Bundle(bundle, "test", frozenset({("image", image)}))
    assert load_image(image, context(tmp_path, Facts(None, {BUNDLE: there}))) == tag


def container(**parameters: Any) -> ContainerParameters:
    return ContainerParameters.model_validate(parameters)


def test_an_image_is_built_where_the_bundle_is_made(tmp_path: Path, calls: Path) -> None:
    made = tmp_path / "source"
    made.mkdir()
    (made / "Dockerfile").write_text("FROM scratch\n")
    bundle = tmp_path / "bundle"
    facts = Facts(None, {"architecture": "riscv64", "package_dir": tmp_path / "packages"})
    asked = container(dockerfile=str(made), build_arguments={"A": "1"}, build_network="host")
    download = asked.built_download(facts)
    assert download is not None
    assert download.names == (str(made),)
    download.fetch(Fetching(bundle, tmp_path, facts))
    tag = bundled_tag(str(made))
    options = "--quiet --platform=linux/riscv64 --build-arg=A=1 --network=host"
    assert calls.read_text().splitlines() == [
        f"build {options} --file={made}/Dockerfile --tag={tag} {made}",
        f"save --output={image_file(bundle, str(made))} {tag}",
    ]
    # There the Dockerfile is not needed.
    shutil.rmtree(made)
    there = Bundle(bundle, "test", frozenset({("image", str(made))}))
    on_host = Facts(None, {BUNDLE: there, "package_dir": tmp_path / "packages"})
    asked.require_inputs(on_host)
    again = asked.built_download(on_host)
    assert again is not None
    assert lacking([again], on_host) is None
    assert load_image(asked.bundled_name, context(tmp_path, on_host)) == tag


def test_a_dockerfile_that_only_a_step_makes_is_refused(tmp_path: Path) -> None:
    facts = Facts(None, {"architecture": "x86_64", "package_dir": tmp_path})
    with pytest.raises(HostError, match="a bundle cannot carry the image of"):
        container(dockerfile=str(tmp_path / "gpu-burn")).built_download(facts)
    with pytest.raises(HostError, match="there is no /absent/Dockerfile"):
        container(dockerfile="/absent/Dockerfile").built_download(facts)
