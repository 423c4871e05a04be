"""A cut or mangled file, also next to a bad one, gives correct numbers or a clear error.

The outputs are the fixtures of all formats (``mangling.originals``).
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import VcagentError
from tests.parsers.mangling import READERS, RUNNING, mangled, named_values, originals, outcome, parsed

ORIGINALS = originals()
STEPS, LAST = 60, 40
"""Number of cuts spread over a file, and number of bytes at its end that are cut one by one."""
INPUTS = 400
"""Number of mangled inputs; ``benchmarks/parser_fuzz.py`` tries more."""


def numbers(
    name: str, data: bytes, folder: Path, format_name: str | None = None
) -> tuple[set[tuple[str, float, str]], bool]:
    outputs = parsed(name, data, folder, format_name)
    found = named_values(outputs)
    return found, all(output.complete for output in outputs)


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_file_cut_at_any_byte_never_has_a_wrong_number(name: str, tmp_path: Path) -> None:
    data = ORIGINALS[name]
    whole, _ = numbers(name, data, tmp_path)
    format_name = parsed(name, data, tmp_path)[0].format
    ends = range(len(data))
    for end in sorted({*ends[:: max(1, len(data) // STEPS)], *ends[-LAST:]}):
        try:
            found, complete = numbers(name, data[:end], tmp_path, format_name)
        except VcagentError:
            continue
        wrong = found - whole
        if not complete:
            wrong = {metric for metric in wrong if metric[0] not in RUNNING}
        assert not wrong, data[:end][-120:]
        # A cut between two rows leaves a table that looks complete.
        at_a_line = data[end - 1 : end] == b"\n" or data[end : end + 1] == b"\n"
        assert (
            not complete
            or found == whole
            or at_a_line
            or data[:end].rstrip().endswith((b"%", b"W", b"B", b"s", b"}"))
        ), data[:end][-120:]


def test_no_mangled_input_makes_a_traceback(tmp_path: Path) -> None:
    outcomes = Counter[str]()
    for number, name, kind, data in mangled(0, INPUTS):
        try:
            outcomes[outcome(name, data, tmp_path)] += 1
        except Exception as error:
            raise AssertionError(f"input {number}: {name}, {kind}") from error
    assert set(outcomes) == {"read", "incomplete", "judged", "refused"}
    assert min(outcomes.values()) > INPUTS / 100


def test_every_reader_has_outputs_here(tmp_path: Path) -> None:
    formats = {output.format for name, data in ORIGINALS.items() for output in parsed(name, data, tmp_path)}
    assert formats == set(READERS)


@pytest.mark.parametrize("format_name", READERS)
def test_one_bad_file_in_a_tree_hides_no_other(format_name: str, tmp_path: Path) -> None:
    """Half of a file stands next to a good one, in either order."""
    name, data = next(
        (name, data)
        for name, data in ORIGINALS.items()
        if {output.format for output in parsed(name, data, tmp_path)} == {format_name}
    )
    good, _ = numbers(name, data, tmp_path)
    shutil.rmtree(tmp_path)
    for folder, content in (("a", data[: len(data) // 3]), ("b", data), ("c", data[: len(data) // 3])):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / Path(name).name).write_bytes(content)
    outputs = parse_path(tmp_path)
    found = {(metric.value, metric.unit) for output in outputs for metric in output.metrics}
    assert {(value, unit) for _, value, unit in good} <= found
