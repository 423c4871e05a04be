"""The request of a run: the command line's options as a value that the journal can store."""

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
    """The options of a run, as given on the command line.

    Args:
        profiles: names, paths or URIs; several are merged in order.
        parameters: overrides of the profile's parameters.
        metadata: additional metadata of every record.
        scenarios: the elements to run, such as ``a,-b``.
        only_dependencies: whether to prepare the host and stop.
        iterations: rounds of all actions.
        timeout: the text of ``--timeout``.
        fail_fast: whether the first failed action ends the run.
        keep_serving: whether the last server of the actions keeps running after the run.
        results_dir: the folder of all runs.
        package_dir: where environments and downloads are kept; None for the default.
        experiment_id: groups runs; generated if empty.
        client_id: this host's name in the records; the host name if empty.
        allow_reboot: whether the host may be rebooted if a dependency asks for it.
        arm: whether the run resumes by itself after a reboot that is left to the user.
        run_id: the run's name; generated if empty.
        system: the system that started the run, as the records name it (VirtualClient's ExecutionSystem).
        log_level: the lowest level of events that the agent's own log contains.
        settings: parameters of single elements, by ``scenario.parameter``.
        sinks: destinations of records in addition to the run's folder: ``NAME`` or ``NAME:settings``.
        bundle: the folder of a bundle, from which everything comes that steps download; None for the network.
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
    bundle: Path | None = None

    def client(self) -> str:
        """Return this host's name in the records."""
        return self.client_id or socket.gethostname()

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON supports, with absolute paths, so that a resume may start in any folder."""
        values = dataclasses.asdict(self)
        values["profiles"] = [
            str(Path(reference).absolute()) if Path(reference).is_file() else reference
            for reference in self.profiles
        ]
        values["results_dir"] = str(self.results_dir.absolute())
        values["package_dir"] = str(self.package_dir.absolute()) if self.package_dir else None
        values["bundle"] = str(self.bundle.absolute()) if self.bundle else None
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any], parameters: Mapping[str, str]) -> RunRequest:
        """Return the request that ``to_json`` stored; ``parameters`` supplies the secrets, which it did not.

        Raises:
            UsageError: if a secret parameter is missing in ``parameters``.
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
                "bundle": Path(values["bundle"]) if values.get("bundle") else None,
                "parameters": {**kept, **parameters},
            }
        )


def keep_sources(sources: Sequence[Source], mask: Callable[[str], str]) -> list[dict[str, str]]:
    """Return a run's profiles as the journal stores them: the texts with secrets masked, and their hashes."""
    return [
        {**dataclasses.asdict(source), "text": mask(source.text), "sha256": _sha256(source.text)}
        for source in sources
    ]


def kept_sources(kept: Sequence[Mapping[str, str]], references: Sequence[str]) -> list[Source]:
    """Return the profiles of a run as they were when it began.

    A profile that holds a secret was not stored completely; it is read again from its source.

    Raises:
        ProfileError: if such a profile has changed or no longer exists.
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
                    remedy="restore it, or start the profile again",
                )
        sources.append(source)
    return sources


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
