"""Load the backends that answer queries: one module per backend, loaded by its name."""

# ruff: noqa: TID252  (the harness is its own top-level package where it runs)
from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import Backend, BackendContext

__all__ = ["load_backend"]


def load_backend(settings: Mapping[str, Any], context: BackendContext) -> Backend:
    """Create the backend selected by ``type``, with the other settings.

    Raises:
        HarnessError: (``config``) if the backend is unknown or a setting is wrong; (``dependency``) if
            a required module is not installed.
    """
    name = settings["type"]
    known = sorted(
        path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in {"__init__", "base"}
    )
    if name not in known:
        raise HarnessError("config", f"there is no backend {name!r}", f"the backends are {', '.join(known)}")
    try:
        module = import_module(f".{name}", __package__)
    except ModuleNotFoundError as error:
        raise HarnessError(
            "dependency",
            f"the {name} backend needs the module {error.name}, which this environment lacks",
            f"install it beside mlcommons-loadgen (python -m pip install {error.name})",
        ) from error
    own = {key: value for key, value in settings.items() if key != "type"}
    return cast("Backend", module.create(own, context))
