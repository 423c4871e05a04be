"""Write the parts of a system description that a profile knows, for ``vcagent submission build``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from actions.submission.papers import MEANINGFUL_FIELDS, MEASUREMENT_FIELDS, OPTIONAL_FIELDS
from agent.component.component import Action, ComponentParameters, Plan, Step, StepContext, StepOutcome
from agent.core.names import nearest
from agent.core.safe_files import replace_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agent.facts import Facts

FILE = "system_description.yaml"
"""The file's name in the run's folder."""


class SystemDescriptionParameters(ComponentParameters):
    """The statements of a system's owner about it; empty values are left out."""

    company: str = Field("", description="The submitter.")
    system_name: str = Field("", description="The system's name.")
    gpu_name: str = Field("", description="The accelerators' name; by default that of the host's facts.")
    fields: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the system description, such as cooling."
    )
    measurements: dict[str, Any] = Field(
        default_factory=dict, description="Fields of the measurements, such as weight_data_types."
    )

    @field_validator("fields")
    @classmethod
    def _known_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        return _known(value, (*MEANINGFUL_FIELDS, *OPTIONAL_FIELDS))

    @field_validator("measurements")
    @classmethod
    def _known_measurements(cls, value: dict[str, Any]) -> dict[str, Any]:
        return _known(value, MEASUREMENT_FIELDS)

    @property
    def said(self) -> dict[str, Any]:
        """Return the file's content."""
        named = {
            "submitter": self.company,
            "system_name": self.system_name,
            "accelerator_model_name": self.gpu_name,
        }
        system = {name: value for name, value in {**named, **self.fields}.items() if value not in ("", None)}
        measured = {name: value for name, value in self.measurements.items() if value not in ("", None)}
        return {**system, **({"measurements": measured} if measured else {})}


def _known(value: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    for name in value:
        if name not in (known := tuple(names)):
            close = nearest(name, known)
            raise ValueError(f"no field is named {name}" + (f": did you mean {close[0]}?" if close else ""))
    return value


class SystemDescription(Action):
    """Write ``system_description.yaml`` into the run's folder."""

    Parameters = SystemDescriptionParameters
    parameters: SystemDescriptionParameters

    def plan(self, facts: Facts) -> Plan:
        """Plan one step; none if nothing is said."""
        del facts
        if not self.parameters.said:
            return Plan(nothing_to_do="nothing is said about the system")

        def write(context: StepContext) -> StepOutcome:
            import yaml

            path = context.run_dir / FILE
            replace_text(path, yaml.safe_dump(self.parameters.said, sort_keys=False, allow_unicode=True))
            return StepOutcome(f"{path}, for vcagent submission build --description")

        reason = f"says {', '.join(self.parameters.said)} for a submission"
        return Plan((Step("describe", reason, write, f"write {FILE}"),))
