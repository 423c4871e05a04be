"""Read the systems and configurations of NVIDIA's code from its source, without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Registered:
    """A configuration registered by ``@ConfigRegistry.register(…)`` on a class.

    Args:
        system: the member of KnownSystem, such as ``H100_SXM_80GBx8``.
        harness: the member of HarnessType, such as ``Custom``.
        accuracy: the member of AccuracyTarget: ``k_99`` or ``k_99_9``.
        power: the member of PowerSetting: ``MaxP`` or ``MaxQ``.
    """

    system: str
    harness: str
    accuracy: str
    power: str


def registered_configs(*sources: str) -> frozenset[Registered]:
    """Return the configurations that a scenario's files register.

    Args:
        sources: the text of ``__init__.py``, then of files that build on it, such as ``custom.py``.

    Raises:
        HostError: if a text is not valid Python.
    """
    systems: dict[str, str] = {}
    found = set()
    for source in sources:
        for node in _classes(source):
            own = next(
                (
                    statement.value.attr
                    for statement in node.body
                    if isinstance(statement, ast.Assign)
                    and isinstance(statement.value, ast.Attribute)
                    and any(isinstance(name, ast.Name) and name.id == "system" for name in statement.targets)
                ),
                None,
            )
            inherited = (systems.get(base.id) for base in node.bases if isinstance(base, ast.Name))
            system = own or next((name for name in inherited if name), None)
            if system is None:
                continue
            systems[node.name] = system
            found |= {Registered(system, *members) for members in _registrations(node)}
    return frozenset(found)


def _classes(source: str) -> Iterator[ast.ClassDef]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise HostError(
            f"a configuration of NVIDIA's code is not valid Python: {error}",
            remedy="restore the file from the repository: git checkout, or remove custom.py",
        ) from error
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _registrations(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for decorator in node.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Attribute)
            and decorator.func.attr == "register"
        ):
            members = [one.attr for one in decorator.args if isinstance(one, ast.Attribute)]
            if len(members) == 3:  # noqa: PLR2004 - harness, accuracy, power
                yield members[0], members[1], members[2]


def known_gpu(source: str, pci_id: str | None) -> str | None:
    """Return the member of KnownGPU with a PCI device number; None if the code does not know it.

    Args:
        source: the text of code/common/systems/known_hardware.py.
        pci_id: such as ``0x2330``.
    """
    wanted = (pci_id or "").removeprefix("0x").upper()
    for node in _classes(source):
        if node.name != "KnownGPU" or not wanted:
            continue
        for statement in node.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                texts = {
                    one.value.upper()
                    for one in ast.walk(statement.value)
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
                if wanted in texts:
                    return statement.targets[0].id
    return None
