"""Run NVIDIA's closed-division code of MLPerf Inference in its own container."""
