"""Services: servers that an action started, which run until their group ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.component.component import Service, ServiceAction
from agent.component.registry import component_class
from agent.core.errors import ActionFailedError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from agent.profile import Element
    from agent.store.journal import StepRow


def is_service(element: Element | StepRow) -> bool:
    """Return True if an element, or the element of a step, starts a service."""
    return issubclass(component_class(element.type), ServiceAction)


class GroupServices:
    """The services of one group.

    Args:
        running: the services of the whole run, by name; those of this group are added while they run.
    """

    def __init__(self, running: MutableMapping[str, Service]) -> None:
        self._running = running
        self._own: list[tuple[str, Service]] = []

    @property
    def last(self) -> Service | None:
        """The last one that was started, runs, and may stay when the run has ended; None if there is none."""
        own = [service for _, service in self._own if service.relaunch and not service.death()]
        return own[-1] if own else None

    def add(self, component_key: str, service: Service) -> None:
        """Register a service that has just been started.

        Raises:
            ActionFailedError: if another one of that name runs; the new one is stopped.
        """
        if service.name in self._running:
            service.stop()
            raise ActionFailedError(
                f"a service named {service.name} runs already", remedy="give each a scenario of its own"
            )
        self._running[service.name] = service
        self._own.append((component_key, service))

    def end(self) -> list[tuple[str, ActionFailedError]]:
        """Stop them in reverse order; return those that had ended by themselves, by component key."""
        dead: list[tuple[str, ActionFailedError]] = []
        for component_key, service in reversed(self._own):
            if death := service.death():
                dead.append(
                    (
                        component_key,
                        ActionFailedError(
                            f"{service.name} {death.splitlines()[0]} before its group was done",
                            remedy="see its log; later elements of its group may have failed because of it",
                            details=tuple(death.splitlines()[1:]),
                        ),
                    )
                )
            service.stop()
            del self._running[service.name]
        self._own.clear()
        return dead
