"""What runs on the hosts: a doorstep that needs nothing, and the rest from the bundle."""
