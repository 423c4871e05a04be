"""What a system's owner says in a profile becomes a file that a submission is built with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from actions.submission.description_file import FILE, SystemDescription
from actions.submission.system_description import read_description

if TYPE_CHECKING:
    from agent.component.component import StepContext


def action(**parameters: Any) -> SystemDescription:
    return SystemDescription(SystemDescription.Parameters.model_validate(parameters))


def test_the_file_is_read_by_the_builder(context: StepContext) -> None:
    asked = action(
        company="Acme", systemName="8xMI300X", gpuName="AMD Instinct MI300X 192GB HBM3",
        fields={"cooling": "air-cooled", "status": ""}, measurements={"retraining": "N"},
    )  # fmt: skip
    (step,) = asked.plan(context.facts).steps
    context.run_dir.mkdir()
    step.run(context)
    system, measurements = read_description(context.run_dir / FILE, {})
    assert system == {
        "submitter": "Acme", "system_name": "8xMI300X",
        "accelerator_model_name": "AMD Instinct MI300X 192GB HBM3", "cooling": "air-cooled",
    }  # fmt: skip
    assert measurements == {"retraining": "N"}


def test_nothing_said_is_nothing_to_do(context: StepContext) -> None:
    assert action(company="", systemName="").plan(context.facts).nothing_to_do


@pytest.mark.parametrize("part", ["fields", "measurements"])
def test_an_unknown_field_is_refused(part: str) -> None:
    with pytest.raises(ValidationError, match="no field is named"):
        action(**{part: {"coolingg": "air"}})
