"""Stands in for NVIDIA's code.main: needs a configuration, an engine and LoadGen; writes the same files."""

import argparse
import importlib.util
import json
import os
import re
import sys
from datetime import datetime, timezone
from pathlib import Path

from code.common.constants import AccuracyTarget, HarnessType, PowerSetting, WorkloadSetting
from code.common.systems.system_list import DETECTED_SYSTEM, MATCHED_SYSTEM

KEYS = {
    "Offline": ("result_samples_per_second", "offline"),
    "Server": ("result_scheduled_samples_per_sec", "server"),
    "SingleStream": ("result_90.00_percentile_latency_ns", "single_stream"),
}
ACCURACIES = {
    "bert": [("F1", 90.2147, 89.96526)],
    "3d-unet": [("DICE", 0.86172, 0.8530)],
    "gptj": [("ROUGE1", 42.98, 42.94), ("ROUGE2", 20.12, 20.10), ("ROUGEL", 29.98, 29.95)],
}
FILES_STYLE = Path("VERSION").read_text().startswith("v5")


def wishes(name):
    path = Path("standin") / name
    return path.read_text().split() if path.exists() else []


def configuration(benchmark, scenario, config_ver):
    accuracy = AccuracyTarget.k_99_9 if "high_accuracy" in config_ver else AccuracyTarget.k_99
    if FILES_STYLE:
        path = Path("configs", DETECTED_SYSTEM.extras["id"], scenario, f"{benchmark.replace('.', '_')}.py")
        if not path.exists():
            return None
        spec = importlib.util.spec_from_file_location("settings", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.EXPORTS.get(WorkloadSetting(HarnessType.Custom, accuracy, PowerSetting.MaxP))
    from configs.configuration import ConfigRegistry

    ConfigRegistry.load(benchmark, scenario)
    key = (benchmark, scenario, MATCHED_SYSTEM, HarnessType.Custom, accuracy, PowerSetting.MaxP)
    return ConfigRegistry.registry.get(key)


def generate(system, benchmark, scenario, config_ver):
    path = Path("build/engines", system, benchmark, scenario, f"{config_ver}.plan")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("an engine")
    print(f"Building engine for {benchmark} {scenario}", flush=True)


def as_of_now(log):
    """Return the log with its dates moved, so that the test ended now."""
    power = "%m-%d-%Y %H:%M:%S.%f"
    ended = re.search(r'"power_end", "value": "([^"]+)"', log)
    if not ended:
        return log
    ago = datetime.now(timezone.utc).replace(tzinfo=None) - datetime.strptime(ended[1], power)

    def moved(found):
        form = power if found[1].startswith("power") else "%Y-%m-%dT%H:%M:%SZ"
        return f'"{found[1]}", "value": "{(datetime.strptime(found[2], form) + ago).strftime(form)}"'

    return re.sub(r'"(power_begin|power_end|test_datetime)", "value": "([^"]+)"', moved, log)


def run(system, benchmark, scenario, config_ver, mode):
    if not Path("build/engines", system, benchmark, scenario, f"{config_ver}.plan").exists():
        raise RuntimeError(f"File build/engines/{system}/{benchmark}/{scenario}/{config_ver}.plan does not exist.")
    if not (Path.home() / ".local" / "loadgen").exists():
        raise ImportError("No module named 'mlperf_loadgen'")
    if "no_result" in wishes("fail"):
        return
    full = f"{benchmark}-{'99.9' if 'high_accuracy' in config_ver else '99'}"
    folder = Path(os.environ["LOG_DIR"], f"{system}_TRT", full, scenario)
    folder.mkdir(parents=True, exist_ok=True)
    key, logs = KEYS[scenario]
    logs = "accuracy" if mode == "AccuracyOnly" else f"{logs}_invalid" if scenario in wishes("invalid") else logs
    for log in Path("standin/logs", logs).glob("mlperf_log_*"):
        (folder / log.name).write_text(as_of_now(log.read_text()))
    values = {}
    for line in (folder / "mlperf_log_detail.txt").read_text().splitlines():
        if line.startswith(":::MLLOG"):
            entry = json.loads(line.removeprefix(":::MLLOG"))
            values[entry["key"]] = entry["value"]
    data = {
        "benchmark_full": full,
        "benchmark_short": benchmark,
        "config_name": f"{system}_TRT-custom_k_99_MaxP-{scenario}",
        "detected_system": str(DETECTED_SYSTEM),
        "scenario": scenario,
        "scenario_key": key,
        "system_name": f"{system}_TRT",
        "tensorrt_version": "10.2.0",
        "test_mode": mode,
    }
    if mode == "PerformanceOnly":
        names = (key, "result_validity", "early_stopping_met", "effective_min_duration_ms")
        data |= {name: values[name] for name in names if name in values}
        data["summary_string"] = f"{key}: {values[key]}, Result is {values['result_validity']}"
    else:
        factor = 0.9 if "inaccurate" in wishes("invalid") else 1.0
        data["accuracy"] = [
            {"name": name, "value": value * factor, "threshold": least, "pass": value * factor >= least}
            for name, value, least in ACCURACIES.get(benchmark, [("ROUGE1", 44.4, 44.3)])
        ]
        data["accuracy_pass"] = all(entry["pass"] for entry in data["accuracy"])
    (folder / "metadata.json").write_text(json.dumps(data, indent=4, sort_keys=True))


def main():
    parser = argparse.ArgumentParser()
    for name in ("benchmarks", "scenarios", "config_ver", "test_mode", "action"):
        parser.add_argument(f"--{name}", default="PerformanceOnly" if name == "test_mode" else "default")
    parser.add_argument("--accuracy_target", default="0.99")
    asked, _ = parser.parse_known_args()
    if FILES_STYLE:  # v5.x ignores config_ver silently
        asked.config_ver = "high_accuracy" if float(asked.accuracy_target) == 0.999 else "default"
    if not FILES_STYLE and MATCHED_SYSTEM is None:
        print(f"Detected system did not match any known systems. Exiting. {DETECTED_SYSTEM}")
        return
    system = DETECTED_SYSTEM.extras["id"] if FILES_STYLE else DETECTED_SYSTEM.system_id
    for benchmark in asked.benchmarks.split(","):
        for scenario in asked.scenarios.split(","):
            if configuration(benchmark, scenario, asked.config_ver) is None:
                print(f"No registered config for {benchmark}.{scenario}.{system} for WorkloadSetting({asked.config_ver})")
                continue
            if asked.action == "generate_engines":
                generate(system, benchmark, scenario, asked.config_ver)
            else:
                run(system, benchmark, scenario, asked.config_ver, asked.test_mode)


if __name__ == "__main__":
    sys.exit(main())
