"""Load the data sets of lm-eval's tasks into the cache of ``datasets``, as lm-eval does before it asks.

Runs in an environment that has lm-eval, in the folder of the tasks: paths in task files are relative to it.
"""

from __future__ import annotations

import os
import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LOCAL = ("generator",)
"""Names in the cache for data that no hub has, besides those of the file formats."""


class TaskDataError(Exception):
    """The data of a task could not be loaded.

    Args:
        message: what failed.
        remedy: what to do next.
    """

    kind = "data"

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


def program(config: Mapping[str, Any], tell: Callable[..., None]) -> Mapping[str, Any]:
    """Load the data of ``tasks``; return ``files``, the files of the cache that come from a hub.

    ``include_path`` is the folder of further task files. Files in the result are relative to the cache.
    """
    from datasets import config as settings
    from lm_eval.tasks import TaskManager, get_task_dict

    _refuse_nltk()
    tasks = list(config["tasks"])
    os.chdir(config["include_path"])
    manager = TaskManager(include_path=config["include_path"])
    for task in tasks:
        tell(f"loading the data of {task}")
        names = manager.match_tasks([task])
        if not names:
            raise TaskDataError(f"lm-eval knows no task {task}", "correct tasks, or include_path")
        try:
            _ = manager.load(names) if hasattr(manager, "load") else get_task_dict(names, manager)
        except Exception as error:
            raise _explained(task, error) from error
    cache = Path(settings.HF_DATASETS_CACHE)
    return {
        "files": sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if _is_data(path, cache))
    }


def _is_data(path: Path, cache: Path) -> bool:
    """Return True for a table or its description, unless it was made from a file of this machine."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    top = path.relative_to(cache).parts[0]
    is_table = path.suffix == ".arrow" and not path.name.startswith("cache-")
    is_whole = not any(part.endswith(".incomplete") for part in path.parts)
    local = top in _PACKAGED_DATASETS_MODULES or top in _LOCAL
    return is_whole and not local and path.is_file() and (is_table or path.name == "dataset_info.json")


def _refuse_nltk() -> None:
    """Let a task that fetches data of NLTK fail, which would go unnoticed until its answers are scored.

    NLTK takes seconds to import, so that is left to the tasks that use it.
    """
    spec = find_spec("nltk")
    if spec is None or spec.loader is None:
        return

    def download(name: str = "", *_: object, **__: object) -> None:
        raise TaskDataError(
            f"NLTK's {name} comes from another server than the hub",
            "leave the task out of the bundle's profile, and run it where there is a network",
        )

    spec.loader = LazyLoader(spec.loader)
    nltk = sys.modules["nltk"] = module_from_spec(spec)
    spec.loader.exec_module(nltk)
    nltk.download = download  # type: ignore[attr-defined]  # still there after the import


def _explained(task: str, error: Exception) -> TaskDataError:
    if isinstance(error, TaskDataError):
        return TaskDataError(
            f"a bundle cannot carry the data of the task {task}: {error.message}", error.remedy
        )
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}"[:500]
    if isinstance(error, ModuleNotFoundError):
        remedy = f"leave the task out: lm-eval alone does not have {error.name}, which its data need"
    elif "gated" in text.lower() or "401" in text:
        remedy = "set HF_TOKEN, and accept the licence on the hub"
    else:
        remedy = "see whether this machine reaches the hub (HTTPS_PROXY, HF_ENDPOINT)"
    return TaskDataError(f"the data of the task {task} cannot be loaded: {said}", remedy)
