"""Run MLPerf Inference with LoadGen."""
