"""Sinks of other distributions: found by entry points, selected by name, isolated if they fail."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import ExitCode, UsageError
from agent.core.secrets import Secrets
from agent.sinks import SinkContext, add_sink_secrets, open_sinks, opening, own_files
from tests.agent.sinks.listing_sink import TAKEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = "tests.agent.sinks.listing_sink"


@pytest.fixture(autouse=True)
def _sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    TAKEN.clear()
    points = {
        name: EntryPoint(name, value, opening.SINK_GROUP)
        for name, value in (("list", f"{HERE}:open_list"), ("gone", "no_such_module:open"))
    }
    monkeypatch.setattr(opening, "_registered", lambda: points)


def test_the_run_s_own_files_are_always_there(tmp_path: Path) -> None:
    assert [sink.name for sink in own_files(SinkContext(tmp_path, "r"))] == ["metrics.jsonl", "metrics.csv"]


@pytest.mark.parametrize(
    ("asked", "message", "remedy"),
    [
        ("lst", "no sink is called 'lst'", "list"),
        ("gone", "cannot be loaded: ModuleNotFoundError", "leave --sink gone out"),
        ("list:wrong", "list takes no 'wrong'", "leave it out"),
    ],
)
def test_what_cannot_be_used_is_refused(asked: str, message: str, remedy: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        open_sinks((asked,), SinkContext(tmp_path, "r"))
    assert remedy in str(caught.value)


def test_it_is_refused_before_anything_runs(run_profile: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no sink"):
        run_profile({"Actions": [{"Type": "Measuring"}]}, sinks=("lst",))
    assert not (tmp_path / "results").exists()


def test_a_sink_gets_the_records_of_a_run(run_profile: Callable[..., Any]) -> None:
    finished = run_profile({"Actions": [{"Type": "Measuring"}]}, sinks=("list:a",))
    lines = (finished.run_dir / "metrics.jsonl").read_text().splitlines()
    assert len(TAKEN) == len(lines) > 0


def test_a_sink_that_raises_anything_ends_nothing(run_profile: Callable[..., Any]) -> None:
    finished = run_profile(
        {"Actions": [{"Type": "Measuring"}, {"Type": "Measuring"}]}, sinks=("list:fails", "list:a")
    )
    assert finished.outcome.exit_code is ExitCode.OK
    assert len(TAKEN) == len((finished.run_dir / "metrics.jsonl").read_text().splitlines()) > 0
    (told,) = [line for line in finished.outcome.warnings if "list fails" in line]
    count = len(TAKEN)
    assert told == (
        f"{count} records are not delivered to the sink list fails yet: RuntimeError: the plug-in is broken; "
        f"deliver them with: vcagent telemetry flush {finished.run_dir.name}"
    )


def test_a_secret_of_the_settings_is_masked_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB", "Endpoint=sb://n/;SharedAccessKeyName=a;SharedAccessKey=c2VrcmV0LTE=")
    secrets = Secrets()
    add_sink_secrets(secrets, ("eventhubs:${HUB}", "pushgateway:http://u:hunter2-long@h"))
    assert "c2VrcmV0LTE" not in secrets.mask("the key c2VrcmV0LTE= is wrong")
    assert "hunter2-long" not in secrets.mask("you sent hunter2-long")


CONNECTION = (
    "Endpoint=sb://hubs/;SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXM="
)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("otlp:http://[", "cannot use the address 'http://…'"),
        ("otlp:http://", "cannot use the address 'http:"),
        ("otlp:http://host:99999", "cannot use the address 'http://host:99999'"),
        ("otlp:gopher://host", "cannot use the address 'gopher://host'"),
        ("otlp:grpc://host:port", "cannot use the address"),
        ("otlp:http://user:hunter22@:1", "cannot use the address"),
        (f"otlp:http://{'x' * 5000}:port", "x…'"),
        (f"otlp:{'x' * 100_000}", "have 100000 characters"),
        ("otlp:http://host\x00", "control character"),
        ("otlp:http://host\ud800", "not UTF-8"),
        ("pushgateway:/dev/null", "cannot use the address"),
        ("pushgateway:127.0.0.1:-1", "cannot use the address"),
        ("pushgateway:host,job=", "job of the Pushgateway is empty"),
        (f"pushgateway:{CONNECTION}", "cannot use the address"),
        ("prometheus:127.0.0.1:\N{SUPERSCRIPT TWO}", "not an address with a port"),
        ("prometheus:127.0.0.1:70000", "not an address with a port"),
        ("prometheus:http://127.0.0.1:1", "not an address with a port"),
        ("prometheus-textfile://", "files that end with .prom"),
        ("prometheus-textfile:http://h/a.prom", "writes to a folder of this host"),
        ("jsonl:http://host", "writes to a folder of this host, not to 'http://host'"),
        ("csv:~nobody-of-that-name/x", "cannot find the folder"),
        ("content:http://[", "does not understand its settings"),
    ],
)
def test_odd_settings_end_in_an_error_with_a_remedy(
    asked: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the real sinks
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        open_sinks((asked,), SinkContext(tmp_path, "r"))
    assert caught.value.remedy
    assert len(str(caught.value)) < 1000
    assert "hunter22" not in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)


def test_a_sink_of_somebody_else_may_raise_anything(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the sink list does not understand its settings \(KeyError\)"):
        open_sinks(("list:raise",), SinkContext(tmp_path, "r"))
