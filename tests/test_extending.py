"""docs/extending.md is complete: a distribution made from its blocks is built, installed and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.fleet.remote.machine_lock import MACHINE_LOCK
from agent.store.documents import RunDocument
from gpu_configs.gpu_model import complete
from gpu_configs.systems import load_system

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def plug_in(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folder of the sources, and the folder where the distribution is installed."""
    source, target = tmp_path_factory.mktemp("vcagent-demo"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (source / "vcagent_demo/__init__.py").touch()
    made = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*made, "--target", str(target), str(source)], check=True, timeout=240)
    return source, target


def vcagent(plug_in: tuple[Path, Path], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{plug_in[1]}:{ROOT}",
            "COLUMNS": "200",
            MACHINE_LOCK: str(folder),  # other tests of this host may run a fleet meanwhile
        },
        timeout=240,
    )


def test_the_page_has_every_file() -> None:
    assert {"pyproject.toml", "DEMO.yaml"} <= set(FILES)
    assert sum(name.startswith("vcagent_demo/") for name in FILES) == 6


def test_its_profile_runs_and_runs_again_without_a_change(plug_in: tuple[Path, Path], tmp_path: Path) -> None:
    profile = str(plug_in[0] / "DEMO.yaml")
    arguments = ("--profile", profile, "--parameters", f"Folder={tmp_path}")
    planned = vcagent(plug_in, tmp_path, "plan", *arguments, "--json")
    assert planned.returncode == 0, planned.stderr
    assert "/notice is missing" in planned.stdout
    records = tmp_path / "records.txt"
    ran = vcagent(plug_in, tmp_path, *arguments, "-q", "--sink", f"lines:{records}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "notice").read_text() == "benchmarks run here"
    assert re.match(r"Sum time_per_loop [\d.e-]+ seconds\n", records.read_text())
    assert "/notice has the text" in vcagent(plug_in, tmp_path, "plan", *arguments, "--json").stdout
    parsed = vcagent(plug_in, tmp_path, "parse", "results/latest/timeit/statement/out.timeit")
    assert parsed.returncode == 0, parsed.stderr
    assert "time_per_loop" in parsed.stdout


def test_a_refusal_of_each_part_has_its_remedy(plug_in: tuple[Path, Path], tmp_path: Path) -> None:
    profile = str(plug_in[0] / "DEMO.yaml")
    refused = vcagent(plug_in, tmp_path, "--profile", profile, "--parameters", "Folder=/no/such", "-q")
    assert refused.returncode == 4
    assert "mkdir /no/such" in refused.stderr
    refused = vcagent(plug_in, tmp_path, "--profile", profile, "--sink", "lines")
    assert refused.returncode == 2
    assert "--sink lines:/path/to/file" in refused.stderr
    (tmp_path / "two.timeit").write_text("5 loops, best of 2: 1.5 usec per loop\n" * 2)
    refused = vcagent(plug_in, tmp_path, "parse", "two.timeit")
    assert refused.returncode != 0
    assert "2 results of timeit" in refused.stderr


def test_its_fact_is_listed(plug_in: tuple[Path, Path], tmp_path: Path) -> None:
    assert "/etc/motd" in vcagent(plug_in, tmp_path, "facts", "notice[/etc/motd]").stdout


def test_its_transport_reaches_its_host(plug_in: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "hosts.ini").write_text("alone\n")
    (tmp_path / "two.ini").write_text("alone\nanother\n")
    profile = ("--profile", str(plug_in[0] / "DEMO.yaml"), "--parameters", f"Folder={tmp_path}")
    refused = vcagent(plug_in, tmp_path, "fleet", "run", "--via", "here", "-i", "two.ini", *profile, "-q")
    assert refused.returncode == 2
    assert "only one host here" in refused.stderr
    ran = vcagent(plug_in, tmp_path, "fleet", "run", "--via", "here", "-i", "hosts.ini", *profile, "-q")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (home,) = (tmp_path / "results/fleet/latest/hosts").iterdir()
    assert RunDocument.read(home).exit_code == 0
    assert "time_per_loop" in (home / "metrics.jsonl").read_text()


def test_the_gpu_and_the_system_are_whole(tmp_path: Path) -> None:
    gpu = complete(yaml.safe_load(FILES["gpu_configs/gpus/demo.yaml"]))
    assert gpu.is_called("NVIDIA Demo GPU")
    offline, server = (gpu.vllm["llama3.1-8b"].scenarios[name] for name in ("Offline", "Server"))
    assert offline.queries_per_s_per_gpu == 14
    assert server.engine["max_num_seqs"] > 0  # derived from the GPU's figures
    path = tmp_path / "demo.yaml"
    path.write_text(FILES["gpu_configs/systems/demo.yaml"], encoding="utf-8")
    assert load_system(path).name == "L40Sx8"
