"""Settings before they reach LoadGen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.in_environment.harness.errors import HarnessError
from actions.loadgen.in_environment.harness.settings import Asked, ask, loadgen_scenario
from actions.loadgen.in_environment.harness.user_conf import read_user_conf

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULTS = {"performance_sample_count_override": 16}
OWN = {"ttft_latency": 2000, "tpot_latency": 100}


def asked(
    scenario: str = "Offline",
    *,
    run_mode: str = "performance",
    model: str = "m",
    own: Mapping[str, float] | None = None,
    path: Path | None = None,
    **settings: Any,
) -> Asked:
    """Return the settings for the model m, which may have another name in Interactive."""
    return ask(
        scenario,
        mode=run_mode,
        model=model,
        base_model="m",
        own_limits=OWN if own is None else own,
        defaults=DEFAULTS,
        settings=settings,
        user_conf=path,
    )


def refusal(*args: Any, **settings: Any) -> str:
    """Return the message of a test that is refused."""
    with pytest.raises(HarnessError) as caught:
        asked(*args, **settings)
    assert caught.value.kind == "settings"
    return f"{caught.value.message} {caught.value.remedy}"


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
        ("other.Offline.target_qps = 5\n*.*.min_duration = 1", 9),
        ("*.Server.target_qps = 5\n*.*.min_duration = 1", 9),
    ],
)
def test_the_users_line_wins_however_general_it_is(tmp_path: Path, line: str, value: float) -> None:
    path = tmp_path / "user.conf"
    path.write_text(line + "\n")

    found = asked(path=path, target_qps=9)

    assert found.values["target_qps"] == value
    assert ("*.Offline.target_qps = 9" in found.user_conf.splitlines()) == (value == 9)
    assert line in found.user_conf


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
    assert words in refusal(**settings)


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("SingleStream", {"target_latency": 0}),
        ("MultiStream", {"target_latency": -5}),
        ("Server", {"ttft_latency": 0, "tpot_latency": 9}),
        ("Offline", {"min_duration": -1}),
    ],
)
def test_numbers_that_mean_nothing_are_refused(scenario: str, settings: dict[str, Any]) -> None:
    assert "must be above 0" in refusal(scenario, **settings)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("*.Offline.target_qps 5", "user.conf:2 is not"),
        ("*.Offline.target_qps = 5 # fast", "user.conf:2 is not"),
        ("target_qps = 5", "user.conf:2 is not"),
        ("*.Offline.target_qps = many", "user.conf:2: 'many' is not a number"),
        ("*.Offline.target_qsp = 5", "user.conf:2: LoadGen has no setting 'target_qsp'"),
        ("m3.1-8b.Server.target_qps = 5", "user.conf:2: the model 'm3.1-8b' has a dot"),
        ("m.Interactive.target_qps = 5", "user.conf:2: LoadGen has no scenario 'Interactive'"),
        ("m.offline.target_qps = 5", "user.conf:2: LoadGen has no scenario 'offline'"),
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


@pytest.mark.parametrize(
    "line",
    [
        "other.Offline.target_qps = 5",
        "m.Server.target_qps = 5",
        "m-interactive.Offline.target_qps = 5",
        "*.*.ttft_latency = 5",  # has no effect in Offline
        "# nothing",
    ],
)
def test_a_user_conf_without_a_line_for_this_test_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "user.conf"
    path.write_text(line + "\n")

    said = refusal(path=path, target_qps=9)

    assert "user.conf has an effect on the model m in Offline" in said


def test_lines_of_the_base_model_apply_in_interactive(tmp_path: Path) -> None:
    path = tmp_path / "user.conf"
    path.write_text("m.Server.target_qps = 7\nm.*.min_duration = 5\nother.Server.min_query_count = 3\n")

    found = asked("Server", model="m-interactive", path=path, target_qps=600, min_query_count=9)

    values = {name: found.values[name] for name in ("target_qps", "min_duration", "min_query_count")}
    assert values == {"target_qps": 7, "min_duration": 5, "min_query_count": 9}
    assert "m-interactive.Server.target_qps = 7" in found.user_conf.splitlines()


def test_lines_of_the_interactive_name_come_before_those_of_the_base_model(tmp_path: Path) -> None:
    path = tmp_path / "user.conf"
    path.write_text("m-interactive.Server.target_qps = 8\nm.Server.target_qps = 7\n")

    assert asked("Server", model="m-interactive", path=path).values["target_qps"] == 8


def test_a_server_test_of_an_unknown_model_needs_limits() -> None:
    assert "ttft_latency and tpot_latency is not set" in refusal("Server", own={}, target_qps=1)

    found = asked("Server", own={}, ttft_latency=100, tpot_latency=10)
    assert found.values["target_latency"] == 0

    without_tokens = asked("Server", own={}, use_token_latencies=0, target_latency=50)
    assert without_tokens.values["target_latency"] == 50


def test_a_limit_that_is_neither_asked_for_nor_the_models_own_is_refused() -> None:
    assert "tpot_latency is not set" in refusal("Server", own={}, ttft_latency=2000)
    assert "ttft_latency is not set" in refusal("Server", own={}, tpot_latency=100)


def test_the_models_own_limits_are_what_is_asked_for() -> None:
    found = asked("Server", target_qps=1, ttft_latency=3000)

    assert (found.values["ttft_latency"], found.values["tpot_latency"]) == (3000, 100)
    assert "tpot_latency" not in found.user_conf  # LoadGen has it already


def test_a_latency_limit_alone_is_one_of_whole_answers() -> None:
    found = asked("Server", target_qps=1, target_latency=20000)

    assert (found.values["target_latency"], found.values["use_token_latencies"]) == (20000, 0)
    assert "ttft_latency" not in found.values


def test_a_model_with_a_limit_of_whole_answers_is_judged_by_it() -> None:
    own = {"target_latency": 20000}

    found = asked("Server", own=own, target_qps=1)
    assert (found.values["target_latency"], found.values["use_token_latencies"]) == (20000, 0)

    by_tokens = asked("Server", own=own, ttft_latency=9, tpot_latency=9)
    assert (by_tokens.values["target_latency"], by_tokens.values["use_token_latencies"]) == (0, 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_latency": 50, "ttft_latency": 9, "tpot_latency": 9}, "target_latency would have no effect"),
        ({"target_latency": 50, "use_token_latencies": 1}, "target_latency would have no effect"),
        ({"ttft_latency": 9, "use_token_latencies": 0}, "ttft_latency would have no effect"),
        ({"target_latency": 0, "use_token_latencies": 0}, "target_latency is not set"),
    ],
)
def test_limits_that_loadgen_would_not_look_at_are_refused(settings: dict[str, Any], words: str) -> None:
    assert words in refusal("Server", **settings)


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
def test_an_accuracy_run_measures_no_token_latencies(scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "user.conf"
    path.write_text("*.*.tpot_latency = 9\n*.*.min_duration = 9\n")
    limits = {"ttft_latency": 9} if scenario == "Server" else {}

    found = asked(scenario, run_mode="accuracy", own={}, path=path, **limits)

    assert found.values["use_token_latencies"] == 0
    assert not {"ttft_latency", "tpot_latency"} & set(found.values)
