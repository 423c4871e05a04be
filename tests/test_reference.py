"""The generated pages of docs/reference are those that the code gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_reference_is_current() -> None:
    """Compare with the generated pages; if it fails: make reference."""
    made = subprocess.run(
        [sys.executable, "-c", "import generate, json; print(json.dumps(generate.pages()))"],
        cwd=DOCS, capture_output=True, text=True, check=True,
    )  # fmt: skip
    pages = json.loads(made.stdout)
    assert pages == {
        path.name: path.read_text(encoding="utf-8") for path in (DOCS / "reference").glob("*.md")
    }
