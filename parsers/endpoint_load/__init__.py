"""EndpointSweep's points: what a load on an endpoint took, and whether the client kept up."""

from __future__ import annotations

from agent.core.records import Parser
from parsers.endpoint_load import folder

__all__ = ["PARSER"]

PARSER = Parser(
    name="endpoint_load",
    description="a point of EndpointSweep: endpoint_load.json, endpoint_load_result.json and samples.csv",
    recognise=folder.recognise,
    parse=folder.parse,
)
