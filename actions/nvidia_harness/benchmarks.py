"""List the benchmarks of NVIDIA's code: scenarios, space, usual times."""

from __future__ import annotations

from dataclasses import dataclass

_GB = 10**9


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Args:
        name: name for ``--benchmarks``.
        scenarios: default scenarios: VirtualClient's, or those of the datacenter category.
        scratch_bytes: free space for its data, model and preprocessed data; a cautious estimate, since a plan
            must not refuse without need, and a download of hours must not fail at its end.
        minutes: usual durations of stages on a data-centre host, in minutes.
    """

    name: str
    scenarios: tuple[str, ...] = ("Offline", "Server")
    scratch_bytes: int = 100 * _GB
    download_minutes: float = 30
    preprocess_minutes: float = 30
    engine_minutes: float = 10
    accuracy_minutes: float = 15


BENCHMARKS = {
    one.name: one
    for one in (
        # SQuAD and two models of 1.3 GB (code/bert/tensorrt/download_model.sh).
        Benchmark("bert", ("Offline", "Server", "SingleStream"), 10 * _GB, 10, 2, 5, 3),
        # KiTS19: 27 GB of scans, and the same again preprocessed (code/3d-unet/tensorrt/download_data.sh).
        Benchmark("3d-unet", ("Offline", "SingleStream"), 90 * _GB, 60, 30, 5, 10),
        # GPT-J 6B: a zip of 24 GB, its unpacked files, and a quantised model (code/gptj, download_model.sh).
        Benchmark("gptj", ("Offline", "Server"), 100 * _GB, 60, 10, 30, 20),
        Benchmark("llama2-70b", ("Offline", "Server"), 500 * _GB, 240, 20, 60, 90),
    )
}


def benchmark(name: str) -> Benchmark:
    """Return the properties of a benchmark; cautious guesses for an unknown one."""
    return BENCHMARKS.get(name) or Benchmark(name)
