"""What is known of the benchmarks of NVIDIA's code: scenarios, space, usual times."""

from __future__ import annotations

from dataclasses import dataclass

_GB = 10**9


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Args:
        name: as ``--benchmarks`` takes it.
        scenarios: what is run where the profile names none: VirtualClient's, or the datacenter ones.
        scratch_bytes: free space that its data, model and preprocessed data need: generous, for a plan must
            not refuse for nothing and must not let a download of hours fail at its end.
        minutes: how long stages usually take on a data-centre host, in minutes.
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
        # KiTS19: 27 GB of scans, and as much again preprocessed (code/3d-unet/tensorrt/download_data.sh).
        Benchmark("3d-unet", ("Offline", "SingleStream"), 90 * _GB, 60, 30, 5, 10),
        # GPT-J 6B: a zip of 24 GB, unpacked beside it, and a quantised model (code/gptj, download_model.sh).
        Benchmark("gptj", ("Offline", "Server"), 100 * _GB, 60, 10, 30, 20),
        Benchmark("llama2-70b", ("Offline", "Server"), 500 * _GB, 240, 20, 60, 90),
    )
}


def benchmark(name: str) -> Benchmark:
    """What is known of a benchmark; of one that is not, cautious guesses."""
    return BENCHMARKS.get(name) or Benchmark(name)
