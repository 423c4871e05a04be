"""What the command line asks for, as a value that the journal can keep."""

from __future__ import annotations

import dataclasses
import hashlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError, UsageError
from agent.core.names import canonical
from agent.core.secrets import MASK
from agent.profile import Source, find

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class RunRequest:
    """What the command line asks for.

    Args:
        profiles: names, paths or URIs; several are merged in order.
        parameters: overrides of the profile's parameters.
        metadata: what every record carries besides.
        scenarios: which elements to run: ``a,-b``.
        only_dependencies: whether to prepare the host and stop.
        iterations: rounds of all actions.
        timeout: as ``--timeout`` takes it.
        fail_fast: whether the first failed action ends the run.
        keep_serving: whether the last server of the actions stays when the run has ended.
        results_dir: the folder of all runs.
        package_dir: where environments and downloads are kept; None for the default.
        experiment_id: groups runs; made up if empty.
        client_id: this host's name in the records; the host name if empty.
        allow_reboot: whether the host may be rebooted where a dependency asks for it.
        arm: whether the run goes on by itself after a reboot that is left to the user.
        run_id: the run's name; made up if empty.
        system: the system that started the run, as the records have it (VirtualClient's ExecutionSystem).
        log_level: the least important events that the agent's own log has.
        settings: parameters of single elements, by ``scenario.parameter``.
        sinks: destinations of records besides the run's folder: ``NAME`` or ``NAME:settings``.
    """

    profiles: tuple[str, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    scenarios: str = ""
    only_dependencies: bool = False
    iterations: int | None = None
    timeout: str = ""
    fail_fast: bool = False
    keep_serving: bool = False
    results_dir: Path = Path("results")
    package_dir: Path | None = None
    experiment_id: str = ""
    client_id: str = ""
    allow_reboot: bool = False
    arm: bool = False
    run_id: str = ""
    system: str = ""
    log_level: str = "debug"
    settings: Mapping[str, str] = field(default_factory=dict)
    sinks: tuple[str, ...] = ()

    def client(self) -> str:
        """This host's name in the records."""
        return self.client_id or socket.gethostname()

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can carry; paths absolute, so that a resume may start anywhere."""
        values = dataclasses.asdict(self)
        values["profiles"] = [
            str(Path(reference).absolute()) if Path(reference).is_file() else reference
            for reference in self.profiles
        ]
        values["results_dir"] = str(self.results_dir.absolute())
        values["package_dir"] = str(self.package_dir.absolute()) if self.package_dir else None
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any], parameters: Mapping[str, str]) -> RunRequest:
        """The inverse of ``to_json``; ``parameters`` replace those that were not kept, being secret.

        Raises:
            UsageError: if one that was not kept is not given again.
        """
        missing = [
            name
            for name, value in values["parameters"].items()
            if MASK in str(value) and canonical(name) not in map(canonical, parameters)
        ]
        if missing:
            raise UsageError(
                f"the run was started with {', '.join(missing)}, which is secret and was not kept",
                remedy=f'give it again: vcagent resume --parameters "{missing[0]}=…"',
            )
        given = set(map(canonical, parameters))
        kept = {name: value for name, value in values["parameters"].items() if canonical(name) not in given}
        return cls(
            **{
                **values,
                "profiles": tuple(values["profiles"]),
                "sinks": tuple(values.get("sinks", ())),
                "results_dir": Path(values["results_dir"]),
                "package_dir": Path(values["package_dir"]) if values["package_dir"] else None,
                "parameters": {**kept, **parameters},
            }
        )


def keep_sources(sources: Sequence[Source], mask: Callable[[str], str]) -> list[dict[str, str]]:
    """The texts of a run's profiles as the journal keeps them: secrets masked, with the whole text's hash."""
    return [
        {**dataclasses.asdict(source), "text": mask(source.text), "sha256": _sha256(source.text)}
        for source in sources
    ]


def kept_sources(kept: Sequence[Mapping[str, str]], references: Sequence[str]) -> list[Source]:
    """The profiles of a run as they were when it began.

    A profile that holds a secret was not kept whole; it is read again from where it came.

    Raises:
        ProfileError: if such a profile has changed or is gone.
    """
    sources = []
    for values, reference in zip(kept, references, strict=True):
        source = Source(values["name"], values["label"], values["text"], values["format"])
        if _sha256(source.text) != values["sha256"]:
            source = find(reference)
            if _sha256(source.text) != values["sha256"]:
                raise ProfileError(
                    "the profile has changed since the run began, and was not kept because it holds a secret",
                    where=values["label"],
                    remedy="restore it, or start it anew",
                )
        sources.append(source)
    return sources


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
