"""MLPerf Inference submissions: builds their trees from runs and checks trees before they are handed in."""
