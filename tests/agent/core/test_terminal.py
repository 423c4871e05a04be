from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from agent.core.terminal import plain_cell, printable, safe_console


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🔑\n\tx", "plain é 漢 🔑\n\tx"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten", "over\\rwritten"),
        ("\x9b2J\x7f\x00\x08", "\\x9b2J\\x7f\\x00\\x08"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\u2066\u061c", "\\u2066\\u061c"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_console_shows_no_orders_of_others_and_its_own_colours() -> None:
    stream = io.StringIO()
    console = safe_console(file=stream, force_terminal=True, width=80)
    table = Table("head")
    table.add_row(Text("in\x1b[2Jside", style="bold"))
    table.add_row("a fact[/etc/motd] and [bold]")
    console.print(table)
    console.print("plain\x1b]0;x\x07")
    assert "\\x1b[2J" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()
    assert "\x1b]0" not in stream.getvalue()
    assert "\x1b[1m" in stream.getvalue()
    assert "a fact[/etc/motd] and [bold]" in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+2", "'=1+2"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("-12.5", "-12.5"),
        ("+1e-9", "+1e-9"),
        ("-.5", "-.5"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_formulas_become_text_and_numbers_stay(text: str, cell: str) -> None:
    assert plain_cell(text) == cell
