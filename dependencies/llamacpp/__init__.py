"""Installs the programs of llama.cpp."""
