"""``python -m mock_engine``."""

from .server import main

main()
