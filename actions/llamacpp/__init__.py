"""llama.cpp: its server, started beside a workload, and what runs on it."""
