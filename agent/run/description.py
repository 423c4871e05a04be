"""run.json: what was run, on which host, and how it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.core.errors import ExitCode, VcagentError
from agent.core.records import Reason, Validity, Verdict, verdict_to_json
from agent.facts import known_facts
from agent.profile import element_names, resolve_known
from agent.store.documents import RunDocument

if TYPE_CHECKING:
    from agent.core.secrets import Secrets
    from agent.facts import Facts
    from agent.profile import Profile, Variables
    from agent.run.outcome import Outcome
    from agent.run.recorder import RunContext
    from agent.store.journal import Journal, StepRow

_DETAIL_LINES = 6
_LEFT_OUT = frozenset({"installed_packages", "available_packages", "held_packages", "package_origins"})
"""Facts that are long or slow to read and of no use to readers of run.json."""


def describe(
    *,
    profile: Profile,
    variables: Variables,
    journal: Journal,
    context: RunContext,
    facts: Facts,
    secrets: Secrets,
    containers: Sequence[Mapping[str, Any]] = (),
    outcome: Outcome | None = None,
) -> dict[str, Any]:
    """Return the content of run.json: what was run, on which host, and how it ended."""
    cases = journal.cases()
    names = element_names(profile, variables)
    verdict = verdict_to_json(_verdict(cases, outcome, names) if outcome else None)
    if outcome:  # monitors' warnings count, even if there is no case to judge
        verdict["warnings"] = _warnings(cases, outcome)
    document = {
        "run_id": context.run_id,
        "experiment_id": context.experiment_id,
        "client_id": context.client_id,
        "profile": {
            "name": profile.name,
            "description": profile.description,
            "sources": [secrets.mask(source) for source in profile.sources],
            # At the end of a run, all packages that parameters refer to are installed.
            "parameters": secrets.mask_value(
                resolve_known(profile, variables) if outcome else dict(profile.parameters)
            ),
        },
        "command_line": journal.recall("command_line", []),
        "versions": journal.recall("versions", {}),
        "metadata": dict(context.metadata),
        "containers": list(containers),
        "facts": secrets.mask_value(_facts_to_json(facts)) if outcome else {},
        "start": journal.recall("started"),
        "resumed": journal.recall("resumed", []),
        "end": journal.recall("ended") if outcome else None,
        "verdict": secrets.mask_value(verdict),
        "exit_code": int(outcome.exit_code) if outcome else None,
        "exit_reason": secrets.mask(str(outcome.error)) if outcome and outcome.error else "",
        "steps": [_step(row, secrets.mask(_title(row.component, names))) for row in journal.steps()],
        "cases": cases,
    }  # fmt: skip
    return RunDocument.model_validate(document).to_json()


def _step(row: StepRow, title: str) -> dict[str, Any]:
    values = dataclasses.asdict(row) | {"title": title}
    return {**values, "status": row.status.value, "start": values.pop("started"), "end": values.pop("ended")}


def _title(component: str, names: Mapping[str, str]) -> str:
    """Return the name of an element for people, with its round and loops from the second on.

    Args:
        component: its key in the journal: ``2:actions[0]``, or ``1:actions[1]@3:actions[1].components[0]``.
        names: the names of the profile's elements by their keys.
    """
    *scopes, key = component.split(":")
    title = names.get(key, key)
    if scopes and scopes[0].isdigit():
        number = int(scopes.pop(0))
        title += f", round {number}" if number > 1 else ""
    loops = [int(scope.rpartition("@")[2]) for scope in scopes]
    return title + "".join(f", loop {number}" for number in loops if number > 1)


def _verdict(
    cases: Sequence[Mapping[str, Any]], outcome: Outcome, names: Mapping[str, str]
) -> Verdict | None:
    reasons = [
        Reason(**{**reason, "message": f"{case['scenario']}: {reason['message']}"})
        for case in cases
        for reason in case["reasons"]
    ]
    failures = outcome.failures
    if outcome.error and outcome.error not in [error for _, error in failures]:
        failures = [*failures, ("", outcome.error)]
    reasons += [_reason_of(_title(key, names), error) for key, error in failures]
    judged = {case["validity"] for case in cases} - {None}
    if outcome.exit_code is ExitCode.INTERRUPTED:
        return None
    if outcome.exit_code is ExitCode.OK:
        if not judged:
            return None
        validity = Validity.VALID if "VALID" in judged else Validity.NOT_APPLICABLE
    elif outcome.exit_code is ExitCode.RESULT_INVALID:
        validity = Validity.INVALID
    else:
        validity = Validity.FAILED
    return Verdict(validity, tuple(reasons))


def _warnings(cases: Sequence[Mapping[str, Any]], outcome: Outcome) -> list[str]:
    of_cases = (f"{case['scenario']}: {text}" for case in cases for text in case["warnings"])
    return [*outcome.warnings, *of_cases]


def _reason_of(title: str, error: VcagentError) -> Reason:
    """Return an error as a reason: its message with the last lines of output, and its remedy."""
    lines = [f"{title}: {error.message}" if title else error.message, *error.details[-_DETAIL_LINES:]]
    return Reason("\n".join(lines), error.remedy or "")


def _facts_to_json(facts: Facts) -> dict[str, Any]:
    values = {}
    for name, fact in known_facts().items():
        if name in _LEFT_OUT:
            continue
        try:
            value = facts[fact]
        except VcagentError:
            continue
        if value is not None:
            values[name] = to_json(value)
    return values


def to_json(value: Any) -> Any:
    """Return a fact's value as JSON: data classes become objects, paths become text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(to_json, value))
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
