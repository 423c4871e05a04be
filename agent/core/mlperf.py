"""Texts that say whether a case is an MLPerf result.

No run is one by itself: MLCommons calls every result that it has not reviewed "not verified by MLCommons
Association" (its results messaging guidelines).
"""

from __future__ import annotations

STANDING = "mlperf_result"
"""Detail of a case with one of these texts; reports show it with the case's title."""
NOT_VERIFIED = "not verified by MLCommons Association"
NO_RESULT = "Not an MLPerf result"
