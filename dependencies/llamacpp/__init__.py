"""The programs of llama.cpp."""
