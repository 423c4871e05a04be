"""Texts that say whether a case is an MLPerf result.

No run is one by itself: MLCommons calls every result that it has not reviewed "not verified by MLCommons
Association" (its results messaging guidelines).
"""

from __future__ import annotations

STANDING = "mlperf_result"
"""Detail of a case with one of these texts; reports show it with the case's title."""
NOT_VERIFIED = "not verified by MLCommons Association"
NO_RESULT = "Not an MLPerf result"
TESTS_RUN = ("TEST06",)
"""Compliance tests that LoadGenExecutor runs and verifies."""
TESTS_NOT_RUN = {
    "TEST01": ("3d-unet", "bert", "dlrm-v2", "pointpainting", "resnet", "retinanet", "rgat",
               "stable-diffusion-xl", "whisper", "yolo"),
    "TEST04": ("pointpainting", "resnet", "stable-diffusion-xl", "wan-2.2-t2v-a14b"),
    "TEST07": ("gpt-oss-120b",),
    "TEST08": ("dlrm-v3",),
    "TEST09": ("e2e-rag-qna", "gpt-oss-120b"),
}  # fmt: skip
"""Compliance tests that vcagent does not run, with the benchmarks of the rounds since v5.0 that need them."""
_OF_NVIDIA = ("TEST01", "TEST04")


def why_not_run(test: str) -> str:
    """Return why vcagent does not run a compliance test, and how to run it."""
    by_hand = "run MLCommons' scripts"
    if test in _OF_NVIDIA:
        by_hand += f", or make run_audit_{test.lower()} of NVIDIA's code in its container"
    of_what = ", ".join(TESTS_NOT_RUN[test])
    return (
        f"vcagent does not run {test}, which MLPerf requires for {of_what}: {by_hand}, and give its folder "
        "to vcagent submission build --compliance"
    )
