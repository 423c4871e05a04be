"""A container's view of the host's files during a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.loadgen.contained import behind_links, loadgen_mounts
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.sample_sets import SampleSet

if TYPE_CHECKING:
    from pathlib import Path


def mounted(environment: Path, case_dir: Path) -> dict[str, bool]:
    """Return the paths of the host that a test in a container sees, each with whether it is read-only."""
    asked = LoadGenParameters.model_validate(
        {
            "model": "m", "loadgenScenario": "Offline", "environment": environment,
            "vllm": {"model": "hub/model"}, "container": {"image": "i"},
        }
    )  # fmt: skip
    samples = SampleSet("set", case_dir / "set.jsonl", ("a",))
    return {mount.target: mount.read_only for mount in loadgen_mounts(asked, samples, case_dir)}


def test_an_environment_of_the_host_is_mounted_and_the_images_own_is_not_hidden(tmp_path: Path) -> None:
    environment, case_dir = tmp_path / "environment", tmp_path / "case"
    environment.mkdir()
    assert str(environment) not in mounted(environment, case_dir)
    (environment / "pyvenv.cfg").touch()
    assert mounted(environment, case_dir)[str(environment)] is True
    assert mounted(environment, case_dir)[str(case_dir)] is False


def test_a_models_files_are_there_behind_the_links_of_a_hubs_cache(tmp_path: Path) -> None:
    stored = tmp_path / "cache" / "models--org--model"
    snapshot = stored / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (stored / "blobs").mkdir()
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    link = tmp_path / "vcagent" / "packages" / "llama"
    link.parent.mkdir(parents=True)
    link.symlink_to(snapshot)

    (mount,) = behind_links(link)

    assert str(mount.source) == str(stored / "blobs")
    # The link's target in a container that has the snapshot at the link's own path.
    assert mount.target == str(tmp_path / "vcagent" / "blobs")
    assert mount.read_only
    assert behind_links(tmp_path) == []
