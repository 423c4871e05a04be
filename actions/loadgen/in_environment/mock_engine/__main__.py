"""Run the mock engine: ``python -m mock_engine``."""

from .server import main

main()
