"""One run on this host: session, engine, step runner, recorder, clock, monitors, reboot and resume, clean."""
