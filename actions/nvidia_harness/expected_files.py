"""List the files that a data stage must make: NVIDIA's scripts may fail and still end with 0.

Only the last of several commands determines the exit code, an ``echo`` after a chain hides its failure, and
wget leaves an empty file. Source: inference_results_v4.1, closed/NVIDIA, code/<benchmark>/tensorrt:
download_data.sh, download_model.sh, preprocess_data.py, README.md; the same files of v3.1 and v5.1 where
noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXPECTED: Mapping[tuple[str, str], tuple[tuple[str, ...], ...]] = {
    ("bert", "download_data"): (("squad/dev-v1.1.json",),),
    ("bert", "download_model"): (
        ("bert/bert_large_v1_1.onnx",),
        ("bert/bert_large_v1_1_fake_quant.onnx",),
        ("bert/vocab.txt",),
    ),
    ("bert", "preprocess_data"): (
        ("squad_tokenized/input_ids.npy",),
        ("squad_tokenized/input_mask.npy",),
        ("squad_tokenized/segment_ids.npy",),
    ),
    # case_00400 is copied after all scans have been downloaded.
    ("3d-unet", "download_data"): (
        ("KiTS19/kits19/data/case_00137/imaging.nii.gz",),
        ("KiTS19/kits19/data/case_00400/imaging.nii.gz",),
        ("KiTS19/inference_cases.json",),
        ("KiTS19/calibration_cases.json",),
    ),
    ("3d-unet", "download_model"): (("3d-unet-kits19/3dUNetKiTS19.onnx",),),
    ("3d-unet", "preprocess_data"): (
        ("KiTS19/reference/preprocessed_files.pkl",),
        ("KiTS19/inference/fp32/*.npy",),
        ("KiTS19/etc/gaussian_patches.npy",),
    ),
    ("gptj", "download_data"): (("cnn-daily-mail/cnn_eval.json",),),
    # Images of NVIDIA's partners for v3.1 contain the quantised model instead.
    ("gptj", "download_model"): (
        ("GPTJ-6B/checkpoint-final/*", "GPTJ-6B/fp8-quantized-ammo/GPTJ-07142023.pth"),
    ),
    ("gptj", "preprocess_data"): (("cnn_dailymail_tokenized_gptj/input_ids_padded.npy",),),
    # Downloaded by hand; the folder was open_orca up to v4.1, and is llama2-70b in v5.x.
    ("llama2-70b", "download_data"): (
        (
            "open_orca/open_orca_gpt4_tokenized_llama.calibration_1000.pkl",
            "llama2-70b/open_orca_gpt4_tokenized_llama.calibration_1000.pkl",
        ),
    ),
    ("llama2-70b", "download_model"): (("Llama2/Llama-2-70b-chat-hf/*", "Llama2/fp8-quantized-ammo/*/*"),),
    ("llama2-70b", "preprocess_data"): (
        ("open_orca/input_ids_padded.npy", "llama2-70b/input_ids_padded.npy"),
        ("open_orca/input_lens.npy", "llama2-70b/input_lens.npy"),
    ),
}
"""Patterns by benchmark and make's target: one pattern of each line must match a non-empty file below the
target's folder of the scratch space."""


def lacking(folder: Path, benchmark: str, target: str) -> str | None:
    """Describe the missing files of a stage.

    Args:
        folder: the folder of the stage.
        benchmark: the benchmark.
        target: make's target.

    Returns:
        Empty if no file is missing; None if the benchmark is unknown.
    """
    expected = EXPECTED.get((benchmark, target))
    if expected is None:
        return None
    missing = (patterns for patterns in expected if not any(_found(folder, one) for one in patterns))
    return next(
        (
            f"below {folder}, this file is missing or incomplete: {' or '.join(patterns)}"
            for patterns in missing
        ),
        "",
    )


def _found(folder: Path, pattern: str) -> bool:
    return any(path.is_file() and path.stat().st_size for path in folder.glob(pattern))
