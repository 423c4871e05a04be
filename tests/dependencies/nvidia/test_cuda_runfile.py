"""A runfile from a server that misbehaves, and a stand-in for the runfile that really runs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agent.core.errors import DependencyFailedError, HostError, InterruptedRunError
from agent.facts import Facts, LocalHost
from agent.facts.storage import Mount
from agent.facts.system_paths import SYSTEM_ROOT
from dependencies.nvidia.cuda_runfile import ToolkitWish, published_list, toolkit_path, toolkit_steps
from dependencies.nvidia.undo import undo_plan
from dependencies.sources import download as downloading
from dependencies.sources.download import Checksum, download, published_checksum
from tests.dependencies.runfile_server import FAILING, STUB, Site, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agent.component.component import StepContext
    from tests.dependencies.conftest import RealHost

NAME = "cuda_12.4.0_550.54.14_linux.run"
PATH = f"/cuda/12.4.0/local_installers/{NAME}"
LIST = "/cuda/12.4.0/docs/sidebar/md5sum.txt"
SIZE = 300_000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="ldconfig -r needs root")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "usr/local").mkdir(parents=True)
    (root / "etc").mkdir()
    return root


@pytest.fixture
def content(root: Path) -> bytes:
    script = STUB.replace(b"@LOG@", str(root / "var/log/cuda-installer.log").encode())
    return script + b"exit 0\n" + b"#" * SIZE


@pytest.fixture
def site(content: bytes) -> Iterator[Site]:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    listing = f"{'0' * 32}  cuda_12.4.0_windows.exe\n{md5}  {NAME}\n".encode()
    with serve(Site({PATH: content, LIST: listing})) as site:
        yield site


@pytest.fixture
def context(real_host: RealHost, root: Path) -> StepContext:
    modelled = {"package_dir": real_host.context.package_dir, "system_root": root}
    return replace(real_host.context, facts=Facts(LocalHost(), modelled))


def target(context: StepContext) -> Path:
    return context.package_dir / "cuda" / NAME


def fetch(site: Site, context: StepContext, checksum: Checksum | None = None, **options: Any) -> None:
    download(site.address + PATH, target(context), checksum, context, pause_s=0, **options)


def md5_of(content: bytes) -> Checksum:
    return Checksum("md5", hashlib.md5(content, usedforsecurity=False).hexdigest())


def wish(site: Site, context: StepContext, **changes: Any) -> ToolkitWish:
    path = toolkit_path(context.facts, "12.4", "")
    proof = f"sha256:{hashlib.sha256(site.files[PATH]).hexdigest()}"
    asked = {"checksum": "" if "runfile" in changes else proof, **changes}
    return replace(ToolkitWish("12.4", path, site.address + PATH), **asked)


def apply(wanted: ToolkitWish, context: StepContext) -> list[str]:
    """Run the steps, check their effects, and check that no steps remain."""
    steps = toolkit_steps(wanted, context.facts.fresh())
    for step in steps:
        step.run(context)
        assert step.holds is None or step.holds(context.facts.fresh()), step.name
    assert toolkit_steps(wanted, context.facts.fresh()) == []
    return [step.name for step in steps]


def test_a_lost_connection_is_resumed(site: Site, context: StepContext, content: bytes) -> None:
    site.cuts = [100_000, 50_000]
    fetch(site, context, md5_of(content))
    assert target(context).read_bytes() == content
    assert [wanted for _, wanted in site.asked] == ["", "bytes=100000-", "bytes=150000-"]
    assert os.listdir(target(context).parent) == [NAME], "no part and no tag are left"  # noqa: PTH208


def test_an_agent_that_was_killed_goes_on_where_it_was(
    site: Site, context: StepContext, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "_ATTEMPTS", 1)
    site.cuts = [100_000]
    with pytest.raises(DependencyFailedError, match="broke off 1 time") as error:
        fetch(site, context)
    assert "what has arrived is kept" in (error.value.remedy or "")
    assert not target(context).exists()
    fetch(site, context, md5_of(content))
    assert site.asked[-1][1] == "bytes=100000-"
    assert target(context).read_bytes() == content


@pytest.mark.parametrize("change", ["no ranges", "another version", "nothing names the version"])
def test_what_cannot_be_resumed_starts_anew(
    site: Site, context: StepContext, content: bytes, change: str
) -> None:
    site.cuts = [100_000]
    if change == "no ranges":
        site.ranges = False
    if change == "nothing names the version":
        site.etag = ""
    new = content[:-1] + b"\n"

    def when_it_begins(_size: int) -> None:
        if change == "another version" and len(site.asked) == 1:
            site.files[PATH], site.etag = new, '"two"'

    fetch(site, context, check_space=when_it_begins)
    assert target(context).read_bytes() == (new if change == "another version" else content)


def test_more_is_here_than_there(site: Site, context: StepContext, content: bytes) -> None:
    part = target(context).with_name(f"{NAME}.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(content + b"more")
    part.with_name(f"{part.name}.tag").write_text(site.etag)
    fetch(site, context, md5_of(content))
    assert target(context).read_bytes() == content


def test_a_server_that_tells_no_length(site: Site, context: StepContext, content: bytes) -> None:
    site.lengths = False
    sizes: list[int] = []
    fetch(site, context, md5_of(content), check_space=sizes.append)
    assert target(context).read_bytes() == content
    assert sizes == []


def test_without_length_the_checksum_finds_what_was_cut(
    site: Site, context: StepContext, content: bytes
) -> None:
    site.lengths, site.cuts = False, [1000]
    with pytest.raises(DependencyFailedError, match="is not what was published"):
        fetch(site, context, md5_of(content))
    assert not list(target(context).parent.glob("*.run*"))
    fetch(site, context, md5_of(content))
    assert target(context).read_bytes() == content


def test_a_server_that_refuses_is_not_asked_again(site: Site, context: StepContext) -> None:
    del site.files[PATH]
    with pytest.raises(DependencyFailedError, match="answers 404"):
        fetch(site, context)
    assert len(site.asked) == 1


def test_there_is_no_space(site: Site, context: StepContext) -> None:
    def refuse(size: int) -> None:
        assert size > SIZE
        raise HostError("no space")

    with pytest.raises(HostError, match="no space"):
        fetch(site, context, check_space=refuse)
    assert not target(context).with_name(f"{NAME}.part").exists()


def test_the_space_is_checked_with_the_real_size(site: Site, context: StepContext) -> None:
    facts = Facts(
        LocalHost(),
        {
            "package_dir": context.package_dir,
            "system_root": context.facts[SYSTEM_ROOT],
            "mounts": (Mount(context.package_dir.parent, "ext4", 10**9, 400_000),),
        },
    )
    step = next(iter(toolkit_steps(wish(site, context), context.facts)))
    with pytest.raises(HostError, match=r"needs 0\.0 GB on .* and 0\.0 GB are free"):
        step.run(replace(context, facts=facts))
    assert not list((context.package_dir / "cuda").glob("*"))


def test_a_run_that_is_told_to_stop(site: Site, context: StepContext) -> None:
    context.stop.set()
    with pytest.raises(InterruptedRunError):
        fetch(site, context)


def test_published_checksums(site: Site, content: bytes) -> None:
    assert published_checksum(site.address + LIST, NAME) == md5_of(content)
    with pytest.raises(DependencyFailedError, match=r"has no checksum of other\.run"):
        published_checksum(site.address + LIST, "other.run")
    with pytest.raises(DependencyFailedError, match="cannot be read"):
        published_checksum(f"{site.address}/nothing", NAME)
    nvidia = "https://developer.download.nvidia.com/compute/cuda/12.4.0"
    assert published_list(f"{nvidia}/local_installers/{NAME}") == f"{nvidia}/docs/sidebar/md5sum.txt"
    assert published_list(f"https://mirror.example/{NAME}") is None


def test_checksums() -> None:
    assert Checksum.parse(f"SHA256:{'A' * 64}") == Checksum("sha256", "a" * 64)
    assert Checksum.parse("0" * 32).algorithm == "md5"
    for text in ("", "md5:", "xyz", f"sha256:{'0' * 32}", "0" * 31):
        with pytest.raises(ValueError, match="is no"):
            Checksum.parse(text)


@needs_root
def test_a_toolkit_is_installed_once(site: Site, context: StepContext, root: Path) -> None:
    site.cuts = [100_000]
    wanted = wish(site, context)
    assert apply(wanted, context) == ["toolkit-download", "toolkit", "toolkit-environment"]
    assert (root / "usr/local/cuda").resolve() == wanted.path
    assert not target(context).exists(), "the runfile is not kept"
    profile = root / "etc/profile.d/vcagent-cuda.sh"
    (wanted.path / "version.json").unlink()  # an installation that failed, and a second run
    assert apply(wanted, context) == ["toolkit-download", "toolkit"]
    assert profile.read_text().count("PATH=") == 1
    shell = context.processes.run(
        ["sh", "-c", f". {profile}; . {profile}; echo $PATH"], log=context.log, env={"PATH": "/bin:/usr/bin"}
    )
    assert shell.stdout.strip() == f"{wanted.path}/bin:/bin:/usr/bin"


@needs_root
def test_a_link_of_somebody_else_stays(site: Site, context: StepContext, root: Path) -> None:
    theirs = root / "usr/local/cuda-11.8"
    theirs.mkdir()
    (root / "usr/local/cuda").symlink_to(theirs)
    apply(wish(site, context), context)
    assert (root / "usr/local/cuda").readlink() == theirs
    assert (root / "usr/local/cuda-12.4/bin/nvcc").exists()


def test_a_wrong_checksum_runs_nothing(site: Site, context: StepContext) -> None:
    steps = toolkit_steps(wish(site, context, checksum=f"sha256:{'0' * 64}"), context.facts)
    with pytest.raises(DependencyFailedError, match="its sha256 is"):
        steps[0].run(context)
    assert not list((context.package_dir / "cuda").glob("*.run"))


def test_a_runfile_here_is_checked_too(
    site: Site, context: StepContext, content: bytes, tmp_path: Path
) -> None:
    runfile = tmp_path / NAME
    runfile.write_bytes(content)
    wanted = wish(site, context, runfile=str(runfile), checksum="0" * 32)
    steps = toolkit_steps(wanted, context.facts)
    assert [step.name for step in steps] == ["toolkit", "toolkit-environment"]
    with pytest.raises(DependencyFailedError, match="its md5 is"):
        steps[0].run(context)
    toolkit_steps(replace(wanted, checksum=md5_of(content).digest), context.facts)[0].run(context)
    assert runfile.exists(), "it is not ours to remove"


def test_a_runfile_is_checked_each_time_before_root_runs_it(
    site: Site, context: StepContext, content: bytes, root: Path
) -> None:
    wanted = wish(site, context, keep=True)
    fetched, installed, _ = toolkit_steps(wanted, context.facts)
    fetched.run(context)
    proof = root / "ran"
    target(context).write_bytes(f"touch {proof}\n".encode() + content)  # changed after the download
    with pytest.raises(DependencyFailedError, match="its sha256 is"):
        installed.run(context)
    (again, _) = toolkit_steps(wanted, context.facts.fresh())  # a later run finds it there
    with pytest.raises(DependencyFailedError, match="its sha256 is"):
        again.run(context)
    assert not proof.exists()


@needs_root
@pytest.mark.parametrize("plant", ["a file", "a folder", "an owner"])
def test_root_runs_no_unproven_runfile_that_others_may_change(
    plant: str, site: Site, context: StepContext, content: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    runfile = folder / NAME
    runfile.write_bytes(content)
    wanted = wish(site, context, runfile=str(runfile))
    (step, *_) = toolkit_steps(wanted, context.facts)
    if plant == "an owner":
        os.chown(runfile, 65534, 65534)
    else:
        (runfile if plant == "a file" else folder).chmod(0o777)
    with pytest.raises(DependencyFailedError, match="root does not run"):
        step.run(context)
    with pytest.raises(HostError, match="root does not run"):
        toolkit_steps(wanted, context.facts.fresh())


@pytest.mark.parametrize("checksum", ["", "none", f"md5:{'0' * 32}", "0" * 32])
def test_a_runfile_by_plain_http_needs_the_profile_s_sha256(
    checksum: str, site: Site, context: StepContext
) -> None:
    with pytest.raises(HostError, match="without any proof of where it comes from") as error:
        toolkit_steps(wish(site, context, checksum=checksum), context.facts)
    assert "Checksum=sha256:" in (error.value.remedy or "")
    for given in (f"sha256:{'0' * 64}", "A" * 64):
        assert toolkit_steps(wish(site, context, checksum=given), context.facts)


def test_a_runfile_that_fails_shows_its_log(
    site: Site, context: StepContext, root: Path, tmp_path: Path
) -> None:
    log = root / "var/log/nvidia-installer.log"
    runfile = tmp_path / NAME
    runfile.write_bytes(FAILING.replace(b"@LOG@", str(log).encode()))
    step = toolkit_steps(wish(site, context, runfile=str(runfile)), context.facts)[0]
    with pytest.raises(DependencyFailedError, match=r"the runfile of CUDA 12\.4 failed") as error:
        step.run(context)
    assert f"{log}:" in error.value.details
    assert any("Abort installation" in line for line in error.value.details)
    assert "end what uses nvidia-drm" in (error.value.remedy or "")


def test_a_runfile_with_other_options(
    site: Site, context: StepContext, content: bytes, tmp_path: Path
) -> None:
    runfile = tmp_path / NAME
    runfile.write_bytes(content)
    step = toolkit_steps(wish(site, context, runfile=str(runfile), options=("--fast",)), context.facts)[0]
    with pytest.raises(DependencyFailedError) as error:
        step.run(context)
    assert error.value.remedy == "this runfile has other options: see RunfileOptions"


@needs_root
def test_a_toolkit_is_taken_back(site: Site, context: StepContext, root: Path) -> None:
    other = wish(site, context, path=root / "usr/local/other")
    apply(other, context)
    wanted = wish(site, context)
    steps = toolkit_steps(wanted, context.facts.fresh())
    for step in steps:
        step.run(context)
    for step in reversed(steps):
        if step.undo:
            (back,) = undo_plan(step.undo, context.facts.fresh()).steps
            back.run(context)
            assert undo_plan(step.undo, context.facts.fresh()).nothing_to_do
    assert not wanted.path.exists()
    assert other.path.exists()
    assert (root / "etc/ld.so.conf.d/vcagent-cuda.conf").read_text() == f"{other.path}/lib64\n"
    assert str(wanted.path) not in (root / "etc/profile.d/vcagent-cuda.sh").read_text()
