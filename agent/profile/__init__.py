"""Profiles: from a text to a validated value with all expressions resolved."""

from agent.core.timespan import format_timespan, parse_timespan
from agent.profile.arguments import Timeout, TimeoutScope, parse_parameters, parse_timeout
from agent.profile.checking import check
from agent.profile.conversion import convert
from agent.profile.finding import Source, find, installed
from agent.profile.loading import load, load_sources
from agent.profile.naming import element_names, scenario_of, unique_names
from agent.profile.repetition import repeat
from agent.profile.resolution import resolve, resolve_known, resolve_one, settle
from agent.profile.schema import GROUPS, Element, Location, Profile, Scope
from agent.profile.selection import SWITCHED_OFF, applies_to, select
from agent.profile.settings import set_parameters
from agent.profile.variables import LOOKUPS, VARIABLES, Variables, VariableUnavailableError

__all__ = [
    "GROUPS",
    "LOOKUPS",
    "SWITCHED_OFF",
    "VARIABLES",
    "Element",
    "Location",
    "Profile",
    "Scope",
    "Source",
    "Timeout",
    "TimeoutScope",
    "VariableUnavailableError",
    "Variables",
    "applies_to",
    "check",
    "convert",
    "element_names",
    "find",
    "format_timespan",
    "installed",
    "load",
    "load_sources",
    "parse_parameters",
    "parse_timeout",
    "parse_timespan",
    "repeat",
    "resolve",
    "resolve_known",
    "resolve_one",
    "scenario_of",
    "select",
    "set_parameters",
    "settle",
    "unique_names",
]
