"""MLPerf Inference through LoadGen."""
