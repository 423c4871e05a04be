"""Texts that models are measured with and importance matrices are made from."""

from __future__ import annotations

from pathlib import Path

from agent.core.errors import ActionFailedError

PYTHON_TOPICS = "python-topics"
"""The help texts that come with Python (``pydoc_data.topics``): some 700 kB of English on every host."""

PYTHON_TOPICS_END = "python-topics-end"
"""Their second half: perplexity is measured from the beginning, and a matrix is to know another text."""


def text_named(name: str) -> str:
    """Return a text.

    Args:
        name: a file in UTF-8, or one of the two names above.

    Raises:
        ActionFailedError: if the file cannot be read.
    """
    if name in (PYTHON_TOPICS, PYTHON_TOPICS_END):
        from pydoc_data.topics import topics

        names = sorted(topics)
        chosen = names if name == PYTHON_TOPICS else names[len(names) // 2 :]
        return "\n\n".join(topics[topic] for topic in chosen)
    path = Path(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ActionFailedError(
            f"the text {path} cannot be read: {error}",
            remedy=f"name a text file in UTF-8, or {PYTHON_TOPICS}",
        ) from error
