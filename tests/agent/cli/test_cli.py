"""The program from a user's view: exit codes, messages with remedies, never a traceback."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import _arguments, main
from agent.core.errors import ExitCode

COMMANDS = [
    "run",
    "plan",
    "resume",
    "runs",
    "report",
    "show",
    "profiles",
    "facts",
    "doctor",
    "parse",
    "compare",
    "convert",
    "bundle",
    "fleet",
]


def vcagent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str, str]:
    """Call the program in this process; return exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["vcagent", *arguments])
    monkeypatch.setenv("COLUMNS", "300")
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    captured = capsys.readouterr()
    return int(code), captured.out, captured.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--profile", "P"], ["run", "--profile", "P"]),
        (["-p", "P", "--clean"], ["run", "-p", "P", "--clean=all"]),
        (["--clean", "logs,packages", "--yes"], ["run", "--clean=logs,packages", "--yes"]),
        (["--clean", "P.yaml"], ["run", "--clean=all", "P.yaml"]),
        (["--clean", "--clean", "logs"], ["run", "--clean=all", "--clean=logs"]),
        (["plan", "--profile", "P"], ["plan", "--profile", "P"]),
        (["MY-BENCH.yaml", "--yes"], ["run", "MY-BENCH.yaml", "--yes"]),
        (["./p.JSON"], ["run", "./p.JSON"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_run_is_meant_where_no_command_is_named(given: list[str], meant: list[str]) -> None:
    assert _arguments(given) == meant


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = vcagent(capsys, monkeypatch, command, "--help")
    assert code == 0
    assert f"vcagent {command}" in out.replace("\n", " ")


EXECUTE = "actions:\n- type: ExecuteCommand\n  parameters: "
BAD_PROFILES = {
    "missing": (None, "is neither an installed profile nor a file"),
    "broken YAML": ("description: x\nactions: [\n", "TEST.yaml:3"),
    "not a profile": ("- just\n- a list\n", "TEST.yaml"),
    "empty": ("", "TEST.yaml"),
    "unknown key": ("description: x\nactoins: []\n", "did you mean"),
    "unknown type": (
        "description: x\nactions:\n- type: ExecuteComand\n",
        "did you mean ExecuteCommand?",
    ),
    "unknown parameter": (
        f"description: x\n{EXECUTE}\n    comand: ls\n",
        "TEST.yaml:5: ExecuteCommand has no parameter 'comand'; did you mean command",
    ),
    "unknown parameter in a parameter": (
        (
            "description: x\nactions:\n- type: LoadGenExecutor\n  parameters: {model: m, environment: /e,\n"
            "    loadgen_scenario: Offline, vllm: {model: m, llmConfig: {}}}\n"
        ),
        "LoadGenExecutor has no parameter 'vllm.llmConfig'; did you mean llm_config?",
    ),
    "unknown parameter in a list": (
        f"description: x\n{EXECUTE}{{command: ls, metrics: [{{name: x, regx: '(?P<value>.)'}}]}}\n",
        "ExecuteCommand has no parameter 'metrics[0] (x).regx'; did you mean regex?",
    ),
    "wrong value": (
        f"description: x\n{EXECUTE}{{command: ls, max_retries: often}}\n",
        "max_retries",
    ),
    "reference to nothing": (
        f"description: x\nparameters: {{Folder: /}}\n{EXECUTE}{{command: ls $.Parameters.Foldr}}\n",
        "Folder",
    ),
    "cycle": (
        f"description: x\nparameters:\n  A: '{{B}}'\n  B: '{{A}}'\n{EXECUTE}{{command: 'ls {{A}}'}}\n",
        "A",
    ),
    "component outside a group": (
        "description: x\nactions:\n- {type: ExecuteCommand, components: [{type: ExecuteCommand}]}\n",
        "TEST.yaml",
    ),
}


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("case", BAD_PROFILES)
def test_a_bad_profile_is_an_error_before_anything_is_done(
    case: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, message = BAD_PROFILES[case]
    path = tmp_path / "TEST.yaml"
    if text is not None:
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    code, out, err = vcagent(capsys, monkeypatch, command, "--profile", str(path))
    assert code == ExitCode.PROFILE_INVALID, err
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in out + err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "no profile is named"),
        (["run", "--profile", "P", "--iterations", "0"], "--iterations"),
        (["run", "--profile", "P", "--nonsense"], "--nonsense"),
        (["run", "--profile", "EXECUTE-COMMAND", "--parameters", "Command"], "name=value"),
        (
            ["run", "-p", "EXECUTE-COMMAND", "--parameters", "Command=true", "--timeout", "soon"],
            "not a timeout",
        ),
        (
            ["run", "-p", "EXECUTE-COMMAND", "--parameters", "Command=true", "--scenarios", "Excute"],
            "scenario",
        ),
        (["run", "--clean=everything"], "cannot remove 'everything'"),
        (["resume"], "there are no runs"),
        (["report", "x"], "there are no runs"),
        (["parse", "."], ""),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_wrong_command_line_is_explained(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = vcagent(capsys, monkeypatch, *arguments)
    assert code in (ExitCode.USAGE, ExitCode.ACTION_FAILED)
    assert message in err
    assert "Traceback" not in out + err


def test_a_run_prints_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCAGENT_PACKAGE_DIR", str(tmp_path / "packages"))
    code, out, _ = vcagent(
        capsys, monkeypatch, "--profile", "EXECUTE-COMMAND", "--parameters", "Command=echo hello", "--json"
    )
    assert code == 0
    run = json.loads(out)
    assert [step["status"] for step in run["steps"]] == ["done"]
    assert Path(run["report"]).is_file()
    code, out, _ = vcagent(capsys, monkeypatch, "runs", "--json")
    assert [row["run_id"] for row in json.loads(out)["runs"]] == [run["run_id"]]
    code, out, _ = vcagent(capsys, monkeypatch, "report", "--json")
    assert json.loads(out)["run_id"] == run["run_id"]
    code, out, _ = vcagent(capsys, monkeypatch, "report")
    assert "report.html" in out
    code, out, err = vcagent(capsys, monkeypatch, "resume")
    assert (code, "is complete" in err) == (ExitCode.OK, True)
    assert "Result:" in out


def test_a_plan_is_shown_and_nothing_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "mark"
    arguments = ("plan", "--profile", "EXECUTE-COMMAND", "--parameters", f"Command=touch {mark}")
    code, out, _ = vcagent(capsys, monkeypatch, *arguments)
    assert (code, f"touch {mark}" in out) == (0, True)
    code, out, _ = vcagent(capsys, monkeypatch, *arguments, "--json")
    (component,) = json.loads(out)["components"]
    assert (component["standing"], component["steps"][0]["command"]) == ("planned", f"touch {mark}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["plan", "run"])
def test_samples_is_the_profiles_parameter(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = (
        "description: x\nparameters: {Samples: 9}\n"
        "actions: [{type: ExecuteCommand, parameters: {command: 'echo {Samples}'}}]\n"
    )
    (tmp_path / "TEST.yaml").write_text(profile)
    (tmp_path / "OTHER.yaml").write_text(profile.replace("Samples", "AccuracySamples"))
    asked = ("--parameters", "Samples=7", "--samples", "5")
    code, out, _ = vcagent(capsys, monkeypatch, command, "--profile", "TEST.yaml", *asked)
    assert code == 0
    if command == "plan":
        assert "echo 5" in out
    else:
        log = next((tmp_path / "results").glob("2*/logs/1-*.log")).read_text()
        assert "echo 5" in log
    code, _, err = vcagent(capsys, monkeypatch, command, "--profile", "OTHER.yaml", "--samples", "5")
    assert code == ExitCode.PROFILE_INVALID
    assert "declares no parameter 'Samples'" in err
    assert "did you mean AccuracySamples?" in err
    code, _, err = vcagent(capsys, monkeypatch, command, "--profile", "TEST.yaml", "--samples", "0")
    assert code == ExitCode.USAGE
    assert "--samples" in err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--exit-wait=3", "No such option: --exit-wait\n  → it has no equivalent"),
        ("--packageStore=x", "No such option: --packageStore\n  → packages come"),
        ("--logger=console", "→ records go to sinks: --sink"),
    ],
)
def test_an_option_of_virtualclient_names_what_to_use(
    option: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = vcagent(capsys, monkeypatch, "--profile=EXECUTE-COMMAND", option)
    assert code == ExitCode.USAGE
    assert told in err


def test_show_masks_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "TEST.yaml"
    path.write_text(
        "description: x\nparameters: {ApiToken: hunter2-horse}\nactions: [{type: ExecuteCommand}]\n"
    )
    code, out, _ = vcagent(capsys, monkeypatch, "show", str(path), "--json")
    assert code == 0
    assert json.loads(out)["description"] == "x"
    assert "hunter2-horse" not in out


def test_clean_removes_runs_and_packages_of_ours_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    packages = tmp_path / "packages"
    monkeypatch.setenv("VCAGENT_PACKAGE_DIR", str(packages))
    vcagent(capsys, monkeypatch, "--profile", "EXECUTE-COMMAND", "--parameters", "Command=true", "-q")
    (tmp_path / "results/mine").mkdir()
    (tmp_path / "results/mine/journal.sqlite").write_text("somebody's own diary")
    assert len(list((tmp_path / "results").glob("2*"))) == 1
    (run,) = (tmp_path / "results").glob("2*")
    (run / "notes.txt").write_text("mine")
    (packages / "precious").write_text("mine")
    (packages / "own-folder").mkdir()
    code, out, err = vcagent(capsys, monkeypatch, "--clean")
    assert code == ExitCode.USAGE
    assert "add --yes" in err
    assert f"remove {run}: " in out
    assert " files, 0." in out
    assert (run / "journal.sqlite").exists()
    code, out, _ = vcagent(capsys, monkeypatch, "--clean", "--yes")
    assert code == 0
    for kept in (packages / "precious", packages / "own-folder", run / "notes.txt"):
        assert f"left   {kept}: " in out
        assert kept.exists()
    assert [path.name for path in run.iterdir()] == ["notes.txt"]
    shutil.rmtree(run)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [".vcagent.lock", "mine"]
    code, out, _ = vcagent(capsys, monkeypatch, "--clean=logs")
    assert (code, out) == (0, "Nothing to remove.\n")

    (packages / ".vcagent-packages").unlink()
    vcagent(capsys, monkeypatch, "--profile", "EXECUTE-COMMAND", "--parameters", "Command=true", "-q")
    vcagent(capsys, monkeypatch, "--clean=packages", "--yes")
    assert (packages / "precious").exists()
    assert len(list((tmp_path / "results").glob("2*"))) == 1


def test_a_disk_that_fills_in_the_middle_is_told(tmp_path: Path) -> None:
    """Use a limit on the size of files instead of a full disk: writes fail with an error as well."""
    profile = tmp_path / "TEST.yaml"
    profile.write_text(f"description: x\n{EXECUTE}{{command: 'seq 1 400000; true'}}\n")
    result = subprocess.run(
        [sys.executable, "-c", "from agent.cli.main import main; main()", "--profile", str(profile), "-q"],
        cwd=tmp_path,
        env={**os.environ, "VCAGENT_PACKAGE_DIR": str(tmp_path / "packages")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode in (ExitCode.HOST_CANNOT_RUN, ExitCode.ACTION_FAILED)
    assert "Traceback" not in result.stdout + result.stderr
    assert "File too large" in result.stdout + result.stderr


def test_help_and_version_start_without_the_heavy_imports() -> None:
    code = (
        "import sys; sys.argv = ['vcagent', '--help']\n"
        "from agent.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pydantic', 'jinja2', 'invoke', 'psutil', 'sqlite3', 'yaml', 'simpleeval'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.endswith("HEAVY []\n")


@pytest.mark.parametrize(
    ("output", "command", "code"),
    [
        ("2> >(true) | true", "true", ExitCode.OK),
        ("2> >(true) | true", "false", ExitCode.ACTION_FAILED),
        (">&- 2>&-", "true", ExitCode.OK),
        (">&-", "true", ExitCode.OK),
        (">/dev/full 2>/dev/full", "true", ExitCode.OK),
        ("--json >/dev/full", "false", ExitCode.ACTION_FAILED),
    ],
)
def test_nobody_reading_changes_nothing(output: str, command: str, code: int, tmp_path: Path) -> None:
    program = f"{sys.executable} -c 'from agent.cli.main import main; main()'"
    arguments = f"--profile EXECUTE-COMMAND --parameters Command={command}"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {program} {arguments} {output}; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env={**os.environ, "VCAGENT_PACKAGE_DIR": str(tmp_path / "packages")},
        check=False,
        timeout=60,
    )
    assert result.returncode == code
    (run,) = (tmp_path / "results").glob("2*")
    assert (run / "report.html").is_file()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_fleet_hosts_shows_no_secret_and_says_what_a_limit_does_not_fit(
    form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = tmp_path / "hosts"
    inventory.write_text(
        'a vcagent_parameters=\'{"HFToken": "hf_PlantedToken", "Model": "small"}\'\n'
        "b ansible_password=planted-word ansible_ssh_common_args='-o ProxyCommand=\"relay planted-word\"'\n"
    )
    arguments = ("fleet", "hosts", "-i", str(inventory), "--limit", "all,!gone", *form)
    code, out, err = vcagent(capsys, monkeypatch, *arguments)
    assert code == 0
    assert "small" in out
    assert "***" in out
    assert "lanted" not in out + err
    assert "warning: --limit 'gone' matches no host" in err


def test_one_parameter_that_is_wrong_for_several_elements_is_one_problem(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "P.yaml"
    path.write_text(
        "Description: A test.\nParameters: {Limit: soon}\nActions:\n"
        "- Type: SequentialExecution\n  Parameters: {ForEach: {Name: [a, b]}}\n  Components:\n"
        "  - {Type: ExecuteCommand, Parameters: {Command: 'true', Timeout: $.Parameters.Limit}}\n"
    )
    code, _, err = vcagent(capsys, monkeypatch, "plan", str(path))
    assert code == ExitCode.PROFILE_INVALID
    assert err.count("soon") == 1
