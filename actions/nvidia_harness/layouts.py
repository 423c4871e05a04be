"""Describe the differences between the rounds of NVIDIA's repository, as data.

Source: mlcommons/inference_results_v3.1, v4.1 and v5.1, closed/NVIDIA: Makefile, Makefile.docker,
Makefile.build, Makefile.data, code/main.py, code/common/systems/system_list.py, configs/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from agent.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class ConfigStyle(str, Enum):
    """Place of a system's settings in the repository."""

    CLASSES = "classes"
    """configs/<benchmark>/<scenario>/__init__.py, one class per system; custom.py in that folder is read
    too."""

    FILES = "files"
    """configs/<system>/<scenario>/<benchmark>.py, one file per system."""


@dataclass(frozen=True)
class Layout:
    """Layout of one kind of repository.

    Args:
        rounds: the MLPerf rounds with this layout, newest first: the text of the file VERSION.
        configs: place of the systems' settings.
        image: the image that prebuild builds, with ``{tag}`` and ``{env}``.
        detect: a Python program that prints, inside the container, ``vcagent-detected …`` with what the
            code found, ``vcagent-matched …`` with its name for that, or ``None``, ``vcagent-known …``
            with all names it has, and ``vcagent-host …`` with processor and memory as source text.
        reenter: targets and variables of make for a new container after an old one's ``make build``,
            which installed Python packages into the home folder of that container.
        batch_by_component: True if gpu_batch_size is a mapping by component, not one number.
    """

    rounds: tuple[str, ...]
    configs: ConfigStyle
    image: str
    detect: str
    reenter: tuple[str, ...]
    batch_by_component: bool = True

    def configuration(self, config_ver: str) -> str:
        """Return the harness's argument for selecting a configuration.

        v5.x does not have config_ver, and ignores it without an error: it would run the default.

        Raises:
            HostError: if the code does not have this configuration.
        """
        if self.configs is ConfigStyle.CLASSES:
            return f"--config_ver={config_ver}"
        targets = {"default": "0.99", "high_accuracy": "0.999"}
        if config_ver not in targets:
            raise HostError(
                f"the code of {self.rounds[0]} has no config_ver {config_ver}",
                remedy="use default or high_accuracy, or set the options in RunArgs",
            )
        return f"--accuracy_target={targets[config_ver]}"


PREBUILD = (("prebuild", "DOCKER_DETACH=1"), ("-f", "Makefile.docker", "docker_add_user"))
"""Calls of make that build the image. With DOCKER_DETACH, prebuild stops before its interactive shell;
docker_add_user adds the caller's account to the image, as attach_docker does before that shell."""

_CLASS_DETECTION = """\
from code.common.systems.base import obj_to_codestr
from code.common.systems.system_list import DETECTED_SYSTEM, MATCHED_SYSTEM, KnownSystem
print('vcagent-detected', ' '.join(str(DETECTED_SYSTEM).split()))
print('vcagent-matched', getattr(MATCHED_SYSTEM, 'name', None))
print('vcagent-known', *KnownSystem.__members__)
parts = (DETECTED_SYSTEM.host_cpu_conf, DETECTED_SYSTEM.host_mem_conf)
print('vcagent-host', ', '.join(obj_to_codestr(part) for part in parts))
"""
_FILE_DETECTION = """\
from code.common.systems.system_list import DETECTED_SYSTEM
name, tags = (DETECTED_SYSTEM.extras[key] for key in ('id', 'tags'))
print('vcagent-detected', name, ' '.join(str(DETECTED_SYSTEM).split()))
print('vcagent-matched', None if 'unregistered' in tags else name)
"""

LAYOUTS = (
    Layout(
        rounds=("v5.1", "v5.0"),
        configs=ConfigStyle.FILES,
        image="mlperf-inference:{tag}-{env}-latest",
        detect=_FILE_DETECTION,
        reenter=("build_loadgen",),
    ),
    Layout(
        rounds=("v4.1", "v4.0"),
        configs=ConfigStyle.CLASSES,
        image="mlperf-inference:{tag}",
        detect=_CLASS_DETECTION,
        reenter=("build", "SKIP_TRTLLM_BUILD=1"),
    ),
    Layout(
        rounds=("v3.1", "v3.0"),
        configs=ConfigStyle.CLASSES,
        image="mlperf-inference:{tag}",
        detect=_CLASS_DETECTION,
        reenter=("build", "SKIP_TRTLLM_BUILD=1"),
        batch_by_component=False,
    ),
)


def nvidia_folder(repository: Path, exists: Mapping[Path, bool], submitter: str = "NVIDIA") -> Path:
    """Return the folder of NVIDIA's code.

    It is ``closed/<submitter>`` of a results repository, or the given folder itself.

    Args:
        repository: the folder of the repository, or of one submitter's code.
        exists: True for each Makefile.docker that exists, the folder's and the submitter's.
        submitter: NVIDIA, or another submitter that uses its code, such as Azure.

    Raises:
        HostError: if neither exists.
    """
    for folder in (repository / "closed" / submitter, repository):
        if exists[folder / "Makefile.docker"]:
            return folder
    raise HostError(
        f"{repository} is not a results repository of MLPerf: it has no closed/{submitter}/Makefile.docker",
        remedy="add a GitRepoClone of mlcommons/inference_results_v4.1 with this PackageName to the "
        "dependencies, or correct Repository or Submitter",
    )


def layout_of(version: str | None, folder: Path) -> tuple[str, Layout]:
    """Return the round and the layout of a repository.

    Args:
        version: the text of its file VERSION; None if the file does not exist.
        folder: the repository, for the message.

    Raises:
        HostError: if the round is unknown.
    """
    text = (version or "").strip()
    match = re.fullmatch(r"v?(\d+\.\d+)(?:\.\d+)?", text)
    found = f"v{match.group(1)}" if match else text
    for layout in LAYOUTS:
        if found in layout.rounds:
            return found, layout
    known = ", ".join(sorted(number for layout in LAYOUTS for number in layout.rounds))
    what = f"is of round {text}" if text else "has no file VERSION"
    raise HostError(
        f"the repository in {folder} {what}; supported rounds: {known}",
        remedy="check out one of these rounds, or set Round to the most similar one",
    )
