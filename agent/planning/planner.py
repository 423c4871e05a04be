"""Turns a profile's elements into components and their plans; nothing here changes the host."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from agent.component.component import Action, Component, ComponentParameters, Dependency, Monitor, Plan, Step
from agent.component.downloads import lacking
from agent.component.registry import component_class, unknown_types
from agent.core.errors import HostError, LiftedBy, ProfileError, VcagentError, unexpected
from agent.core.names import canonical, did_you_mean
from agent.facts.bundle import bundle_of
from agent.facts.linux import DISTRIBUTION, PLATFORM
from agent.facts.loopback import LOOPBACK
from agent.planning.groups import GroupParameters, PlannedGroup, is_group
from agent.planning.setting_names import SettingNames
from agent.profile import (
    GROUPS,
    Element,
    Profile,
    Variables,
    VariableUnavailableError,
    applies_to,
    check,
    resolve,
    scenario_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo

    from agent.core.secrets import Secrets
    from agent.facts import Facts

ParametersT = TypeVar("ParametersT", bound=ComponentParameters)

_CLASS_OF_KIND: dict[str, type[Component]] = {"dependency": Dependency, "action": Action, "monitor": Monitor}


class Standing(str, Enum):
    """State of a component in a plan."""

    PLANNED = "planned"
    NOTHING_TO_DO = "nothing to do"
    SKIPPED = "skipped"
    REFUSED = "refused"
    LATER = "later"


@dataclass(frozen=True)
class PlannedComponent:
    """A component with its current plan, or the reason for having none.

    Args:
        element: the element of the profile.
        standing: its state.
        plan: its steps, if any.
        note: why there is nothing to do, why it is skipped or refused, or the missing condition.
        error: the refusal.
        component: the component that made the plan.
        facts: the facts used.
        for_now: why it cannot be planned yet, if it is planned later.
        groups: the groups around it, the outermost first; those of dependencies have no effect.
        scenario: its scenario; empty if it has none.
        uses_gpus: True if it needs GPUs.
    """

    element: Element
    standing: Standing
    plan: Plan | None = None
    note: str = ""
    error: VcagentError | None = None
    component: Component | None = None
    facts: Facts | None = None
    for_now: VcagentError | None = None
    groups: tuple[PlannedGroup, ...] = ()
    scenario: str = ""
    uses_gpus: bool = False

    @property
    def repeats(self) -> int:
        """The number of times that its groups run it in one round, at least."""
        return prod(group.loops for group in self.groups)

    def masked(self, mask: Callable[[str], str]) -> PlannedComponent:
        """Return the same without secrets, safe to show."""
        for error in filter(None, (self.error, self.for_now)):
            error.masked(mask)
        steps = [
            replace(step, reason=mask(step.reason) + _shown_secret(step, mask), command=mask(step.command))
            for step in (self.plan.steps if self.plan else ())
        ]
        plan = self.plan and replace(self.plan, steps=tuple(steps))
        groups = tuple(replace(group, scenario=mask(group.scenario)) for group in self.groups)
        return replace(self, note=mask(self.note), plan=plan, groups=groups, scenario=mask(self.scenario))


def _shown_secret(step: Step, mask: Callable[[str], str]) -> str:
    """Return a warning if other accounts can see a secret in the process list during a step, or ""."""
    if not step.runs_as_written or mask(step.command) == step.command:
        return ""
    return (
        ". Warning: its command line holds a secret, and every account can see the arguments of a program; "
        "set it in environmentVariables, and let the program read the variable"
    )


def leaves(elements: tuple[Element, ...]) -> Iterator[Element]:
    """Yield all elements that do something themselves, those inside groups included, in order."""
    for element in elements:
        if is_group(element):
            yield from leaves(element.components)
        else:
            yield element


class Planner:
    """Builds and plans the components of one profile.

    Args:
        profile: the profile.
        variables: the host's and the run's variables.
        secrets: receives the values of parameters with secret names.
    """

    def __init__(self, profile: Profile, variables: Variables, secrets: Secrets) -> None:
        self.profile = profile
        self.variables = variables
        self.secrets = secrets

    def validate(self) -> None:
        """Check everything in the profile that does not need a plan.

        Raises:
            ProfileError: for unknown types, invalid references, cycles, unknown or wrong parameters.
        """
        # Elements below a type that is not a group are listed, too: VirtualClient has types that wrap others.
        elements = [element for element in self.profile.elements() if not is_group(element)]
        if error := unknown_types(
            [(element.type, f"{element.location}: {element.key}") for element in elements]
        ):
            raise error
        for element in elements:
            if element.components:
                raise ProfileError(
                    f"{element.type} is not a group and takes no Components",
                    where=f"{element.location}: {element.key}",
                    remedy=f"groups: {', '.join(sorted(GROUPS))}",
                )
        check(self.profile, self.variables)
        problems: dict[str, ProfileError] = {}
        for element in self.profile.elements():
            try:
                if is_group(element):
                    self.group_parameters(element)
                else:
                    self.build(element)
            except VariableUnavailableError:
                continue
            except ProfileError as error:
                problems.setdefault(str(error), error)  # one parameter may be wrong for several elements
        if len(problems) == 1:
            raise next(iter(problems.values()))
        if problems:
            raise ProfileError(
                f"the profile has {len(problems)} problems",
                details=tuple(line for problem in problems for line in problem.splitlines()),
            )

    def check_host(self, facts: Facts) -> None:
        """Check that the profile as a whole supports this host.

        Raises:
            HostError: if its metadata names other platforms.
        """
        profile = self.profile
        whole = Element("profile", profile.name, "metadata", metadata=profile.metadata)
        if reason := applies_to(whole, facts[PLATFORM]):
            raise HostError(f"{profile.name} is {reason}", where=profile.sources[0])

    def build(self, element: Element) -> Component:
        """Return the component of an element, with its parameters resolved and validated.

        Raises:
            ProfileError: if its type is not allowed there, or a parameter is unknown or wrong.
        """
        implementation = component_class(element.type)
        where = f"{element.location}: {element.key} ({element.type})"
        if not issubclass(implementation, _CLASS_OF_KIND[element.kind]):
            kinds = [kind for kind, base in _CLASS_OF_KIND.items() if issubclass(implementation, base)]
            raise ProfileError(
                f"{element.type} is not of kind {element.kind}",
                where=where,
                remedy=f"it is: {' or '.join(kinds)}",
            )
        return implementation(self._parameters(element, implementation.Parameters))

    def group_parameters(self, group: Element) -> GroupParameters:
        """Return the parameters of a group.

        Raises:
            ProfileError: if one is unknown or wrong.
        """
        return self._parameters(group, GroupParameters)

    def _parameters(self, element: Element, model: type[ParametersT]) -> ParametersT:
        from pydantic import ValidationError

        values = resolve(element, self.profile, self.variables)
        self.secrets.add_from(values)
        try:
            return model.model_validate(values)
        except ValidationError as error:
            raise _parameter_error(element, model, values, error) from error

    def skipped(self, element: Element, facts: Facts) -> str | None:
        """Return why an element does not apply to this host, or None."""
        try:
            parameters = resolve(element, self.profile, self.variables)
        except ProfileError:
            parameters = None
        return applies_to(element, facts[PLATFORM], facts[DISTRIBUTION].id, parameters=parameters)

    def plan(self, element: Element, facts: Facts) -> PlannedComponent:
        """Plan one element; a refusal is returned, not raised."""
        if reason := self.skipped(element, facts):
            return PlannedComponent(element, Standing.SKIPPED, note=reason)
        uses_gpus = False
        try:
            component = self.build(element)
            uses_gpus = component.uses_gpus(facts)
            if isinstance(component, Monitor):
                note = "runs beside the actions"
                return PlannedComponent(element, Standing.PLANNED, note=note, uses_gpus=uses_gpus)
            _require_loopback(component, facts)
            plan = _plan_with_bundle(cast("Dependency | Action", component), facts)
        except (HostError, VariableUnavailableError) as error:
            self._setting_names(element).in_error(error)
            return PlannedComponent(
                element, Standing.REFUSED, note=error.message, error=error, uses_gpus=uses_gpus
            )
        except VcagentError as error:
            self._setting_names(element).in_error(error)
            error.where = error.where or str(element.location)
            raise
        except Exception as error:
            raise unexpected(error, f"planning {element.type}") from error
        if plan.nothing_to_do:
            note = plan.nothing_to_do
            return PlannedComponent(element, Standing.NOTHING_TO_DO, note=note, uses_gpus=uses_gpus)
        return PlannedComponent(
            element, Standing.PLANNED, plan, component=component, facts=facts, uses_gpus=uses_gpus
        )

    def preview(self, facts: Facts, *, only_dependencies: bool = False) -> list[PlannedComponent]:
        """Return the plan of the whole profile on this host in its current state.

        A refusal that a pending dependency before it may lift is LATER, not REFUSED: that component is
        planned again when those dependencies are done. A component that needs a refused dependency is LATER,
        too: the dependency's own refusal is the cause.
        """
        planned: list[PlannedComponent] = []
        elements: list[tuple[Element, tuple[PlannedGroup, ...], str]] = [
            (element, (), "") for element in leaves(self.profile.dependencies)
        ]
        if not only_dependencies:
            elements += [(element, (), "") for element in leaves(self.profile.monitors)]
            elements += self._grouped(self.profile.actions, facts)
        pending: list[type[Component]] = []
        refused: list[type[Component]] = []
        for element, groups, skipped in elements:
            component = (
                PlannedComponent(element, Standing.SKIPPED, note=skipped)
                if skipped
                else self.plan(element, facts)
            )
            if component.standing is Standing.REFUSED and _may_be_lifted(component.error, pending, refused):
                component = PlannedComponent(
                    element,
                    Standing.LATER,
                    note=f"planned when the dependencies are done (now: {component.note})",
                    for_now=component.error,
                    uses_gpus=component.uses_gpus,
                )
            if element.kind == "dependency":
                if component.standing in (Standing.PLANNED, Standing.LATER):
                    pending.append(component_class(element.type))
                elif component.standing is Standing.REFUSED:
                    refused.append(component_class(element.type))
            planned.append(replace(component, groups=groups, scenario=self._scenario_of(element)))
        return planned

    def _grouped(
        self,
        elements: Iterable[Element],
        facts: Facts,
        groups: tuple[PlannedGroup, ...] = (),
        skipped: str = "",
    ) -> Iterator[tuple[Element, tuple[PlannedGroup, ...], str]]:
        """Yield the elements that do something, each with its groups, and why its groups are skipped."""
        for element in elements:
            if not is_group(element):
                yield element, groups, skipped
                continue
            reason = skipped or self.skipped(element, facts) or ""
            group = PlannedGroup(element)
            if not reason:
                try:
                    parameters = self.group_parameters(element)
                except VariableUnavailableError:
                    parameters = GroupParameters()
                group = PlannedGroup.of(element, parameters, self._scenario_of(element))
            yield from self._grouped(element.components, facts, (*groups, group), reason)

    def _setting_names(self, element: Element) -> SettingNames:
        fields = component_class(element.type).Parameters.model_fields
        return SettingNames(element, fields, self._scenario_of(element))

    def _scenario_of(self, element: Element) -> str:
        return scenario_of(element, self.profile, self.variables)


def _require_loopback(component: Component, facts: Facts) -> None:
    """Check that the host has the loopback interface up, if an action needs it.

    Raises:
        HostError: if it is down: servers would be waited for until their time limit.
    """
    if isinstance(component, Action) and component.uses_loopback() and not facts[LOOPBACK]:
        raise HostError(
            "the loopback interface is down, so programs of this host do not reach each other at 127.0.0.1",
            remedy="switch it on: ip link set lo up (in a network namespace: ip -n NAME link set lo up)",
            lifted_by=LiftedBy.NOTHING,
        )


def _plan_with_bundle(component: Dependency | Action, facts: Facts) -> Plan:
    """Return a component's plan; with a bundle, refuse steps that would download what it lacks.

    Raises:
        HostError: if the host does not support it, or the bundle lacks something.
    """
    if bundle_of(facts) is None:
        return component.plan(facts)
    try:
        plan = component.plan(facts)
    except HostError:
        # An earlier dependency may lift the refusal, but it cannot complete the bundle.
        if missing := lacking(component.downloads(facts), facts):
            raise missing from None
        raise
    if plan.steps and (missing := lacking(component.downloads(facts), facts)):
        raise missing
    return plan


def _may_be_lifted(
    error: VcagentError | None, pending: Sequence[type[Component]], refused: Sequence[type[Component]]
) -> bool:
    """Return True if a dependency that still has work to do, or is refused itself, may lift a refusal.

    Args:
        error: the refusal.
        pending: the types of the earlier dependencies that still have work to do.
        refused: the types of those that are refused.
    """
    lifted_by = error.lifted_by if isinstance(error, HostError) else None
    if lifted_by is None:
        return bool(pending)
    return any(issubclass(one, Dependency) and lifted_by in one.lifts for one in (*pending, *refused))


def _fields_at(model: type[BaseModel], path: Iterable[object]) -> Mapping[str, FieldInfo]:
    """Return the fields of the nested models at a path of field names and places in lists."""
    fields: Mapping[str, FieldInfo] = model.model_fields
    for part in path:
        if str(part) in fields:  # else a place in a list, a key, or the kind of a union
            found = _models_in(fields[str(part)].annotation)
            fields = {name: field for one in found for name, field in one.model_fields.items()}
    return fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a type names, also within lists and unions."""
    if hasattr(annotation, "model_fields"):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _path(path: Sequence[str | int], values: Mapping[str, Any], names: SettingNames) -> str:
    """Return the place of a wrong value in the words of the profile: ``metrics[0] (speed).scale``.

    Args:
        path: pydantic's path: fields, places in lists, and keys.
        values: the element's parameters.
        names: the names that the profile uses for them.
    """
    shown = ""
    value: Any = {names.in_element(name): value for name, value in values.items()}
    path = (names.in_element(str(path[0])), *path[1:]) if path else ()
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list | tuple) and part < len(value) else None
            own = value.get("name") if isinstance(value, dict) else None
            shown += f"[{part}]" + (f" ({own})" if own else "")
            continue
        keys = value if isinstance(value, dict) else {}
        name = next((key for key in keys if canonical(key) == canonical(part)), part)
        shown += f".{name}" if shown else name
        value = value.get(name) if isinstance(value, dict) else None
    return shown


def _parameter_error(
    element: Element, model: type[ComponentParameters], values: Mapping[str, Any], error: ValidationError
) -> ProfileError:
    lines = []
    parameters = []
    names = SettingNames(element, model.model_fields, "")
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        place = next(
            (
                location
                for key, location in element.parameter_locations.items()
                if canonical(key) == canonical(name)
            ),
            element.location,
        )
        path = _path(problem["loc"], values, names)
        known = _fields_at(model, problem["loc"][:-1])
        own = str(problem["loc"][-1]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":  # another value does not help
            lines.append(f"{place}: {element.type} has no parameter {path!r}; {did_you_mean(own, known)}")
            continue
        parameters += _profile_parameters(element, name)
        if problem["type"] == "missing":
            what = known[own].description if own in known else ""
            lines.append(f"{place}: {element.type} needs the parameter {path!r}: {what or ''}")
        elif problem["type"] == "bool_parsing":  # a profile's expression may say there what is wrong
            lines.append(f"{place}: {path}: {problem['input']!r} is neither true nor false")
        else:
            what = names.in_text(problem["msg"].removeprefix("Value error, "))
            lines.append(f"{place}: {path or element.type}: {what}")
    set_them = ",,,".join(f"{parameter}=…" for parameter in dict.fromkeys(parameters))
    remedy = f'give another value: --parameters "{set_them}"' if set_them else None
    if len(lines) == 1:
        return ProfileError(lines[0], remedy=remedy)
    where = f"{element.location}: {element.key} ({element.type})"
    return ProfileError("wrong parameters", where=where, details=tuple(lines), remedy=remedy)


def _profile_parameters(element: Element, name: str) -> list[str]:
    """Return the profile's parameter that an element's parameter takes its value from, if there is one."""
    written = (value for key, value in element.parameters.items() if canonical(key) == canonical(name))
    found = re.fullmatch(r"\$\.Parameters\.(\w+)", str(next(written, "")))
    return [found[1]] if found else []
