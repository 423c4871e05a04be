"""Build the trees of MLPerf Inference submissions from runs, and check trees before they are submitted."""
