"""Rollouts on several machines: this one, and one behind a real sshd that comes and goes."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.hosts.ssh.remote_part import name_home
from houston_daemon.hosts.ssh.ssh_connection import PERSON_SECONDS
from tests.support.sshd import Sshd
from tests.support.station import Station, command_line
from tests.support.terminals import end_terminals


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    made = Sshd(tmp_path / "s")
    yield made
    end_terminals(Path(made.host.host_root))
    made.close()


@pytest.fixture
def station(tmp_path: Path, sshd: Sshd) -> Iterator[Station]:
    made = Station(tmp_path)
    made.home.mkdir()
    (made.home / "houston.toml").write_text(sshd.table("gpu2"))
    yield made
    made.clear()


def _task(station: Station, hosts: list[str], name: str = "probe") -> Path:
    file = station.task(name, budget="command_seconds = 20")
    file.write_text(f"hosts = {hosts!r}\n".replace("'", '"') + file.read_text())
    return file


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_a_rollout_goes_on_when_a_host_is_cut_off_in_the_middle_of_a_command(
    station: Station, sshd: Sshd
) -> None:
    sshd.start()
    long = "touch begun; for i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 0.25; done"
    script = [
        {"calls": [_call("run_command", command="hostname > here.txt; pwd")]},
        {"calls": [_call("create_file", filename="there.py", content="x = 1\n", host="gpu2")]},
        {"calls": [_call("run_command", command=long, host="gpu2")]},
        {"calls": [_call("run_command", command="echo answer > answer.txt")], "delay": 2.5},
        {"calls": [_call("get_session_output", host="gpu2"), _call("list_sessions")]},
        {"calls": [_call("run_command", command="ls", host="gpu3")]},
        {"calls": [_call("eval")]},
    ]
    station.start()
    (rollout,) = station.rollout(_task(station, ["local", "gpu2"]), station.script(script))
    there = Path(sshd.host.host_root) / "rollouts" / rollout / "workspace"
    station.until((there / "begun").exists, 60, "the command there")
    sshd.cut()
    assert station.ended(rollout)["state"] == "finished"
    steps = station.steps(rollout)
    assert (there / "there.py").read_text() == "x = 1\n"
    assert (there / "README.md").exists()
    assert not (there / "answer.txt").exists()
    said = [step["observation"] for step in steps]
    assert "went away while run_command ran" in said[2]
    assert "was not run again" in said[2]
    assert "tick 8" in said[4]
    assert "main on local" in said[4]
    assert "main on gpu2" in said[4]
    assert "'gpu3'" in said[5] or "gpu3" in said[5]
    assert "100" in said[6]
    files = [[file["path"] for file in step["files"]] for step in steps]
    assert files[0] == ["here.txt"]
    assert files[1] == ["gpu2:there.py"]
    assert any("gpu2:begun" in paths for paths in files[2:4])
    spans = station.query("SELECT DISTINCT host FROM terminals ORDER BY host")
    assert [host for (host,) in spans] == ["gpu2", "local"]
    _branched(station, rollout, Path(sshd.host.host_root))


def _branched(station: Station, rollout: str, there: Path) -> None:
    """A branch has the workspaces of both hosts as they were after the step."""
    (row,) = station.json("rollout", "branch", rollout, "--at", "6")
    station.ended(row["rollout"])
    workspace = there / "rollouts" / row["rollout"] / "workspace"
    assert sorted(path.name for path in workspace.iterdir()) == [
        "README.md",
        "begun",
        "there.py",
    ]
    own = station.host_root / "rollouts" / row["rollout"] / "workspace"
    assert (own / "here.txt").exists()
    assert _clean(station, row["rollout"], "--snapshots").returncode == 0
    assert not workspace.exists() and not own.exists()


@pytest.mark.slow
def test_the_only_host_may_be_another_machine(station: Station, sshd: Sshd) -> None:
    script = [
        {"calls": [_call("run_command", command="cat /data/words > answer.txt; cat README.md")]},
        {"calls": [_call("open_file", path="answer.txt"), _call("parse_latex", **TEX)]},
        {"calls": [_call("eval")]},
    ]
    station.start()
    task = _task(station, ["gpu2"])
    (task.parent / "workspace" / "a.tex").write_text("\\section{Heading}\nText.\n")
    (task.parent / "words.txt").write_text("hi\n")
    task.write_text(task.read_text() + '\n[data.mounts]\nwords = "words.txt"\n')
    assert "gpu2 cannot be reached" in _doctor(station)
    (rollout,) = station.rollout(task, station.script(script))
    (kept,) = station.rollout(task, f"script:{station.folder}/script.jsonl")
    station.run("rollout", "pause", kept)
    station.until(lambda: station.state(rollout) == "paused", 60, "the pause")
    shown = station.show(rollout)
    assert shown["paused_by"] == "host-away" and "gpu2 cannot be reached" in shown["reason"]
    assert "resumes when that is over" in station.run("rollout", "resume", rollout, code=1).stderr
    sshd.start()
    assert "houston-agents" in _doctor(station)
    assert station.ended(rollout)["state"] == "finished"
    assert station.show(kept)["paused_by"].startswith("person:"), "a person's pause stays"
    station.run("rollout", "cancel", kept)
    station.ended(kept)
    _clean(station, kept, "--snapshots")  # it may have begun before its pause
    first, second, third = station.steps(rollout)[:3]
    assert "Hello." in first["observation"]
    assert "hi" in second["observation"]
    assert "Heading" in second["observation"]
    assert "100" in third["observation"]
    _looked_at_from_here(station, sshd, rollout)


@pytest.mark.slow
def test_work_is_scored_where_the_task_says(station: Station, sshd: Sshd) -> None:
    """The evaluator runs on the second machine, over the workspace there and nothing else."""
    sshd.start()
    script = [
        {"calls": [_call("run_command", command="echo here > answer.txt"), _call("eval")]},
        {"calls": [_call("run_command", command="ln -s /proc/self/cwd way", host="gpu2")]},
        {"calls": [_call("eval")]},
        {"calls": [_call("run_command", command="rm way; echo there > answer.txt", host="gpu2")]},
        {"calls": [_call("eval")]},
    ]
    task = _task(station, ["local", "gpu2"])
    task.write_text(task.read_text().replace("[evaluate]", '[evaluate]\nhost = "gpu2"'))
    station.start()
    (rollout,) = station.rollout(task, station.script(script))
    assert station.ended(rollout)["state"] == "finished"
    said = [step["observation"] for step in station.steps(rollout)]
    assert "overall_score: 0 of 100" in said[0], "this machine's workspace is not the scored one"
    assert "Links of the workspace lead to the evaluator's own files or into /proc: way" in said[2]
    assert "overall_score: 100 of 100 (1 submission left)" in said[4]
    best = station.folder / "best"
    station.run("rollout", "restore", rollout, "--best", "--out", str(best))
    assert (best / "answer.txt").read_text() == "there\n"


def _looked_at_from_here(station: Station, sshd: Sshd, rollout: str) -> None:
    """Its workspace and what its terminals printed can be had here, and its folder freed there."""
    was, best = station.folder / "was", station.folder / "best"
    station.run("rollout", "restore", rollout, "--at", "1", "--out", str(was))
    assert sorted(path.name for path in was.iterdir()) == ["README.md", "a.tex", "answer.txt"]
    assert (was / "answer.txt").read_text() == "hi\n"
    (scored,) = station.json("rollout", "restore", rollout, "--best", "--out", str(best))
    assert (scored["score"], scored["lost"], (best / "a.md").exists()) == (100, [], True)
    assert "│ Hello." in station.run("steps", rollout, "--printed", "--to", "1").stdout
    sshd.stop()
    there = Path(sshd.host.host_root) / "rollouts" / rollout
    shown = station.run("steps", rollout, "--printed", "--to", "1").stdout
    assert "its log is on the host gpu2, not here" in shown and "cannot be reached" in shown
    refused = station.run("rollout", "restore", rollout, "--at", "1", "--out", "no", code=75)
    assert "gpu2 cannot be reached" in refused.stderr
    words = ("rollout", "printed", rollout, "main", "--host", "gpu2", "--out", "log")
    assert "gpu2 cannot be reached" in station.run(*words, code=75).stderr
    assert not (station.folder / "no").exists() and not (station.folder / "log").exists()
    said = _clean(station, rollout).stdout
    assert "gpu2 cannot be reached" in said and f"rollouts/{rollout} stay" in said
    assert (there / "workspace").exists()
    shelf = Path(f"{sshd.host.host_root}.parcels")
    assert len(list(shelf.iterdir())) == 4, "workspace, data, the task's folder, and the lock"
    sshd.start()
    assert _clean(station, rollout).returncode == 0
    assert sorted(path.name for path in there.iterdir()) == ["holder", "shadow"]
    assert [path.name for path in shelf.iterdir()] == [".lock"]


def _clean(station: Station, *words: str) -> subprocess.CompletedProcess[str]:
    """`houston rollout clean`, once the rollout's worker has gone, too."""

    def asked() -> subprocess.CompletedProcess[str] | None:
        done = station.run("rollout", "clean", *words, code=None)
        return None if "is just ending" in done.stderr else done

    found: subprocess.CompletedProcess[str] = station.until(asked, 60, "its worker has gone")
    return found


def _doctor(station: Station) -> str:
    found = station.run("doctor", code=None).stdout.splitlines()
    return next(line for line in found if "host gpu2" in line)


TEX = {"file_path": "a.tex", "save_path": "a.md"}


@pytest.mark.slow
def test_a_killed_worker_goes_on_there_and_what_is_left_there_is_ended_when_it_is_back(
    station: Station, sshd: Sshd
) -> None:
    sshd.start()
    script = [
        {"calls": [_call("run_command", command="sleep 901", wait_for_completion=False)]},
        {"calls": [_call("sleep", sleep_time=600)]},
        {"calls": [_call("list_sessions")]},
        {"calls": [_call("sleep", sleep_time=600)]},
    ]
    station.start()
    (rollout,) = station.rollout(_task(station, ["gpu2"]), station.script(script))
    station.until(lambda: station.closed(rollout) == 1, 60, "the command runs")
    os.kill(station.process("--rollout", rollout), signal.SIGKILL)
    station.run("guide", rollout, "Go on.", "--wake")
    station.until(lambda: station.closed(rollout) == 3, 60, "the next worker asks there")
    assert "main: running 'sleep 901'" in station.steps(rollout)[2]["observation"]
    sshd.stop()
    station.run("rollout", "cancel", rollout)
    station.ended(rollout)
    note = station.host_root / "there" / f"{rollout}@gpu2.json"
    assert note.exists()
    assert _runs("sleep 901")
    said = _clean(station, rollout).stdout
    assert " stay." in said and note.exists()
    sshd.start()
    station.run("daemon", "restart")
    station.until(lambda: not note.exists(), 60, "it is told there")
    station.until(lambda: not _runs("sleep 901"), 60, "it has ended there")


def _runs(words: str) -> bool:
    return any(words in command_line(entry) for entry in Path("/proc").glob("[0-9]*"))


@pytest.mark.slow
def test_a_workspace_that_is_taken_away_there_pauses_its_rollout_until_it_is_back(
    station: Station, sshd: Sshd
) -> None:
    sshd.start()
    script = [
        {"calls": [_call("run_command", command=f"echo {n} >> lines.txt")], "delay": 0.5}
        for n in range(1, 13)
    ]
    script[4]["delay"] = PERSON_SECONDS + 10  # until then the host may come back by itself
    task = _task(station, ["gpu2"])
    task.write_text(task.read_text().replace('sandbox = "bubblewrap"', 'sandbox = "none"'))
    station.start()
    (rollout,) = station.rollout(task, station.script(script))
    station.until(lambda: station.closed(rollout) >= 2, 60, "it works there")
    workspace = Path(sshd.host.host_root) / "rollouts" / rollout / "workspace"
    assert workspace.with_name("holder").read_text() == name_home(station.home.resolve())
    away = workspace.rename(workspace.with_name("away"))
    sshd.cut()
    station.until(lambda: station.state(rollout) == "paused", 120, "it waits for a person")
    shown = station.show(rollout)
    assert shown["paused_by"] == "host"
    assert f"{workspace} is gone" in shown["reason"]
    away.rename(workspace)
    station.run("rollout", "resume", rollout)
    assert station.ended(rollout)["state"] == "finished"
    said = [step["observation"] for step in station.steps(rollout)]
    assert not any(str(workspace) in text for text in said), "nor is the agent told where it lies"
    assert (workspace / "lines.txt").read_text().split()[-1] == "12"


@pytest.mark.slow
def test_a_task_that_names_an_unknown_host_is_not_started(station: Station) -> None:
    task = _task(station, ["local", "mars"])
    engine = station.script([{"calls": []}])
    station.start()
    refused = station.run("rollout", "start", str(task), "--engine", engine, code=66)
    assert "There is no host 'mars'" in refused.stderr
