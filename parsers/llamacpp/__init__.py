"""Reads llama.cpp's tools.

This package imports no modules, so that an action that needs one reader does not import all of them.
"""

FORMAT = "llamacpp"
TOOL = "llama.cpp"
