"""What is run: one file or package a workload."""
