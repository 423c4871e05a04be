"""All logs of other projects' runs, if available."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.loadgen import PARSER

if TYPE_CHECKING:
    from pathlib import Path

VERDICTS = {
    "v4.1.30_Offline": "VALID",
    "v4.1.30_Server": "INVALID",
    "v4.1.30_SingleStream": "VALID",
    "v5.1.2_Offline": "VALID",
    "v5.1.2_Server": "INVALID",
    "v6.0.17_Offline": "VALID",
    "v6.0.17_Server": "INVALID",
    "v6.0.17_SingleStream": "VALID",
    "v6017_accuracy_offline": "NOT_APPLICABLE",
    "v6017_bert_server_invalid_es": "INVALID",
    "v6017_gptj_offline_inferred": "VALID",
    "v6017_offline_VALID_400errors_0tok": "INVALID",
    "v6017_offline_invalid_minduration": "INVALID",
    "v6017_offline_valid": "VALID",
    "v6017_server_dotted_name": "INVALID",
    "v6017_server_invalid_tpot_es": "INVALID",
    "v6017_server_valid": "VALID",
    "v6017_ss_valid": "VALID",
}


def test_each_gets_the_verdict_it_deserves(shared: Path) -> None:
    found = {}
    for name in VERDICTS:
        (output,) = PARSER.parse(shared / "fixtures/loadgen" / name)
        assert output.complete
        assert output.verdict is not None
        found[name] = output.verdict.validity.value
        assert bool(output.verdict.reasons) == (found[name] == "INVALID")
    assert found == VERDICTS


def test_a_tree_names_each_run_once(shared: Path) -> None:
    scenarios = [output.scenario for output in PARSER.parse(shared / "fixtures/loadgen")]
    assert len(set(scenarios)) == len(scenarios) == len(VERDICTS)
    assert "v4.1.30_Server/Server/performance" in scenarios
