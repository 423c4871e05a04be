"""What MLPerf asks of a model's accuracy, by round (``accuracy_targets.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads it
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

__all__ = ["SCORES", "AccuracyTargets", "Target", "rounds", "targets_of"]

SCORES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
"""ROUGE's scores, as MLPerf's evaluation and rouge_score call them."""

_FILE = Path(__file__).with_name("accuracy_targets.yaml")


class Target(BaseModel):
    """What one score is judged by.

    Args:
        target: the reference implementation's score, in the evaluation's own unit.
        least: the share of it that must be reached.
        most: the share of it that must not be exceeded; None where more is not worse.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: float = Field(gt=0)
    least: float = Field(gt=0)
    most: float | None = None


class AccuracyTargets(BaseModel):
    """What a benchmark's accuracy is judged by.

    Args:
        model: the benchmark's name.
        rounds: the rounds of MLPerf Inference that this holds for, such as v5.1; in order.
        samples: how many samples its data set has; fewer are not judged.
        scores: a target for each score.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    rounds: tuple[str, ...] = Field(min_length=1)
    samples: int = Field(gt=0)
    scores: Mapping[str, Target]


@lru_cache(maxsize=1)
def _table() -> Mapping[str, AccuracyTargets]:
    import yaml

    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    table = TypeAdapter(tuple[AccuracyTargets, ...]).validate_python(rows)
    return MappingProxyType({targets.model: targets for targets in table})


def targets_of(model: str, mlperf_round: str = "") -> AccuracyTargets | None:
    """A model's targets in a round, in the newest that has it if none is named; None where there are none."""
    found = _table().get(model.replace("_", ".").removesuffix("-interactive"))
    return found if found and (not mlperf_round or mlperf_round in found.rounds) else None


def rounds() -> list[str]:
    """The rounds that the table knows."""
    return sorted({name for targets in _table().values() for name in targets.rounds})
