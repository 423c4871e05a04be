"""Settings before LoadGen sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actions.mlperf.harness.errors import HarnessError
from actions.mlperf.harness.settings import Asked, ask, loadgen_scenario, read_user_conf

if TYPE_CHECKING:
    from pathlib import Path

DEFAULTS = {"performance_sample_count_override": 16, "use_token_latencies": 1}


def asked(
    scenario: str = "Offline", *, known: bool = True, path: Path | None = None, **settings: Any
) -> Asked:
    return ask(scenario, model="m", known=known, defaults=DEFAULTS, settings=settings, user_conf=path)


def test_interactive_is_loadgens_server() -> None:
    assert loadgen_scenario("Interactive") == "Server"
    assert loadgen_scenario("Offline") == "Offline"


def test_settings_are_lines_for_their_scenario() -> None:
    found = asked(target_qps=8.25, min_duration=1000.0, sample_concatenate_permutation=True)

    assert found.user_conf.splitlines()[1:] == [
        "*.Offline.performance_sample_count_override = 16",
        "*.Offline.use_token_latencies = 1",
        "*.Offline.target_qps = 8.25",
        "*.Offline.min_duration = 1000",
        "*.Offline.sample_concatenate_permutation = 1",
    ]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("*.*.target_qps = 5", 5),
        ("m.*.target_qps = 5", 5),
        ("*.Offline.target_qps = 5", 5),
        ("m.Offline.target_qps = 5", 5),
        ("m.Offline.target_qps = 0x10", 16),
        ("other.Offline.target_qps = 5", 9),
        ("*.Server.target_qps = 5", 9),
    ],
)
def test_the_users_line_wins_however_general_it_is(tmp_path: Path, line: str, value: float) -> None:
    path = tmp_path / "user.conf"
    path.write_text(line + "\n")

    found = asked(path=path, target_qps=9)

    assert found.values["target_qps"] == value
    assert ("*.Offline.target_qps = 9" in found.user_conf.splitlines()) == (value == 9)
    assert line in found.user_conf.splitlines()


def test_a_more_specific_line_of_the_users_wins(tmp_path: Path) -> None:
    path = tmp_path / "user.conf"
    path.write_text("*.*.min_duration = 1\nm.Offline.min_duration = 2\n*.Offline.min_duration = 3\n")

    assert asked(path=path).values["min_duration"] == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_qsp": 1}, "did you mean 'target_qps'?"),
        ({"ttft_latency": 1}, "has no effect in Offline"),
        ({"target_qps": "fast"}, "'fast' is not a number"),
        ({"qsl_rng_seed": 1}, "only from its built-in configuration"),
        ({"mode": 2}, "the mode is not a setting"),
    ],
)
def test_what_loadgen_would_ignore_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(HarnessError) as caught:
        asked(**settings)

    assert caught.value.kind == "settings"
    assert words in f"{caught.value.message} {caught.value.remedy}"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("*.Offline.target_qps 5", "user.conf:2 is not"),
        ("*.Offline.target_qps = 5 # fast", "user.conf:2 is not"),
        ("target_qps = 5", "user.conf:2 is not"),
        ("*.Offline.target_qps = many", "user.conf:2: 'many' is not a number"),
        ("*.Offline.target_qsp = 5", "user.conf:2: LoadGen has no setting 'target_qsp'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "user.conf"
    path.write_text(f"# comment\n{line}\n")

    with pytest.raises(HarnessError, match=r"user\.conf") as caught:
        read_user_conf(path)

    assert words in caught.value.message


def test_a_missing_user_conf_is_named(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"missing\.conf cannot be read"):
        read_user_conf(tmp_path / "missing.conf")


def test_a_server_test_of_an_unknown_model_needs_limits() -> None:
    with pytest.raises(HarnessError, match="ttft_latency and tpot_latency is not set"):
        asked("Server", known=False, target_qps=1)

    found = asked("Server", known=False, ttft_latency=100, tpot_latency=10)
    assert found.values["target_latency"] == 0

    without_tokens = asked("Server", known=False, use_token_latencies=0, target_latency=50)
    assert without_tokens.values["target_latency"] == 50
