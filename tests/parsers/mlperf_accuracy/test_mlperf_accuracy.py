"""accuracy.txt, judged for the benchmark named by its folders (forms: ACC_PATTERN of MLPerf's checker)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.component.parsing import parse_path
from agent.core.errors import ParseError
from agent.core.records import ParsedOutput, Validity
from parsers.mlperf_accuracy import PARSER

HERE = Path(__file__).parent
LOGS = HERE.parent / "loadgen" / "logs" / "accuracy_v6_0"


def judged(folder: Path, model: str, text: str) -> ParsedOutput:
    place = folder / model / "Offline" / "accuracy"
    place.mkdir(parents=True, exist_ok=True)
    (place / "accuracy.txt").write_text(text)
    (output,) = PARSER.parse(place / "accuracy.txt")
    return output


ROUGE, RESNET, BERT = ((HERE / f"{name}.txt").read_text() for name in ("rouge", "resnet", "bert"))


# closed/AMD and closed/Google of mlcommons/inference_results_v5.1 and v4.1
SDXL = "Accuracy Results: {'FID_SCORE': '23.909064176163497', 'CLIP_SCORE': '31.749353325665'}\n"
SDXL_LINES = """{
    'accuracy_results': {
        'CLIP_SCORE': 31.732986239790918,
        'FID_SCORE': 23.53670956283503,
        'scenario': 'TestScenario.Offline'
    }
}
"""


@pytest.mark.parametrize(
    ("model", "text", "validity"),
    [
        ("llama2-70b-99", ROUGE, Validity.VALID),
        ("llama2-70b-99.9", ROUGE, Validity.VALID),
        ("llama2-70b-99.9", ROUGE.replace("44.4542", "44.38"), Validity.INVALID),
        ("llama2-70b-99", ROUGE.replace("44.4542", "44.38"), Validity.VALID),
        ("llama2-70b-99", ROUGE.replace("301.1", "330.1"), Validity.INVALID),
        ("llama2-70b-99", ROUGE.replace("'rouge2': 22.0419, ", ""), Validity.INVALID),
        ("resnet", RESNET, Validity.VALID),
        ("resnet", RESNET.replace("76.456", "75.6"), Validity.INVALID),
        ("bert-99", BERT, Validity.VALID),
        ("bert-99", BERT.replace("90.87", "89.9"), Validity.INVALID),
        ("a-model-of-ours", ROUGE, Validity.NOT_APPLICABLE),
        ("3d-unet-99", "Accuracy: mean = 0.86170, kidney = 0.93470, tumor = 0.78870\n", Validity.VALID),
        ("stable-diffusion-xl", SDXL, Validity.VALID),
        ("stable-diffusion-xl", SDXL.replace("31.749", "31.6"), Validity.INVALID),
        ("stable-diffusion-xl", SDXL_LINES, Validity.VALID),
        ("retinanet", "mAP=37.552%\n", Validity.VALID),
        ("dlrm-v2-99", "AUC=80.31%, good=1, total=2\n", Validity.VALID),
        ("rnnt", "Word Error Rate: 7.452%, accuracy=92.548%\n", Validity.VALID),
        ("rnnt", "Word Error Rate: 8.452%, accuracy=91.548%\n", Validity.INVALID),
    ],
)
def test_scores_are_judged_by_the_targets(model: str, text: str, validity: Validity, tmp_path: Path) -> None:
    output = judged(tmp_path, model, text)
    assert (output.validity, output.complete) == (validity, True)
    assert output.metrics


def test_scores_are_ratios_and_lengths_are_counts(tmp_path: Path) -> None:
    found = {metric.name: metric for metric in judged(tmp_path, "llama2-70b-99", ROUGE).metrics}
    assert (found["accuracy_rouge1"].value, found["accuracy_rouge1"].unit) == (
        pytest.approx(0.444542),
        "ratio",
    )
    assert found["accuracy_tokens_per_sample"].unit == "count"
    assert found["accuracy_rouge1_threshold"].value == pytest.approx(0.444312 * 0.99)


@pytest.mark.parametrize("written", ["44,4312", "44.4,312"])
def test_a_comma_within_a_score_is_not_its_end(written: str, tmp_path: Path) -> None:
    text = "{'rouge1': %s, 'rouge2': 22.0, 'rougeL': 28.6, 'gen_len': 8167644, 'gen_num': 13368}\n"
    with pytest.raises(ParseError, match=r"rouge1 is .* (decimal comma|not a number)"):
        judged(tmp_path, "llama3.1-8b", text % written)


def test_accuracy_beside_a_log_is_read_whichever_is_named(tmp_path: Path) -> None:
    place = tmp_path / "resnet" / "Offline" / "accuracy"
    shutil.copytree(LOGS, place)
    (place / "accuracy.txt").write_text(RESNET.replace("76.456", "70"))
    for path in (tmp_path, place, place / "mlperf_log_detail.txt", place / "mlperf_log_summary.txt"):
        outputs = {output.format: output.validity for output in parse_path(path)}
        assert outputs["mlperf_accuracy"] is Validity.INVALID
        assert "loadgen" in outputs


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "not contain a score"),
        ("Traceback (most recent call last):\n", "not contain a score"),
        ("accuracy=76,456%, good=38228, total=50000\n", "decimal comma"),
        ("accuracy=-1%, good=38228, total=50000\n", "below 0"),
        (RESNET + RESNET.replace("76.456", "76.5"), "twice"),
    ],
)
def test_what_is_no_score_is_refused(text: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=match):
        judged(tmp_path, "resnet", text)
