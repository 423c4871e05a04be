"""The output of dnf 5 is read: recorded from dnf5 5.4.6 with packages made for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.facts.package_solutions import PackageSolution, read_dnf
from agent.facts.rpm_offers import RPM_DRIVER_OFFERS
from agent.facts.rpm_packages import RPM_LOCKS
from dependencies.nvidia.rpm_driver import removed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

DOWNGRADE = """\
Updating and loading repositories:
Repositories loaded.
Package                   Arch   Version Repository      Size
Downgrading:
 vcagent-test             noarch 0:1.0-1 test         0.0   B
   replacing vcagent-test noarch 0:2.0-1 test         0.0   B

Transaction Summary:
 Replacing:          1 package
 Downgrading:        1 package

Operation aborted by the user.
"""
OBSOLETED = """\
Package                     Arch   Version Repository      Size
Installing:
 nvidia-fabricmanager       noarch 0:2.0-1 test         0.0   B
   replacing python3.11-old noarch 0:1.0-1 test         0.0   B
Removing dependent packages:
 company-desktop            noarch 0:1.0-1 test         0.0   B

Transaction Summary:
 Installing:         1 package
 Replacing:          1 package
 Removing:           1 package
"""
REFUSED = """\
Updating and loading repositories:
Repositories loaded.
Failed to resolve the transaction:
No match for argument: no-such
You can try to add to command line:
  --skip-unavailable to skip unavailable packages
"""


def test_a_package_in_another_version_is_not_removed() -> None:
    assert read_dnf(DOWNGRADE) == PackageSolution({"vcagent-test": "0:1.0-1"})
    assert removed_by(DOWNGRADE) == []


def test_replaced_and_removed_packages() -> None:
    changes = {"nvidia-fabricmanager": "0:2.0-1"}
    assert read_dnf(OBSOLETED) == PackageSolution(changes, ("python3.11-old", "company-desktop"))
    assert removed_by(OBSOLETED) == ["company-desktop"]


def test_a_replaced_package_of_dnf_4() -> None:
    table = (
        "Installing:\n nvidia-fabricmanager noarch 2.0-1 test 5.5 k\n"
        "     replacing  python3.11-old.noarch 1.0-1\n\nTransaction Summary\n"
    )
    assert read_dnf(table) == PackageSolution({"nvidia-fabricmanager": "2.0-1"}, ("python3.11-old",))


def test_a_refusal_begins_with_its_reason() -> None:
    assert read_dnf(REFUSED).problem[:2] == (
        "Failed to resolve the transaction:",
        "No match for argument: no-such",
    )


class Host:
    """A host whose dnf formats like dnf 5: it adds no end of line."""

    def output(self, command: Sequence[str], **_: object) -> str:
        if command[0] == "uname":
            return "x86_64\n"
        assert "repoquery" in command, command
        shape = next(word for word in command if word.startswith("--queryformat=")).partition("=")[2]
        texts = {"name": "dkms", "epoch": "0", "version": "3.1.8", "release": "1", "arch": "noarch"}
        for word, text in {**texts, "repoid": "epel"}.items():
            shape = shape.replace(f"%{{{word}}}", text)
        return shape + shape.replace("dkms", "nvidia-driver")

    def names(self, folder: str) -> list[str]:
        return ["dnf"] if folder == "/usr/bin" else []

    def text(self, path: str) -> None:
        del path

    def lock_holder(self, path: str) -> None:
        del path


def test_each_package_has_a_line_of_its_own() -> None:
    offers = RPM_DRIVER_OFFERS.read(Host())
    assert [(offer.name, offer.version, offer.origin) for offer in offers] == [
        ("dkms", "0:3.1.8-1", "epel"),
        ("nvidia-driver", "0:3.1.8-1", "epel"),
    ]


def test_the_lock_for_which_it_would_wait() -> None:
    assert "/var/lib/dnf/system-repo.lock" in RPM_LOCKS
