"""Make this host known to NVIDIA's code: detect it, and add the missing sections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actions.nvidia_harness.known_configs import known_gpu, registered_configs
from actions.nvidia_harness.layouts import ConfigStyle
from actions.nvidia_harness.system_section import (
    ACCURACY_OF,
    FILE_MARK,
    class_section,
    custom_system,
    harness_type,
    settings_file,
    with_block,
    without_block,
)
from agent.core.errors import ActionFailedError, HostError, LiftedBy, refusals_lifted_by
from agent.core.safe_files import give_to, make_folder, replace_text
from gpu_configs.systems import (
    Match,
    System,
    Tuned,
    chosen_system,
    load_system,
    match_system,
    shipped_systems,
)

if TYPE_CHECKING:
    from pathlib import Path

    from actions.nvidia_harness.harness_container import HarnessContainer
    from actions.nvidia_harness.parameters import MLPerfParameters
    from actions.nvidia_harness.workspace import Test, Workspace

_CUSTOM_LIST = "code/common/systems/custom_list.py"
_KNOWN_HARDWARE = "code/common/systems/known_hardware.py"


@dataclass(frozen=True)
class Detected:
    """Result of NVIDIA's detection.

    Args:
        system: its description, for people.
        matched: its name in the code; None if unknown.
        known: all names in the code.
        host: processor and memory as source text.
    """

    system: str
    matched: str | None
    known: frozenset[str] = frozenset()
    host: str = ""


def read_detection(text: str) -> Detected | None:
    """Parse the output of a layout's detection; return None if it has no result."""
    said = dict(re.findall(r"^vcagent-(\w+) (.*)$", text, re.MULTILINE))
    if "detected" not in said or "matched" not in said:
        return None
    matched = said["matched"].strip()
    return Detected(
        said["detected"].strip(),
        None if matched == "None" else matched,
        frozenset(said.get("known", "").split()),
        said.get("host", ""),
    )


class SystemSections:
    """Adds missing sections to the files of NVIDIA's code.

    Args:
        harness: the container.
        workspace: the workspace of the run.
        parameters: the parameters.
        tests: the runs that need settings.
    """

    def __init__(
        self,
        harness: HarnessContainer,
        workspace: Workspace,
        parameters: MLPerfParameters,
        tests: tuple[Test, ...],
    ) -> None:
        self.harness = harness
        self.workspace = workspace
        self.parameters = parameters
        self.wanted = dict.fromkeys((test.scenario, test.config_ver) for test in tests)
        self.chosen = own_system(parameters)
        self.notes: list[str] = []
        self._written = False

    def told(self) -> Detected | None:
        """Return the result of the detection; None if it fails, perhaps because the code is not built."""
        try:
            return self._detect()
        except ActionFailedError:
            return None

    def ensure(self, detected: Detected | None = None) -> tuple[str, list[str]]:
        """Make sure that the code knows this host and has settings for the runs.

        Args:
            detected: the result of the detection, if already known.

        Returns:
            The host's name in the code, and lines for people about vcagent's sections: sources and caveats.

        Raises:
            ActionFailedError: if the code does not know the host and no settings are known; includes the
                detection's result and what to write.
        """
        detected = detected or self._detect()
        of_classes = self.workspace.layout.configs is ConfigStyle.CLASSES
        name = self._ensure_classes(detected) if of_classes else self._ensure_files(detected)
        if self._written:
            matched = self._detect(name).matched
            if matched != name and (of_classes or matched is not None):
                raise ActionFailedError(
                    f"NVIDIA's code calls this host {matched or 'unknown'}, not {name} as added",
                    remedy=f"look in {_CUSTOM_LIST} for another system that matches"
                    if matched
                    else f"compare what it detects, {detected.system}, with {_CUSTOM_LIST}",
                )
        return name, self.notes

    def _detect(self, name: str = "") -> Detected:
        result = self.harness.run(
            ["python3", "-c", self.workspace.layout.detect],
            title="what NVIDIA's code detects",
            env={"SYSTEM_NAME": name}
            if name and self.workspace.layout.configs is ConfigStyle.FILES
            else None,
        )
        detected = read_detection(result.stdout)
        if detected is None:
            raise ActionFailedError(
                "the detection of NVIDIA's code gave no result",
                remedy=f"see {self.harness.context.log}",
                details=tuple(result.stdout.splitlines()[-10:]),
            )
        return detected

    def _ensure_classes(self, detected: Detected) -> str:
        folder, benchmark = self.workspace.folder, self.workspace.benchmark.name
        name, custom = detected.matched or "", False
        if detected.matched is None:
            match = self._match(detected)
            name, custom = self._own_name(match, detected), True
            self._write_system(name, detected)
        else:
            custom = f"# >>> vcagent {name} >>>" in _read(folder / _CUSTOM_LIST)
        missing: dict[str, dict[str, Tuned]] = {}
        for scenario, config_ver in self.wanted:
            if config_ver not in ACCURACY_OF and not custom:
                continue  # such as triton or maxq: only NVIDIA's code knows whether it has settings
            path = folder / "configs" / benchmark / scenario
            init, own = _read(path / "__init__.py"), _read(path / "custom.py")
            found = {
                (one.accuracy, one.harness)
                for one in registered_configs(init, without_block(own, name))
                if (one.system, one.power) == (name, "MaxP")
            }
            if (ACCURACY_OF.get(config_ver), harness_type(benchmark)) in found:
                self._refuse_own_settings(name, scenario)
            else:
                tuned = self._tuned(self._match(detected), scenario, config_ver, detected)
                missing.setdefault(scenario, {})[config_ver] = tuned
        for scenario, by_config_ver in missing.items():
            path = folder / "configs" / benchmark / scenario / "custom.py"
            head, block = class_section(
                name,
                benchmark,
                scenario,
                by_config_ver,
                custom=custom,
                batch_by_component=self.workspace.layout.batch_by_component,
            )
            self._write(path, with_block(_read(path) or None, name, head, block), by_config_ver)
        return name

    def _own_name(self, match: Match, detected: Detected) -> str:
        return f"{match.name}_vcagent" if match.name in detected.known else match.name

    def _write_system(self, name: str, detected: Detected) -> None:
        gpus = self.workspace.gpus
        if gpus is None:
            raise self._unknown(detected)
        hardware = _read(self.workspace.folder / _KNOWN_HARDWARE)
        match = self._match(detected)
        its_gpu = match.system.gpu
        gpu = known_gpu(hardware, gpus.pci_id) or (its_gpu.known_as if gpus.name in its_gpu.names else None)
        if gpu is None or gpu not in hardware:
            raise ActionFailedError(
                f"the code of {self.workspace.mlperf_round} does not support this GPU: {gpus}",
                remedy="use a repository of a newer round",
            )
        path = self.workspace.folder / _CUSTOM_LIST
        head, block = custom_system(name, gpu, gpus.count, detected.host)
        self._write(path, with_block(_read(path) or None, name, head, block), {})

    def _ensure_files(self, detected: Detected) -> str:
        folder, benchmark = self.workspace.folder, self.workspace.benchmark.name
        name = detected.matched or self._match(detected).name
        file_name = f"{benchmark.replace('.', '_')}.py"
        for scenario in dict.fromkeys(scenario for scenario, _ in self.wanted):
            path = folder / "configs" / name / scenario / file_name
            if path.exists() and not _read(path).startswith(FILE_MARK):
                self._refuse_own_settings(name, scenario)
                continue
            config_vers = [config_ver for one, config_ver in self.wanted if one == scenario]
            tuned = {
                config_ver: self._tuned(self._match(detected), scenario, config_ver, detected)
                for config_ver in config_vers
            }
            self._write(path, settings_file(benchmark, tuned), tuned)
        return name

    def _match(self, detected: Detected) -> Match:
        parameters, gpus = self.parameters, self.workspace.gpus
        if parameters.require_custom_system_support is False:
            raise ActionFailedError(
                f"NVIDIA's code has no settings for this host, and RequireCustomSystemSupport forbids adding "
                f"any; it detected {detected.system}",
                remedy="remove RequireCustomSystemSupport",
            )
        systems = shipped_systems()
        if self.chosen is not None:
            return chosen_system(self.chosen, gpus, systems)
        match = match_system(gpus, systems) if gpus else None
        if match is None:
            raise self._unknown(detected)
        return match

    def _refuse_own_settings(self, name: str, scenario: str) -> None:
        if self.chosen is not None:
            benchmark = self.workspace.benchmark.name
            raise ActionFailedError(
                f"NVIDIA's code has its own settings of {benchmark} {scenario} for {name}, which those of "
                f"{self.chosen.name} cannot replace",
                remedy="remove System and SystemFile, and set the differences in RunArgs, such as "
                "--gpu_batch_size=64",
            )

    def _tuned(self, match: Match, scenario: str, config_ver: str, detected: Detected) -> Tuned:
        workspace = self.workspace
        tuned = match.tuned(workspace.benchmark.name, scenario, config_ver, workspace.mlperf_round)
        if config_ver not in ACCURACY_OF:
            raise ActionFailedError(
                f"ConfigVer {config_ver} is for systems that NVIDIA's code knows; it detected "
                f"{detected.system}",
                remedy=f"use {' or '.join(ACCURACY_OF)}",
            )
        if tuned is None:
            raise ActionFailedError(
                f"neither NVIDIA's code nor gpu_configs has settings of {workspace.benchmark.name} "
                f"{scenario} {config_ver} for this host; it detected {detected.system}",
                remedy=f"add them to a copy of {match.system.name}.yaml of gpu_configs/systems: SystemFile",
            )
        return tuned

    def _unknown(self, detected: Detected) -> ActionFailedError:
        gpus = self.workspace.gpus
        name = gpus.identifier if gpus else "MY_SYSTEM"
        told = (gpus.name, round(gpus.memory_gib), gpus.count) if gpus else ("…",) * 3
        lines = (
            f"name: {name}",
            "gpu: {{names: [{}], memory_gib: {}, count: {}, known_as: …}}".format(*told),
            "sections:",
            *(self._skeleton(scenario) for scenario, _ in self.wanted),
        )
        return ActionFailedError(
            f"neither NVIDIA's code nor gpu_configs knows this host; it detected {detected.system}",
            remedy=f"write {name}.yaml as in gpu_configs/systems, such as below, and give it as SystemFile",
            details=lines,
        )

    def _skeleton(self, scenario: str) -> str:
        about = f"benchmark: {self.workspace.benchmark.name}, scenario: {scenario}"
        mlperf_round = self.workspace.mlperf_round
        return f"- {{{about}, rounds: [{mlperf_round}], source: …, default: {{gpu_batch_size: …}}}}"

    def _write(self, path: Path, text: str, tuned: dict[str, Tuned]) -> None:
        where = path.relative_to(self.workspace.folder)
        sources = {one.source: one.caveats for one in tuned.values()}
        changed = _read(path) != text
        done = "added to" if changed else "kept in"
        self.notes.append(f"{done} {where}" + "".join(f", from {source}" for source in sources))
        self.notes += dict.fromkeys(caveat for caveats in sources.values() for caveat in caveats)
        if not changed:
            return
        self._written = True
        made = [folder for folder in (path.parent, path.parent.parent) if not folder.exists()]
        make_folder(path.parent)
        replace_text(path, text)
        if self.workspace.as_root:
            for one in (path, *made):
                give_to(one, self.workspace.account.uid, self.workspace.account.gid)


def own_system(parameters: MLPerfParameters) -> System | None:
    """Return the profile's system; None if the host's GPUs determine it.

    Raises:
        HostError: if gpu_configs does not have the system, or the file is not valid.
    """
    if parameters.system_file:
        with refusals_lifted_by(LiftedBy.PATH):
            return load_system(parameters.system_file)
    if not parameters.system:
        return None
    systems = shipped_systems()
    for system in systems:
        if system.name == parameters.system:
            return system
    raise HostError(
        f"gpu_configs has no system {parameters.system}",
        remedy=f"known systems: {', '.join(system.name for system in systems)}; or set SystemFile",
        lifted_by=LiftedBy.NOTHING,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
