"""The tiny form in one image, which the profile builds from wheels alone, run by a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.lab.fleet.ssh_image import ssh_base
from tests.lab.image_wheels import image_wheels

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.restartable_docker import RestartableDocker

PROFILE = "PERF-GPU-MLPERF-LLAMA3.yaml"
BASE = "vcagent-test-debian:2"
_LIMIT_S = 2700.0
"""Longest time for the run: a host at full load needs a quarter of an hour for the image alone."""
CASES = {"offline-performance": "mlperf", "offline-accuracy": "mlperf", "mmlu": "mmlu"}
NEWS = [
    {
        "article": f"The town council voted on {day} to rebuild the old bridge.",
        "highlights": f"A vote on {day}.",
    }
    for day in ("Monday", "Tuesday", "Wednesday", "Thursday")
]


@pytest.mark.engine
@pytest.mark.lab
@pytest.mark.timeout(2 * _LIMIT_S)  # fetching the wheels for the first time takes as long as the run
@pytest.mark.skipif(
    "VCAGENT_TEST_ONE_IMAGE" not in os.environ, reason="takes minutes: VCAGENT_TEST_ONE_IMAGE=1"
)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the wheels are for the base's Python 3.11")
def test_the_tiny_form_in_one_image(
    container_engine: RestartableDocker, accuracy_python: Path, tmp_path: Path
) -> None:
    container_engine.docker("import", str(ssh_base() / "root.tar"), BASE)
    news = tmp_path / "news.jsonl"
    news.write_text("".join(json.dumps(row) + "\n" for row in NEWS), encoding="utf-8")
    parameters = {
        "Form": "tiny", "Where": "container", "ImageBase": BASE, "WheelsDir": image_wheels(PROFILE),
        "ImageBuildNetwork": "none", "InstallDocker": "false",
        # These prepare the articles; the image does not use them.
        "Environment": accuracy_python.parents[1], "DataSource": news,
        "ServerPerformance": "false", "ServerAccuracy": "false", "Samples": 4, "MinDuration": 0.5,
        "OfflineMinQueryCount": 4, "MaxOutputTokens": 4, "MmluLimit": 1,
    }  # fmt: skip
    command = [
        sys.executable, "-m", "agent", "--profile", PROFILE, "--results-dir", str(tmp_path / "results"),
        "--package-dir", str(tmp_path / "packages"), "--parameters",
        ",,,".join(f"{name}={value}" for name, value in parameters.items()),
    ]  # fmt: skip
    # The agent queries the container's server in the engine's network.
    ended = subprocess.run(
        container_engine.beside(*command),
        capture_output=True, text=True, timeout=_LIMIT_S, check=False,
        env={**os.environ, "DOCKER_HOST": container_engine.address, "HF_HOME": str(tmp_path / "hub")},
    )  # fmt: skip
    run = tmp_path / "results" / "latest"
    assert (run / "run.json").is_file(), ended.stdout + ended.stderr
    told = container_engine.docker("image", "inspect", "--format={{.Id}}", "vcagent-llama3-tiny:1").strip()
    for case, folder in CASES.items():
        summary = json.loads((run / folder / case / "summary.json").read_text())
        assert summary["verdict"]["validity"] in {"VALID", "INVALID", "NOT_APPLICABLE"}, ended.stdout
        assert (summary["details"]["image"], summary["details"]["image_id"]) == (
            "vcagent-llama3-tiny:1",
            told,
        )
    scores = json.loads((run / "mlperf" / "offline-accuracy" / "summary.json").read_text())["metrics"]
    assert {"rouge1", "rougeLsum"} <= {metric["name"] for metric in scores}
    assert container_engine.docker("ps", "--all", "--quiet") == "", "the containers went with their steps"
