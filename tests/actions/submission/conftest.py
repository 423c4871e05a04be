"""Runs with real LoadGen logs, and the submissions built from them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actions.submission.building import Order, build
from actions.submission.official import CHECKOUT_VARIABLE
from actions.submission.rounds import find_round
from actions.submission.runs import cases_of
from agent.store.journal import Journal
from parsers.loadgen import read_detail
from tests.lab.engine import smollm2_gguf, tiny_gguf

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.submission.building import Built

__all__ = ["smollm2_gguf", "tiny_gguf"]

LOGS = Path(__file__).with_name("logs")
MODELS = {"datacenter": "llama3.1-8b", "edge": "llama3.1-8b-edge", "llama2-70b": "llama2-70b-99.9"}
SCORES = {
    "datacenter": {
        "rouge1": "38.8",
        "rouge2": "16.0",
        "rougeL": "24.6",
        "rougeLsum": "36.0",
        "gen_len": 8167000,
    },
    "llama2-70b": {
        "rouge1": 44.5,
        "rouge2": 22.1,
        "rougeL": 28.7,
        "gen_num": 24576,
        "gen_len": 28000000,
        "tokens_per_sample": 290.0,
    },
    "edge": {"rouge1": "39.1", "rouge2": "16.2", "rougeL": "24.7", "rougeLsum": "36.2", "gen_len": 3051000},
}
FACTS: dict[str, Any] = {
    "processor": {"model": "AMD EPYC 9575F", "sockets": 2, "physical_cores": 128},
    "memory": {"total_bytes": 2**40},
    "disks": [{"path": "/dev/nvme0n1", "kind": "disk", "size_bytes": 2**41}],
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "driver": "570.86.15"}],
    "distribution": {"name": "Ubuntu 24.04.2 LTS"},
    "kernel": "6.8.0-45-generic",
}
SAID = {
    "status": "available",
    "host_memory_configuration": "16x 64 GB DDR5",
    "host_networking": "Ethernet 10 GbE",
    "host_network_card_count": "1x 10 GbE",
    "host_networking_topology": "N/A",
    "accelerator_host_interconnect": "PCIe Gen5 x16",
    "accelerator_memory_configuration": "HBM3",
    "accelerator_interconnect": "N/A",
    "cooling": "air-cooled",
}
MEASUREMENTS = {
    "input_data_types": "int32",
    "retraining": "N",
    "starting_weights_filename": "Llama-3.1-8B-Instruct",
    "weight_data_types": "fp8",
    "weight_transformations": "quantisation to fp8",
}
PROFILE = {
    "name": "PERF-GPU-MLPERF-LLAMA3",
    "sources": [str(files("profiles") / "PERF-GPU-MLPERF-LLAMA3.yaml")],
    "parameters": {"model": "llama3.1-8b", "compliance": False, "offlinePerformance": True,
                   "serverPerformance": True, "interactivePerformance": False},
}  # fmt: skip
COMMAND_LINE = [
    "vcagent",
    "--profile",
    "PERF-GPU-MLPERF-LLAMA3",
    "--parameters",
    "Form=full",
    "--run-id",
    "a",
]
ENGINE = {"type": "vllm", "model": "/model", "engine": {"max_num_seqs": 512}, "sampling": {"temperature": 0},
          "environment": {}, "division": "closed"}  # fmt: skip
TEST06 = "First token check pass: Skipped\nEOS check pass: True\nSample length check pass: True\n"


POWER = {
    "power": ("client.json", "client.log", "ptd_logs.txt", "server.json", "server.log"),
    "ranging": ("mlperf_log_detail.txt", "mlperf_log_summary.txt", "spl.txt"),
}
SAMPLE = "Time,{time},Watts,{watts},Volts,239.1,Amps,3.4,PF,0.96,Mark,2026-08-02_00-04-34_testing\n"


def add_power(folder: Path) -> None:
    """Add a power measurement, in MLCommons' layout, to a folder that has the logs of a run in run_1."""
    for name, of_client in POWER.items():
        (folder / name).mkdir()
        for file in of_client:
            (folder / name / file).write_text("x\n")
    log = read_detail(folder / "run_1/mlperf_log_detail.txt")
    begin, end = (
        datetime.strptime(log.text(f"power_{edge}"), "%m-%d-%Y %H:%M:%S.%f").replace(tzinfo=timezone.utc)
        for edge in ("begin", "end")
    )
    times = (begin - timedelta(seconds=1), begin + timedelta(seconds=1), end - timedelta(seconds=1))
    (folder / "run_1/spl.txt").write_text(
        "".join(
            SAMPLE.format(time=time.strftime("%m-%d-%Y %H:%M:%S.%f")[:-3], watts=watts)
            for time, watts in zip(times, (900, 2000, 2400), strict=True)
        )
        + "Time,cut\nTime,x,Watts,nan,Volts\n"
    )


def edit(path: Path, *changes: tuple[str, str]) -> None:
    """Change a text file; each text to replace must exist."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def write_settings(case_dir: Path, **changes: Any) -> None:
    """Write the harness's configuration of a test with this engine."""
    config = {"backend": ENGINE | changes, "max_output_tokens": 128}
    (case_dir / "harness.json").write_text(json.dumps(config))


@dataclass
class RunMaker:
    """Makes folders of runs with the logs of a kind of system."""

    folder: Path
    facts: dict[str, Any] = field(default_factory=lambda: dict(FACTS))

    def __call__(
        self,
        kind: str,
        run_id: str = "run",
        *,
        model: str = "",
        skip: tuple[str, ...] = (),
        test06: str = "",
        round_name: str = "v6.1",
    ) -> Path:
        """Write a run with a round's seeds, and with compliance runs of this outcome if it is given."""
        run_dir = self.folder / run_id
        cases = []
        for logs in sorted((LOGS / kind).iterdir()):
            if logs.name in skip:
                continue
            case_dir = run_dir / "mlperf" / logs.name.lower()
            shutil.copytree(logs, case_dir)
            scenario, mode = logs.name.split("-")
            name = f"{model or MODELS[kind]}/{scenario}/{mode}"
            summary: dict[str, Any] = {"schema_version": 1, "scenario": name}
            if mode == "accuracy":
                (case_dir / "accuracy.txt").write_text(f"{SCORES[kind]}\n")
                (case_dir / "mlperf_log_accuracy.json").write_text(
                    "[" + ",\n".join(f'{{ "seq_id" : {n}, "data" : "00" }}' for n in range(600)) + "]\n"
                )
            (case_dir / "summary.json").write_text(json.dumps(summary))
            write_settings(case_dir)
            case = {"scenario": name, "tool_name": "MLPerf LoadGen", "tool_version": "6.0.17",
                    "validity": "VALID", "case_dir": f"mlperf/{logs.name.lower()}"}  # fmt: skip
            cases.append(case)
        for scenario in ("Offline", "Server") if test06 else ():
            case_dir = run_dir / "mlperf" / f"{scenario.lower()}-test06"
            shutil.copytree(LOGS / kind / f"{scenario}-performance", case_dir)
            (case_dir / "verify_accuracy.txt").write_text(test06)
            write_settings(case_dir)
            (case_dir / "mlperf_log_accuracy.json").write_text("[]")
            name = f"{model or MODELS[kind]}/{scenario}/TEST06"
            validity = "INVALID" if "False" in test06 else "VALID"
            own = {"scenario": name, "validity": validity, "case_dir": f"mlperf/{case_dir.name}"}
            cases.append(cases[0] | own)
        for log in run_dir.rglob("mlperf_log_*.txt"):
            log.write_text(_with_seeds(log.read_text(), round_name))
        run = {"schema_version": 1, "run_id": run_id, "facts": self.facts, "cases": cases,
               "versions": {"vcagent": "0.1", "python": "3.11"}, "profile": PROFILE,
               "command_line": COMMAND_LINE}  # fmt: skip
        (run_dir / "run.json").write_text(json.dumps(run))
        Journal(run_dir / "journal.sqlite").close()
        return run_dir


def _with_seeds(text: str, round_name: str) -> str:
    seeds = zip(find_round("v6.1").seeds.values(), find_round(round_name).seeds.values(), strict=True)
    for own, other in seeds:
        text = text.replace(str(own), str(other))
    return text


@pytest.fixture
def make_run(tmp_path: Path) -> RunMaker:
    return RunMaker(tmp_path / "runs")


@pytest.fixture
def compliance(tmp_path: Path) -> Path:
    """Return the TEST06 runs of llama3.1-8b, in the form that mlcommons/inference's script writes them."""
    for scenario in ("Offline", "Server"):
        folder = tmp_path / "compliance/llama3.1-8b" / scenario / "TEST06"
        folder.mkdir(parents=True)
        (folder / "verify_accuracy.txt").write_text(TEST06)
    return tmp_path / "compliance"


@pytest.fixture
def build_tree(tmp_path: Path) -> Callable[..., tuple[Path, Built]]:
    """Return a function that builds a tree from runs, and returns its folder and the build's result."""

    def made(*runs: Path, output: str = "tree", **changes: Any) -> tuple[Path, Built]:
        values: dict[str, Any] = {
            "output": tmp_path / output, "division": "closed", "mlperf_round": find_round("v6.1"),
            "submitter": "Demo", "system": "1xH100", "system_type": "datacenter", "said": SAID,
            "measurements": MEASUREMENTS, "benchmarks": {},
        }  # fmt: skip
        return tmp_path / output, build(Order(**{**values, **changes}), cases_of(runs))

    return made


@pytest.fixture(scope="module")
def inference() -> Path:
    """Return a checkout of mlcommons/inference, which the tests do not fetch."""
    folder = Path(os.environ.get(CHECKOUT_VARIABLE) or "/nowhere")
    if not (folder / "tools/submission/submission_checker/main.py").is_file():
        pytest.skip(f"no checkout of mlcommons/inference ({CHECKOUT_VARIABLE})")
    return folder
