"""MLPerf's requirements on a model's accuracy, by round (``targets.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agent.core.yaml_data import yaml_data

SCORES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
"""ROUGE's scores, as named by MLPerf's evaluation and by rouge_score."""

_FILE = Path(__file__).with_name("targets.yaml")


class Target(BaseModel):
    """Limits for one score.

    Args:
        target: the reference implementation's score, in the evaluation's own unit.
        least: the share of the target that must be reached.
        most: the share of the target that must not be exceeded; None if higher is not worse.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: float = Field(gt=0)
    least: float = Field(gt=0)
    most: float | None = None


class AccuracyTargets(BaseModel):
    """Limits for a benchmark's accuracy.

    Args:
        model: the benchmark's name.
        rounds: the rounds of MLPerf Inference with these limits, such as v5.1; in order.
        samples: number of samples in its data set; fewer are not judged. None for benchmarks that vcagent
            does not run; of these it only reads the checker's own text.
        scores: a target for each score.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    rounds: tuple[str, ...] = Field(min_length=1)
    samples: int | None = Field(default=None, gt=0)
    scores: Mapping[str, Target]


@lru_cache(maxsize=1)
def _table() -> Mapping[str, AccuracyTargets]:
    rows = yaml_data(_FILE.read_text(encoding="utf-8"))
    table = TypeAdapter(tuple[AccuracyTargets, ...]).validate_python(rows)
    return MappingProxyType({targets.model: targets for targets in table})


def targets_of(model: str, mlperf_round: str = "") -> AccuracyTargets | None:
    """Return a model's targets in a round (the newest if none is named), or None if unknown."""
    found = known_targets(model)
    return found if found and found.samples and (not mlperf_round or mlperf_round in found.rounds) else None


def known_targets(model: str) -> AccuracyTargets | None:
    """Return a benchmark's targets in the newest round that has it, or None if the name is unknown.

    Args:
        model: the benchmark's name, as the folders of a submission have it, such as ``llama3_1-8b``.
    """
    table = _table()
    for name in (model, model.replace("_", "."), model.replace("_", ".").replace("-interactive", "")):
        if found := table.get(name.lower()):
            return found
    return None


def rounds() -> list[str]:
    """Return the rounds in the table."""
    return sorted({name for targets in _table().values() if targets.samples for name in targets.rounds})
