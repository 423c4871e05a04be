"""The results folder knows who uses it, which run is the latest, and what is wrong with it."""

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from agent.core.errors import HostError, UsageError
from agent.store import results
from agent.store.journal import Journal
from agent.store.results import JOURNAL, ResultsFolder, write_json

A, B = "20260401T120000Z-perf-0a1b", "20260402T120000Z-perf-2c3d"


def made(folder: ResultsFolder, *run_ids: str) -> None:
    folder.prepare()
    for run_id in run_ids:
        Journal(folder.create(run_id) / JOURNAL).close()


def test_run_ids_sort_by_time_and_are_safe_as_names(tmp_path: Path) -> None:
    moment = datetime(2026, 4, 1, 12, 0, 0, tzinfo=timezone.utc)
    folder = ResultsFolder(tmp_path)
    run_id = folder.new_run_id("PERF CPU/../MLPERF", moment)
    assert run_id.startswith("20260401T120000Z-perf-cpu-mlperf-")
    assert folder.new_run_id("PERF CPU/../MLPERF", moment) != run_id


def test_a_new_run_id_is_that_of_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2026, 4, 1, 12, 0, 0, tzinfo=timezone.utc)
    folder = ResultsFolder(tmp_path)
    by_chance = iter(["1f2e", "1f2e", "03c4"])
    monkeypatch.setattr(results.secrets, "token_hex", lambda _: next(by_chance))
    (tmp_path / folder.new_run_id("P", moment)).mkdir()
    assert folder.new_run_id("P", moment) == "20260401T120000Z-p-03c4"


def test_latest_follows_the_newest_run(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "deep" / "results")
    made(folder, A, B)
    assert (folder.path / "latest").resolve().name == B
    assert folder.find(None).name == B
    assert folder.find("20260401T1").name == A
    assert folder.find(str(folder.path / A)).name == A
    assert [path.name for path in folder.runs()] == [A, B]


def test_a_run_that_does_not_exist_is_named_with_the_nearest(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    with pytest.raises(UsageError, match="there are no runs"):
        folder.find(None)
    made(folder, A, B)
    with pytest.raises(UsageError, match="fits several runs"):
        folder.find("2026")
    with pytest.raises(UsageError) as caught:
        folder.find("20260401T120000Z-prf-0a1b")
    assert A in str(caught.value)


def test_a_second_agent_is_told_who_is_at_it(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.prepare()
    code = (
        "import sys; from pathlib import Path; from agent.store.results import ResultsFolder\n"
        "with ResultsFolder(Path(sys.argv[1])).locked('run-1'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(HostError, match=rf"process {holder.pid}, run run-1"), folder.locked("run-2"):
            pass
        holder.kill()
        holder.wait()
        with folder.locked("run-2"):
            pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot be written to"):
        ResultsFolder(tmp_path / "file" / "results").prepare()


def test_json_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert path.read_text() == '{\n  "a": 1\n}\n'


def test_a_planted_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = ResultsFolder(tmp_path / "results")
    folder.prepare()
    (folder.path / ".vcagent.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"), folder.locked("run"):
        pass
    assert victim.read_text() == "precious"


def test_somebody_s_own_latest_stays(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.prepare()
    (tmp_path / "latest").write_text("mine")
    made(folder, A)
    assert (tmp_path / "latest").read_text() == "mine"
    assert folder.find(None).name == A
