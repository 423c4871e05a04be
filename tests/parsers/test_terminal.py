"""The text that remains on the screen in the end."""

from __future__ import annotations

import pytest

from parsers.terminal import plain


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("12.5 \x1b[1;32mtokens/s\x1b[0m\n", "12.5 tokens/s\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("  1 %\r 50 %\r100 %\ndone", "100 %\ndone"),
        ("100 %\r", "100 %"),
        ("\x1b]0;title\x07speed\x1b[K", "speed"),
        ("\x1b[?25lhidden", "hidden"),
        ("plain", "plain"),
    ],
)
def test_colours_go_and_the_last_state_of_a_line_stays(text: str, cleaned: str) -> None:
    assert plain(text) == cleaned
