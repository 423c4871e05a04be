"""The programs that run on the hosts: a doorstep without dependencies, and the programs in the bundle."""
