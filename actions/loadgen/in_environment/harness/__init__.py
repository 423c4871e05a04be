"""Drive LoadGen in a process that needs only mlcommons-loadgen and its backend's packages."""
