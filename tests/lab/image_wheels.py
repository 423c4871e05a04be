"""The wheels of the image that a profile builds in its tiny form: the build then needs no network."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from agent.profile import Variables, load, resolve
from tests.lab.host.cache import cached_folder, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PYTHON", "image_wheels"]

PYTHON = (3, 11)
"""Python version of the images' base, Debian 12."""


def image_wheels(profile_name: str) -> Path:
    """Return the folder of all wheels for a profile's tiny image, fetched once."""
    profile = load([profile_name], overrides={"Form": "tiny", "Where": "container"})
    variables = Variables(
        {}, {"PackagePath": lambda name: f"/packages/{name}", "EnvironmentVariable": lambda _: ""}
    )
    (image,) = (
        resolve(one, profile, variables)
        for one in profile.dependencies
        if one.type == "PythonEnvironmentImage"
    )

    def fetch(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(folder)]
        subprocess.run([*pip, *image["requirements"]], check=True)
        subprocess.run([*pip, "--no-deps", *image["requirementsAlone"]], check=True)

    recipe = fingerprint(sys.version_info[:2], image["requirements"], image["requirementsAlone"])
    return cached_folder(f"image-wheels-{profile_name.lower()}", recipe, fetch)
