"""Frames with all their fields for azure-eventhub, which the lab's AMQP server does not send.

Proton omits null fields at the end, as AMQP allows; azure-eventhub reads the fields by position.
``python padded_frames.py ARGUMENTS`` runs the agent with such frames.
"""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_FIELDS = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3}
"""Fields of open, begin, attach, flow, transfer, disposition and detach (AMQP 1.0, 2.7)."""


def pad_frames(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let azure-eventhub read frames with all their fields.

    Args:
        replace: sets an attribute, such as monkeypatch.setattr.
    """
    from azure.eventhub._pyamqp import _decode, _transport

    decode = _decode.decode_frame

    def padded(data: memoryview) -> tuple[int, list[Any]]:
        kind, fields = decode(data)
        payload = [fields.pop()] if kind == 0x14 else []
        missing = _FIELDS.get(kind, 0) - len(fields)
        return kind, [*fields, *[None] * missing, *payload]

    replace(_decode, "decode_frame", padded)
    replace(_transport, "decode_frame", padded)


if __name__ == "__main__":
    pad_frames()
    runpy.run_module("agent", run_name="__main__", alter_sys=True)
