"""Which hosts there are, how to reach them, and what differs between them."""

from __future__ import annotations

from agent.fleet.inventory.host import FleetHost, Inventory
from agent.fleet.inventory.limit import limited
from agent.fleet.inventory.reading import read_inventory

__all__ = ["FleetHost", "Inventory", "limited", "read_inventory"]
