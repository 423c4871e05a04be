"""Options that several commands share, and the request they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli.completion import complete_profiles, complete_runs, complete_scenarios

if TYPE_CHECKING:
    from agent.run.request import RunRequest

Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        "-p",
        help="A profile: name, path or http(s) URI; several are merged.",
        show_default=False,
        autocompletion=complete_profiles,
    ),
]
ProfileArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROFILE",
        help="Profiles, as --profile takes them.",
        show_default=False,
        autocompletion=complete_profiles,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameters", "--pm", help='Override parameters: "A=1,,,B=2" (or by , or ;).', show_default=False
    ),
]
Samples = Annotated[
    int | None,
    typer.Option("--samples", min=1, help="The same as --parameters Samples=N.", show_default=False),
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", "--mt", help='Context for every record: "A=1,,,B=2".', show_default=False),
]
Scenarios = Annotated[
    str,
    typer.Option(
        "--scenarios",
        help="Run only these scenarios (a,b), or all except some (-c).",
        show_default=False,
        autocompletion=complete_scenarios,
    ),
]
OnlyDependencies = Annotated[
    bool, typer.Option("--dependencies", "-d", help="Run the dependencies and no action.")
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout",
        "-t",
        help="Repeat the actions for this time (minutes or hh:mm:ss), then stop at once; "
        "with ,deterministic after the current action, "
        "with ,deterministic* after the current round. With never, repeat them until you stop the run.",
        show_default=False,
    ),
]
FailFast = Annotated[bool, typer.Option("--fail-fast", "-f", help="End at the first failed action.")]
KeepServing = Annotated[
    bool,
    typer.Option("--keep-serving", help="Leave the last server running; vcagent runs shows its address."),
]
ExperimentId = Annotated[
    str, typer.Option("--experiment-id", help="An id that several runs share.", show_default="new")
]
Sinks = Annotated[
    list[str] | None,
    typer.Option(
        "--sink",
        help="Also send records to this sink: NAME or NAME:settings; repeatable.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ResultsDir = Annotated[Path, typer.Option("--results-dir", "--log-dir", help="The folder of all runs.")]
PackageDir = Annotated[
    Path | None,
    typer.Option("--package-dir", help="The folder of environments and downloads.", show_default=False),
]
BundleFolder = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        help="Take all downloads from this folder, which vcagent bundle --profile made; use no network.",
        show_default=False,
    ),
]
IndexDir = Annotated[
    Path | None,
    typer.Option(
        "--index-dir",
        help="The folder of the index of records; it can be deleted.",
        show_default="a folder of the cache",
    ),
]
AllowReboot = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Answer yes to every question: reboot this host if a dependency needs it, then continue; clean.",
    ),
]
Arm = Annotated[
    bool,
    typer.Option(
        "--arm", help="Continue the run after you have rebooted the host; with --yes vcagent reboots it."
    ),
]
Clean = Annotated[
    str,
    typer.Option(
        "--clean",
        help="First remove logs, packages, state, temp or all (without a value: all); asks unless --yes.",
        show_default=False,
    ),
]
Run = Annotated[
    str | None,
    typer.Argument(
        help="Id of the run, the beginning of the id, or the run's folder.",
        show_default="the latest",
        autocompletion=complete_runs,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Iterations = Annotated[
    int | None,
    typer.Option("--iterations", "-i", min=1, help="Number of times to run all actions.", show_default="1"),
]
ClientId = Annotated[
    str,
    typer.Option("--client-id", "--agent-id", help="This host's name in records.", show_default="host name"),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Set any parameter of any element: scenario.parameter=value.", show_default=False
    ),
]
RunId = Annotated[
    str,
    typer.Option(
        "--run-id", help="Name of the run and of its folder in results; must be new.", show_default="new"
    ),
]
System = Annotated[
    str,
    typer.Option(
        "--system", "-s", help="Name of the system that starts the run, for the records.", show_default=False
    ),
]
LogLevel = Annotated[
    str,
    typer.Option("--log-level", "--ll", help="Level of logs/vcagent.jsonl: debug to critical, or 0 to 5."),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show reasons, commands and the output of steps.")
]


def named_profiles(arguments: list[str] | None, options: list[str] | None) -> list[str]:
    """Return the profiles that a command line names, as arguments or with ``--profile``.

    Raises:
        UsageError: if none is named.
    """
    from agent.core.errors import UsageError

    named = [*(arguments or ()), *(options or ())]
    if not named:
        raise UsageError("no profile is named", remedy="name one that vcagent profiles lists, or a file")
    return named


def pairs(texts: list[str] | None) -> dict[str, str]:
    """Return the names and values of a repeatable option; the last of one name counts.

    Raises:
        UsageError: if one is not written name=value.
    """
    from agent.profile import parse_parameters

    return {name: value for text in texts or [] for name, value in parse_parameters(text).items()}


def request_of(
    profile: list[str],
    parameters: list[str] | None = None,
    metadata: list[str] | None = None,
    *,
    samples: int | None = None,
    settings: list[str] | None = None,
    log_level: str = "debug",
    **others: object,
) -> RunRequest:
    """Return the request for the options.

    Raises:
        UsageError: if parameters, metadata or settings are not written as they should be.
    """
    from agent.core.logs import parse_level
    from agent.run.request import RunRequest

    if samples is not None:
        parameters = [*(parameters or ()), f"Samples={samples}"]
    return RunRequest(
        tuple(profile),
        pairs(parameters),
        pairs(metadata),
        log_level=parse_level(log_level),
        settings=settings_of(settings),
        **others,  # type: ignore[arg-type]
    )


def settings_of(texts: list[str] | None) -> dict[str, str]:
    """Read ``--set``: each is one value, whatever signs it has.

    Raises:
        UsageError: if one is not written scenario.parameter=value.
    """
    from agent.core.errors import UsageError

    settings = {}
    for text in texts or []:
        place, equals, value = text.partition("=")
        if not equals or "." not in place:
            raise UsageError(
                "--set is not written scenario.parameter=value", remedy="such as --set bert.configVer=default"
            )
        settings[place.strip()] = value.strip()
    return settings
