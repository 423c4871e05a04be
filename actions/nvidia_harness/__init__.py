"""NVIDIA's closed-division code of MLPerf Inference, run in its own container."""
