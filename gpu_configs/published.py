"""Published MLPerf results, to set beside a run's own figure per accelerator (``published.yaml``)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.core.yaml_data import yaml_data
from agent.store.exhibits import Cell, Column, Row, Table
from gpu_configs.gpu_model import gpu_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agent.core.records import Metric

_FILE = Path(__file__).with_name("published.yaml")
_RATES = {
    "tokens/s": ("tokens_per_second", "inferred_tokens_per_second"),
    "samples/s": ("samples_per_second",),
}
_MOST_ROWS = 6


class PublishedResult(BaseModel):
    """One published result.

    Args:
        benchmark: the official name, such as ``llama3.1-8b``.
        scenario: Offline, Server or Interactive.
        gpu: the kind of its accelerators, a name of ``gpus/``.
        accelerators: how many it has.
        value: the figure of the whole system.
        unit: tokens/s or samples/s.
        round: such as v5.1.
        submitter: who handed it in.
        system: the system's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    benchmark: str
    scenario: str
    gpu: str
    accelerators: int = Field(gt=0)
    value: float = Field(gt=0)
    unit: str
    round: str
    submitter: str
    system: str

    @property
    def per_accelerator(self) -> float:
        """Return the figure of one accelerator."""
        return self.value / self.accelerators

    @property
    def source(self) -> str:
        """Return the address of its logs."""
        place = f"closed/{self.submitter}/results/{self.system}/{self.benchmark}/{self.scenario}"
        return f"https://github.com/mlcommons/inference_results_{self.round}/tree/main/{place}"


@lru_cache(maxsize=1)
def published_results() -> tuple[PublishedResult, ...]:
    """Return all published results that vcagent knows."""
    rows = yaml_data(_FILE.read_text(encoding="utf-8"))
    return TypeAdapter(tuple[PublishedResult, ...]).validate_python(rows)


def standing(
    benchmark: str, scenario: str, metrics: Iterable[Metric], gpu_names: Sequence[str | None]
) -> Table | None:
    """Return a run's figure per accelerator among published ones; None if there is nothing to compare.

    Args:
        benchmark: the run's model or benchmark; ``llama2-70b`` is compared with ``llama2-70b-99.9``.
        scenario: the scenario, Interactive included.
        metrics: the run's.
        gpu_names: the driver's names of the GPUs that the run used.
    """
    known = [each for each in published_results() if _is_of(each, benchmark, scenario)]
    values = {metric.name: metric.value for metric in metrics}
    rates = [values[name] for each in known for name in _RATES[each.unit] if name in values]
    if not known or not rates or not gpu_names:
        return None
    own = rates[0] / len(gpu_names)
    kind = gpu_model(gpu_names[0])
    known.sort(key=lambda each: (kind is None or each.gpu != kind.name, -each.per_accelerator))
    rows = [
        Row(
            f"this run: {len(gpu_names)} x {kind.name if kind else gpu_names[0] or 'GPU'}",
            (Cell(own), Cell()),
        )
    ]
    rows += [
        Row(
            f"{each.accelerators} x {each.gpu}, {each.submitter}, {each.round}",
            (Cell(each.per_accelerator), Cell(own / each.per_accelerator)),
        )
        for each in known[:_MOST_ROWS]
    ]
    sources = " ".join(each.source for each in known[:_MOST_ROWS])
    return Table(
        f"Published results of {known[0].benchmark}, {scenario}, closed division",
        "system",
        (Column("per accelerator", known[0].unit), Column("this run's share of it", "ratio")),
        tuple(rows),
        f"A figure is that of the whole system, divided by its accelerators. Sources: {sources}",
    )


def _is_of(published: PublishedResult, benchmark: str, scenario: str) -> bool:
    if published.scenario.lower() != scenario.lower():
        return False
    name = benchmark.lower().replace("3_1", "3.1")
    return published.benchmark in {name, f"{name}-99.9"}
