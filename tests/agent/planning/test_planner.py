"""The planner: what it refuses in a profile and in what words, and the state of each component in a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import Self, TypedDict

from agent.component import registry
from agent.component.component import (
    Action,
    Component,
    ComponentParameters,
    Dependency,
    Monitor,
    MonitorContext,
    Plan,
    Step,
)
from agent.core.errors import HostError, LiftedBy, ProfileError, VcagentError
from agent.core.names import canonical
from agent.core.secrets import Secrets
from agent.facts import Facts
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.linux import DISTRIBUTION, PLATFORM, Distribution
from agent.facts.loopback import LOOPBACK
from agent.planning.groups import PlannedGroup
from agent.planning.planner import PlannedComponent, Planner, Standing, leaves
from agent.profile import (
    SWITCHED_OFF,
    Element,
    Profile,
    Source,
    Variables,
    VariableUnavailableError,
    load_sources,
)

STEP = Plan((Step("step", "a reason", lambda _: None),))
TOKEN = "hunter2-correct-horse"
HOST = Facts(
    None, {PLATFORM.name: "linux-x64", DISTRIBUTION.name: Distribution("debian", "12"), LOOPBACK.name: True}
)
VARIABLES = Variables(
    {"Platform": lambda: "linux-x64", "GpuName": lambda: None, "GpuCount": lambda: None, "Own": lambda: 3}
)


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = Field(description="Bytes.")
    share: float = Field(0.5, description="Part.")


class Place(TypedDict):
    room: int


class Settings(ComponentParameters):
    state: str = "steps"
    gpus: bool = False
    endpoint: str = ""
    count: int = 1
    even: int = 2
    api_key: str = ""
    inner: Inner | None = None
    rows: tuple[Inner, ...] = ()
    sizes: dict[str, Inner] = Field(default_factory=dict)
    place: Place | None = None

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("choose an even number")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.state == "odd":
            raise ValueError("nothing fits the state odd")
        return self


class Chosen:
    """Does as its parameters say."""

    Parameters: ClassVar[type[ComponentParameters]] = Settings
    parameters: Any

    def uses_gpus(self, facts: Facts) -> bool:
        return facts[LOOPBACK] is not None and bool(self.parameters.gpus)


class Planning(Chosen):
    """Has a plan."""

    def plan(self, facts: Facts) -> Plan:
        assert facts[PLATFORM]
        state = self.parameters.state
        if state.startswith("lacks"):
            raise HostError(state, lifted_by=LiftedBy.DRIVER if "driver" in state else None)
        if state == "unexpected":
            raise KeyError("lost")
        if state == "fails":
            raise VcagentError("it fails")
        return Plan(nothing_to_do="it is there") if state == "done" else STEP


class Installing(Planning, Dependency):
    lifts: ClassVar[frozenset[LiftedBy]] = frozenset({LiftedBy.DRIVER})


class Working(Planning, Action):
    pass


class Watching(Chosen, Monitor):
    def watch(self, context: MonitorContext) -> None:
        pass


class Both(Planning, Action, Dependency):
    pass


class Needing(Working):
    class Parameters(ComponentParameters):
        path: str = Field(description="A file.")
        bare: str
        inner: Inner | None = None


@pytest.fixture(autouse=True)
def _types(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: tuple[type[Component], ...] = (Installing, Working, Watching, Both, Needing)
    for kind in kinds:
        point = SimpleNamespace(name=kind.__name__, load=lambda kind=kind: kind)
        monkeypatch.setitem(registry._registered(), canonical(kind.__name__), point)


def profile_of(text: str) -> Profile:
    return load_sources([Source("P", "P.yaml", f"description: d\n{dedent(text)}", "yaml")])


def planner_of(text: str, secrets: Secrets | None = None) -> Planner:
    return Planner(profile_of(text), VARIABLES, secrets or Secrets())


def refusal(text: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        planner_of(text).validate()
    assert type(caught.value) is ProfileError
    return caught.value


def planned(text: str, facts: Facts = HOST, secrets: Secrets | None = None) -> PlannedComponent:
    """Return the plan of a profile's only element."""
    planner = planner_of(text, secrets)
    (element,) = planner.profile.elements()
    return planner.plan(element, facts)


def test_a_valid_profile() -> None:
    planner_of(
        """
        parameters: {many: "{Own}"}
        actions:
        - type: SequentialExecution
          parameters: {loopCount: $.Parameters.many}
          components: [{type: Working}]
        """
    ).validate()


def test_an_unknown_type_is_named_with_its_place() -> None:
    error = refusal("actions:\n- type: Workin\n")
    assert "P.yaml:3: actions[0]: type 'Workin' is not implemented" in error.message


def test_only_groups_have_components() -> None:
    error = refusal("actions:\n- type: Working\n  components: [{type: Working}]\n")
    assert error.message == "Working is not a group and takes no Components"
    assert error.where == "P.yaml:3: actions[0]"
    assert error.remedy == "groups: ParallelExecution, ParallelLoopExecution, SequentialExecution"


def test_a_reference_that_leads_nowhere_is_refused() -> None:
    assert "Nowhere" in str(refusal("actions:\n- {type: Working, parameters: {state: $.Parameters.Nowhere}}"))


def test_one_problem_is_told_alone_and_several_together() -> None:
    # A value that the host does not have yet hides no later problem.
    known_later = "- {type: Working, parameters: {count: '{GpuCount}'}}"
    group = "- {type: SequentialExecution, parameters: {loopCount: 0}, components: [{type: Working}]}"
    lines = [
        "P.yaml:4: Working has no parameter 'sate'; did you mean state?",
        "P.yaml:5: loopCount: Input should be greater than or equal to 1",
    ]
    one = refusal(f"actions:\n{known_later}\n- {{type: Working, parameters: {{sate: a}}}}\n")
    assert str(one) == lines[0]
    both = refusal(f"actions:\n{known_later[:17]}}}\n- {{type: Working, parameters: {{sate: a}}}}\n{group}\n")
    assert both.message == "the profile has 2 problems"
    assert both.details == tuple(lines)


@pytest.mark.parametrize(
    ("kind", "where", "other"),
    [
        ("Both", "monitors", "it is: dependency or action"),
        ("Working", "dependencies", "it is: action"),
        ("Watching", "actions", "it is: monitor"),
    ],
)
def test_a_type_of_another_kind_is_refused(kind: str, where: str, other: str) -> None:
    error = refusal(f"{where}:\n- type: {kind}\n")
    asked = {"monitors": "monitor", "dependencies": "dependency", "actions": "action"}[where]
    assert error.message == f"{kind} is not of kind {asked}"
    assert error.where == f"P.yaml:3: {where}[0] ({kind})"
    assert error.remedy == other


def test_the_platforms_of_a_profile_are_those_of_its_host() -> None:
    planner_of("metadata: {supportedPlatforms: linux-x64}\nactions: [{type: Working}]").check_host(HOST)
    arm = planner_of("metadata: {supportedPlatforms: linux-arm64}\nactions: [{type: Working}]")
    with pytest.raises(HostError) as caught:
        arm.check_host(HOST)
    assert caught.value.message == "P is meant for linux-arm64; this host is linux-x64"
    assert caught.value.where == "P.yaml"


NUMBER = "Input should be a valid integer, unable to parse string as an integer"
"""pydantic's words."""


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ("{count: much}", f"count: {NUMBER}"),
        ("{inner: {size: 1, shar: 2}}", "Working has no parameter 'inner.shar'; did you mean share?"),
        ("{rows: [{size: 1, sise: 3}]}", "Working has no parameter 'rows[0].sise'; did you mean size?"),
        ("{sizes: {a: {sise: 3, size: 3}}}", "Working has no parameter 'sizes.a.sise'; did you mean size?"),
        ("{inner: {}}", "Working needs the parameter 'inner.size': Bytes."),
        ("{place: {}}", "Working needs the parameter 'place.room': "),
        ("{gpus: perhaps}", "gpus: 'perhaps' is neither true nor false"),
        ("{even: 3}", "even: choose an even number"),
        ("{state: odd}", "Working: nothing fits the state odd"),
    ],
)
def test_a_wrong_parameter_is_told_in_one_line(parameters: str, line: str) -> None:
    assert str(refusal(f"actions:\n- {{type: Working, parameters: {parameters}}}")) == f"P.yaml:3: {line}"


def test_every_missing_parameter_is_named_with_its_meaning() -> None:
    error = refusal("actions:\n- {type: Needing}")
    assert error.message == "wrong parameters"
    assert error.where == "P.yaml:3: actions[0] (Needing)"
    assert error.details == (
        "P.yaml:3: Needing needs the parameter 'path': A file.",
        "P.yaml:3: Needing needs the parameter 'bare': ",
    )
    assert error.remedy is None


def test_a_value_of_the_profiles_parameters_is_told_with_the_option_that_sets_it() -> None:
    error = refusal(
        """
        parameters: {many: a, size: b, more: 3}
        actions:
        - type: Working
          parameters:
            even: $.Parameters.more
            Count: $.Parameters.many
            inner: {size: $.Parameters.size}
            rows: $.Parameters.many
        """
    )
    assert error.details == (
        f"P.yaml:8: Count: {NUMBER}",
        "P.yaml:7: even: choose an even number",
        f"P.yaml:9: inner.size: {NUMBER}",
        "P.yaml:10: rows: Input should be a valid tuple",
    )
    assert error.remedy == 'give another value: --parameters "many=…,,,more=…"'
    one = refusal("parameters: {n: a}\nactions:\n- {type: Working, parameters: {count: $.Parameters.n}}")
    assert one.message.startswith("P.yaml:4: count: ")
    assert one.remedy == 'give another value: --parameters "n=…"'
    unknown = refusal("parameters: {n: a}\nactions:\n- {type: Working, parameters: {cuont: $.Parameters.n}}")
    assert "has no parameter 'cuont'" in unknown.message
    assert unknown.remedy is None


def test_the_values_of_secret_parameters_are_masked_from_then_on() -> None:
    secrets = Secrets()
    planned(f"actions: [{{type: Working, parameters: {{apiKey: {TOKEN}}}}}]", secrets=secrets)
    assert TOKEN not in secrets.mask(f"a {TOKEN} b")


LEFT_OUT = {
    "{enabled: false}": SWITCHED_OFF,
    "{supportedPlatforms: linux-arm64}": "meant for linux-arm64; this host is linux-x64",
    "{supportedLinuxDistributions: ubuntu}": "meant for ubuntu; this host has debian",
    "{supportedPlatforms: $.Parameters.p}": "meant for linux-arm64; this host is linux-x64",
    "{supportedPlatforms: linux-arm64, state: '{GpuName}'}": "meant for linux-arm64; this host is linux-x64",
}


@pytest.mark.parametrize("parameters", LEFT_OUT)
def test_an_element_that_is_not_for_this_host_is_skipped(parameters: str) -> None:
    text = f"parameters: {{p: linux-arm64}}\nactions: [{{type: Working, parameters: {parameters}}}]"
    (element,) = profile_of(text).elements()
    assert planned(text) == PlannedComponent(element, Standing.SKIPPED, note=LEFT_OUT[parameters])


@pytest.mark.parametrize("gpus", [True, False])
def test_the_states_of_a_component(gpus: bool) -> None:  # noqa: FBT001
    def one(kind: str, state: str, facts: Facts = HOST) -> tuple[Element, PlannedComponent]:
        where = "monitors" if kind == "Watching" else "actions"
        parameters = f"{{state: {state}, gpus: {str(gpus).lower()}, endpoint: 'http://127.0.0.1:1'}}"
        text = f"{where}: [{{type: {kind}, parameters: {parameters}}}]"
        (element,) = profile_of(text).elements()
        return element, planned(text, facts)

    element, found = one("Watching", "steps")
    assert found == PlannedComponent(
        element, Standing.PLANNED, note="runs beside the actions", uses_gpus=gpus
    )
    element, found = one("Working", "steps")
    assert found == PlannedComponent(
        element, Standing.PLANNED, STEP, component=found.component, facts=HOST, uses_gpus=gpus
    )
    assert isinstance(found.component, Working)
    element, found = one("Working", "done")
    assert found == PlannedComponent(element, Standing.NOTHING_TO_DO, note="it is there", uses_gpus=gpus)
    element, found = one("Working", "lacks a GPU")
    assert isinstance(found.error, HostError)
    assert found == PlannedComponent(
        element, Standing.REFUSED, note="lacks a GPU", error=found.error, uses_gpus=gpus
    )
    down = Facts(None, {**HOST._modelled, LOOPBACK.name: False})
    element, found = one("Working", "steps", down)
    assert found == PlannedComponent(
        element, Standing.REFUSED, note=found.note, error=found.error, uses_gpus=gpus
    )
    assert isinstance(found.error, HostError)
    assert found.error.lifted_by is LiftedBy.NOTHING
    assert found.error.message == (
        "the loopback interface is down, so programs of this host do not reach each other at 127.0.0.1"
    )
    assert found.error.remedy == (
        "switch it on: ip link set lo up (in a network namespace: ip -n NAME link set lo up)"
    )


def test_a_component_whose_parameters_the_host_does_not_have_yet_is_refused() -> None:
    text = "actions: [{type: Working, parameters: {state: '{GpuName}', gpus: true}}]"
    (element,) = profile_of(text).elements()
    found = planned(text)
    assert isinstance(found.error, VariableUnavailableError)
    assert found == PlannedComponent(element, Standing.REFUSED, note=found.error.message, error=found.error)
    assert found.uses_gpus is False


def test_other_errors_end_the_planning() -> None:
    with pytest.raises(VcagentError, match=r"^P.yaml:2: it fails$"):
        planned("actions: [{type: Working, parameters: {state: fails}}]")
    with pytest.raises(VcagentError, match=r"^unexpected KeyError in planning Working: 'lost'"):
        planned("actions: [{type: Working, parameters: {state: unexpected}}]")


def test_a_bundle_is_asked_for_what_is_missing() -> None:
    bundle = Bundle(Path("/stick"), "debian-12-x64", frozenset())
    found = planned("dependencies: [{type: Installing}]", Facts(None, {**HOST._modelled, BUNDLE: bundle}))
    assert found.note == "a bundle cannot carry what Installing downloads yet"


PREVIEWED = """
dependencies:
- {type: Installing, parameters: {state: lacks all, scenario: first}}
- {type: Installing, parameters: {scenario: driver}}
- {type: Installing, parameters: {state: lacks a driver, gpus: true}}
- {type: SequentialExecution, components: [{type: Installing, parameters: {state: done}}]}
monitors:
- {type: SequentialExecution, components: [{type: Watching, parameters: {scenario: "{GpuName}"}}]}
actions:
- type: SequentialExecution
  parameters: {loopCount: 2, scenario: both}
  components:
  - type: ParallelExecution
    parameters: {scenario: inside}
    components: [{type: Working, parameters: {scenario: deep}}]
  - {type: Working, parameters: {state: lacks a driver}}
- type: SequentialExecution
  parameters: {enabled: false, loopCount: 3}
  components:
  - {type: ParallelExecution, components: [{type: Working}]}
- {type: SequentialExecution, parameters: {loopCount: "{GpuCount}"}, components: [{type: Working}]}
- {type: Working, parameters: {state: done}}
"""


def test_the_preview_has_every_component_with_its_groups_and_what_may_be_lifted() -> None:
    planner = planner_of(PREVIEWED)
    found = planner.preview(HOST)
    assert [(one.element.key, one.standing.value, one.scenario) for one in found] == [
        ("dependencies[0]", "refused", "first"),
        ("dependencies[1]", "planned", "driver"),
        ("dependencies[2]", "later", ""),
        ("dependencies[3].components[0]", "nothing to do", ""),
        ("monitors[0].components[0]", "later", ""),
        ("actions[0].components[0].components[0]", "planned", "deep"),
        ("actions[0].components[1]", "later", ""),
        ("actions[1].components[0].components[0]", "skipped", ""),
        ("actions[2].components[0]", "planned", ""),
        ("actions[3]", "nothing to do", ""),
    ]
    later = found[2]
    assert later.for_now
    assert later == PlannedComponent(
        later.element,
        Standing.LATER,
        note="planned when the dependencies are done (now: lacks a driver)",
        for_now=later.for_now,
        uses_gpus=True,
    )
    assert later.for_now.message == "lacks a driver"
    assert found[7].note == planner.skipped(planner.profile.actions[1], HOST) == found[7].note
    sequence, switched_off, unknown, _ = planner.profile.actions
    outer = PlannedGroup(sequence, 2, scenario="both")
    groups = [one.groups for one in found]
    assert groups == [
        (), (), (), (), (),
        (outer, PlannedGroup(sequence.components[0], scenario="inside")),
        (outer,),
        (PlannedGroup(switched_off), PlannedGroup(switched_off.components[0])),
        (PlannedGroup(unknown),),
        (),
    ]  # fmt: skip
    assert [one.element for one in found[:4]] == list(leaves(planner.profile.dependencies))
    first = planner.preview(HOST, only_dependencies=True)
    assert [one.element for one in first] == [one.element for one in found[:4]]


@pytest.mark.parametrize(
    ("dependency", "action", "standing"),
    [
        ("steps", "lacks a driver", Standing.LATER),
        ("steps", "lacks all", Standing.LATER),
        ("lacks all", "lacks a driver", Standing.LATER),
        ("lacks all", "lacks all", Standing.REFUSED),
        ("done", "lacks a driver", Standing.REFUSED),
        ("done", "lacks all", Standing.REFUSED),
        ("lacks all", "steps", Standing.PLANNED),
        ("steps", "done", Standing.NOTHING_TO_DO),
    ],
)
def test_a_refusal_waits_for_dependencies_that_have_work_to_do(
    dependency: str, action: str, standing: Standing
) -> None:
    planner = planner_of(
        f"dependencies: [{{type: Installing, parameters: {{state: {dependency}}}}}]\n"
        f"actions: [{{type: Working, parameters: {{state: {action}}}}}, "
        "{type: Working, parameters: {state: lacks a driver}}]"
    )
    _, found, last = planner.preview(HOST)
    assert found.standing is standing
    # An action lifts nothing, whatever its state.
    assert last.standing is (Standing.REFUSED if dependency == "done" else Standing.LATER)


def test_nothing_of_a_plan_shows_a_secret() -> None:
    mask = Secrets([TOKEN]).mask
    element = Element("action", "Working", "actions[0]")
    steps = (
        Step("run", f"for {TOKEN}", lambda _: None, f"curl -H {TOKEN}", runs_as_written=True),
        Step("call", "asked", lambda _: None, f"clone {TOKEN}"),
        Step("plain", "asked", lambda _: None, "true", runs_as_written=True),
    )
    whole = PlannedComponent(
        element,
        Standing.PLANNED,
        Plan(steps),
        note=f"note {TOKEN}",
        error=HostError(f"error {TOKEN}"),
        for_now=HostError(f"now {TOKEN}"),
        groups=(PlannedGroup(element, 2, scenario=f"group {TOKEN}"),),
        scenario=f"scenario {TOKEN}",
        uses_gpus=True,
    )
    shown = whole.masked(mask)
    warning = (
        ". Warning: its command line holds a secret, and every account can see the arguments of a program; "
        "set it in environmentVariables, and let the program read the variable"
    )
    assert shown == replace(
        whole,
        plan=Plan(
            (
                replace(steps[0], reason=mask(steps[0].reason) + warning, command=mask(steps[0].command)),
                replace(steps[1], command=mask(steps[1].command)),
                steps[2],
            )
        ),
        note=mask(whole.note),
        groups=(replace(whole.groups[0], scenario=mask(f"group {TOKEN}")),),
        scenario=mask(whole.scenario),
    )
    assert TOKEN not in f"{shown} {shown.error} {shown.for_now}"
    bare = PlannedComponent(element, Standing.NOTHING_TO_DO, note="it is there")
    assert bare.masked(mask) == bare
