"""The inventory of a fleet: its hosts, how to reach them, and how their settings differ."""

from __future__ import annotations

from agent.fleet.inventory.host import FleetHost, Inventory
from agent.fleet.inventory.limit import limited
from agent.fleet.inventory.reading import read_inventory

__all__ = ["FleetHost", "Inventory", "limited", "read_inventory"]
