"""A stand-in for an OpenAI-compatible engine that answers at a set speed, and fails or cheats on demand.

It needs Python alone: ``python -m mock_engine --port 0 --fault hang``, with the folder above on
PYTHONPATH. So any client can be tried against it, in any environment.
"""
