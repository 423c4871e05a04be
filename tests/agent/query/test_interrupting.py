"""Ctrl-C during a question of DuckDB is an interruption, not a defect."""

from __future__ import annotations

import pytest

from agent.query.asking import _sql_errors


def test_duckdbs_word_for_an_interruption() -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(KeyboardInterrupt), _sql_errors():
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="something else"), _sql_errors():
        raise RuntimeError("something else")
