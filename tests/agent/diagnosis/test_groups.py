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


def test_a_group_is_named_after_all_models_and_every_kind_of_value() -> None:
    mixed = {"gpus": [H100, {"name": "A"}, {}, "x", {"name": "A"}], "d": {"z": 1, "a": [2]}, "n": 5}
    assert group_hosts(["a", "b"], {"a": mixed}) == {
        "a": "2 A + 1 GPU + 1 NVIDIA H100 80GB HBM3",
        "b": "unknown hardware",
    }
    assert group_hosts(["a", "b"], {"a": mixed}, "d") == {"a": '{"a": [2], "z": 1}', "b": "unknown hardware"}
    assert group_hosts(["a"], {"a": mixed}, "n") == {"a": "5"}


def test_a_fact_that_no_host_has_is_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError) as caught:
        group_hosts(["x"], {}, "kernel")
    assert caught.value.message == "no host has the fact 'kernel'"
    assert caught.value.remedy == "name folders of runs, which have a run.json"
    with pytest.raises(UsageError) as caught:
        group_hosts(["a", "b"], FACTS, "gpu")
    assert caught.value.remedy == "did you mean gpus?"


def test_facts_are_those_of_a_named_host(tmp_path: Path) -> None:
    contents = {"a": FACTS["a"], "": FACTS["b"], "c": {}}
    for number, (host, facts) in enumerate(contents.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        content = {"schema_version": 1, "client_id": host, "facts": facts}
        (folder / "run.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "0" / "metrics.jsonl").touch()
    paths = [tmp_path / "2", tmp_path / "1", tmp_path / "0" / "metrics.jsonl"]
    assert read_facts(paths) == {"a": FACTS["a"]}
