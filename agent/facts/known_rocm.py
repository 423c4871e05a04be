"""Pairs of amdgpu and ROCm that AMD supports.

Source: ROCm/rocm-install-on-linux, ``reference/user-kernel-space-compat-matrix.rst``; for 6.14 (30.10) and
6.16 (30.30) the compatibility table of ROCm/amdgpu-docs.
"""

from __future__ import annotations

_FITS: dict[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]] = {
    (6, 8): ((6, 0), (6, 4)),
    (6, 10): ((6, 1), (7, 0)),
    (6, 14): ((6, 2), (7, 0)),
    (6, 16): ((6, 3), (7, 2)),
}
"""A version of amdgpu, and the first and last ROCm that AMD supports with it; other pairs are not judged."""


def release_of(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version; zeros if it has none."""
    parts = version.split(".")
    return (
        (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(p.isdigit() for p in parts[:2]) else (0, 0)
    )


def misfit(driver: str, rocm: str) -> str:
    """Return why a ROCm does not fit a version of amdgpu; empty if it fits or the pair is not judged.

    Args:
        driver: the version of amdgpu, such as ``6.14.14``.
        rocm: the version of ROCm, such as ``7.0.2``.
    """
    bounds = _FITS.get(release_of(driver))
    if bounds is None or bounds[0] <= release_of(rocm) <= bounds[1]:
        return ""
    first, last = (".".join(map(str, bound)) for bound in bounds)
    return f"ROCm {rocm} does not fit amdgpu {driver}, which is supported with ROCm {first} to {last}"
