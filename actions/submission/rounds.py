"""Read the requirements of each round of MLPerf Inference (``rounds.yaml``), and the layout of its trees."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.core.errors import UsageError
from agent.core.names import did_you_mean
from agent.core.yaml_data import yaml_data

SystemType = Literal["datacenter", "edge", "datacenter,edge", "edge,datacenter"]
LEAST_DURATION_MS = 600_000
"""Minimum duration of a performance run in ms (TEST_DURATION_MS)."""
FIXED_SIZE = frozenset({"e2e-rag-qna", "e2e-rag-db"})
"""Benchmarks that process their data once, regardless of the duration."""
LAYOUTS_SINCE = ("v5.0", "v5.1", "v6.0", "v6.1")
"""Rounds for which trees can be built."""
_FLAT_SINCE = (6, 0)
_FILE = Path(__file__).with_name("rounds.yaml")
_PARTS = (
    ("mobilenet", "resnet"), ("efficientnet", "resnet"), ("resnet50", "resnet"),
    ("bert-99.9", "bert-99.9"), ("bert-99", "bert-99"), ("llama3.1-405b", "llama3.1-405b"),
)  # fmt: skip
"""Names by which the official checker classifies unknown benchmarks (Config.get_mlperf_model)."""
_ALIASES = {"ssd-resnet34": "retinanet", "mobilenet": "resnet", "resnet50": "resnet"}


class Limits(BaseModel):
    """Upper limits of a scenario's 99th percentile latencies, in ms."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ttft_ms: int | None = None
    tpot_ms: int | None = None
    latency_ms: int | None = None


class Benchmark(BaseModel):
    """A round's requirements for one benchmark; ``rounds.yaml`` explains the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    samples: int = Field(gt=0)
    performance_samples: int | None = None
    accuracy_samples: Mapping[str, int] = {}
    offline_samples: int | None = None
    datacenter: tuple[str, ...] = ()
    edge: tuple[str, ...] = ()
    tokens: bool = False
    most_tokens: int | None = None
    limits: Mapping[str, Limits] = {}
    tests: tuple[str, ...] = ()

    def scenarios(self, system_type: str) -> tuple[str, ...]:
        """Return the scenarios that a closed submission needs; alternatives are joined by a bar."""
        asked = [getattr(self, kind, ()) for kind in system_type.split(",")]
        return tuple(dict.fromkeys(scenario for scenarios in asked for scenario in scenarios))

    def accuracy_count(self, scenario: str) -> int:
        """Return the number of samples of an accuracy run."""
        return self.accuracy_samples.get(scenario) or self.accuracy_samples.get("all") or self.samples


class Round(BaseModel):
    """One round: its seeds and benchmarks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    seeds: Mapping[str, int]
    benchmarks: Mapping[str, Benchmark]

    @property
    def is_flat(self) -> bool:
        """Return True if measurements and compliance runs are in the results folder, as since v6.0."""
        return tuple(map(int, self.name[1:].split("."))) >= _FLAT_SINCE

    @property
    def source_folder(self) -> str:
        """Return the name of the folder with the submitter's code."""
        return "src" if self.is_flat else "code"

    def official_name(self, benchmark: str, mapping: Mapping[str, str]) -> str:
        """Return the official name of a benchmark's folder; the folder's own name if it is unknown.

        Args:
            benchmark: the folder's name.
            mapping: ``model_mapping.json`` of an open submission.
        """
        for name in (benchmark, _ALIASES.get(benchmark, ""), mapping.get(benchmark, "")):
            if name in self.benchmarks:
                return name
        dotted = benchmark.replace("3_1", "3.1")
        guesses = [name for part, name in _PARTS if part in dotted]
        return next((name for name in (dotted, *guesses) if name in self.benchmarks), benchmark)

    def of_seeds(self) -> str:
        """Return the seeds as a line for people."""
        return ", ".join(f"{name} {seed}" for name, seed in self.seeds.items())


@lru_cache(maxsize=1)
def known_rounds() -> Mapping[str, Round]:
    """Return the rounds that vcagent knows, oldest first."""
    rows = yaml_data(_FILE.read_text(encoding="utf-8"))
    rounds = TypeAdapter(tuple[Round, ...]).validate_python(
        [{"name": name, **values} for name, values in rows.items()]
    )
    return MappingProxyType({each.name: each for each in rounds})


def find_round(name: str) -> Round:
    """Return a round by its name.

    Raises:
        UsageError: if it is unknown.
    """
    rounds = known_rounds()
    found = rounds.get(name if name.startswith("v") else f"v{name}")
    if found is None:
        raise UsageError(f"--round: no round is named {name!r}", remedy=did_you_mean(name, rounds))
    return found
