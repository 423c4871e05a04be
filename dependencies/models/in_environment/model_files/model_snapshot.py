"""Fetches a model or a data set from a hub into its cache, with ``huggingface_hub.snapshot_download``.

Runs in an environment that has huggingface_hub. Complete files are kept, and an interrupted download is
continued.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelFilesError
from .hub import Token, environment_token, explain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_GIB = 1024**3
_MIB = 1024**2
_STALE_S = 3600.0
_INTERVAL_S = 0.5
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
_MODEL = "model"
_WITHOUT_WEIGHTS = ("*.json", "*.txt", "*.model", "*.jinja", "*.py")


def program(config: Mapping[str, Any], tell: Callable[..., None]) -> Mapping[str, Any]:
    """Fetch ``repository`` at ``revision`` into ``cache_dir``; the token may come from ``dotenv``.

    ``kind`` is model, the default, or dataset. Without ``weights``, only a model's configuration and
    tokenizer are fetched. ``exclude`` has patterns of files to skip, ``include`` the patterns of a data set's
    files.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import constants

    repository, revision, token = config["repository"], config["revision"], environment_token(config)
    include = list(config.get("include") or ()) or None
    asked: dict[str, Any] = {
        "repo_type": config.get("kind", _MODEL),
        "revision": revision,
        "cache_dir": config.get("cache_dir"),
        "ignore_patterns": list(config.get("exclude") or ()),
        "allow_patterns": include if config.get("weights", True) else list(_WITHOUT_WEIGHTS),
    }
    if constants.HF_HUB_OFFLINE:
        folder = _offline(repository, asked)
        return {"folder": folder, "offline": True, "sizes": _sizes_in(Path(folder), asked)}
    try:
        return _fetched(repository, asked, token, tell)
    except ModelFilesError:
        raise
    except Exception as error:
        if getattr(error, "errno", None) in _DISK_ERRORS:
            raise ModelFilesError(
                "space",
                f"the cache cannot be written: {error}",
                "see whether the disk is full or read-only; what is whole is kept",
            ) from error
        page = repository if asked["repo_type"] == _MODEL else f"datasets/{repository}"
        raise explain(error, page, token, revision) from error


def _sizes_in(folder: Path, asked: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the files in a snapshot, by name."""
    from huggingface_hub.utils import filter_repo_objects

    there = {
        str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }
    names = filter_repo_objects(
        there, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
    )
    return {name: there[name] for name in names}


def _offline(repository: str, asked: Mapping[str, Any]) -> str:
    from huggingface_hub import snapshot_download

    try:
        return str(snapshot_download(repository, **asked, local_files_only=True))
    except Exception as error:
        raise ModelFilesError(
            "hub",
            f"{repository} is not in the cache at {asked['revision']}, and HF_HUB_OFFLINE forbids to "
            "fetch it",
            "fill the cache where there is a network (hf download), name it by HF_HOME, or give a path",
        ) from error


def _fetched(
    repository: str, asked: Mapping[str, Any], token: Token, tell: Callable[..., None]
) -> Mapping[str, Any]:
    from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.utils import filter_repo_objects

    tell(f"asking the hub for {repository}")
    key: str | bool = token.value or False
    kind = asked["repo_type"]
    info = HfApi().repo_info(
        repository, repo_type=kind, revision=asked["revision"], files_metadata=True, token=key
    )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    if kind == _MODEL:
        asked = {**asked, "ignore_patterns": _excluded(asked["ignore_patterns"], sizes)}
    names = list(
        filter_repo_objects(
            sizes, allow_patterns=asked["allow_patterns"], ignore_patterns=asked["ignore_patterns"]
        )
    )
    if kind == _MODEL and "config.json" not in names:
        raise ModelFilesError(
            "hub",
            f"{repository} has no config.json: it is not a model in Hugging Face's layout",
            "name another",
        )
    cache = Path(asked["cache_dir"] or HF_HUB_CACHE)
    blobs = cache / f"{kind}s--{repository.replace('/', '--')}" / "blobs"
    _remove_stale(blobs)
    missing = sum(
        sizes[name]
        for name in names
        if not isinstance(
            try_to_load_from_cache(repository, name, cache_dir=str(cache), revision=info.sha, repo_type=kind),
            str,
        )
    )
    _check_space(cache, missing, repository)
    total = sum(sizes[name] for name in names)
    with _progress(blobs, total - missing, total, tell):
        folder = snapshot_download(repository, **asked, token=key)
    return {
        "folder": str(folder),
        "commit": info.sha,
        "files": len(names),
        "sizes": {name: sizes[name] for name in names},
        "bytes": total,
        "fetched_bytes": missing,
        "token_source": token.source,
    }


def _excluded(patterns: Sequence[str], names: Mapping[str, int]) -> list[str]:
    """Return the patterns to skip: also PyTorch's own weights if the repository has safetensors."""
    both = any(name.endswith(".safetensors") for name in names)
    return [*patterns, "*.bin", "*.bin.index.json"] if both else list(patterns)


def _remove_stale(blobs: Path) -> None:
    """Remove leftovers of killed downloads, which huggingface_hub never continues."""
    for path in blobs.glob("*.incomplete") if blobs.is_dir() else ():
        if time.time() - path.stat().st_mtime > _STALE_S:
            path.unlink(missing_ok=True)


def _check_space(cache: Path, missing: int, repository: str) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if free < missing:
        raise ModelFilesError(
            "space",
            f"{repository} needs {missing / _GIB:.1f} GiB more, but {cache} has {free / _GIB:.1f} GiB free",
            "free some space, or put the cache elsewhere: cacheDir or HF_HOME",
        )


@contextmanager
def _progress(blobs: Path, present: int, total: int, tell: Callable[..., None]) -> Iterator[None]:
    """Report the progress from the sizes of the files, however they are fetched."""
    if not total:
        yield
        return
    ended = threading.Event()
    before = _bytes_in(blobs)

    def watch() -> None:
        while not ended.wait(_INTERVAL_S):
            done = min(present + max(_bytes_in(blobs) - before, 0), total)
            tell(f"{done / _MIB:,.0f} of {total / _MIB:,.0f} MiB", done, total)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _bytes_in(folder: Path) -> int:
    total = 0
    with os.scandir(folder) if folder.is_dir() else _nothing() as entries:
        for entry in entries:
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue  # renamed since: it is counted the next time
    return total


@contextmanager
def _nothing() -> Iterator[tuple[os.DirEntry[str], ...]]:
    yield ()
