"""Models and data sets of a hub in a bundle: ordinary files, without the links of the hub's cache."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent.component.downloads import Download
from agent.component.fetching_environment import fetching_environment, run_for_bundle
from agent.core.errors import HostError, InterruptedRunError, LiftedBy, host_errors
from agent.core.safe_files import copy_file, make_folder, replace_text
from agent.facts.bundle import bundle_of
from dependencies.models.environment_module import PROGRAMS, require_environment, run_module

if TYPE_CHECKING:
    from agent.component.component import StepContext
    from agent.component.downloads import Fetching
    from agent.facts import Facts

_FOLDER = "hub"
_MIB = 1 << 20
_KINDS = {"model": "model", "dataset": "data set"}


@dataclass(frozen=True)
class HubFiles:
    """Files of a repository of a hub.

    Args:
        kind: the kind of the repository, in the hub's words.
        repository: its name, such as meta-llama/Llama-3.1-8B-Instruct.
        revision: a commit, tag or branch.
        include: patterns of the files of a data set; empty for all.
        exclude: patterns of files that are not fetched.
        weights: whether a model's weights are fetched.
    """

    kind: Literal["model", "dataset"]
    repository: str
    revision: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    weights: bool = True

    def __str__(self) -> str:
        """Return the text of the files in a bundle's list of contents."""
        part = f": {', '.join(self.include)}" if self.include else ""
        return f"{self.repository} at {self.revision}{part}{'' if self.weights else ', without weights'}"

    def asked(self, cache: Path) -> dict[str, Any]:
        """Return the configuration of the program that fetches them.

        Args:
            cache: the hub's cache.
        """
        values = {
            name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()
        }
        return {**values, "cache_dir": str(cache)}

    def stored(self, cache: Path) -> Path:
        """Return the folder of the repository in a cache of the hub."""
        return cache / f"{self.kind}s--{self.repository.replace('/', '--')}"

    def download(self) -> Download:
        """Return the download of the files."""
        return Download(_KINDS[self.kind], (str(self),), self._fetch)

    def in_bundle(self, facts: Facts) -> Path | None:
        """Return the folder of the files in the bundle of a host; None without a bundle that has them."""
        bundle = bundle_of(facts)
        folder = bundle and self._folder(bundle.folder)
        return next((path for path in sorted(folder.glob("*")) if path.is_dir()), None) if folder else None

    def provide(self, environment: Path, cache: Path, context: StepContext) -> tuple[Path, dict[str, int]]:
        """Bring the files into the hub's cache: from the bundle, or from the hub.

        Args:
            environment: a Python environment with huggingface_hub; not needed with a bundle.
            cache: the hub's cache.
            context: the step that this is a part of.

        Returns:
            Their folder in the cache, and their sizes in bytes by name.

        Raises:
            DependencyFailedError: if the hub does not grant them.
            HostError: if the cache cannot be written.
            InterruptedRunError: if the run was stopped.
        """
        if bundled := self.in_bundle(context.facts):
            return self._copied(bundled, cache, context)
        require_environment(environment)
        result = run_module(environment, "model_files.model_snapshot", self.asked(cache), context=context)
        return Path(result["folder"]), result["sizes"]

    def _copied(self, folder: Path, cache: Path, context: StepContext) -> tuple[Path, dict[str, int]]:
        """Copy the files from a bundle to where huggingface_hub, and everything that uses it, looks for them.

        The folder in the bundle has their commit as its name.
        """
        commit, done = folder.name, 0
        sizes = {
            str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()
        }
        total = sum(sizes.values())
        with host_errors(f"the hub's cache {cache}"):
            stored = self.stored(cache.resolve())  # people keep it on another disk, behind a link
            for name, size in sorted(sizes.items()):
                if context.stop.is_set():
                    raise InterruptedRunError(f"the run was stopped before {name} was copied")
                target = stored / "snapshots" / commit / name
                if not (target.is_file() and target.stat().st_size == size):
                    make_folder(target.parent)
                    copy_file(folder / name, target)
                done += size
                told = f"{done / _MIB:,.0f} of {total / _MIB:,.0f} MiB copied"
                context.progress.update(told, done=done, total=total or None)
            if self.revision != commit:
                reference = stored / "refs" / self.revision
                make_folder(reference.parent)
                replace_text(reference, commit)
        return self.stored(cache) / "snapshots" / commit, sizes

    def _folder(self, bundle: Path) -> Path:
        wish = {name: value for name, value in asdict(self).items() if name != "exclude"}
        key = hashlib.sha256(json.dumps(wish).encode()).hexdigest()[:12]
        return bundle / _FOLDER / f"{self.repository.replace('/', '--')}-{key}"

    def _fetch(self, fetching: Fetching) -> None:
        """Fetch the files as on a host, and put them into a bundle.

        Raises:
            HostError: if the hub is not reached, or does not grant them.
        """
        target = self._folder(fetching.folder)
        if target.exists():
            return
        environment = fetching_environment(
            fetching, "hub", ("huggingface_hub",), "which fetches models and data sets"
        )
        fetching.say(f"{_KINDS[self.kind]} {self}")
        scratch = fetching.scratch / _FOLDER / target.name
        result = self._run(environment, scratch)
        names_of: dict[Path, list[str]] = {}
        snapshot = Path(result["folder"])
        for name in result["sizes"]:
            names_of.setdefault((snapshot / name).resolve(), []).append(name)
        if not names_of:
            raise HostError(
                f"{self.repository} has no file of {', '.join(self.include) or 'any name'}",
                remedy="correct include; the hub's page lists the files",
                lifted_by=LiftedBy.NOTHING,
            )
        for file, (first, *others) in names_of.items():  # the cache holds equal files once
            for name in (*others, first):
                path = target / snapshot.name / name
                make_folder(path.parent)
                if name == first:
                    file.replace(path)
                else:
                    copy_file(file, path)

    def _run(self, environment: Path, scratch: Path) -> dict[str, Any]:
        return run_for_bundle(
            environment,
            "model_files.model_snapshot",
            {**self.asked(scratch / "cache"), "dotenv": str(Path(".env").absolute())},
            path=PROGRAMS,
            scratch=scratch,
            variables={},
            failure=f"{self.repository} cannot be fetched",
        )
