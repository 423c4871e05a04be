"""Runs a profile on this host: session, engine, steps, recorder, clock, monitors, reboots, resume, clean."""
