"""Starts LlamaCppServer in a container and queries it: ``FOLDER PARAMETERS`` (the action's, as JSON).

It is a separate program so that it can run in the network of the engine under test. It prints its results as
JSON.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.llamacpp.server_action import LlamaCppServerAction, LlamaCppServerParameters
from agent.component.component import StepContext
from agent.facts import Facts
from agent.host.processes import LocalProcesses

if TYPE_CHECKING:
    from agent.component.component import StepOutcome


class _Quiet:
    def update(self, message: str, *, done: float | None = None, total: float | None = None) -> None:
        """Ignore the message."""


def start(folder: Path, parameters: dict[str, Any]) -> StepOutcome:
    """Return the step's outcome, with the service."""
    (folder / "run").mkdir(parents=True)
    stop = threading.Event()
    context = StepContext(
        facts=Facts(modelled={}),
        processes=LocalProcesses("contained-server", stop=stop),
        progress=_Quiet(),
        stop=stop,
        run_dir=folder / "run",
        package_dir=folder / "packages",
        log=folder / "step.log",
        key="key",
    )
    action = LlamaCppServerAction(LlamaCppServerParameters.model_validate({"scenario": "srv", **parameters}))
    outcome = action.plan(context.facts).steps[0].run(context)
    assert outcome is not None
    return outcome


def completed(host: str) -> int:
    """Return the number of tokens of a completion; 0 if nothing answers."""
    connection = http.client.HTTPConnection(host, timeout=30)
    body = json.dumps({"prompt": [1, 2, 3], "n_predict": 5, "ignore_eos": True})
    try:
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        return int(json.loads(connection.getresponse().read())["tokens_predicted"])
    except ConnectionRefusedError:
        return 0
    finally:
        connection.close()


if __name__ == "__main__":
    folder, parameters = sys.argv[1:]
    service = start(Path(folder), json.loads(parameters)).service
    assert service is not None
    host = str(service.values["url"]).removeprefix("http://")
    seen: dict[str, Any] = {"during": completed(host), "death": service.death(), **service.values}
    service.stop()
    seen["after"] = completed(host)
    print(json.dumps(seen))  # noqa: T201 - for the test
