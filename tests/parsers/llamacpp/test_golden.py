"""What the parser finds in the output of each tool, of two builds.

The logs of b11434 were written by the programs. Those of b3661 (September 2024) were written out by hand from
the formats in its sources, with numbers of our own.

``python test_golden.py`` writes the expectations again; read the difference before it is committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from parsers.llamacpp import PARSER

if TYPE_CHECKING:
    from agent.records import ParsedOutput

LOGS = Path(__file__).parent / "logs"
EXPECTED = Path(__file__).with_name("expected.json")
NAMES = sorted(path.name for path in LOGS.iterdir())


def _expectation(output: ParsedOutput) -> dict[str, Any]:
    return {
        "tool_version": output.tool_version,
        "scenario": output.scenario,
        "complete": output.complete,
        "details": dict(output.details),
        "metrics": {
            f"{metric.scenario}/{metric.name}" if metric.scenario else metric.name: [
                metric.value,
                metric.unit,
            ]
            for metric in output.metrics
        },
    }


def _parsed(name: str) -> dict[str, Any]:
    assert PARSER.recognise(LOGS / name)
    (output,) = PARSER.parse(LOGS / name)
    return _expectation(output)


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    assert _parsed(name) == json.loads(EXPECTED.read_text())[name]


def test_a_folder_of_all() -> None:
    outputs = PARSER.parse(LOGS)
    assert [output.scenario.partition("/")[0] for output in outputs] == [Path(name).stem for name in NAMES]


if __name__ == "__main__":
    EXPECTED.write_text(json.dumps({name: _parsed(name) for name in NAMES}, indent=1) + "\n")
