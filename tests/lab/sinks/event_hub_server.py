"""A small AMQP server that azure-eventhub accepts as an event hub: ``event_hub_server.py PORT FOLDER``.

It stands in for Azure Event Hubs, which runs only in Azure. It accepts every token and writes each event as a
line of ``FOLDER/HUB.jsonl`` before it acknowledges the event, so that it can be killed at any moment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from azure.eventhub._pyamqp._decode import decode_payload
from proton import Delivery, Message
from proton.handlers import FlowController, Handshaker
from proton.reactor import Container

_LARGEST_BYTES = 1_048_576


class Hub:
    """The events on the server."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.handlers = [Handshaker(), FlowController(100)]
        self._answers: dict[Any, Any] = {}

    def on_reactor_init(self, event: Any) -> None:
        event.container.listen(self.url)

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.max_message_size = _LARGEST_BYTES
        if link.is_sender and link.remote_source.address == "$cbs":
            self._answers[link.connection] = link

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if not link.is_receiver or not delivery.readable or delivery.partial:
            return
        raw = link.recv(delivery.pending)
        link.advance()
        if link.remote_target.address == "$cbs":
            asked = Message()
            asked.decode(raw)
            answer = Message(
                correlation_id=asked.id, properties={"status-code": 202, "status-description": "Accepted"}
            )
            answer.send(self._answers[link.connection])
        else:
            self._keep(str(link.remote_target.address).rpartition("/")[2], raw)
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()

    def _keep(self, hub: str, raw: bytes) -> None:
        outer = decode_payload(memoryview(raw))
        with (self.folder / f"{hub}.jsonl").open("ab") as file:
            for part in outer.data:
                inner = decode_payload(memoryview(bytes(part)))
                file.write(b"".join(map(bytes, inner.data)) + b"\n")
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    Container(Hub(f"127.0.0.1:{sys.argv[1]}", Path(sys.argv[2]))).run()
