"""``vcagent show``: a profile as it will be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.cli.options import (
    AsJson,
    PackageDir,
    Parameters,
    ProfileArguments,
    Profiles,
    Settings,
    named_profiles,
    pairs,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.core.secrets import Secrets
    from agent.profile import Profile, Variables


def show(
    profiles: ProfileArguments = None,
    profile: Profiles = None,
    parameters: Parameters = None,
    settings: Settings = None,
    package_dir: PackageDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a profile as it will be used on this host: its parameters and its elements, resolved.

    Each parameter has its description and, if another value is in use, its default.
    """
    from agent.core.secrets import Secrets
    from agent.facts import Facts, LocalHost
    from agent.facts.agent_paths import PACKAGE_DIR
    from agent.planning.variables import run_variables
    from agent.profile import find, load_sources, set_parameters

    sources = [find(name) for name in named_profiles(profiles, profile)]
    defaults = load_sources(sources).parameters
    loaded = load_sources(sources, overrides=pairs(parameters))
    secrets = Secrets(mappings=[loaded.parameters, defaults], environment=os.environ)
    facts = Facts(LocalHost(), {PACKAGE_DIR.name: package_dir.absolute()} if package_dir else {})
    variables = run_variables(facts, Path("results") / "RUN", "new", "this host")
    loaded = set_parameters(loaded, settings_of(settings), variables)
    values = _values(loaded, defaults, variables, secrets)
    descriptions = {
        name: text for source in reversed(sources) for name, text in source.parameter_descriptions().items()
    }
    for details in values["parameter_details"]:
        details["description"] = descriptions.get(details["name"], "")
    values = secrets.mask_value(values)
    if as_json:
        from agent.cli.output import print_document
        from agent.store.command_documents import ShowDocument

        print_document(ShowDocument, values)
        return
    _print(values)


def _values(
    loaded: Profile, defaults: Mapping[str, Any], variables: Variables, secrets: Secrets
) -> dict[str, Any]:
    """Return what is shown of a profile.

    Args:
        loaded: the profile with the command line's parameters.
        defaults: its parameters without them.
        variables: this host's variables.
        secrets: receives the resolved values of parameters with secret names.
    """
    from agent.component.registry import unknown_types
    from agent.core.errors import ProfileError
    from agent.planning.groups import is_group
    from agent.profile import Element, repeat, resolve, resolve_known
    from agent.run.description import to_json

    def element(value: Element) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": value.type, "line": value.location.line}
        if not is_group(value) and unknown_types([(value.type, "")]):
            shown["not_implemented"] = True
        parameters = value.parameters
        try:
            parameters = resolve(value, loaded, variables) or parameters
        except ProfileError:
            shown["unresolved"] = True
        secrets.add_from(parameters)
        if parameters:
            shown["parameters"] = to_json(parameters)
        if value.components:
            shown["components"] = [element(child) for child in value.components]
        return shown

    try:
        loaded = repeat(loaded, variables)
    except ProfileError as error:
        if "ForEach" not in str(error):
            raise
    in_use = to_json(resolve_known(loaded, variables))
    secrets.add_from(in_use)
    return {
        "name": loaded.name,
        "description": loaded.description,
        "source": loaded.sources[0],
        "metadata": to_json(loaded.metadata),
        "parameters": in_use,
        "parameter_details": [
            {"name": name, "value": value, "default": to_json(defaults.get(name))}
            for name, value in in_use.items()
        ],
        "dependencies": [element(value) for value in loaded.dependencies],
        "monitors": [element(value) for value in loaded.monitors],
        "actions": [element(value) for value in loaded.actions],
    }


def _print(values: dict[str, Any]) -> None:
    """Print a profile as YAML, with descriptions and defaults as comments."""
    import shutil
    import sys

    from agent.cli.output import say

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 4000
    for name in ("name", "description", "source", "metadata"):
        if values[name]:
            say(_yaml({name: values[name]}, width), end="")
    if values["parameter_details"]:
        say("parameters:")
    _print_parameters(values["parameter_details"], width)
    for name in ("dependencies", "monitors", "actions"):
        if values[name]:
            say(_yaml({name: values[name]}, width), end="")


def _print_parameters(details: list[dict[str, Any]], width: int) -> None:
    import textwrap

    from agent.cli.output import say

    described = ""
    for one in details:
        comments = []
        if one["description"] and one["description"] != described:
            described = one["description"]
            comments.append(described)
        if one["value"] != one["default"]:
            comments.append(" ".join(_yaml({"default": one["default"]}, 4000).split()))
        for comment in comments:
            for line in textwrap.wrap(comment, max(20, width - 4), break_long_words=False):
                say(f"  # {line}")
        say(textwrap.indent(_yaml({one["name"]: one["value"]}, width - 2), "  "), end="")


def _yaml(value: dict[str, Any], width: int) -> str:
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=width))
