"""Errors of amdgpu in the kernel log; lines as public logs and reports show them."""

from __future__ import annotations

import pytest

from actions.monitors.amdgpu_errors import amdgpu_error_of

BUS = "amdgpu 0000:c1:00.0:"


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        (
            f"{BUS} amdgpu: 2 uncorrectable hardware errors detected in umc block",
            "ras_uncorrected",
            "hardware",
        ),
        (
            f"{BUS} amdgpu: {{12}} socket: 0, die: 1, 1 new uncorrectable hardware errors detected in gfx block",  # noqa: E501
            "ras_uncorrected",
            "hardware",
        ),
        (f"{BUS} 17 correctable hardware errors detected in umc block", "ras_corrected", "notice"),
        (f"{BUS} amdgpu: RAS controller interrupt triggered by NBIF error", "ras_fatal", "hardware"),
        (f"{BUS} amdgpu: Fatal error during GPU init", "init", "hardware"),
        (
            f"{BUS} amdgpu: ring gfx_0.0.0 timeout, signaled seq=3295304, emitted seq=3295306",
            "ring_timeout",
            "driver",
        ),
        (f"{BUS} ring comp_1.1.0 timeout, signaled seq=5131, emitted seq=5132", "ring_timeout", "driver"),
        (f"{BUS} amdgpu: MES might be in unrecoverable state, issue a GPU reset", "queue_hang", "driver"),
        (f"{BUS} amdgpu: GPU reset begin!", "reset", "driver"),
        (f"{BUS} GPU reset begin!. Source:  3", "reset", "driver"),
        (f"{BUS} amdgpu: GPU reset end with ret = -110", "reset_failed", "hardware"),
        (
            f"{BUS} amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32769)",
            "page_fault",
            "application",
        ),
    ],
)
def test_an_error(line: str, kind: str, cause: str) -> None:
    error = amdgpu_error_of(line)
    assert error
    assert (error.metadata["kind"], error.metadata["cause"], error.bus_id) == (kind, cause, "0000:c1:00.0")
    assert error.said.startswith(f"amdgpu {kind} (")
    assert error.said.endswith(") of 0000:c1:00.0")
    assert "amdgpu" not in str(error.metadata["message"])


def test_a_line_of_drm_names_no_gpu() -> None:
    line = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=5, emitted seq=6"
    error = amdgpu_error_of(line)
    assert error
    assert (error.bus_id, error.metadata["kind"]) == ("", "ring_timeout")
    assert error.metadata["message"] == "ring sdma0 timeout, signaled seq=5, emitted seq=6"


@pytest.mark.parametrize(
    "line",
    [
        f"{BUS} amdgpu: no uncorrectable hardware errors detected in umc block",
        f"{BUS} amdgpu: 0 uncorrectable hardware errors detected in umc block",
        f"{BUS} amdgpu: 3 uncorrectable hardware errors detected in total in umc block",
        f"{BUS} amdgpu: SMU is initialized successfully!",
        f"{BUS} amdgpu: GPU reset(1) succeeded!",
        "[drm] amdgpu version: 6.12.12",
        "NVRM: Xid (PCI:0000:11:00): 48, pid=7, DBE (double bit error)",
        "nouveau 0000:01:00.0: GPU reset begin!",
    ],
)
def test_no_error(line: str) -> None:
    assert amdgpu_error_of(line) is None
