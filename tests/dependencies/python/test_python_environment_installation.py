from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from agent.component.fetching_environment import pip_environment
from agent.core.errors import DependencyFailedError, HostError
from agent.facts import Facts, LocalHost
from agent.facts.python import PYTHON
from dependencies.python.environment_installation import (
    PythonEnvironmentInstallation,
    PythonEnvironmentInstallationParameters,
)
from dependencies.python.pip import (
    PipProgress,
    masked,
    pip_remedy,
    split_requirements,
    unfulfilled,
)
from tests.dependencies.private_server import QUOTED_TOKEN, PrivateServer, serving
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from agent.facts.python import PythonInterpreter
    from tests.dependencies.conftest import RealHost


def make_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    """Write a minimal wheel with one module (PEP 427)."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text)}\n")
    files[f"{info}/RECORD"] = "".join(record) + f"{info}/RECORD,,\n"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    make_wheel(folder, "tiny_one", "1.0", requires="tiny_two")
    make_wheel(folder, "tiny_one", "2.0")
    make_wheel(folder, "tiny_two", "1.0")
    return folder


COPYING = """\
#!/bin/sh
# The interpreter, which copies an environment instead of making one.
case "$*" in
  "-I -m venv --clear "*) for folder; do :; done; exec cp -a {template} "$folder" ;;
  *) exec {python} "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def copying_python(tmp_path_factory: pytest.TempPathFactory) -> PythonInterpreter:
    """Return the interpreter; it makes one environment as the component does, and copies it afterwards."""
    python = Facts(LocalHost())[PYTHON]
    assert python is not None
    folder = tmp_path_factory.mktemp("copying")
    template, program = folder / "template", folder / "python"
    subprocess.run([python.path, "-I", "-m", "venv", "--clear", template], check=True)
    program.write_text(COPYING.format(template=template, python=python.path))
    program.chmod(0o755)
    return replace(python, path=str(program))


@pytest.fixture
def quick_host(real_host: RealHost, copying_python: PythonInterpreter) -> RealHost:
    """Return the real host, with the interpreter that copies."""
    packages = real_host.context.package_dir
    facts = Facts(LocalHost(), {"package_dir": packages, "python": copying_python})
    return replace(real_host, facts=facts, context=replace(real_host.context, facts=facts))


def installation(wheels: Path, *requirements: str, **more: Any) -> PythonEnvironmentInstallation:
    own = {"packageName": "tiny", "requiredSpace": 0}
    values = {**own, "requirements": list(requirements), "wheelsDir": wheels, **more}
    return PythonEnvironmentInstallation(PythonEnvironmentInstallationParameters.model_validate(values))


def imported(host: RealHost, module: str) -> str:
    python = host.context.package_dir / "tiny" / "bin" / "python"
    command = [str(python), "-c", f"import {module}; print({module}.VERSION)"]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


def test_an_environment_from_made_to_mended(real_host: RealHost, quick_host: RealHost, wheels: Path) -> None:
    wish = installation(wheels, "tiny_one==1.0", 'tiny_one==9; python_version < "3"')
    assert real_host.apply(wish) == ["install"]
    assert (imported(real_host, "tiny_one"), imported(real_host, "tiny_two")) == ("1.0", "1.0")
    assert any(text.startswith("2 of 2 packages: processing tiny") for text in real_host.messages.texts)
    assert quick_host.apply(wish) == []

    # A removed package, and a marker that was never written.
    environment = (quick_host.context.package_dir / "tiny").resolve()
    note = json.loads((environment / "vcagent-environment.json").read_text())
    assert note["distributions"]["tiny_two"] == "1.0"
    next(environment.glob("lib/python*/site-packages/tiny_two-1.0.dist-info/METADATA")).unlink()
    assert "was changed: tiny_two" in wish.plan(quick_host.facts.fresh()).steps[0].reason
    (environment / "vcagent-environment.json").unlink()
    (environment / "rubbish").touch()
    assert "half-made" in wish.plan(quick_host.facts.fresh()).steps[0].reason
    assert quick_host.apply(wish) == ["install"]
    assert not (environment / "rubbish").exists()

    # Another wish leaves the environment alone and moves the link.
    assert quick_host.apply(installation(wheels, "tiny_one==2.0", no_deps=True)) == ["install"]
    assert (imported(quick_host, "tiny_one"), imported(quick_host, "tiny_two")) == ("2.0", "")
    assert (environment / "vcagent-environment.json").exists()


def test_files_that_somebody_removed(quick_host: RealHost, wheels: Path) -> None:
    wish = installation(wheels, "tiny_one==2.0")
    quick_host.apply(wish)
    environment = (quick_host.context.package_dir / "tiny").resolve()
    for path in environment.rglob("__pycache__"):
        shutil.rmtree(path)
    assert wish.plan(quick_host.facts.fresh()).nothing_to_do, "what Python compiled may go"
    next(environment.glob("lib/python*/site-packages/tiny_one.py")).unlink()
    assert "was changed: tiny_one" in wish.plan(quick_host.facts.fresh()).steps[0].reason
    assert quick_host.apply(wish) == ["install"]
    assert imported(quick_host, "tiny_one") == "2.0"


def test_settings_of_pip_change_nothing(
    real_host: RealHost, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name, value in {
        "DRY_RUN": "1",
        "TARGET": elsewhere,
        "USER": "1",
        "NO_DEPS": "1",
        "ROOT": "/x",
    }.items():
        monkeypatch.setenv(f"PIP_{name}", str(value))
    assert real_host.apply(installation(wheels, "tiny_one==1.0")) == ["install"]
    assert (imported(real_host, "tiny_one"), imported(real_host, "tiny_two")) == ("1.0", "1.0")
    assert not elsewhere.exists()
    kept = {"PIP_INDEX_URL": "https://mirror", "PIP_CERT": "/c", "PIP_TIMEOUT": "5", "HOME": "/root"}
    assert not set(pip_environment({**kept, "PIP_PREFIX": "/p"})) & set(kept)


def test_what_pip_put_elsewhere_is_not_there(
    quick_host: RealHost, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[install]\ntarget = {tmp_path / 'elsewhere'}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    with pytest.raises(DependencyFailedError, match=r"pip ended well, but .* lacks tiny_one==2.0") as error:
        quick_host.apply(installation(wheels, "tiny_one==2.0"))
    assert "pip config list" in (error.value.remedy or "")
    assert not (quick_host.context.package_dir / "tiny").exists()


def test_an_interpreter_that_hangs_is_not_gone(
    quick_host: RealHost, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = installation(wheels, "tiny_one==2.0")
    quick_host.apply(wish)
    environment = (quick_host.context.package_dir / "tiny").resolve()
    python = environment / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\nsleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr("agent.facts.python_environments._TIMEOUT_S", 0.3)
    with pytest.raises(HostError, match="gave no answer"):
        wish.plan(quick_host.facts.fresh())
    assert (environment / "vcagent-environment.json").exists()


BACKEND = """
import pathlib, shutil
def build_wheel(folder, config_settings=None, metadata_directory=None):
    (wheel,) = pathlib.Path("wheels").glob("tiny_one-2*")
    return shutil.copy(wheel, folder).rpartition("/")[2]
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@pytest.mark.parametrize("source", ["wheel", "git"])
def test_credentials_are_shown_to_nobody(quick_host: RealHost, wheels: Path, source: str) -> None:
    repository = wheels.parent
    (repository / "backend.py").write_text(BACKEND)
    (repository / "pyproject.toml").write_text(PROJECT)
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "wheels", "*.py", "*.toml"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    subprocess.run([*git, "update-server-info"], check=True)
    with serving(repository) as host:
        secret = f"user:{QUOTED_TOKEN}@{host}"
        path = {
            "wheel": f"http://{secret}/wheels/tiny_one-2.0-py3-none-any.whl",
            "git": f"git+http://{secret}/.git",
        }
        wish = installation(wheels, f"tiny_one @ {path[source]}")
        (step,) = wish.plan(quick_host.facts.fresh()).steps
        assert "T0ken" not in step.command
        assert quick_host.apply(wish) == ["install"]
    assert imported(quick_host, "tiny_one") == "2.0"
    assert PrivateServer.served
    assert PrivateServer.seen == []
    files = [path for path in quick_host.context.package_dir.rglob("*") if path.is_file()]
    assert [path for path in files if b"T0ken" in path.read_bytes()] == []
    log = quick_host.context.log.read_text()
    assert "T0ken" not in log


def test_another_password_is_no_other_environment(quick_host: RealHost, wheels: Path) -> None:
    def command(requirement: str) -> str:
        return installation(wheels, requirement).plan(quick_host.facts).steps[0].command.partition("#")[0]

    address = "a @ https://user:{}@host/a.whl"
    assert command(address.format("hunter22")) == command(address.format("hunter23"))
    assert command("tiktoken==0.7.0") != command("tiktoken==0.7.1")
    assert masked("tiktoken==0.7.0") == "tiktoken==0.7.0"
    assert masked(address.format("hunter22")) == address.format("***")


def test_requirements_and_what_is_there() -> None:
    there = {"Tiny.One": "1.0", "b": "2.0rc1"}
    wishes = ["tiny-one==1.0", "b>=2.0rc1", "b>=3", "c", "d; python_version < '3.11'", "e @ https://h/e.whl"]
    assert unfulfilled(wishes, "3.11.2", there) == ["b>=3", "c", "e @ https://h/e.whl"]


def test_a_missing_wheel(quick_host: RealHost, wheels: Path) -> None:
    with pytest.raises(DependencyFailedError) as error:
        quick_host.apply(installation(wheels, "no-such-thing==1"))
    assert "no wheel of no-such-thing==1 fits" in (error.value.remedy or "")
    assert not (quick_host.context.package_dir / "tiny").exists()


AGENT = """
import sys, threading
from pathlib import Path
from agent.component.component import StepContext
from agent.facts import Facts, LocalHost
from agent.host.processes import LocalProcesses
from dependencies.python.environment_installation import *

class Progress:
    def update(self, message, **_): pass

folder, wheels = map(Path, sys.argv[1:3])
facts, stop = Facts(LocalHost(), {"package_dir": folder}), threading.Event()
wish = PythonEnvironmentInstallation(PythonEnvironmentInstallationParameters.model_validate(
    {"packageName": "tiny", "requirements": ["tiny_one==1.0"], "wheelsDir": wheels, "requiredSpace": 0}))
(step,) = wish.plan(facts).steps
processes = LocalProcesses(sys.argv[3])
step.run(StepContext(facts, processes, Progress(), stop, folder / "run", folder, folder / "log"))
"""


def test_killed_in_the_middle_it_is_made_anew(quick_host: RealHost, wheels: Path) -> None:
    packages, run_id = quick_host.context.package_dir, f"run-killed-{os.getpid()}"
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(packages), str(wheels), run_id], start_new_session=True
    )
    wait_for(lambda: list(packages.glob(".environments/tiny-*/bin/python")))
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()
    assert not (packages / "tiny").exists()
    type(quick_host.context.processes)(run_id).kill_leftovers()  # type: ignore[call-arg]
    assert quick_host.apply(installation(wheels, "tiny_one==1.0")) == ["install"]
    assert imported(quick_host, "tiny_one") == "1.0"


def test_requirements_in_one_string() -> None:
    text = "a>=1,<2, b[x,y]==3 ,c; python_version in '3.10,3.11'\n# comment\nd @ https://h/d.whl"
    expected = ["a>=1,<2", "b[x,y]==3", "c; python_version in '3.10,3.11'", "d @ https://h/d.whl"]
    assert split_requirements(text) == expected


@pytest.mark.parametrize("value", ["a==", "--index-url=x", ["-r x"], "", []])
def test_what_is_no_requirement(value: object) -> None:
    with pytest.raises(ValidationError):
        PythonEnvironmentInstallationParameters.model_validate({"packageName": "x", "requirements": value})


UNREACHABLE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to establish a \
new connection: [Errno 111] Connection refused')': /simple/tiny-one/
ERROR: Could not find a version that satisfies the requirement tiny_one (from versions: none)
ERROR: No matching distribution found for tiny_one
"""


def test_a_build_from_source_shows_that_it_lives() -> None:
    """Show pip's lines, its only output for minutes; they are those of pip 26 without a terminal."""
    progress = PipProgress(2)
    line = "  Building wheel for mlcommons-loadgen (pyproject.toml): {}"
    assert progress.read(line.format("started")) == "building mlcommons-loadgen from source"
    assert progress.read(line.format("still running...")) == (
        "building mlcommons-loadgen from source, which goes on"
    )
    assert progress.read(line.format("finished with status 'done'")) is None


def test_progress_and_remedies() -> None:
    progress = PipProgress(2)
    assert progress.read("Collecting numpy==1") == "1 of 2 packages: collecting numpy==1"
    assert (
        progress.read("  Downloading https://x/numpy-1.whl (1 MB)")
        == "1 of 2 packages: downloading numpy-1.whl"
    )
    assert progress.read("Installing collected packages: a, b") == "installing 2 packages"
    assert progress.read("anything") is None
    assert "HTTPS_PROXY" in (pip_remedy(UNREACHABLE) or "")
    assert pip_remedy("anything") is None


def test_a_long_list_of_requirements_has_no_expected_duration(wheels: Path, quick_host: RealHost) -> None:
    def estimate_s(count: int) -> float | None:
        requirements = [f"package-{number}==1.0" for number in range(count)]
        return installation(wheels, *requirements).plan(quick_host.facts).steps[0].estimate_s

    assert estimate_s(3) == 30
    assert estimate_s(180) is None
