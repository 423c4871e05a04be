"""Prepare the host before the container starts: groups, folders, the image."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from actions.nvidia_harness.alive import Alive
from actions.nvidia_harness.failures import explained
from actions.nvidia_harness.harness_container import image_name
from actions.nvidia_harness.layouts import PREBUILD
from actions.nvidia_harness.scratch import FOLDERS, OWN_FOLDER
from actions.nvidia_harness.workspace import BUILT
from agent.component.component import StepOutcome
from agent.core.errors import ActionFailedError, HostError
from agent.facts.docker import DOCKER_GROUP, DOCKER_SERVER
from agent.store.results import write_json

if TYPE_CHECKING:
    from actions.nvidia_harness.parameters import MLPerfParameters
    from actions.nvidia_harness.workspace import Workspace
    from agent.component.component import StepContext


def join_docker(workspace: Workspace, context: StepContext) -> StepOutcome:
    """Make the account a member of the group docker; its next processes have the group immediately.

    Raises:
        ActionFailedError: if the group does not exist.
    """
    name = workspace.account.name
    if context.facts.fresh()[DOCKER_GROUP] is None:
        raise ActionFailedError(
            "the group docker does not exist",
            remedy="install Docker first: DockerInstallation, or groupadd docker",
        )
    context.processes.run(["usermod", "--append", "--groups", "docker", name], log=context.log)
    return StepOutcome(f"{name} is a member of the group docker")


def give_scratch(workspace: Workspace, context: StepContext) -> StepOutcome:
    """Create the folders of the scratch space, and check that the account can write there.

    Raises:
        HostError: if the account cannot write there.
    """
    scratch = workspace.scratch
    scratch.make(workspace.account, as_root=workspace.as_root)
    for folder in (scratch.path, *(scratch.path / name for name in (*FOLDERS, OWN_FOLDER))):
        _check_writable(workspace, folder, context)
    return StepOutcome(f"{scratch.path} is writable for {workspace.account.name}")


def _check_writable(workspace: Workspace, folder: Path, context: StepContext) -> None:
    command = workspace.as_user(["test", "-w", str(folder)], context.facts)
    if context.processes.run(command, log=context.log, check=False).exit_code:
        name = workspace.account.name
        raise HostError(
            f"{name} cannot write to {folder}", remedy=f"chown {name} {folder}, or choose another folder"
        )


def give_folder(workspace: Workspace, context: StepContext) -> StepOutcome:
    """Give NVIDIA's code to the account, if the agent cloned it as root; files of other owners are unchanged.

    Raises:
        HostError: if the account cannot write there.
    """
    account, given = workspace.account, 0
    if workspace.as_root:
        for top, folders, files in os.walk(workspace.folder):
            for name in (".", *folders, *files):
                path = os.path.join(top, name)  # noqa: PTH118 - thousands of files
                if os.lstat(path).st_uid == 0:
                    os.chown(path, account.uid, account.gid, follow_symlinks=False)
                    given += 1
    _check_writable(workspace, workspace.folder, context)
    return StepOutcome(
        f"{given} files were given to {account.name}" if given else "nothing had to change hands"
    )


def prebuild(workspace: Workspace, parameters: MLPerfParameters, context: StepContext) -> StepOutcome:
    """Build the image by the repository's own rules, without the interactive shell at their end.

    Raises:
        ActionFailedError: if the image cannot be built; includes a remedy.
        HostError: if there is not enough free space.
    """
    from agent.component.container_engine import connect

    name, noted = image_name(workspace, parameters), workspace.scratch.path / OWN_FOLDER / "image.json"
    wish = {
        "image": name,
        "round": workspace.mlperf_round,
        "folder": str(workspace.folder),
        "variables": dict(parameters.make_variables),
    }
    with connect(context) as engine:
        present = engine.image(name)
        if present and _read(noted) == {**wish, "id": present.identifier}:
            return StepOutcome(f"{name} exists, made with the same settings")
        _check_room(parameters, context)
        own = [f"{key}={value}" for key, value in parameters.make_variables.items()]
        tail = [f"DOCKER_TAG={workspace.tag}", f"MLPERF_SCRATCH_PATH={workspace.scratch.path}", *own]
        for call in PREBUILD:
            command = workspace.as_user(["make", *call, *tail], context.facts.fresh())
            title = f"make {call[-1] if call[0] == '-f' else call[0]}"
            with explained(title, context.log, of_engine=True), Alive(context.progress, title) as alive:
                context.processes.run(
                    command,
                    log=context.log,
                    cwd=workspace.folder,
                    timeout_s=parameters.stage_timeout,
                    on_line=alive.line,
                )
        made = engine.image(name)
    if made is None:
        raise ActionFailedError(
            f"prebuild ended with 0, but the image {name} does not exist",
            remedy="check whether the repository uses another image name, and set Image to it",
        )
    write_json(noted, {**wish, "id": made.identifier})
    return StepOutcome(f"{name} is {made.identifier[:19]}")


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _check_room(parameters: MLPerfParameters, context: StepContext) -> None:
    server = context.facts.fresh()[DOCKER_SERVER]
    if server is None or not Path(server.image_root).is_dir():
        return  # a remote engine
    free = shutil.disk_usage(server.image_root).free
    if free < parameters.image_gb * 10**9:
        raise HostError(
            f"Docker keeps its images in {server.image_root}, which has {free / 1e9:.0f} GB free; the "
            f"harness's image needs about {parameters.image_gb:g} GB",
            remedy="free some space (docker system df), move Docker's data-root, or lower ImageGb",
        )


def wanted_clean(workspace: Workspace, commit: str) -> str:
    """Explain why build/ has to be cleaned; return an empty string if it is of this code.

    Engines take long to build again.

    Args:
        workspace: the workspace of the run.
        commit: the commit of the repository; empty if unknown.
    """
    if not (workspace.folder / "build").exists():
        return "build/ did not exist"
    built = workspace.noted(BUILT)
    if not built:
        return "it came from another source or an interrupted build"
    if built.get("round") != workspace.mlperf_round:
        return f"it came from {built.get('round')}"
    if built.get("commit", commit) != commit:
        return f"it came from commit {built['commit'] or 'unknown'}"
    return ""


def check_links(workspace: Workspace) -> None:
    """Check that build/ leads to the scratch space.

    Raises:
        ActionFailedError: if a link is missing or leads elsewhere.
    """
    for name in FOLDERS:
        link, wanted = workspace.folder / "build" / name, workspace.scratch.path / name
        found = link.readlink() if link.is_symlink() else None
        if found is None or os.path.realpath(link) != os.path.realpath(wanted):
            raise ActionFailedError(
                f"{link} leads to {found or 'nowhere'}, not to {wanted}",
                remedy=f"remove or rename {link}, then resume",
            )
