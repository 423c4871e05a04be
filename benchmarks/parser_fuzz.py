"""Counts the results of mangled outputs: read, incomplete, judged INVALID or FAILED, or refused.

    python benchmarks/parser_fuzz.py [--inputs 20000] [--first 0] [--every-byte] [--results FILE]

Inputs are made from the fixtures of all formats but LoadGen's (tests/parsers/mangling.py); each follows from
its number. With --every-byte, every fixture is also truncated at each byte, and the numbers of each
are compared with those of the whole. Exits with 1 if an input caused an exception that is not an error of
vcagent, or a truncation a wrong number.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from agent.core.errors import VcagentError  # noqa: E402
from tests.parsers.mangling import RUNNING, mangled, named_values, originals, outcome, parsed  # noqa: E402

RESULTS = ROOT / "benchmarks/results/parser_fuzz.json"
SHOWN = 20


def fuzz(first: int, last: int, folder: Path) -> dict[str, object]:
    """Mangle and parse; return the counts."""
    outcomes: Counter[str] = Counter()
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    tracebacks: list[str] = []
    slowest = (0.0, "")
    for number, name, kind, data in mangled(first, last):
        begin = time.perf_counter()
        try:
            became = outcome(name, data, folder)
        except Exception as error:  # noqa: BLE001 - that there is none is what is measured
            became = "traceback"
            tracebacks.append(f"input {number}: {name}, {kind}: {error!r}"[:300])
        outcomes[became] += 1
        by_kind[kind.partition(",")[0]][became] += 1
        slowest = max(slowest, (time.perf_counter() - begin, f"input {number}: {name}, {kind}"))
    return {
        "first": first,
        "inputs": last - first,
        "fixtures": len(originals()),
        "outcomes": dict(outcomes.most_common()),
        "by_kind": {kind: dict(counts.most_common()) for kind, counts in sorted(by_kind.items())},
        "tracebacks": tracebacks[:SHOWN],
        "slowest_s": round(slowest[0], 2),
        "slowest": slowest[1],
    }


def cut_at_every_byte(folder: Path) -> dict[str, object]:
    """Truncate every fixture at each byte; return the number of truncations and those with a wrong number."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for name, data in originals().items():
        outputs = parsed(name, data, folder)
        whole, format_name = named_values(outputs), outputs[0].format
        for end in range(len(data)):
            try:
                outputs = parsed(name, data[:end], folder, format_name)
            except VcagentError:
                outcomes["refused"] += 1
                continue
            complete = all(output.complete for output in outputs)
            left = named_values(outputs) - whole
            if left := {value for value in left if complete or value[0] not in RUNNING}:
                wrong.append(f"{name} cut at {end}: {sorted(left)[:3]}")
            outcomes["called whole" if complete else "incomplete"] += 1
    return {"cuts": outcomes.total(), "outcomes": dict(outcomes), "wrong_numbers": wrong[:SHOWN]}


def main() -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--every-byte", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, object] = {
            "mangled": fuzz(arguments.first, arguments.first + arguments.inputs, Path(folder))
        }
        if arguments.every_byte:
            results["cut_at_every_byte"] = cut_at_every_byte(Path(folder))
    text = json.dumps(results, indent=2)
    print(text)
    arguments.results.write_text(f"{text}\n", encoding="utf-8")
    return int(
        '"tracebacks": []' not in text or ("wrong_numbers" in text and '"wrong_numbers": []' not in text)
    )


if __name__ == "__main__":
    sys.exit(main())
