"""Read the harness's configuration: one JSON file, validated on reading."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from .tuning import Tuning

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")
SERVER_SCENARIOS = ("Server", "Interactive")
MODES = ("performance", "accuracy")
_LEAST = {"performance_sample_count": 1, "max_output_tokens": 1, "warmup_samples": 0, "sample_timeout_s": 0.1}


@dataclass(frozen=True)
class HarnessConfig:
    """One LoadGen test.

    Args:
        scenario: one of SCENARIOS; Interactive is LoadGen's Server scenario with interactive limits.
        mode: performance or accuracy.
        model: the model's name in LoadGen's configuration (``llama3_1-8b``), or a new name that has limits
            in ``settings``. A name with a dot matches nothing in LoadGen and is refused.
        output_dir: folder for LoadGen's logs, ``samples.csv`` and ``harness_result.json``.
        dataset: JSON lines with ``prompt`` (text) or ``token_ids``, one sample per line (``dataset``).
        backend: ``type`` (a module of ``backends``) and the backend's settings.
        settings: LoadGen settings for this scenario by their user.conf names and units, such as
            ``target_qps`` (queries/s), ``min_duration`` (ms), ``min_query_count``, ``ttft_latency`` (ms),
            ``tpot_latency`` (ms), ``target_latency`` (ms).
        user_conf: a user.conf whose lines override ``settings``. In Interactive the lines
            of the base model (``llama3_1-8b``) apply too, unless there are lines for its interactive name. A
            file without a line for this test is refused.
        performance_sample_count: number of samples LoadGen may keep loaded; None for the whole data set.
        max_output_tokens: output tokens per sample.
        warmup_samples: uncounted samples sent before the timed part, through the same backend.
        load_share: if set, ``target_qps`` is this share (0 to 1) of the rate that the warm-up reached
            with all of its samples in flight; in SingleStream the latency, in Offline the expected rate,
            whose share may be up to 2 so that the test does not end early.
        tuning: if set, short trials search for ``target_qps`` of a Server or Interactive performance test
            (``harness.tuning.Tuning``), and the full-length test runs at the rate found.
        sample_timeout_s: time limit for a single sample, in seconds; for backends that hold many
            samples at once also the time limit without any progress.
        record_samples: True to write ``samples.csv``; False only to measure the harness itself.
        audit_config: LoadGen's audit configuration for a compliance test, such as TEST06's. Without it none
            is read, not even an ``audit.config`` in the working directory.
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
    tuning: Tuning | None = None
    sample_timeout_s: float = 300.0
    record_samples: bool = True
    audit_config: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that LoadGen would silently misread."""
        if self.scenario not in SCENARIOS:
            raise ValueError(f"scenario {self.scenario!r} is none of {', '.join(SCENARIOS)}")
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is none of {', '.join(MODES)}")
        if "." in self.model:
            raise ValueError(
                f"model {self.model!r} has a dot, which LoadGen's configuration cannot match: "
                f"it would get default limits; write {self.model.replace('.', '_')!r}"
            )
        if not isinstance(self.backend, dict) or not isinstance(self.backend.get("type"), str):
            raise ValueError(f"backend is {self.backend!r}; it needs a type, such as openai")  # noqa: TRY004
        most = 2 if self.scenario == "Offline" else 1
        if self.load_share is not None and not 0 < self.load_share <= most:
            raise ValueError(
                f"load_share is {self.load_share}; it is a share of the measured rate, 0 to {most}"
            )
        if self.tuning is not None and (self.mode != "performance" or self.scenario not in SERVER_SCENARIOS):
            raise ValueError(f"tuning is for performance in {' and '.join(SERVER_SCENARIOS)}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; the least is {least}")

    @classmethod
    def read(cls, path: Path) -> HarnessConfig:
        """Read a configuration file.

        Raises:
            ValueError: if the file cannot be read or a key is unknown, missing or of a wrong value.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path} is not a JSON object")  # noqa: TRY004
        names = [known.name for known in fields(cls)]
        for key in values:
            if key not in names:
                near = get_close_matches(key, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{path}: {key!r} is unknown{hint}")
        try:
            tuning = values.pop("tuning", None)
            return cls(**values, tuning=None if tuning is None else Tuning(**tuning))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
