"""The result of a diagnosis: the defects of each host, with their numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.diagnosis.rules import Function


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect of a host.

    Args:
        rule: the rule's name.
        function: the rule's function.
        category: the category of the defect.
        criteria: the criterion that the numbers meet.
        metric: the metric; for a missing metric, the pattern without a match; None for several metrics.
        value: the measured value; None if missing.
        unit: the value's unit.
        baseline: the normal value.
        variance: the distance from the baseline as a share of it.
        z: the distance in standard deviations of the baseline's hosts.
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
        """Return JSON-compatible values."""
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
    """State of a host, worst first. The command, the page and fleet.json use it.

    SICK has a defect. NO_RECORDS has no records. SUSPECT violates a rule that names
    suspects. NOT_JUDGED has a value that could not be judged, or lacks a metric that hosts of its group have.
    WELL means that every metric was judged and has no defect.
    """

    SICK = "sick"
    NO_RECORDS = "no records"
    SUSPECT = "suspect"
    NOT_JUDGED = "not judged"
    WELL = "well"


@dataclass(frozen=True, slots=True)
class HostDiagnosis:
    """Diagnosis of one host.

    Args:
        host: its name.
        has_records: True if the host has any record.
        judged: the number of metrics judged by all rules.
        defects: in the order of the rules, then of the metrics.
        absent: metrics of a rule that other hosts of its group have, but this one does not.
        unjudged: values that could not be judged.
        group: the hosts that it is compared with; empty if all hosts are compared.
        suspicions: violations of rules that make a host suspect, of metrics without a defect.
    """

    host: str
    has_records: bool
    judged: int
    defects: tuple[Defect, ...]
    absent: tuple[str, ...]
    unjudged: tuple[Unjudged, ...] = ()
    group: str = ""
    suspicions: tuple[Defect, ...] = ()

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of its defects, sorted; of its suspicions if it has no defect."""
        return tuple(sorted({defect.category for defect in self.defects or self.suspicions}))

    @property
    def state(self) -> HostState:
        """The state of the host."""
        if self.defects:
            return HostState.SICK
        if not self.has_records:
            return HostState.NO_RECORDS
        if self.suspicions:
            return HostState.SUSPECT
        return HostState.NOT_JUDGED if self.unjudged or self.absent else HostState.WELL

    @property
    def is_good(self) -> bool:
        """True if every metric of the host was judged and has no defect."""
        return self.state is HostState.WELL

    def to_json(self) -> dict[str, Any]:
        """Return JSON-compatible values."""
        return {
            "host": self.host,
            "state": self.state.value,
            "good": self.is_good,
            "group": self.group,
            "has_records": self.has_records,
            "judged": self.judged,
            "categories": list(self.categories),
            "defects": [defect.to_json() for defect in self.defects],
            "suspicions": [one.to_json() for one in self.suspicions],
            "absent": list(self.absent),
            "not_judged": [one.to_json() for one in self.unjudged],
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Diagnosis of all hosts.

    Args:
        hosts: the hosts by name.
        warnings: values that could not be judged, with reasons; and that suspect hosts need more runs.
    """

    hosts: tuple[HostDiagnosis, ...]
    warnings: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """True if every host is good."""
        return all(host.is_good for host in self.hosts)

    @property
    def groups(self) -> dict[str, int]:
        """The number of hosts of each group."""
        return dict(sorted(Counter(host.group for host in self.hosts).items()))

    def summary(self) -> str:
        """Return the number of hosts in each state: ``16 hosts: 1 sick, 15 well``."""
        counts = Counter(host.state for host in self.hosts)
        told = ", ".join(f"{counts[state]} {state.value}" for state in HostState if counts[state])
        return f"{len(self.hosts)} host{'s' * (len(self.hosts) != 1)}: {told}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON-compatible values."""
        return {
            "schema_version": 1,
            "summary": self.summary(),
            "defective": [host.host for host in self.hosts if host.defects],
            "suspect": [host.host for host in self.hosts if host.state is HostState.SUSPECT],
            "not_judged": [host.host for host in self.hosts if host.state is HostState.NOT_JUDGED],
            "without_records": [host.host for host in self.hosts if not host.has_records],
            "hosts": [host.to_json() for host in self.hosts],
            "warnings": list(self.warnings),
        }
