"""Examples: workloads that vcagent does not know, each as a profile alone (docs/any-workload.md)."""
