from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actions.loadgen.parameters import LoadGenParameters
from agent.core.records import ParsedOutput, Reason, Validity, Verdict
from agent.profile import load
from agent.run.remedies import with_user_settings

if TYPE_CHECKING:
    from agent.profile import Element


def action(scenario: str, profile: str = "PERF-CPU-MLPERF.yaml") -> Element:
    elements = load([profile]).elements()
    return next(element for element in elements if element.parameters.get("scenario") == scenario)


def reworded(element: Element, *reasons: Reason, **parameters: Any) -> tuple[Reason, ...]:
    asked = LoadGenParameters.model_construct(scenario=element.parameters["scenario"], **parameters)
    output = ParsedOutput("", "loadgen", verdict=Verdict(Validity.INVALID, reasons))
    (told,) = with_user_settings([output], element, asked)
    assert told.verdict
    return told.verdict.reasons


@pytest.mark.parametrize(
    ("scenario", "reason", "setting", "remedy"),
    [
        (
            "server-performance",
            Reason("", "set min_query_count to 459", "min_query_count", 459),
            "ServerMinQueryCount",
            "set ServerMinQueryCount to 459 (--parameters ServerMinQueryCount=459)",
        ),
        (
            "offline-performance",
            Reason("", "set target_qps to at least 12.3: samples are 1.1 * min_duration * target_qps",
                   "target_qps", 12.3),
            "OfflineLoad",
            ("set OfflineLoad to at least 12.3: samples are 1.1 * OfflineMinDuration * OfflineLoad "
             "(--parameters OfflineLoad=12.3)"),
        ),
        (
            "singlestream-performance",
            Reason("", "set target_latency to 20 ms", "target_latency", 20.0),
            "targetLatencyMs",
            "set targetLatencyMs to 20 ms (--set singlestream-performance.targetLatencyMs=20)",
        ),
        (
            "server-performance",
            Reason("", "raise min_query_count", "min_query_count"),
            "ServerMinQueryCount",
            "raise ServerMinQueryCount",
        ),
        (
            "server-performance",
            Reason("", "remove max_async_queries (9), or lower target_qps", "max_async_queries", 0),
            "max_async_queries",
            "remove max_async_queries (9), or lower ServerLoad",
        ),
        ("server-performance", Reason("", "see the step's log"), None, "see the step's log"),
    ],
)  # fmt: skip
def test_a_remedy_names_what_the_profile_lets_the_user_set(
    scenario: str, reason: Reason, setting: str | None, remedy: str
) -> None:
    (told,) = reworded(action(scenario), reason)
    assert (told.setting, told.remedy) == (setting, remedy)
    assert told.value == reason.value


def test_an_output_without_a_verdict_stays() -> None:
    output = ParsedOutput("", "loadgen")
    element = action("server-performance")
    assert with_user_settings([output], element, LoadGenParameters.model_construct()) == (output,)
