"""Data sets of lm-eval's tasks in a bundle: the tables that ``datasets`` has made of them in its cache.

lm-eval itself says what its tasks need: it loads them where the bundle is made, once from the hub and once
more without it. Offline, ``datasets`` looks for its own tables, not for the hub's files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from actions.lm_eval.command import tasks_folder
from agent.component.downloads import Download
from agent.component.fetching_environment import fetching_environment, run_for_bundle
from agent.core.errors import HostError, InterruptedRunError, LiftedBy, host_errors
from agent.core.safe_files import copy_file, make_folder
from agent.facts.bundle import WHEELS, bundle_of

if TYPE_CHECKING:
    from packaging.version import Version

    from actions.lm_eval.parameters import LmEvalParameters
    from agent.component.component import StepContext
    from agent.component.downloads import Fetching

_FOLDER = "data_sets"
_PROGRAMS = Path(__file__).with_name("in_environment")
_NOWHERE = "http://127.0.0.1:9"
"""An address where nothing listens."""
_PINNED = ("lm-eval", "datasets")


def hub_home() -> Path:
    """Return the folder of the hub's caches on this host."""
    return Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface").expanduser().absolute()


def tables_folder(asked: LmEvalParameters) -> Path:
    """Return the cache of ``datasets`` on this host; a container sees only the one in the hub's folder."""
    named = os.environ.get("HF_DATASETS_CACHE") if asked.container is None else None
    return Path(named).expanduser().absolute() if named else hub_home() / "datasets"


def data_download(asked: LmEvalParameters) -> Download:
    """Return the download of the data sets of all tasks."""
    return Download("data sets of task", asked.tasks, lambda fetching: _fetch(asked, fetching))


def provide(asked: LmEvalParameters, context: StepContext) -> dict[str, str]:
    """Copy the data sets from the host's bundle into the cache; return the variables that lead lm-eval there.

    Without a bundle there is nothing to do.

    Raises:
        HostError: if the cache cannot be written.
        InterruptedRunError: if the run was stopped.
    """
    bundle = bundle_of(context.facts)
    if asked.offline or bundle is None:
        return {}
    folder, cache = bundle.folder / _FOLDER, tables_folder(asked)
    with host_errors(f"the cache of data sets {cache}"):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        for done, file in enumerate(files):
            if context.stop.is_set():
                raise InterruptedRunError(f"the run was stopped before {file.name} was copied")
            context.progress.update("copying the data sets of the bundle", done=done, total=len(files))
            target = cache / file.relative_to(folder)
            if not (target.is_file() and target.stat().st_size == file.stat().st_size):
                make_folder(target.parent)
                copy_file(file, target)
    return {"HF_DATASETS_CACHE": str(cache)}


def _fetch(asked: LmEvalParameters, fetching: Fetching) -> None:
    """Load the data sets with lm-eval, and put their tables into a bundle.

    Raises:
        HostError: if lm-eval cannot be installed, or a data set is not available or cannot be carried.
    """
    folder = tasks_folder(asked)
    if not folder.is_dir():
        raise HostError(
            f"include_path {folder} is not a folder of this machine",
            remedy="copy the task files to the same place here: they name the data sets",
            lifted_by=LiftedBy.NOTHING,
        )
    environment = fetching_environment(
        fetching, "lm-eval", _requirements(fetching), "which loads the data sets of its tasks"
    )
    fetching.say(f"data sets of {', '.join(asked.tasks)}")
    scratch = fetching.scratch / "lm-eval"
    tables, config = scratch / "tables", {"tasks": list(asked.tasks), "include_path": str(folder)}
    variables = {"HF_DATASETS_CACHE": str(tables), "HF_HUB_CACHE": str(scratch / "hub")}
    online = {**variables, "HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
    nowhere = str(scratch / "without")
    offline = {
        "HF_DATASETS_CACHE": str(tables), "HF_HUB_CACHE": nowhere, "HF_HOME": nowhere, "HOME": nowhere,
        "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_ENDPOINT": _NOWHERE,
        **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), _NOWHERE),
        "no_proxy": "", "NO_PROXY": "",
    }  # fmt: skip
    names = ", ".join(asked.tasks)
    for told, more in (("from the hub", online), ("without a network", offline)):
        result = run_for_bundle(
            environment,
            "task_data",
            config,
            path=_PROGRAMS,
            scratch=scratch,
            variables=more,
            failure=f"the data of {names} cannot be loaded {told}",
        )
    for name in result["files"]:
        target = fetching.folder / _FOLDER / name
        if not target.exists():  # tasks share data sets
            make_folder(target.parent)
            copy_file(tables / name, target)


def _requirements(fetching: Fetching) -> list[str]:
    """Return lm-eval and datasets in the versions that the bundle has for the other host, else the newest.

    Another version of lm-eval has other tasks, and one of datasets may not read the tables.
    """
    found: dict[str, Version] = {}
    for wheel in sorted((fetching.folder / WHEELS).glob("*.whl")):
        try:
            name, version, *_ = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename:
            continue
        if name in _PINNED:
            found[name] = max(version, found.get(name, version))
    return [f"{name}=={found[name]}" if name in found else name for name in _PINNED]
