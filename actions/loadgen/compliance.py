"""Run MLPerf's compliance tests of language models: short performance runs whose answers are verified."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.loadgen.eos_tokens import eos_in, known_eos
from agent.core.errors import ActionFailedError, ParseError
from agent.core.records import Reason
from agent.core.safe_files import replace_text
from parsers.mlperf_test06 import Verification, verify_test06

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from actions.loadgen.parameters import LoadGenParameters

AUDIT_NAME = "audit.config"
VERIFIED_NAME = "verify_accuracy.txt"
AUDIT_SETTINGS = {
    "TEST06": {
        "mode": 2,
        "accuracy_log_rng_seed": 720381539243781796,
        "accuracy_log_sampling_target": 100,
        "min_query_count": 100,
        "min_duration": 0,
        "sample_concatenate_permutation": 0,
    }
}
"""Settings of each test, which override the run's (mlcommons/inference, compliance/TEST06/audit.config)."""
COMPLIANCE_TESTS = tuple(AUDIT_SETTINGS)


def eos_token_ids(asked: LoadGenParameters) -> Collection[int]:
    """Return the end-of-text tokens: the parameter's, those of the model's folder, or the benchmark's.

    Raises:
        ActionFailedError: if none is known.
    """
    folder = Path(asked.vllm.model) if asked.vllm else None
    found = asked.eos_token_ids or (eos_in(folder) if folder else ()) or known_eos(asked.model)
    if not found:
        raise ActionFailedError(
            f"{asked.mode} cannot be verified: the end-of-text tokens of {asked.model} are unknown",
            remedy="set eosTokenIds, such as 128009; they are in the model's generation_config.json",
        )
    return found


def write_audit_config(test: str, case_dir: Path) -> Path:
    """Write the test's audit configuration for LoadGen, and return its path."""
    path = case_dir / AUDIT_NAME
    lines = [f"*.*.{name} = {value}\n" for name, value in AUDIT_SETTINGS[test].items()]
    replace_text(path, f"# MLPerf {test}: LoadGen overrides the test's settings by these.\n{''.join(lines)}")
    return path


@dataclass(frozen=True)
class Verified:
    """Outcome of a compliance test.

    Args:
        test: its name, such as ``TEST06``.
        outcome: the checks; None if the log could not be verified.
        problem: the reason why not.
    """

    test: str
    outcome: Verification | None = None
    problem: Reason | None = None

    def reasons(self) -> Iterator[Reason]:
        """Yield the checks that failed."""
        if self.outcome is None:
            if self.problem is not None:
                yield self.problem
            return
        checks = (
            (self.outcome.samples > 0, "LoadGen logged no answer", "see its detail log"),
            (self.outcome.first_token is not False, "a reported first token is not the answer's first",
             "report each answer's first token as soon as it is there, and no other token"),
            (self.outcome.eos, "an answer ends with more than one end-of-text token",
             "end an answer at its first end-of-text token: ignore_eos pads answers"),
            (self.outcome.sample_length, "an answer has another number of tokens than was counted",
             "count exactly the tokens that are returned"),
        )  # fmt: skip
        for has_passed, text, remedy in checks:
            if not has_passed:
                yield Reason(f"{self.test}: {text}", remedy, code="compliance")

    def details(self) -> dict[str, Any]:
        """Return the checks as details of the case."""
        if self.outcome is None:
            return {}
        first = self.outcome.first_token
        return {
            "compliance_samples": self.outcome.samples,
            "compliance_first_token": "skipped" if first is None else first,
            "compliance_eos": self.outcome.eos,
            "compliance_sample_length": self.outcome.sample_length,
        }


def verify(asked: LoadGenParameters, case_dir: Path) -> Verified:
    """Verify a compliance run, and write the outcome as the official script does."""
    try:
        outcome = verify_test06(
            case_dir / "mlperf_log_accuracy.json",
            eos_token_ids(asked),
            first_tokens=asked.loadgen_scenario != "Offline",
        )
    except ParseError as error:
        reason = Reason(f"{asked.mode}: {error.message}", error.remedy or "", code="compliance")
        return Verified(asked.mode, problem=reason)
    replace_text(case_dir / VERIFIED_NAME, outcome.text())
    return Verified(asked.mode, outcome)
