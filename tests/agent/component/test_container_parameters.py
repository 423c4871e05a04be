from __future__ import annotations

import pytest

from agent.component.container_parameters import ContainerParameters
from agent.host.containers.spec import NVIDIA_ULIMITS


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({}, set()),
        ({"gpus": "all"}, set(NVIDIA_ULIMITS)),
        ({"gpus": "all", "ulimits": {}}, set()),
        ({"ulimits": {"nofile": 1024}}, {"nofile"}),
    ],
)
def test_only_a_container_with_gpus_has_nvidias_limits(
    parameters: dict[str, object], names: set[str]
) -> None:
    # An engine without CAP_SYS_RESOURCE refuses them.
    asked = ContainerParameters.model_validate({"image": "x", **parameters})
    assert set(asked.spec(purpose="test").ulimits) == names
