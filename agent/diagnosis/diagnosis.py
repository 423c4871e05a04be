"""What was found: the defects of each host, with the numbers behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
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
class Unjudged:
    """A value that a rule could not judge.

    Args:
        rule: the rule's name.
        metric: the metric; empty for a rule that combines others.
        reason: why it was not judged.
    """

    rule: str
    metric: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return values that JSON can carry."""
        return {"rule": self.rule, "metric": self.metric, "reason": self.reason}


class HostState(str, Enum):
    """What the diagnosis says of a host, worst first. The command, the page and fleet.json all use it.

    SICK has a defect. NO_RECORDS brought no number home. NOT_JUDGED has a value that nobody could judge, or
    lacks a metric that hosts of its group have. WELL means that every metric was judged and is well.
    """

    SICK = "sick"
    NO_RECORDS = "no records"
    NOT_JUDGED = "not judged"
    WELL = "well"


@dataclass(frozen=True, slots=True)
class HostDiagnosis:
    """One host.

    Args:
        host: its name.
        has_records: whether there is any number of it.
        judged: how many metrics were judged, by all rules.
        defects: in the order of the rules, then of the metrics.
        absent: metrics that a rule is about, that hosts of its group have and this one does not.
        unjudged: values that could not be judged.
        group: the hosts that it is compared with; empty where all hosts are.
    """

    host: str
    has_records: bool
    judged: int
    defects: tuple[Defect, ...]
    absent: tuple[str, ...]
    unjudged: tuple[Unjudged, ...] = ()
    group: str = ""

    @property
    def categories(self) -> tuple[str, ...]:
        """What its defects are called, sorted."""
        return tuple(sorted({defect.category for defect in self.defects}))

    @property
    def state(self) -> HostState:
        """What is said of the host."""
        if self.defects:
            return HostState.SICK
        if not self.has_records:
            return HostState.NO_RECORDS
        return HostState.NOT_JUDGED if self.unjudged or self.absent else HostState.WELL

    @property
    def is_good(self) -> bool:
        """Whether every metric of the host was judged and is well."""
        return self.state is HostState.WELL

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        return {
            "host": self.host,
            "state": self.state.value,
            "good": self.is_good,
            "group": self.group,
            "has_records": self.has_records,
            "judged": self.judged,
            "categories": list(self.categories),
            "defects": [defect.to_json() for defect in self.defects],
            "absent": list(self.absent),
            "not_judged": [one.to_json() for one in self.unjudged],
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

    @property
    def groups(self) -> dict[str, int]:
        """The number of hosts of each group."""
        return dict(sorted(Counter(host.group for host in self.hosts).items()))

    def summary(self) -> str:
        """Return how many hosts are in which state: ``16 hosts: 1 sick, 15 well``."""
        counts = Counter(host.state for host in self.hosts)
        told = ", ".join(f"{counts[state]} {state.value}" for state in HostState if counts[state])
        return f"{len(self.hosts)} host{'s' * (len(self.hosts) != 1)}: {told}"

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry."""
        return {
            "schema_version": 1,
            "summary": self.summary(),
            "defective": [host.host for host in self.hosts if host.defects],
            "not_judged": [host.host for host in self.hosts if host.state is HostState.NOT_JUDGED],
            "without_records": [host.host for host in self.hosts if not host.has_records],
            "hosts": [host.to_json() for host in self.hosts],
            "warnings": list(self.warnings),
        }
