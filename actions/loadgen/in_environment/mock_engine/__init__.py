"""Stand in for an OpenAI-compatible engine: answers at a set speed, and fails or cheats on demand.

It needs only Python: ``python -m mock_engine --port 0 --fault hang``, with the parent folder on PYTHONPATH.
So any client can be tested against it, in any environment.
"""
