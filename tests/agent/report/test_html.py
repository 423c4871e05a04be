from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from agent.core.errors import UsageError
from agent.report.html import write_report
from tests.agent.report.conftest import CASES

if TYPE_CHECKING:
    from pathlib import Path

LOADING = {"src", "srcset", "data", "poster", "action", "background", "xlink:href"}


class Page(HTMLParser):
    """The text and the references of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.tags: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loads: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in LOADING or name == "href":
                self.loads.append(value or "")
            assert not name.startswith("on"), f"{tag} has a handler {name}"

    def handle_data(self, data: str) -> None:
        self.text += data


def pages(run_dir: Path) -> list[Page]:
    return [
        Page(path) for path in [run_dir / "report.html", *sorted(run_dir.rglob("benchmark_report_*.html"))]
    ]


def test_there_is_a_page_for_the_run_and_one_for_each_case(reported_run: Path) -> None:
    names = [page.path.relative_to(reported_run).as_posix() for page in pages(reported_run)]
    assert names == [
        "report.html",
        "mlperf/offline-performance/benchmark_report_offline-performance.html",
        "mlperf/server-performance/benchmark_report_server-performance.html",
        "mlperf/singlestream-performance/benchmark_report_singlestream-performance.html",
    ]
    assert not list(reported_run.rglob("*.part"))


def test_the_verdict_its_reason_and_its_remedy_come_first(reported_run: Path) -> None:
    text = Page(reported_run / "report.html").text
    order = [
        "INVALID",
        "TPOT p99 is 115.2 ms",
        "lower the load",
        "target_qps",
        "Llama 3.1 8B on this",
        "Results",
    ]
    places = [text.index(part, text.index("Benchmark report")) for part in order]
    assert places == sorted(places)


def test_numbers_steps_facts_and_versions_are_there(reported_run: Path) -> None:
    text = Page(reported_run / "report.html").text
    for part in (
        "8,533", "115.2", "Time to first token", "Output tokens over time", "GPU utilization", "Memory used",
        "GPU 3", "PythonEnvironmentInstallation", "1 min 12 s", "driver 570.133.20 is loaded, as wanted",
        "gpus[3].name", "79.65\u00a0GiB (85,520,809,984)", "vllm/vllm-openai@sha256:",
        "--parameters target_qps=40", "3.1\u00a0% over",
    ):  # fmt: skip
        assert part in text, part


def test_what_a_profile_says_is_text_and_nothing_else(reported_run: Path) -> None:
    for page in pages(reported_run):
        assert "script" not in page.tags
        assert "img" not in page.tags
    assert "<script>alert('from the profile')</script>" in Page(reported_run / "report.html").text


def test_nothing_is_loaded_from_anywhere(reported_run: Path, failed_run: Path) -> None:
    write_report(failed_run)
    for page in pages(reported_run) + pages(failed_run):
        assert page.loads == ["data:,"]
        source = page.path.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(|<iframe|<object|<embed", source)
        assert "http://" not in source
        assert "https://" not in source.replace("https://example.org/x", "")  # the profile's own text
        assert "default-src 'none'" in source


def test_links_are_relative_and_lead_somewhere(reported_run: Path) -> None:
    found = pages(reported_run)
    for page in found:
        for link in page.links:
            target, _, anchor = link.partition("#")
            assert "://" not in link
            assert not target.startswith("/")
            assert (page.path.parent / unquote(target)).exists(), link
            assert not anchor or anchor in page.anchors, link
    links = found[0].links
    assert "mlperf/server-performance/odd%20name%20%231.txt" in links
    assert "logs/server.log" in links
    assert "../../report.html" in found[1].links


def test_a_page_made_again_is_the_same_but_for_its_time(finished_run: Path) -> None:
    def made() -> str:
        return re.sub(r"page made [\d: -]+", "", write_report(finished_run).read_text(encoding="utf-8"))

    assert made() == made()


def test_the_header_has_hardware_limits_and_mlperf_and_a_contents_list(finished_run: Path) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    run["facts"]["processor"] = {"model": "AMD EPYC 9654", "logical_cores": 192}
    run["cases"][0]["details"]["mlperf_result"] = "Not an MLPerf result: the weights are random"
    (finished_run / "run.json").write_text(json.dumps(run), encoding="utf-8")
    page = Page(write_report(finished_run))
    header = " ".join(page.text[: page.text.index("Contents")].split())
    assert "Processor AMD EPYC 9654, 192 logical CPUs" in header.replace("Processor", "Processor ")
    for part in (
        "4 \u00d7 NVIDIA H100 80GB HBM3",
        "TTFT ≤ 2\u00a0s, TPOT ≤ 100\u00a0ms",
        "Not an MLPerf result",
    ):
        assert part.replace("\u00a0", " ") in header, part
    assert "Not an MLPerf result: the weights are random." in page.text
    contents = page.links[: page.links.index("#files") + 1]
    assert contents[0] == "#main"
    assert {"#cases", "#host-usage", "#steps", "#settings"} <= set(contents)
    assert sum(link.startswith("#case-") for link in contents) == len(CASES)


def test_the_keyboard_reaches_what_scrolls(reported_run: Path) -> None:
    text = (reported_run / "report.html").read_text(encoding="utf-8")
    assert text.count('class="wide"') == text.count('class="wide" tabindex="0" role="region" aria-label=') > 0
    assert ":focus-visible" in text


def test_a_percentile_without_a_sample_above_it_is_left_out(reported_run: Path) -> None:
    text = (reported_run / "report.html").read_text(encoding="utf-8")
    offline, server = (text.index(f"<h2>llama3.1-8b/{name}/performance") for name in ("Offline", "Server"))
    assert text.count('title="too few samples"', offline, server) == 3  # p99.9 of 600 samples
    assert 'title="too few samples"' not in text[server:]  # 2,000 samples
    assert "too few samples for it" in text[offline:server]


def test_a_run_without_a_case_shows_what_its_actions_did(finished_run: Path) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    run |= {"cases": [], "exit_code": 0, "verdict": None}
    run["steps"] = [step for step in run["steps"] if step["name"] == "offline"]
    (finished_run / run["steps"][0]["log"]).write_text(
        "$ echo <b>\n<b>\x1b[31m\nexit code 0\n", encoding="utf-8"
    )
    (finished_run / "run.json").write_text(json.dumps(run), encoding="utf-8")
    page = Page(write_report(finished_run))
    assert "$ echo <b>\n<b>\\x1b[31m\nexit code 0" in page.text
    assert "ended before" not in page.text


@pytest.mark.parametrize(
    ("exit_code", "status", "words"),
    [
        (0, "done", "prepares this host and measures nothing"),
        (0, "skipped", "the host was already as it asks"),
        (5, "failed", "The run ended before an action gave a result."),
    ],
)
def test_a_run_without_an_action_says_why_it_has_no_result(
    finished_run: Path, exit_code: int, status: str, words: str
) -> None:
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    run |= {"cases": [], "exit_code": exit_code, "verdict": None, "steps": run["steps"][:1]}
    run["steps"][0]["status"] = status
    (finished_run / "run.json").write_text(json.dumps(run), encoding="utf-8")
    assert words in Page(write_report(finished_run)).text


def test_a_run_that_failed_early_has_a_page(failed_run: Path) -> None:
    write_report(failed_run)
    (page,) = pages(failed_run)
    assert page.text.index("FAILED") < page.text.index("the driver could not be installed")
    assert "exit code 5 (dependency failed)" in page.text
    assert "did not end" in page.text
    assert "apt-get ended with 100" in page.text


@pytest.mark.parametrize(
    ("run", "word"),
    [
        ({}, "NO VERDICT"),
        ({"exit_code": 0, "verdict": None}, "DONE"),
        ({"exit_code": 9}, "INTERRUPTED"),
        ({"exit_code": 8, "verdict": None}, "REBOOT PENDING"),
        ({"verdict": {"validity": "VALID"}, "cases": None, "steps": None, "profile": None}, "VALID"),
        ({"verdict": {"validity": "NOT_APPLICABLE"}, "cases": [{}], "steps": [{}], "start": "yesterday"},
         "NOT APPLICABLE"),
        ({"cases": [{"scenario": "a", "validity": None, "reasons": [{}], "case_dir": "gone"}]},
         "NO VERDICT"),
        ({"profile": {"name": "p", "parameters": {"x": [1, {"a": None}], "y": {}}}, "facts": {"x": [[]]}},
         "NO VERDICT"),
    ],
)  # fmt: skip
def test_whatever_is_missing_there_is_a_page(tmp_path: Path, run: dict[str, Any], word: str) -> None:
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    assert word in Page(write_report(tmp_path)).text


def test_a_cut_record_and_a_cut_sample_are_told_of(finished_run: Path) -> None:
    with (finished_run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"record_id": 99, "timest')
    with (finished_run / "mlperf/server-performance/samples.csv").open("a", encoding="utf-8") as file:
        file.write("7,7,12.5,,,\n8,8")
    text = Page(write_report(finished_run)).text
    assert "1 line of metrics.jsonl could not be read" in text
    assert "1 of 2,001 issued samples never completed." in text
    assert "1 row of samples.csv could not be read." in text


def test_a_broken_samples_file_costs_only_its_plots(finished_run: Path) -> None:
    (finished_run / "mlperf/server-performance/samples.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    text = Page(write_report(finished_run)).text
    assert "No distributions" in text
    assert "4,311" in text


def test_a_folder_outside_the_run_is_not_read(finished_run: Path) -> None:
    outside = finished_run.parent / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("x", encoding="utf-8")
    run = json.loads((finished_run / "run.json").read_text(encoding="utf-8"))
    run["cases"][0]["case_dir"] = "../outside"
    run["steps"][0]["log"] = "../outside/secret.txt"
    (finished_run / "run.json").write_text(json.dumps(run), encoding="utf-8")
    write_report(finished_run)
    assert all("secret.txt" not in link for page in pages(finished_run) for link in page.links)
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


@pytest.mark.parametrize("content", [None, "{", "\x00", '{"versions": []}', '{"cases": [{"validity": "?"}]}'])
def test_a_folder_that_is_no_run_is_an_error_with_a_remedy(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"run\.json cannot be read") as caught:
        write_report(tmp_path)
    assert caught.value.remedy
