"""Turns a document into a profile: known keys, kinds of values, required values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent.core.errors import ProfileError
from agent.core.names import canonical, did_you_mean, nearest
from agent.core.timespan import parse_timespan
from agent.profile.document import read_document
from agent.profile.problems import Problems
from agent.profile.schema import GROUPS, KINDS, Condition, Element, Location, Profile, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agent.profile.finding import Source
    from agent.profile.syntax import Document, Path

_INFORMATION = ("Documentation", "Notes", "Contacts", "ParameterDescriptions", "Extensions")
_PROFILE_KEYS = (
    "Description",
    "MinimumExecutionInterval",
    "MinimumRequiredExecutionTime",
    "Metadata",
    "Parameters",
    "ParametersOn",
    "Sinks",
    *KINDS.values(),
    *_INFORMATION,
)
_GROUP_NAMES = {canonical(name): name for name in GROUPS}
_ELEMENT_KEYS = ("Type", "Metadata", "Parameters", "Components", "Role", *_INFORMATION)


def read_profile(source: Source) -> Profile:
    """Return the profile of a source.

    Raises:
        ProfileError: with every problem of the source.
    """
    return _Structure(source.label, read_document(source)).profile(source.name)


@dataclass
class _Structure:
    """Reads one document; ``path`` is the current position, ``key`` its name in messages."""

    label: str
    document: Document
    problems: Problems = field(default_factory=Problems)

    def profile(self, name: str) -> Profile:
        data = self.document.data
        if data is None:
            raise ProfileError("the profile is empty", where=self.label)
        if not isinstance(data, dict):
            raise ProfileError(f"a profile is a mapping, not {_kind(data)}", where=self.label)
        keys = self._keys(data, _PROFILE_KEYS, (), "")
        lists = {kind: self._elements(kind, data, keys.get(key), ()) for kind, key in KINDS.items()}
        if not any(data.get(keys.get(key, "")) for key in KINDS.values()):
            self._add((), "", "nothing to do: no Actions, Dependencies or Monitors")
        parameters, locations = self._mapping(data, keys.get("Parameters"), ())
        metadata, _ = self._mapping(data, keys.get("Metadata"), ())
        scope = Scope(parameters, locations, self._conditions(data, keys.get("ParametersOn")))
        profile = Profile(
            name=name,
            description=self._text(data, keys, "Description", (), ""),
            metadata=metadata,
            parameters=parameters,
            minimum_execution_interval_s=self._timespan(data, keys.get("MinimumExecutionInterval")),
            minimum_required_execution_time_s=self._required_time(data, keys, metadata),
            dependencies=lists["dependency"],
            actions=lists["action"],
            monitors=lists["monitor"],
            sources=(self.label,),
            scopes=(scope,),
            sinks=self._texts(data, keys.get("Sinks")),
        )
        self.problems.raise_any()
        return profile

    def _add(self, path: Path, key: str, message: str, remedy: str = "") -> None:
        self.problems.add(self._location(path), key, message, remedy)

    def _location(self, path: Path) -> Location:
        return Location(self.label, self.document.line(path))

    def _keys(self, data: Mapping[str, Any], known: Iterable[str], path: Path, key: str) -> dict[str, str]:
        """Return the keys of a mapping as written, by their known names; report unknown keys."""
        names = {canonical(name): name for name in known}
        found: dict[str, str] = {}
        for written in data:
            name = names.get(canonical(written))
            if name is None:
                if not (
                    written.lower().startswith(("x-", "x_")) or canonical(written).endswith("extensions")
                ):
                    self._add((*path, written), key, f"unknown key '{written}'", did_you_mean(written, known))
            elif name in found:
                self._add((*path, written), key, f"'{written}' stands twice, also as '{found[name]}'")
            else:
                found[name] = written
        return found

    def _text(self, data: Mapping[str, Any], keys: Mapping[str, str], name: str, path: Path, key: str) -> str:
        if name not in keys:
            self._add(path, key, f"{name} is missing")
            return ""
        value = data[keys[name]]
        if not isinstance(value, str) or not value.strip():
            what = "empty" if value in (None, "") or isinstance(value, str) else f"{_kind(value)}, not text"
            self._add((*path, keys[name]), _join(key, keys[name]), f"{name} is {what}")
            return ""
        return value

    def _mapping(
        self, data: Mapping[str, Any], written: str | None, path: Path, key: str = ""
    ) -> tuple[dict[str, Any], dict[str, Location]]:
        """Return a mapping of names to values, and the line of each."""
        value = None if written is None else data[written]
        if written is None or value is None:
            return {}, {}
        inner = (*path, written)
        if not isinstance(value, dict):
            self._add(inner, _join(key, written), f"a mapping is expected, not {_kind(value)}")
            return {}, {}
        seen: dict[str, str] = {}
        for name in value:
            if not canonical(name):
                self._add((*inner, name), _join(key, written), "a name is empty")
            elif (first := seen.setdefault(canonical(name), name)) != name:
                self._add((*inner, name), _join(key, written), f"'{name}' stands twice, also as '{first}'")
        return value, {name: self._location((*inner, name)) for name in value}

    def _elements(
        self, kind: str, data: Mapping[str, Any], written: str | None, path: Path, key: str = ""
    ) -> tuple[Element, ...]:
        value = None if written is None else data[written]
        if written is None or value is None:
            return ()
        inner = (*path, written)
        name = _join(key, canonical(written))
        if not isinstance(value, list):
            self._add(inner, name, f"a list is expected, not {_kind(value)}")
            return ()
        return tuple(
            self._element(kind, entry, (*inner, index), f"{name}[{index}]")
            for index, entry in enumerate(value)
        )

    def _element(self, kind: str, data: Any, path: Path, key: str) -> Element:
        if not isinstance(data, dict):
            self._add(path, key, f"a mapping with a Type is expected, not {_kind(data)}")
            return Element(kind, "", key)
        keys = self._keys(data, _ELEMENT_KEYS, path, key)
        kind_name = self._text(data, keys, "Type", path, key)
        kind_name = _GROUP_NAMES.get(canonical(kind_name), kind_name)
        parameters, locations = self._mapping(data, keys.get("Parameters"), path, key)
        metadata, _ = self._mapping(data, keys.get("Metadata"), path, key)
        components = self._elements(kind, data, keys.get("Components"), path, key)
        is_group = kind_name in GROUPS
        if is_group and not components:
            self._add(path, key, f"the group {kind_name} has no Components")
        if "Role" in keys and "role" not in {canonical(name) for name in parameters}:
            parameters = {**parameters, "Role": data[keys["Role"]]}
        location = self._location(path)
        return Element(kind, kind_name, key, parameters, metadata, components, location, locations)

    def _texts(self, data: Mapping[str, Any], written: str | None) -> tuple[str, ...]:
        value = None if written is None else data[written]
        if written is None or value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            self._add((written,), written, "a list of texts is expected", "such as: - otlp:http://host:4318")
            return ()
        return tuple(value)

    def _conditions(self, data: Mapping[str, Any], written: str | None) -> tuple[Condition, ...]:
        value = None if written is None else data[written]
        if written is None or value is None:
            return ()
        if not isinstance(value, list):
            self._add((written,), written, f"a list is expected, not {_kind(value)}")
            return ()
        conditions = []
        for index, entry in enumerate(value):
            path: Path = (written, index)
            key = f"{canonical(written)}[{index}]"
            if not isinstance(entry, dict):
                self._add(path, key, f"a mapping with a Condition is expected, not {_kind(entry)}")
                continue
            by_name = {canonical(name): name for name in entry}
            if "condition" not in by_name:
                close = nearest("Condition", entry)
                remedy = f"is '{close[0]}' meant to be Condition?" if close else ""
                self._add(path, key, "Condition is missing", remedy)
                continue
            expression = entry[by_name["condition"]]
            if not isinstance(expression, str | bool):
                self._add(path, key, f"Condition is an expression, not {_kind(expression)}")
            parameters = {name: setting for name, setting in entry.items() if canonical(name) != "condition"}
            conditions.append(Condition(expression, parameters, self._location(path), key))
        return tuple(conditions)

    def _timespan(self, data: Mapping[str, Any], written: str | None, path: Path = ()) -> float | None:
        value = None if written is None else data[written]
        if written is None or value is None:
            return None
        try:
            return parse_timespan(value)
        except ProfileError as error:
            self._add(
                (*path, written), ".".join(map(str, (*path, written))), error.message, error.remedy or ""
            )
            return None

    def _required_time(
        self, data: Mapping[str, Any], keys: Mapping[str, str], metadata: Mapping[str, Any]
    ) -> float | None:
        """Return the required time, from the metadata (as in VirtualClient) or the profile's own key."""
        if "MinimumRequiredExecutionTime" in keys:
            return self._timespan(data, keys["MinimumRequiredExecutionTime"])
        for name in metadata:
            if canonical(name) == canonical("MinimumRequiredExecutionTime"):
                return self._timespan(metadata, name, (keys["Metadata"],))
        return None


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "text", bool: "a truth value", type(None): "nothing"}
    return kinds.get(type(value), "a number")
