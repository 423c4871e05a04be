"""What an unexpected exception is called."""

from __future__ import annotations

import errno

from agent.core.errors import unexpected


def test_a_path_that_cannot_be_used_is_no_defect() -> None:
    long = unexpected(OSError(errno.ENAMETOOLONG, "File name too long", "x" * 5000), "vcagent")
    assert (long.exit_code, len(str(long)) < 400) == (2, True)
    denied = unexpected(PermissionError(errno.EACCES, "Permission denied", "/root/run"), "vcagent")
    assert denied.exit_code == 4
    assert "/root/run cannot be used: Permission denied" in denied.message
    assert unexpected(OSError(errno.EACCES, "without a path"), "vcagent").exit_code == 1
