"""``vcagent show``: a profile as it will be used."""

from __future__ import annotations

from typing import Any

from agent.cli.options import AsJson, Parameters, Settings, pairs, settings_of


def show(
    profile: str, parameters: Parameters = None, settings: Settings = None, as_json: AsJson = False
) -> None:
    """Show a profile: what it is for, its parameters, and its elements in order."""
    from agent.component.registry import unknown_types
    from agent.core.secrets import Secrets
    from agent.planning.groups import is_group
    from agent.profile import Element, find, load_sources, set_parameters
    from agent.run.description import to_json

    loaded = load_sources([find(profile)], overrides=pairs(parameters))
    loaded = set_parameters(loaded, settings_of(settings))
    secrets = Secrets(mappings=[loaded.parameters])

    def element(value: Element) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": value.type, "line": value.location.line}
        if not is_group(value) and unknown_types([(value.type, "")]):
            shown["not_implemented"] = True
        if value.parameters:
            shown["parameters"] = to_json(value.parameters)
        if value.components:
            shown["components"] = [element(child) for child in value.components]
        return shown

    values = secrets.mask_value(
        {
            "name": loaded.name,
            "description": loaded.description,
            "source": loaded.sources[0],
            "metadata": to_json(loaded.metadata),
            "parameters": to_json(loaded.parameters),
            "dependencies": [element(value) for value in loaded.dependencies],
            "monitors": [element(value) for value in loaded.monitors],
            "actions": [element(value) for value in loaded.actions],
        }
    )
    if as_json:
        from agent.cli.output import print_json

        print_json(values)
        return
    import yaml
    from rich.syntax import Syntax

    from agent.core.terminal import safe_console

    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)
    safe_console().print(Syntax(text, "yaml", background_color="default"))
