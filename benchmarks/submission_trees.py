"""Verdicts of vcagent and of the official checker on published submissions, side by side.

    python benchmarks/submission_trees.py --checker DIR --round v5.1 --published DIR SUBMITTER…

``--checker`` is a checkout of mlcommons/inference: of its newest commit for v5.0 and later, of its tag v4.1
for v4.1. ``--published`` is a git directory of mlcommons/inference_results_vX.Y; it needs no work tree. A
SUBMITTER is a folder, such as ``closed/AMD``. Logs and papers are written out; of code and images only the
names, as empty files. A result whose logs the git directory lacks (large files may be absent) is left out.

Every disagreement belongs to a class with an explanation; the command ends with 1 if one does not. A round's
results replace older ones of that round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.submission.checking import check_tree
from actions.submission.official import run_checker
from actions.submission.rounds import find_round
from actions.submission.table import official_word
from actions.submission.tree import submitters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actions.submission.findings import CheckedResult

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/submission_trees.json"
TEXTS = (".txt", ".json", ".conf", ".md", ".yaml", ".yml")
CODE = ("code", "src", "documentation")
LARGEST_BYTES = 50_000_000

EXPLANATIONS = {
    "mode": "the accuracy folder holds the log of a performance run: the official checker does not "
    "look at the accuracy log's mode",
    "configuration": "performance and accuracy run differ: another scenario, or another number of samples "
    "in the data set. The official checker does not compare them",
    "seeds": "the accuracy run has other seeds than the round's: the official checker looks at those of the "
    "performance run alone",
    "errors": "the accuracy run's summary counts an error: the official checker looks for errors in the "
    "detail log alone",
    "official_power": "the official checker judges the logs of the power meter too, which vcagent does not",
}
OFFICIAL_ONLY = {"power_checker.py": "official_power"}


def written(git: Path, folder: Path, wanted: list[str]) -> int:
    """Write the files of submitters out; returns how many results were left out."""
    listed = subprocess.run(
        ["git", f"--git-dir={git}", "ls-tree", "-r", "-z", "HEAD", "--", *wanted],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    absent: set[Path] = set()
    with subprocess.Popen(
        ["git", f"--git-dir={git}", "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdin
        assert reader.stdout
        for row in filter(None, listed.split("\0")):
            meta, name = row.split("\t", 1)
            path, parts = folder / name, name.split("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            is_link = meta.startswith("12")
            if not is_link and (parts[2] in CODE or not name.endswith(TEXTS)):
                path.touch()
                continue
            reader.stdin.write(meta.split()[2].encode() + b"\n")
            reader.stdin.flush()
            head = reader.stdout.readline().split()
            if head[-1] == b"missing":
                absent.add(Path(*parts[:6]))
                continue
            data = reader.stdout.read(int(head[2]))
            reader.stdout.read(1)
            if not is_link:
                path.write_bytes(data)
            elif (path.parent / data.decode()).resolve().is_relative_to(folder.resolve()):
                path.symlink_to(data.decode())
        reader.stdin.close()
    return sum(left_out(folder, place) for place in absent if len(place.parts) == 6)


def left_out(folder: Path, place: Path) -> bool:
    """Remove a benchmark of a system whose files are absent, scenario by scenario."""
    division, submitter, _, *below = place.parts
    found = False
    for kind in ("results", "measurements", "compliance"):
        path = folder.joinpath(division, submitter, kind, *below)
        if path.is_dir():
            found = True
            subprocess.run(["rm", "-r", "--", str(path)], check=True)
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
    return found


def disagreements(results: tuple[CheckedResult, ...], official: Any) -> Iterator[dict[str, Any]]:
    """Yield the results on which the two differ, each with the codes of what was found and its class."""
    for result in results:
        theirs = official_word(result, official)
        if (theirs == "passed") is result.is_accepted:
            continue
        place = result.place
        parts = (place.submitter.name, place.system, place.benchmark, place.scenario)
        said = " ".join(official.errors_of(parts))
        codes = sorted({finding.code for finding in result.errors}) or [
            name for words, name in OFFICIAL_ONLY.items() if words in said
        ]
        yield {
            "result": place.name,
            "vcagent": "accepted" if result.is_accepted else "rejected",
            "official": theirs,
            "classes": codes or ["official_only"],
            "findings": [finding.message for finding in result.errors],
            "official_errors": list(official.errors_of(parts)),
        }


def main() -> int:
    """Compare and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--checker", type=Path, required=True)
    parser.add_argument("--round", required=True)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("submitters", nargs="+", metavar="SUBMITTER")
    asked = parser.parse_args()
    chosen = find_round(asked.round)
    with tempfile.TemporaryDirectory(prefix="vcagent-trees-") as scratch:
        folder = Path(scratch)
        absent = written(asked.published, folder, asked.submitters)
        names = list(dict.fromkeys(each.name for each in submitters(folder)))
        tree = check_tree(folder, chosen)
        official = run_checker(asked.checker, folder, chosen.name, submitters=names)
        differing = list(disagreements(tree.results, official))
        words = Counter(
            f"vcagent {'accepts' if result.is_accepted else 'rejects'}, "
            f"official checker: {official_word(result, official)}"
            for result in tree.results
        )
    unexplained = [row["result"] for row in differing if not set(row["classes"]) <= EXPLANATIONS.keys()]
    document = json.loads(asked.results.read_text()) if asked.results.is_file() else {}
    document.update(
        {
            "what": "verdicts on published submissions, of vcagent and of the official submission checker",
            "command": "python benchmarks/submission_trees.py --checker INFERENCE --round ROUND --published "
            "INFERENCE_RESULTS SUBMITTER…",
            "explanations": EXPLANATIONS,
        }
    )
    rounds = document.setdefault("rounds", {})
    rounds[chosen.name] = {
        "submitters": asked.submitters,
        "results": len(tree.results),
        "left_out": absent,
        "verdicts": dict(words),
        "notes": dict(
            Counter(
                f.code for result in tree.results for f in result.findings if not f.is_error
            ).most_common()
        ),
        "unexplained": len(unexplained),
        "disagreements": differing,
    }
    asked.results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(
        json.dumps({key: rounds[chosen.name][key] for key in ("results", "left_out", "verdicts")}, indent=1)
    )
    for name in unexplained:
        print(f"unexplained: {name}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
