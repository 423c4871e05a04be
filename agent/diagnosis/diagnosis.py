"""What was found: the defects of each host, with the numbers behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.diagnosis.rules import Function


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong with a host.

    Args:
        rule: the rule's name.
        function: what the rule does.
        category: what such a defect is called.
        criteria: what is true of the numbers.
        metric: the metric; for one that is missing, the pattern that nothing matches; None of several.
        value: what was measured; None where it is missing.
        unit: the value's unit.
        baseline: what is normal.
        variance: the distance from that as a share of it.
        z: the same in standard deviations of the hosts that the baseline is of.
        evidence: the defects, or values, of the rules that this one combines.
    """

    rule: str
    function: Function
    category: str
    criteria: str = ""
    metric: str | None = None
    value: float | None = None
    unit: str | None = None
    baseline: float | None = None
    variance: float | None = None
    z: float | None = None
    evidence: tuple[Defect, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        return {
            "rule": self.rule,
            "function": self.function.value,
            "category": self.category,
            "criteria": self.criteria,
            "metric": self.metric,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "variance": self.variance,
            "z": self.z,
            "evidence": [one.to_json() for one in self.evidence],
        }


@dataclass(frozen=True, slots=True)
class HostDiagnosis:
    """One host.

    Args:
        host: its name.
        has_records: whether there is any number of it.
        judged: how many metrics were judged, by all rules.
        defects: in the order of the rules, then of the metrics.
        absent: metrics that a rule is about, that other hosts have and this one does not.
    """

    host: str
    has_records: bool
    judged: int
    defects: tuple[Defect, ...]
    absent: tuple[str, ...]

    @property
    def categories(self) -> tuple[str, ...]:
        """What its defects are called, sorted."""
        return tuple(sorted({defect.category for defect in self.defects}))

    @property
    def is_good(self) -> bool:
        """Whether it was measured, and nothing is wrong."""
        return self.has_records and not self.defects

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        return {
            "host": self.host,
            "good": self.is_good,
            "has_records": self.has_records,
            "judged": self.judged,
            "categories": list(self.categories),
            "defects": [defect.to_json() for defect in self.defects],
            "absent": list(self.absent),
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All hosts.

    Args:
        hosts: by name.
        warnings: what could not be judged, and why.
    """

    hosts: tuple[HostDiagnosis, ...]
    warnings: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether every host is."""
        return all(host.is_good for host in self.hosts)

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        return {
            "schema_version": 1,
            "defective": [host.host for host in self.hosts if host.defects],
            "without_records": [host.host for host in self.hosts if not host.has_records],
            "hosts": [host.to_json() for host in self.hosts],
            "warnings": list(self.warnings),
        }
