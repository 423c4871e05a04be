"""How fast secrets are masked in a log, as a ratio to another revision of this repository.

    python benchmarks/masking_speed.py [--before REVISION] [--rounds 5] [--results FILE]

Both revisions mask the same log in processes of their own, in turns; the least CPU time of all rounds
counts. The log has lines of vLLM, llama.cpp, apt, CMake and JSON, some with a secret. Ends with 1 if
this revision leaves a secret.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results/masking_speed.json"
PROGRAM = """
import json, random, sys, time
sys.path.insert(0, sys.argv[1])
from agent.core.secrets import LineMasker, Secrets
VALUES = ["hunter2-horse-battery", "hf_AbCdEfGh123456789", "p@ss w/ord%20!"]
random = random.Random(1)
KINDS = (
    "INFO 11-29 07:31:12 engine.py:{n} Avg prompt throughput: {x:.1f} tokens/s, running: {n} reqs",
    "Get:{n} http://deb.debian.org/debian bookworm/main amd64 libfoo{n} amd64 1.2.{n}-3 [{n} kB]",
    '{{"id": {n}, "usage": {{"prompt_tokens": {n}, "total_tokens": {n}}}, "text": "hello \\\\n world"}}',
    "llama_perf_context_print: eval time = {x:.2f} ms / {n} runs ({x:.2f} ms per token)",
    "[{n}/20000] Building CXX object src/CMakeFiles/ggml.dir/ggml-cpu/ops.cpp.o",
)
lines = [KINDS[n % 5].format(n=n, x=random.random() * 1000) for n in range(20_000)]
for n in range(0, len(lines), 500):
    lines[n] += " key " + VALUES[n // 500 % 3]
data = "\\n".join(lines).encode()
answer = {"bytes": len(data)}
for name, values in (("no secret known", []), ("three secrets known", VALUES)):
    secrets = Secrets(values)
    masker = LineMasker(secrets)
    begin = time.process_time()
    text = "".join(masker.feed(data[at : at + 65536]) for at in range(0, len(data), 65536)) + masker.close()
    answer[name] = time.process_time() - begin
    begin = time.process_time()
    for line in lines[:5000]:
        secrets.mask(line + " " * 201)
    answer[name + ", by lines"] = time.process_time() - begin
answer["left"] = sum(text.count(value) for value in VALUES)
print(json.dumps(answer))
"""


def measured(folder: Path) -> dict[str, float]:
    """Mask the log with the code in a folder; return CPU times in seconds."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True, cwd=folder
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> int:
    """Measure both, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", default="HEAD~1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    revision = ["git", "-C", str(ROOT), "rev-parse", "--short", asked.before]
    before = subprocess.run(revision, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        packed = ["git", "-C", str(ROOT), "archive", before, "agent"]
        with tarfile.open(
            fileobj=BytesIO(subprocess.run(packed, capture_output=True, check=True).stdout)
        ) as tar:
            tar.extractall(name)  # noqa: S202 - of this repository
        rounds = [(measured(Path(name)), measured(ROOT)) for _ in range(asked.rounds)]
    kinds = [kind for kind in rounds[0][0] if kind not in {"bytes", "left"}]
    least = {kind: [min(pair[side][kind] for pair in rounds) for side in (0, 1)] for kind in kinds}
    result = {
        "command": "python benchmarks/masking_speed.py --before REVISION",
        "before": before,
        "log_bytes": rounds[0][0]["bytes"],
        "rounds": asked.rounds,
        "cpu_s": {kind: {"before": round(a, 3), "now": round(b, 3)} for kind, (a, b) in least.items()},
        "ratio_of_cpu_time": {kind: round(b / a, 3) for kind, (a, b) in least.items()},
        "secrets_left": {"before": rounds[0][0]["left"], "now": rounds[0][1]["left"]},
    }
    print(json.dumps(result, indent=2))
    asked.results.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return int(result["secrets_left"]["now"] > 0)


if __name__ == "__main__":
    sys.exit(main())
