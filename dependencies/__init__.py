"""Dependencies: prepare the host, with one file per installer."""
