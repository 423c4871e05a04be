"""The locks of dnf 5: the file as dnf5 5.4.6 writes it, with vcagent's entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import HostError
from agent.facts import Facts
from dependencies.packages.holding import version_lock_file, version_lock_steps
from dependencies.packages.version_lock import AMD_LOCKS, VersionLock

LOCK = VersionLock(Path("/etc/dnf/versionlock.toml"))
DRIVER = {"nvidia-driver-cuda": "3:580.126.09-1.fc44", "nvidia-fabricmanager": "580.126.09-1"}
OTHERS = """\
version = "1.0"

[[packages]]
name = "bash"
comment = "Added by 'versionlock add' command on 2026-11-29 20:45:44"

[[packages.conditions]]
key = "evr"
comparator = "="
value = "5.3.0-2.fc44"
"""


def foreign(conditions: str, wanted: str = "3:580.126.09-1.fc44", name: str = "nvidia-*") -> list[str]:
    blocks = "".join(
        f'[[packages.conditions]]\nkey = "{key}"\ncomparator = "{comparator}"\nvalue = "{value}"\n'
        for key, comparator, value in (line.split() for line in conditions.splitlines())
    )
    text = f'version = "1.0"\n[[packages]]\nname = "{name}"\n{blocks}'
    changing = {"nvidia-driver-cuda": "3:550.163.01-1.fc44"}
    return LOCK.foreign_locks(text, changing, {"nvidia-driver-cuda": wanted})


@pytest.mark.parametrize("before", [None, "", OTHERS, OTHERS + "\n# the next one\n"])
def test_written_once_and_taken_out_again(before: str | None) -> None:
    written = LOCK.with_locks(before, DRIVER)
    assert LOCK.with_locks(written, DRIVER) == written
    assert written.count("[[packages]]") == 2 + (before or "").count("[[packages]]")
    assert written.startswith('version = "1.0"\n')
    assert 'value = "0:580.126.09-1"' in written
    both = LOCK.with_locks(written, {"amdgpu-dkms": "1:6.16.6-1"}, AMD_LOCKS)
    assert LOCK.with_locks(both, {}, AMD_LOCKS) == written
    assert LOCK.with_locks(written, {}).strip() == (before or 'version = "1.0"').strip()


def test_what_dnf_wrote_anew_is_still_ours_and_comments_of_others_stay() -> None:
    written = LOCK.with_locks(None, DRIVER).replace("[[packages.cond", "\n[[packages.cond")
    after = OTHERS.removeprefix('version = "1.0"\n')
    assert LOCK.with_locks(f"{written}# a shell{after}", {}) == f'version = "1.0"\n\n# a shell{after}'


def test_locks_of_others() -> None:
    assert foreign("evr = 3:550.163.01-1.fc44") == ["nvidia-* (evr = 3:550.163.01-1.fc44)"]
    assert foreign("evr != 3:580.126.09-1.fc44") == ["nvidia-* (evr != 3:580.126.09-1.fc44)"]
    assert not foreign("evr = 3:580.126.09-1.fc44")
    assert not foreign("evr = 3:550.163.01-1.fc44", name="bash")
    assert not foreign("evr >= 3:570\nevr < 3:571"), "dnf compares these itself"
    assert foreign("evr = 1.0-1", wanted="0:1.0-1") == [], "dnf leaves out the epoch 0"
    assert LOCK.foreign_locks(LOCK.with_locks(OTHERS, DRIVER), DRIVER, {"nvidia-driver-cuda": "3:1-1"}) == []


def test_a_file_that_dnf_ignores_is_refused() -> None:
    facts = Facts(None, {"dnf_5": True, "system_root": Path("/"), f"text[{LOCK.path}]": OTHERS})
    assert version_lock_file(facts) == LOCK.path
    assert version_lock_steps(facts, 0) == []
    ignored = Facts(None, {**facts._modelled, f"text[{LOCK.path}]": OTHERS.replace("version =", "# ")})
    with pytest.raises(HostError, match="dnf ignores the locks"):
        version_lock_steps(ignored, 0)
