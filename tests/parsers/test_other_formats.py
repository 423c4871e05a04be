"""Known formats without a parser are refused by name; next to other files they are only mentioned."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.component.parsing import exit_code, parse_path
from agent.core.errors import ExitCode, ParseError
from agent.core.records import Validity

SMI = Path(__file__).parent / "nvidia_smi" / "outputs" / "query.csv"

FORMATS = [
    ("topo.txt", "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-15\t0\n", "nvidia-smi topo"),
    (
        "pmon.txt",
        "# gpu        pid  type    sm   mem   enc   dec   command\n    0  42  C  1 1 - - x\n",
        "pmon",
    ),
    ("dmon.csv", "#gpu, pwr, gtemp\n#Idx, W, C\n0, 65, 33\n", "nvidia-smi dmon as CSV"),
    ("apps.csv", "pid, process_name, used_gpu_memory [MiB]\n42, python, 10 MiB\n", "compute-apps"),
    ("rocm.txt", "===== ROCm System Management Interface =====\nGPU  Temp\n", "rocm-smi"),
    ("rocminfo.txt", "ROCk module is loaded\n=====\nHSA System Attributes\n=====\n", "rocminfo"),
    ("no.txt", "\x1b[31mROCk module is NOT loaded, possibly no GPU devices\x1b[0m\n", "rocminfo"),
    ("amd.csv", "gpu,socket_power,gfx_voltage\n0,141,N/A\n", "amd-smi"),
    ("locust_failures.csv", "Method,Name,Error,Occurrences\nPOST,/c,x,1\n", "list of failures"),
    ("locust_stats_history.csv", "Timestamp,User Count,Type,Name,Requests/s\n1,2,POST,/c,1\n", "history"),
    ("old.csv", '"Method","Name","# requests","# failures"\n"GET","/",1,0\n', "before 1.0"),
    ("samples_x.jsonl", '{"doc_id": 0, "doc": {}, "filtered_resps": ["x"]}\n', "log of samples"),
    ("mlperf_log_accuracy.json", '[\n{ "seq_id" : 0, "qsl_idx" : 1, "data" : "00" }\n]\n', "accuracy log"),
    (
        "sglang.prom",
        "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 1\n",
        "sglang:num_running_reqs",
    ),
    ("vllm_bench.txt", "============ Serving Benchmark Result ============\nx: 1\n", "vLLM's benchmark"),
]


@pytest.mark.parametrize(("name", "text", "what"), FORMATS)
def test_a_format_that_is_not_read_is_named(name: str, text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    for path in (tmp_path / name, tmp_path):
        with pytest.raises(ParseError) as refusal:
            parse_path(path)
        assert what in str(refusal.value)


def test_a_compressed_file_is_to_be_unpacked(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "smi.csv.gz").write_bytes(gzip.compress(SMI.read_bytes()))
    with pytest.raises(ParseError, match="gzip") as refusal:
        parse_path(tmp_path / "smi.csv.gz")
    assert refusal.value.remedy == "unpack it first"


def test_beside_what_is_read_it_is_only_mentioned(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_bytes(SMI.read_bytes())
    (tmp_path / "topo.txt").write_text(FORMATS[0][1])
    read, refused = parse_path(tmp_path)
    assert read.format == "nvidia_smi"
    assert refused.validity is Validity.NOT_APPLICABLE
    assert refused.verdict is not None
    assert "nvidia-smi topo" in refused.verdict.warnings[0]
    assert exit_code([read, refused]) is ExitCode.OK


def test_a_file_that_is_read_is_not_refused_as_well(tmp_path: Path) -> None:
    """Read vLLM's answer, although it has the marks of any server's answer."""
    (tmp_path / "x.prom").write_text("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n")
    assert [output.format for output in parse_path(tmp_path)] == ["vllm_metrics"]
