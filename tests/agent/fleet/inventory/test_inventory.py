"""Inventories in common formats, read from files; the hosts that a limit selects."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.errors import UsageError
from agent.core.yaml_data import yaml_data
from agent.fleet.inventory import limited, read_inventory
from agent.fleet.inventory.ranges import expanded

CASES = Path(__file__).parent / "cases"
READING = yaml_data((CASES / "reading.yaml").read_text())
LIMITS = yaml_data((CASES / "limits.yaml").read_text())


@pytest.mark.parametrize("case", READING, ids=[case["case"] for case in READING])
def test_an_inventory_says(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    references = [str(tmp_path / name) for name in case["files"] if "_vars" not in name]
    if "error" in case:
        with pytest.raises(UsageError) as raised:
            limited(read_inventory(references), "")
        for part in case["error"]:
            assert part in str(raised.value)
        return
    hosts = read_inventory(references).hosts
    assert list(hosts) == case.get("names") or set(hosts) == set(case["hosts"])
    for name, expected in case.get("hosts", {}).items():
        found = dataclasses.asdict(hosts[name])
        for key, value in expected.items():
            assert found[key] == (tuple(value) if isinstance(value, list) else value), (name, key)


@pytest.mark.parametrize("case", LIMITS["cases"], ids=[case["limit"] for case in LIMITS["cases"]])
def test_a_limit_means(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text(LIMITS["inventory"])
    Path("retry").write_text("# failed\nsolo\ndb4\n")
    inventory = read_inventory(["hosts"])
    warnings: list[str] = []
    if "error" in case:
        with pytest.raises(UsageError) as raised:
            limited(inventory, case["limit"])
        assert all(part in str(raised.value) for part in case["error"]), raised.value
    else:
        assert [host.name for host in limited(inventory, case["limit"], warnings.append)] == case["hosts"]
        assert len(warnings) == len(case.get("warnings", ()))
        assert all(part in text for part, text in zip(case.get("warnings", ()), warnings, strict=True))


def test_hosts_on_the_command_line() -> None:
    hosts = read_inventory(["a,root@b:2222", "c,", "d@e"]).hosts
    assert list(hosts) == ["a", "b", "c", "e"]
    assert (hosts["b"].user, hosts["b"].port, hosts["e"].user) == ("root", 2222, "d")


def test_a_missing_file_is_told_from_a_host() -> None:
    with pytest.raises(UsageError, match=r"the inventory gpu-01 does not exist[\s\S]*gpu-01,"):
        read_inventory(["gpu-01"])


def test_a_folder_of_inventories(tmp_path: Path) -> None:
    (tmp_path / "01-a.ini").write_text("[web]\na\n")
    (tmp_path / "02-b.yml").write_text("web: {vars: {ansible_user: u}, hosts: {b: }}\n")
    (tmp_path / "02-b.yml~").write_text("nonsense [")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "web.yml").write_text("ansible_port: 2200\n")
    hosts = read_inventory([str(tmp_path)]).hosts
    assert {name: (host.user, host.port) for name, host in hosts.items()} == {
        "a": ("u", 2200),
        "b": ("u", 2200),
    }


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a ansible_password=geheim-wort ansible_become_pass=geheim-wort\n")
    host = read_inventory([str(tmp_path / "hosts")]).hosts["a"]
    assert host.password == host.sudo_password == "geheim-wort"
    assert "geheim" not in repr(host)


@given(st.integers(0, 300), st.integers(0, 50), st.integers(1, 7))
def test_a_range_has_both_ends(first: int, more: int, step: int) -> None:
    assert expanded(f"n[{first}:{first + more}:{step}]") == [
        f"n{number}" for number in range(first, first + more + 1, step)
    ]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of unintended expressions
@given(st.text(alphabet="ab[]:0@!&~,*", max_size=12))
def test_any_limit_gives_hosts_or_an_error(limit: str) -> None:
    inventory = read_inventory(["a,b,a0"])
    with contextlib.suppress(UsageError):
        assert limited(inventory, limit)
