"""Reads llama.cpp's tools.

Nothing is imported here: actions import single readers, and would import all of them with any one.
"""

FORMAT = "llamacpp"
TOOL = "llama.cpp"
