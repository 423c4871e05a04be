#!/usr/bin/env python3
"""Llama 3.1 8B on one GPU: the harness with vLLM beside the bare engine, and the highest valid load.

    python3 benchmarks/llama_on_gpu.py --output results.json           # about 15 minutes on an H100

It needs vLLM (with pydantic and PyYAML) and mlcommons-loadgen in the Python that runs it. Without ``--model``
the weights are random: right for speed, worthless for answers. They are bf16, quantised as they load
(``load_format: dummy``), or with ``--weights fp8`` quantised beforehand (random_fp8_model.py). Prompts are
token ids of log-normal length, mean 870, longest 2,540; answers have exactly 128 tokens. The same for all:

- ``bare``: ``LLM.generate`` on all prompts at once, with the engine arguments of Offline;
- ``reference``: the same engine given 16 prompts at a time, as the reference implementation does;
- ``profile``: the share of each kernel in the GPU's time, in ``bare``;
- ``offline``, ``server``, ``interactive``, ``singlestream``: LoadGen through the harness.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOADGEN = ROOT / "actions" / "loadgen"
PARTS = ("bare", "reference", "profile", "offline", "server", "interactive", "singlestream")
BARE = ("bare", "reference", "profile")
OUTPUT_TOKENS = 128
MEAN_TOKENS, LONGEST = 870, 2540
"""Lengths of the prompts in llama3.1-8b's data set (CNN-DailyMail)."""
LLAMA_8B = ROOT / "gpu_configs" / "models" / "llama3_1-8b" / "config.json"


def main() -> None:
    """Run the parts and write the results after each."""
    options = read_options()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    for part in BARE:  # results of an earlier command
        (work / f"{part}.json").unlink(missing_ok=True)
    model = options.model or random_model(work, options.weights)
    engines = engines_of(options, model)
    samples = work / "samples.jsonl"
    vocabulary = min(120000, json.loads((model / "config.json").read_text())["vocab_size"])
    write_samples(samples, options.samples, vocabulary)
    report: dict[str, Any] = {"host": host(), "model": model_facts(model), "command": " ".join(sys.argv)}
    report["samples"] = options.samples
    for part in options.parts:
        began = time.monotonic()
        try:
            report[part] = run_part(part, options, model=model, engines=engines, samples=samples)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            report[part] = {"error": str(error)[-1500:]}
        report[part]["took_s"] = round(time.monotonic() - began, 1)
        print(part, json.dumps(report[part])[:1500], flush=True)
        report.update(headline(report))
        options.output.write_text(json.dumps(report, indent=2) + "\n")


def read_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("llama-on-gpu"))
    parser.add_argument("--model", type=Path, help="a model's folder; random weights if absent")
    parser.add_argument("--weights", choices=("bf16", "fp8"), default="bf16", help="of random weights")
    parser.add_argument("--gpu", default="h100-sxm", help="a file of gpu_configs/gpus")
    parser.add_argument("--engines", type=Path, help="JSON: scenario → engine arguments, in place of --gpu's")
    parser.add_argument("--samples", type=int, default=2880)
    parser.add_argument("--reference-samples", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=120.0, help="least duration of Server's final test")
    parser.add_argument("--trial-seconds", type=float, default=20.0)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument(
        "--start", type=json.loads, default={}, help='JSON: {"Server": 52, "Interactive": 38}'
    )
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    return parser.parse_args()


def random_model(work: Path, weights: str) -> Path:
    """Return a model of random weights: its configuration alone, or with weights in fp8."""
    folder = work / f"model-{weights}"
    folder.mkdir(parents=True, exist_ok=True)
    if weights == "bf16":
        (folder / "config.json").write_text(LLAMA_8B.read_text())
    elif not (folder / "config.json").exists():
        made = run(
            [
                sys.executable,
                str(Path(__file__).with_name("random_fp8_model.py")),
                str(LLAMA_8B),
                str(folder),
            ],
            300,
        )
        if made.returncode:
            raise SystemExit(made.stdout)
    return folder


def engines_of(options: argparse.Namespace, model: Path) -> dict[str, Any]:
    """Return the engine arguments by scenario: given ones, or gpu_configs', as in LoadGenExecutor."""
    if options.engines:
        return dict(json.loads(options.engines.read_text()))
    import yaml

    sys.path.insert(0, str(ROOT))
    from gpu_configs.gpu_model import complete

    path = ROOT / "gpu_configs" / "gpus" / f"{options.gpu}.yaml"
    settings = complete(yaml.safe_load(path.read_text())).vllm["llama3.1-8b"]
    known = settings.model_dump(exclude_none=True)
    quantized = json.loads((model / "config.json").read_text()).get("quantization_config")
    os.environ.update(known["environment"])  # for the engine alone and the harness
    engines = {}
    for scenario, own in known["scenarios"].items():
        engine = {**known["engine"], **own.get("engine", {})}
        if quantized:
            engine.pop("quantization", None)
            engine |= known.get("static_fp8", {}) if quantized.get("activation_scheme") == "static" else {}
        if own.get("phases"):
            engine["scheduler_cls"] = "harness.backends.vllm_scheduler.PhasedScheduler"
            engine["additional_config"] = {"phases": own["phases"]}
        if extension := engine.get("worker_extension_cls"):
            more = engine.get("additional_config", {})
            engine["additional_config"] = {**more, "worker_extension_cls": extension}
        engines[scenario] = engine
    return engines


def write_samples(path: Path, count: int, vocabulary: int) -> None:
    """Write the prompts, which are the same for every part."""
    sys.path.insert(0, str(ROOT))
    # Load only the module: its package needs the agent's libraries.
    place = LOADGEN / "sample_sets" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic", place)
    assert spec is not None
    assert spec.loader is not None
    synthetic = importlib.util.module_from_spec(spec)
    sys.modules["synthetic"] = synthetic
    spec.loader.exec_module(synthetic)
    made = synthetic.SyntheticSamples(count, MEAN_TOKENS, LONGEST, seed=1, vocabulary=vocabulary)
    made.write(path)


def run_part(
    part: str,
    options: argparse.Namespace,
    *,
    model: Path,
    engines: dict[str, Any],
    samples: Path,
) -> dict[str, Any]:
    """Run one part and return its results."""
    work = options.work.resolve()
    if part in BARE:
        if (found := work / f"{part}.json").exists():
            return dict(json.loads(found.read_text()))
        return bare(part, options, model=model, engine=engines["Offline"], samples=samples)
    scenario = {"offline": "Offline", "server": "Server", "interactive": "Interactive"}.get(
        part, "SingleStream"
    )
    return through_loadgen(
        scenario, options, model=model, engine=engines[scenario], samples=samples, folder=work / part
    )


def bare(
    part: str, options: argparse.Namespace, *, model: Path, engine: dict[str, Any], samples: Path
) -> dict[str, Any]:
    """Run all requested parts of the engine alone in one process; return the first one's results."""
    work = options.work.resolve()
    request = {
        "engine": own_arguments(model, engine), "samples": str(samples), "output": str(work),
        "reference_samples": options.reference_samples if "reference" in options.parts else 0,
        "profile": str(work / "profile") if "profile" in options.parts else "",
    }  # fmt: skip
    (work / "bare_request.json").write_text(json.dumps(request))
    ended = run(
        [sys.executable, str(Path(__file__).with_name("bare_engine.py")), str(work / "bare_request.json")],
        420,
    )
    if ended.returncode:
        raise RuntimeError(ended.stdout[-3000:])
    return dict(json.loads((work / f"{part}.json").read_text()))


def own_arguments(model: Path, engine: dict[str, Any]) -> dict[str, Any]:
    """Return the engine arguments with the common settings of every part."""
    own: dict[str, Any] = {} if any(model.glob("*.safetensors")) else {"load_format": "dummy"}
    if not (model / "tokenizer.json").exists():
        own["skip_tokenizer_init"] = True
    return {**own, **engine, "model": str(model), "max_model_len": 2672, "enable_prefix_caching": False}


def through_loadgen(
    scenario: str,
    options: argparse.Namespace,
    *,
    model: Path,
    engine: dict[str, Any],
    samples: Path,
    folder: Path,
) -> dict[str, Any]:
    """Run one scenario with the harness in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = own_arguments(model, engine)
    del arguments["model"], arguments["enable_prefix_caching"]
    config: dict[str, Any] = {
        "scenario": scenario, "mode": "performance", "model": "llama3_1-8b", "output_dir": str(folder),
        "dataset": str(samples), "max_output_tokens": OUTPUT_TOKENS, "warmup_samples": 64,
        "backend": {
            "type": "vllm", "model": str(model), "engine": arguments, "sampling": {"ignore_eos": True},
            "environment": {"VLLM_USE_FLASHINFER_SAMPLER": "0", "HF_HUB_OFFLINE": "1"},
        },
    }  # fmt: skip
    if scenario == "Offline":
        config["settings"] = {"target_qps": 50, "min_duration": 1000, "min_query_count": options.samples}
    elif scenario == "SingleStream":
        config["warmup_samples"] = 4
        config["settings"] = {"target_latency": 1000, "min_duration": 20000, "min_query_count": 64}
        config["performance_sample_count"] = 64
    else:
        config["settings"] = {
            "min_duration": round(options.seconds * 1000),
            "sample_concatenate_permutation": 0,
        }
        config["tuning"] = {
            "start_qps": options.start.get(scenario), "trial_s": options.trial_seconds, "precision": 0.02,
            "most_trials": options.trials, "final_attempts": 2,
        }  # fmt: skip
    (folder / "harness.json").write_text(json.dumps(config))
    ended = run([sys.executable, "-m", "harness", str(folder / "harness.json")], 560)
    result = json.loads((folder / "harness_result.json").read_text())
    if ended.returncode:
        raise RuntimeError(json.dumps(result["error"]) + ended.stdout[-1500:])
    return summary(result, folder)


def run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command with the harness on its path."""
    path = os.pathsep.join(filter(None, [str(LOADGEN / "in_environment"), os.environ.get("PYTHONPATH", "")]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "HF_HUB_OFFLINE": "1",
    }
    ended = subprocess.run(
        command, env=environment, check=False, text=True, timeout=timeout_s,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    time.sleep(2)  # the driver frees the last process's memory
    return ended


def summary(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the results of LoadGen and the harness for a test."""
    wanted = {
        "Result is", "Samples per second", "Tokens per second", "Completed samples per second",
        "Completed tokens per second", "99.00 percentile first token latency (ns)",
        "99.00 percentile time to output token (ns)", "90.00 percentile latency (ns)",
        "50.00 percentile first token latency (ns)", "Mean latency (ns)",
    }  # fmt: skip
    lines = (folder / "mlperf_log_summary.txt").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    found = {name.strip(): value.strip() for name, value in pairs if name.strip() in wanted}
    return {
        "loadgen": found,
        **{
            key: result[key]
            for key in ("completed", "output_tokens", "input_tokens", "cached_tokens", "tuning")
        },
        **{key: result[key] for key in ("warmup", "engine", "versions", "client", "asked")},
    }


def headline(report: dict[str, Any]) -> dict[str, Any]:
    """Return the figures by name; a missing measurement is absent."""

    def number(part: str, name: str) -> float | None:
        value = report.get(part, {}).get("loadgen", {}).get(name)
        return None if value is None else float(value)

    bare_rate = report.get("bare", {}).get("tokens_per_s")
    offline = number("offline", "Tokens per second")
    figures = {
        "bare_engine_tokens_per_s": bare_rate,
        "offline_tokens_per_s": offline,
        "ratio": round(offline / bare_rate, 4) if offline and bare_rate else None,
        "reference_design_tokens_per_s": report.get("reference", {}).get("tokens_per_s"),
        "server_tokens_per_s": number("server", "Completed tokens per second"),
        "server_target_qps": ((report.get("server", {}).get("tuning")) or {}).get("target_qps"),
        "interactive_tokens_per_s": number("interactive", "Completed tokens per second"),
        "interactive_target_qps": ((report.get("interactive", {}).get("tuning")) or {}).get("target_qps"),
        "singlestream_p90_latency_s": _seconds(number("singlestream", "90.00 percentile latency (ns)")),
    }
    return {name: value for name, value in figures.items() if value is not None}


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def host() -> dict[str, Any]:
    """Return the machine and the time; without nvidia-smi there is no GPU."""
    found = {
        "python": platform.python_version(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    if shutil.which("nvidia-smi"):
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total,power.limit",
            "--format=csv,noheader",
        ]
        found["gpu"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return found


def model_facts(model: Path) -> dict[str, Any]:
    """Return facts about the model."""
    is_random = not (model / "tokenizer.json").exists()
    return {
        "weights": "random" if is_random else "from file",
        **json.loads((model / "config.json").read_text()),
    }


if __name__ == "__main__":
    main()
