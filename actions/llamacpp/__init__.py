"""Run llama.cpp: its server beside a workload, and measurements with its programs."""
