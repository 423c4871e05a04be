"""Run lm-eval in a container: mounts and environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from actions.llamacpp.server import PROGRAM
from actions.lm_eval.bundled_data import hub_home
from actions.lm_eval.command import WITH_LLAMA_CPP, tasks_folder
from actions.loadgen.contained import behind_links
from agent.component.open_container import open_container
from agent.host.containers import Mount

if TYPE_CHECKING:
    from contextlib import ExitStack

    from actions.lm_eval.parameters import LmEvalParameters
    from agent.component.component import StepContext
    from agent.component.container_parameters import ContainerParameters
    from agent.core.records import MetadataValue


def in_container(
    asked: LmEvalParameters,
    container: ContainerParameters,
    case_dir: Path,
    context: StepContext,
    stack: ExitStack,
) -> tuple[StepContext, dict[str, MetadataValue]]:
    """Return the step's context with a container as process runner, and facts of its image.

    All files named by parameters appear at the same paths. So does the host's cache of the hub, so that
    questions are downloaded once.

    Args:
        asked: the parameters.
        container: the container to run in.
        case_dir: the folder for the results.
        context: the context of the step.
        stack: removes the container when it closes.
    """
    cache = hub_home()
    cache.mkdir(parents=True, exist_ok=True)
    named = [tasks_folder(asked), WITH_LLAMA_CPP, PROGRAM, Path(asked.model_path or "")]
    named += [asked.server.binary or Path(), Path(asked.server.model)] if asked.server else []
    named += [
        folder
        for folder in (asked.environment, asked.server_environment)
        if folder is not None and (folder / "pyvenv.cfg").is_file()
    ]
    seen = [path.absolute() for path in named if path.name and path.exists()]
    running = open_container(
        container.model_copy(update={"environment": {"HF_HOME": str(cache), **container.environment}}),
        context,
        stack,
        purpose=f"lm-eval-{asked.case}",
        mounts=[
            *(Mount(path, str(path), read_only=True) for path in seen),
            *(mount for path in seen for mount in behind_links(path)),
            Mount(case_dir, str(case_dir)),
            Mount(cache, str(cache)),
        ],
    )
    image: dict[str, MetadataValue] = {"image": running.image.reference, "image_id": running.image.pinned}
    return replace(context, processes=running), image
