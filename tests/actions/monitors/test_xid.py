from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actions.monitors.kernel_log import KernelLog
from actions.monitors.xid import Xid, xid_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "number", "bus_id", "cause", "of_switch"),
    [
        (OFF_THE_BUS, 79, "0000:3b:00.0", "hardware", False),
        (
            "NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101",
            31,
            "0000:03:00.0",
            "application",
            False,
        ),
        ("[ 12.3] NVRM: Xid (PCI:000A:01:00): 13, Graphics", 13, "000a:01:00.0", "application", False),
        ("NVRM: Xid (PCI:0000:d6:00): 9999, new", 9999, "0000:d6:00.0", "", False),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32",
            12028,
            "0000:c1:00.0",
            "",
            True,
        ),
    ],
)
def test_lines_of_the_kernel(line: str, number: int, bus_id: str, cause: str, *, of_switch: bool) -> None:
    found = xid_of(line)
    assert found is not None
    assert (found.number, found.bus_id, found.cause, found.of_switch) == (number, bus_id, cause, of_switch)


@pytest.mark.parametrize(
    "line", ["", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module", "app: Xid (0:0:0): 79"]
)
def test_other_lines(line: str) -> None:
    assert xid_of(line) is None


def test_an_error_for_people() -> None:
    assert str(xid_of(OFF_THE_BUS)) == "Xid 79 (GPU fell off the bus) of 0000:3b:00.0"
    assert str(Xid(9999, "0000:01:00.0", "new")) == "Xid 9999 (new) of 0000:01:00.0"


def test_every_entry_of_the_table_has_a_meaning_and_a_cause() -> None:
    from actions.monitors.xid import _table

    assert all(entry["meaning"] for entry in _table().values())
    assert {entry["cause"] for entry in _table().values()} == {"application", "hardware", "driver", "notice"}


def test_only_what_the_kernel_says_from_now_on(tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    device.write_text("6,1,100,-;an old Xid\n")
    log = KernelLog(device)
    assert log.open() == ""
    assert log.lines() == []
    with device.open("a") as file:
        file.write(f"3,2,200,-;{OFF_THE_BUS}\n SUBSYSTEM=pci\n4,3,300,-;more\n")
    assert log.lines() == [OFF_THE_BUS, " SUBSYSTEM=pci", "more"]
    assert log.lines() == []
    log.close()


class Journal:
    """Answers as journalctl does on a host that has it; keeps the queries, and takes the next answers."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[str]] = []

    def output(self, command: Sequence[str], **_: object) -> str | None:
        self.asked.append(command)
        return self.answers.pop(0)


def test_the_journal_stands_in_where_the_device_cannot_be_read(tmp_path: Path) -> None:
    journal = Journal("an old line\n-- cursor: s=1\n", f"{OFF_THE_BUS}\n-- cursor: s=2\n")
    log = KernelLog(tmp_path / "none", journal)  # type: ignore[arg-type]
    assert log.open() == ""
    assert log.lines() == []
    assert log.lines(now=True) == [OFF_THE_BUS]
    assert journal.asked[-1][-1] == "--after-cursor=s=1"


def test_neither_device_nor_journal(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "none", Journal(None))  # type: ignore[arg-type]
    assert "No such file" in log.open()
    assert log.lines(now=True) == []
