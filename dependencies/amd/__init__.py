"""AMD's GPU driver and ROCm."""
