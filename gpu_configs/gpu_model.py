"""Facts about a kind of GPU: its limits and its vLLM settings (``gpu_configs/gpus/*.yaml``).

A file's ``vllm`` contains measured settings; engine_model derives the others from the GPU's own figures.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.core.yaml_data import yaml_data
from gpu_configs.engine_model import derived_settings, merged

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDER = Path(__file__).parent / "gpus"
_QUALITY = re.compile(r"-99(\.9)?$")
"""The end of a benchmark's name that says which accuracy it must reach."""


class ScenarioDefaults(BaseModel):
    """Settings of an engine for one scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: dict[str, Any] = Field(default_factory=dict, description="vLLM's engine arguments.")
    queries_per_s_per_gpu: float | None = Field(None, gt=0, description="A load to start from.")
    phases: dict[str, float] | None = Field(
        None, description="Settings of harness.backends.vllm_scheduler; vLLM's own scheduler if absent."
    )


class EngineDefaults(BaseModel):
    """Settings of an engine for one model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: dict[str, Any] = Field(default_factory=dict, description="vLLM's engine arguments.")
    static_fp8: dict[str, Any] = Field(
        default_factory=dict,
        description="Additional arguments for fp8 weights with static scales, one per tensor.",
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Variables for vLLM.")
    scenarios: dict[str, ScenarioDefaults] = Field(default_factory=dict)


class GpuModel(BaseModel):
    """One kind of GPU."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    driver_names: tuple[str, ...] = Field(min_length=1, description="Parts of the driver's name for it.")
    memory_gib: int = Field(gt=0)
    peak_flops: dict[Literal["bf16", "fp16", "int8", "fp8", "fp4"], float] = Field(
        description="Dense operations/s by the operands' type."
    )
    memory_bandwidth_bytes_per_s: float = Field(gt=0)
    power_w: int = Field(gt=0, description="The factory power limit.")
    compute_capability: str | None = Field(None, pattern=r"^\d+\.\d$", description="Only for NVIDIA GPUs.")
    source: str
    vllm: dict[str, EngineDefaults] = Field(
        default_factory=dict, description="Measured settings, which override the derived ones."
    )

    def settings_for(self, model: str) -> EngineDefaults | None:
        """Return the settings for a model or benchmark; llama2-70b's are also those of llama2-70b-99.9."""
        return self.vllm.get(_QUALITY.sub("", model))

    def is_called(self, driver_name: str) -> bool:
        """Return True if a driver's name means this kind; L40S is not an L4, nor H20-3e an H20."""
        return any(
            re.search(rf"(?<![A-Za-z0-9]){re.escape(part)}(?!-?[A-Za-z0-9])", driver_name)
            for part in self.driver_names
        )


@cache
def gpu_models() -> tuple[GpuModel, ...]:
    """Return all known kinds of GPUs.

    Raises:
        ValueError: if a file is not valid.
    """
    return tuple(
        complete(yaml_data(path.read_text(encoding="utf-8"))) for path in sorted(_FOLDER.glob("*.yaml"))
    )


def complete(written: Mapping[str, Any]) -> GpuModel:
    """Return a kind of GPU from a file's content, with derived settings where the file has none.

    Raises:
        ValueError: if the content is not valid.
    """
    facts = GpuModel.model_validate(written).model_dump()
    settings = merged(derived_settings(facts), written.get("vllm", {}))
    return GpuModel.model_validate({**written, "vllm": settings})


def gpu_model(driver_name: str | None) -> GpuModel | None:
    """Return the kind with this driver's name, or None if unknown; an H200 NVL is not the H200 of HGX."""
    called = [model for model in gpu_models() if driver_name and model.is_called(driver_name)]
    return max(called, key=lambda model: max(map(len, model.driver_names)), default=None)
