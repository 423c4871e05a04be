"""Provide the texts for measuring models and making importance matrices."""

from __future__ import annotations

from pathlib import Path

from agent.core.errors import ActionFailedError

PYTHON_TOPICS = "python-topics"
"""Help texts of Python (``pydoc_data.topics``): about 700 kB of English on every host."""

PYTHON_TOPICS_END = "python-topics-end"
"""Second half of the help texts: perplexity is measured from the start, and a matrix must use another
text."""


def text_named(name: str) -> str:
    """Return a text.

    Args:
        name: a UTF-8 file, or one of the two names above.

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
