"""The grouping of alike hosts."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import UsageError
from agent.diagnosis.groups import group_hosts, read_facts

H100 = {"name": "NVIDIA H100 80GB HBM3", "pci_id": "0x2330"}
FACTS: dict[str, dict[str, Any]] = {
    "a": {"gpus": [H100] * 8, "distribution": {"version": "24.04"}},
    "b": {"gpus": [H100] * 7, "distribution": {"version": "22.04"}},
    "c": {"gpus": [{"name": None, "pci_id": "0x2330"}]},
    "d": {"gpus": []},
}


def test_hosts_are_grouped_by_models_and_number_of_gpus() -> None:
    assert group_hosts(["a", "b", "c", "d", "e"], FACTS) == {
        "a": "8 NVIDIA H100 80GB HBM3",
        "b": "7 NVIDIA H100 80GB HBM3",
        "c": "1 0x2330",
        "d": "no GPU",
        "e": "unknown hardware",
    }
    assert group_hosts(["x", "y"], {}) == {}


def test_hosts_are_grouped_by_a_given_fact() -> None:
    grouped = group_hosts(["a", "b", "d"], FACTS, "distribution.version")
    assert grouped == {"a": "24.04", "b": "22.04", "d": "unknown hardware"}
    with pytest.raises(UsageError, match=r"'distributio'.*\n.*distribution"):
        group_hosts(["a"], FACTS, "distributio")
    with pytest.raises(UsageError, match=r"run\.json"):
        group_hosts(["x"], {}, "kernel")


def test_facts_are_read_of_runs_and_of_the_hosts_of_fleet_runs(tmp_path: Path) -> None:
    for host in ("a", "b"):
        folder = tmp_path / "hosts" / host
        folder.mkdir(parents=True)
        content = {"schema_version": 1, "client_id": host, "facts": FACTS[host]}
        (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "hosts" / "b" / "run.json").write_text("cut", encoding="utf-8")
    assert read_facts([tmp_path]) == {"a": FACTS["a"]}
    assert read_facts([tmp_path / "hosts" / "a"]) == {"a": FACTS["a"]}
