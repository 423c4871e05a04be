"""What the harness is asked to do: one JSON file, checked when it is read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["MODES", "SCENARIOS", "HarnessConfig"]

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")
MODES = ("performance", "accuracy")


@dataclass(frozen=True)
class HarnessConfig:
    """One LoadGen test.

    Args:
        scenario: one of SCENARIOS; Interactive is LoadGen's Server with the interactive limits.
        mode: performance or accuracy.
        model: the model's name as LoadGen's configuration spells it (``llama3_1-8b``), or a new name that
            ``settings`` gives limits for. A dotted name matches nothing in LoadGen and is refused.
        output_dir: where LoadGen's logs, ``samples.csv`` and ``harness_result.json`` go.
        dataset: JSON lines with ``prompt`` (text) or ``token_ids``, one sample a line.
        backend: ``type`` (a module of ``backends``) and its own settings.
        settings: LoadGen settings for this scenario by their user.conf names and units, such as
            ``target_qps`` (queries/s), ``min_duration`` (ms), ``min_query_count``, ``ttft_latency`` (ms),
            ``tpot_latency`` (ms), ``target_latency`` (ms).
        user_conf: a user.conf whose lines come after ``settings`` and win over them.
        performance_sample_count: samples LoadGen may keep loaded; all of the data set if None.
        max_output_tokens: output tokens per sample.
        warmup_samples: samples sent before the timed part, by the same path, not counted.
        load_share: where given, ``target_qps`` is this share (0 to 1) of the rate that the warm-up reached
            with all of its samples in flight; for Offline the expected rate, for SingleStream the latency.
        sample_timeout_s: seconds a single sample may take before the run fails.
    """

    scenario: str
    mode: str
    model: str
    output_dir: str
    dataset: str
    backend: dict[str, Any]
    settings: dict[str, float | int | str] = field(default_factory=dict)
    user_conf: str | None = None
    performance_sample_count: int | None = None
    max_output_tokens: int = 128
    warmup_samples: int = 8
    load_share: float | None = None
    sample_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what LoadGen would silently take for something else."""
        if self.scenario not in SCENARIOS:
            raise ValueError(f"scenario {self.scenario!r} is none of {', '.join(SCENARIOS)}")
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is none of {', '.join(MODES)}")
        if "." in self.model:
            raise ValueError(
                f"model {self.model!r} has a dot, which LoadGen's configuration cannot match: "
                f"it would get default limits; write {self.model.replace('.', '_')!r}"
            )

    @classmethod
    def read(cls, path: Path) -> HarnessConfig:
        """Read a configuration file.

        Raises:
            ValueError: if a key is unknown, missing or of a wrong value.
        """
        values = json.loads(path.read_text(encoding="utf-8"))
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"{path}: {error}") from error
