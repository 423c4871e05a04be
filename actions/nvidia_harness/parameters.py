"""Parameters of MLPerfExecutor: VirtualClient's and our own."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from actions.nvidia_harness.layouts import LAYOUTS
from agent.component.component import ComponentParameters
from agent.component.parameter_types import OptionalPath, Seconds, Words  # noqa: TC001 - pydantic reads it
from agent.core.mlperf import TESTS_NOT_RUN, TESTS_RUN, why_not_run
from agent.facts.disk_filter import parse_disk_filter

_SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class MLPerfParameters(ComponentParameters):
    """Parameters of one benchmark of NVIDIA's harness: configurations, scenarios, modes."""

    model: str = Field(description="The benchmark, such as bert, 3d-unet, gptj.")
    username: str = Field(
        "", description="Account that runs the harness; by default the one that called sudo."
    )
    disk_filter: str = Field("SizeGreaterThan:1000gb", description="Disk for the scratch space.")
    require_custom_system_support: bool | None = Field(
        None, description="False: never add sections for a system unknown to NVIDIA's code."
    )
    benchmarks: Words = Field((), description="Benchmarks whose data is prepared; by default only the model.")

    package_name: str = Field("mlperf", description="The repository's folder below the package folder.")
    repository: OptionalPath = Field(
        None, description="A local copy of the repository, in place of PackageName."
    )
    submitter: str = Field(
        "NVIDIA", description="Submitter's folder below closed/ with the code: NVIDIA, Azure, …"
    )
    round: str = Field("", description="Most similar round, for a repository with an unknown VERSION: v4.1.")
    loadgen_scenarios: Words = Field(
        (), description="Offline, Server, …; by default the benchmark's usual ones."
    )
    config_ver: Words = Field(("default",), description="default, high_accuracy, …")
    modes: Words = Field(("performance", "accuracy"), description="Modes to test.")
    fast: bool = Field(True, description="--fast, as VirtualClient passes it; not in v5.x.")
    test_run: bool = Field(
        False, description="--test_run: one minute instead of ten; not an official result."
    )
    run_args: str = Field("", description="Further RUN_ARGS of the harness.")
    system: str = Field("", description="System of gpu_configs whose settings are used.")
    system_file: OptionalPath = Field(None, description="YAML file with your own system.")

    scratch_path: OptionalPath = Field(
        None, description="Folder of the scratch space, in place of a disk; by default MLPERF_SCRATCH_PATH."
    )
    least_free_gb: float | None = Field(
        None, ge=0, description="Required free space in GB, including the space of existing data."
    )
    make_variables: dict[str, str] = Field(default_factory=dict, description="Variables for every make.")
    image: str = Field("", description="An existing image, in place of the one that prebuild builds.")
    image_gb: float = Field(60, ge=0, description="Space for the image in Docker's data folder, in GB.")
    gpus: str = Field("all", description="GPUs of the container: all, none, or numbers such as 0,1.")
    gpu_access: Literal["gpus", "cdi", "runtime"] = Field(
        "gpus", description="Method of giving GPUs to the container."
    )
    shm_size_gb: float = Field(32, gt=0, description="Shared memory of the container, in GB.")
    ulimits: dict[str, int] = Field(
        default_factory=lambda: {"memlock": -1}, description="Limits in the container; -1 for none."
    )
    capabilities: Words = Field(("SYS_ADMIN", "SYS_TIME"), description="Capabilities of the container.")
    security_options: Words = Field(
        ("apparmor=unconfined", "seccomp=unconfined"),
        description="Security options, as for docker run --security-opt.",
    )
    init: bool = Field(False, description="Run a small init process that reaps orphans in the container.")
    network: str = Field("host", description="The container's network.")
    mounts: dict[str, str] = Field(default_factory=dict, description="Further mounts: host to container.")
    keep_container: bool = Field(False, description="Keep the container after the action.")
    stage_timeout: Seconds = Field(24 * 3600.0, description="Time limit for one stage.")

    @field_validator("disk_filter")
    @classmethod
    def _filter(cls, value: str) -> str:
        parse_disk_filter(value)
        return value

    @field_validator("model", "package_name", "submitter")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError("letters, digits, . _ -")
        return value

    @field_validator("benchmarks", "config_ver")
    @classmethod
    def _names(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            cls._name(value)
        return tuple(dict.fromkeys(values))

    @field_validator("loadgen_scenarios")
    @classmethod
    def _scenarios(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        known = {name.lower(): name for name in _SCENARIOS}
        for value in values:
            if value.lower() not in known:
                raise ValueError(f"{value!r} is none of {', '.join(_SCENARIOS)}")
        return tuple(dict.fromkeys(known[value.lower()] for value in values))

    @field_validator("modes")
    @classmethod
    def _modes(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if value in TESTS_NOT_RUN:
                raise ValueError(why_not_run(value))
            if value in TESTS_RUN:
                raise ValueError(
                    f"MLPerfExecutor does not run {value}: run make run_audit_{value.lower()} of NVIDIA's "
                    "code in its container, or LoadGenExecutor with a language model"
                )
        if not values or not set(values) <= {"performance", "accuracy"}:
            raise ValueError("performance, accuracy, or both")
        return tuple(dict.fromkeys(values))

    @field_validator("round")
    @classmethod
    def _round(cls, value: str) -> str:
        known = [number for layout in LAYOUTS for number in layout.rounds]
        if value and value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
        return value

    @field_validator("gpus")
    @classmethod
    def _gpus(cls, value: str) -> str:
        if value not in ("all", "none") and not re.fullmatch(r"\d+(,\d+)*", value):
            raise ValueError("all, none, or numbers such as 0,1")
        return value

    @field_validator("make_variables")
    @classmethod
    def _variables(cls, values: dict[str, str]) -> dict[str, str]:
        for name in values:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not a variable of make")
        return values

    @model_validator(mode="after")
    def _one_system(self) -> MLPerfParameters:
        if self.system and self.system_file:
            raise ValueError("give System or SystemFile, not both")
        if not self.config_ver:
            raise ValueError("config_ver is empty")
        return self
