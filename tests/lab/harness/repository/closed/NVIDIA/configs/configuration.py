import importlib
import importlib.util

from code.common.constants import AccuracyTarget, HarnessType, PowerSetting
from code.common.systems.system_list import KnownSystem

__all__ = ["AccuracyTarget", "BenchmarkConfiguration", "ConfigRegistry", "HarnessType", "KnownSystem", "PowerSetting"]

FIELDS = {
    "active_sms", "benchmark", "enable_sort", "gpu_batch_size", "gpu_copy_streams", "gpu_inference_streams",
    "graphs_max_seqlen", "offline_expected_qps", "precision", "scenario", "server_num_issue_query_threads",
    "server_target_qps", "single_stream_expected_latency_ns", "soft_drop", "system", "use_fp8", "use_graphs",
    "use_small_tile_gemm_plugin", "workspace_size",
}  # fmt: skip


class BenchmarkConfiguration:
    pass


class ConfigRegistry:
    registry = {}

    @classmethod
    def register(cls, *setting):
        def take(config):
            given = {name for base in config.__mro__ for name in vars(base) if not name.startswith("_")}
            if wrong := given - FIELDS:
                raise KeyError(f"<config {config.__name__!r}> contains unsupported Field {sorted(wrong)}")
            key = (config.benchmark, config.scenario, config.system, *setting)
            if key in cls.registry:
                raise KeyError(f"Config for {key} is already registered.")
            cls.registry[key] = config
            return config

        return take

    @classmethod
    def load(cls, benchmark, scenario):
        base = f"configs.{benchmark}.{scenario}"
        custom = importlib.util.find_spec(f"{base}.custom") is not None
        importlib.import_module(f"{base}.custom" if custom else base)
