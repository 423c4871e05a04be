"""The file of repositories that is given to ``vcagent bundle``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.core.errors import HostError
from agent.facts.linux import DISTRIBUTION
from agent.run.bundling import platform_facts
from dependencies.packages.bundled_debs import sources_of
from dependencies.packages.bundled_rpms import repositories_of
from dependencies.packages.given_repositories import warning_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_that_is_not_text_is_refused_for_both_managers(tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_bytes("[lab]\nname=M\u00fcnchen\n".encode("latin-1"))
    with pytest.raises(HostError, match="cannot be read: 'utf-8' codec") as of_apt:
        sources_of(platform_facts("debian-12-x64")[DISTRIBUTION.name], "amd64", file)
    assert "a .sources or .list file" in str(of_apt.value.remedy)
    with pytest.raises(HostError, match="cannot be read: 'utf-8' codec") as of_dnf:
        repositories_of(platform_facts("rocky-9-x64")[DISTRIBUTION.name], file)
    assert "a .repo file" in str(of_dnf.value.remedy)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[lab]\nbaseurl=file:///r\ngpgcheck=0\n", "gpgcheck=0"),
        ("[lab]\ngpgcheck = False\n", "gpgcheck = False"),
        ("deb [arch=amd64 trusted=yes] file:/r ./\n", "deb [arch=amd64 trusted=yes"),
        ("Types: deb\nURIs: file:/r\nTrusted: yes\n", "Trusted: yes"),
        ("[lab]\nbaseurl=file:///r\n", ""),
        ("[lab]\ngpgcheck=1\nrepo_gpgcheck=0\n# gpgcheck=0\n", ""),
        ("# deb [trusted=yes] file:/r ./\ndeb http://example.com x main\n", ""),
        ("Types: deb\nTrusted: no\n", ""),
    ],
)
def test_a_file_that_switches_the_check_of_signatures_off_is_told(text: str, found: str) -> None:
    warning = warning_of(text)
    assert warning.endswith(found)
    assert bool(warning) == bool(found)
