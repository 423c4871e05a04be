"""Checks whether this host is fit to run: small checks over facts, each with its remedy; changes nothing."""
