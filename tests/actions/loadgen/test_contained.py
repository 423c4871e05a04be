"""A container's view of the host's files during a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.loadgen.contained import behind_links, loadgen_mounts
from actions.loadgen.parameters import LoadGenParameters
from actions.loadgen.sample_sets import SampleSet
from agent.component import container_parameters
from agent.component.environment_script import program_command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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


def test_the_script_that_runs_the_scoring_is_there(tmp_path: Path) -> None:
    _, script, _ = program_command(tmp_path / "environment", "harness.rouge")
    assert mounted(tmp_path / "environment", tmp_path / "case")[script] is True


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


def test_a_container_of_amd_is_in_the_groups_of_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfd, dri = tmp_path / "kfd", tmp_path / "dri"
    dri.mkdir()
    for path in (kfd, dri / "renderD128", dri / "card0", dri / "by-path"):
        path.touch()
    monkeypatch.setattr(container_parameters, "AMD_DEVICE_PATHS", (str(kfd), str(dri)))
    asked = container_parameters.ContainerParameters.model_validate(
        {
            "image": "i",
            "gpus": "all",
            "gpuAccess": "amd",
            "groups": ["render"],
            "capabilities": ["SYS_PTRACE"],
        }
    )
    spec = asked.spec("test")
    assert spec.groups == ("render", str(kfd.stat().st_gid))
    assert (spec.security_opt, spec.cap_add) == (("seccomp=unconfined",), ("SYS_PTRACE",))
    plain = container_parameters.ContainerParameters.model_validate({"image": "i", "gpuAccess": "amd"})
    assert (plain.spec("test").groups, plain.spec("test").security_opt) == ((), ())


def test_empty_mounts_are_left_out() -> None:
    asked = container_parameters.ContainerParameters.model_validate(
        {"image": "i", "mounts": ["", "/a:/b:ro"]}
    )
    assert [mount.target for mount in asked.mounts] == ["/b"]
