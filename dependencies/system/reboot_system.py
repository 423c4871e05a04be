"""Reboots the host, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from agent.component.component import ComponentParameters, Dependency, Plan, Step, StepContext, StepOutcome
from agent.core.errors import HostError, InterruptedRunError, LiftedBy
from agent.facts.boot import REBOOTS, SYSTEMD
from agent.profile import parse_timespan

if TYPE_CHECKING:
    from agent.component.downloads import Download
    from agent.facts import Facts


class RebootSystemParameters(ComponentParameters):
    """VirtualClient's parameters (RebootSystem.cs)."""

    reason: str = Field(..., min_length=1, description="The reason; it distinguishes the reboots of a run.")
    wait_time: float = Field(0.0, ge=0, description="Time to wait before the reboot: 00:01:00, or seconds.")
    is_enabled: bool = Field(default=True, description="Whether to reboot.")

    @field_validator("wait_time", mode="before")
    @classmethod
    def _timespan(cls, value: Any) -> Any:
        return parse_timespan(value) if isinstance(value, str) and ":" in value else value


class RebootSystem(Dependency):
    """Reboots the host once per run and reason, as in VirtualClient."""

    lifts = frozenset(LiftedBy) - {LiftedBy.NOTHING, LiftedBy.ACCOUNT, LiftedBy.PROGRAM}
    Parameters = RebootSystemParameters
    parameters: RebootSystemParameters

    def downloads(self, facts: Facts) -> tuple[Download, ...]:  # noqa: ARG002 - see Component
        """Return nothing: it works with what the host has."""
        return ()

    def plan(self, facts: Facts) -> Plan:
        """Request a reboot, unless the run has had one for this reason."""
        reason = self.parameters.reason
        if not self.parameters.is_enabled:
            return Plan(nothing_to_do="IsEnabled is false")
        if reason in facts[REBOOTS]:
            return Plan(nothing_to_do=f"the host was rebooted: {reason}")
        if not facts[SYSTEMD]:
            raise HostError(
                "this host is not run by systemd (is it a container?), so that vcagent cannot reboot it",
                remedy="reboot it yourself where that is needed, and set IsEnabled to false",
                lifted_by=LiftedBy.NOTHING,
            )
        return Plan((Step("reboot", reason, self._ask, command="systemctl reboot"),))

    def _ask(self, context: StepContext) -> StepOutcome:
        if context.stop.wait(self.parameters.wait_time):
            raise InterruptedRunError("told to stop before the reboot")
        return StepOutcome("a reboot is needed", reboot=self.parameters.reason)
