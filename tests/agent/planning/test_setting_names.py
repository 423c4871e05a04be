"""Remedies and errors of components name parameters as the profile and the command line do."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core.errors import ProfileError
from agent.core.secrets import Secrets
from agent.facts import Facts, LocalHost
from agent.planning.planner import Planner
from agent.planning.setting_names import SettingNames
from agent.profile import Element, Source, Variables, load_sources

FIELDS = ("require_gpu", "input_tokens_max", "hf_token", "command", "driver_version", "timeout")


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        ("give requireGpu=false, or a GPU", "give requireGpu=false, or a GPU (--set first.requireGpu=false)"),
        ("raise input_tokens_max", "raise Longest"),
        ("give input_tokens_max=9", "give Longest=9 (--parameters Longest=9)"),
        ("give one, such as command=date", "give one, such as COMMAND=date (--set first.COMMAND=date)"),
        ("set DriverVersion, or driver_version", "set driverVersion, or driverVersion"),
        ("export HF_TOKEN=…", "export HF_TOKEN=…"),
        ("give hf_token=…", "give hfToken=…"),
        ('--parameters "Longest=9"', '--parameters "Longest=9"'),
        ("see driver_version.log and /a/driver_version/b", "see driver_version.log and /a/driver_version/b"),
        ("raise timeout, or set limit", "raise Patience, or set limit"),
        ("the timeout is over", "the timeout is over"),
        ("enter the command in a shell", "enter the command in a shell"),
    ],
)
def test_a_remedy_names_what_can_be_set(remedy: str, shown: str) -> None:
    written = {"InputTokensMax": "$.Parameters.Longest", "COMMAND": "", "Timeout": "$.Parameters.Patience"}
    names = SettingNames(Element("action", "X", "actions[0]", written), FIELDS, "first")
    assert names.in_remedy(remedy) == shown


def validated(parameters: str) -> Any:
    text = f"description: d\nactions:\n- type: ExecuteCommand\n  parameters: {parameters}\n"
    profile = load_sources([Source("P", "P.yaml", text, "yaml")])
    planner = Planner(profile, Variables(), Secrets())
    planner.validate()
    return planner.preview(Facts(LocalHost()))


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("{command: x, MAXRETRIES: 1.5}", "P.yaml:4: MAXRETRIES: Input should be a valid integer"),
        ("{command: x, logFilename: ../x}", "P.yaml:4: logFilename: it must be a name below"),
        (r"{command: x, metrics: [{name: speed, regex: '(\d+', unit: s}]}",
         r"P.yaml:4: metrics[0] (speed): '(\d+' is not a regular expression"),
        (r"{command: x, metrics: [{regex: '(?P<value>.)', name: s, unit: s, relativity: down}]}",
         "metrics[0] (s).relativity: 'down' is not higher, lower or undefined"),
        ("{scenario: it}", "P.yaml:3: ExecuteCommand has no command"),
        ("{scenario: it}", "→ give one, such as command=date (--set it.command=date)"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_as_the_profile_has_it(parameters: str, told: str) -> None:
    with pytest.raises(ProfileError) as caught:
        validated(parameters)
    assert told in str(caught.value)
