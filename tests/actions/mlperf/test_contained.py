"""What a test in a container sees of the host's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.mlperf.contained import behind_links

if TYPE_CHECKING:
    from pathlib import Path


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
    # Where the link leads in a container that has the snapshot at the link's own path.
    assert mount.target == str(tmp_path / "vcagent" / "blobs")
    assert mount.read_only
    assert behind_links(tmp_path) == []
