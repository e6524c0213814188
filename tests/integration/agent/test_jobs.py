"""Jobs of rollouts that really ran: what `houston jobs` says of what runs, has ended, and how."""

from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared.home import Home
from tests.support.station import Station


def do(name: str, **arguments: Any) -> dict[str, Any]:
    return {"thought": "On.", "calls": [{"name": name, "arguments": arguments}]}


def left_running(command: str, session: str) -> dict[str, Any]:
    return do("run_command", command=command, session_id=session, wait_for_completion=False)


SLEEP = do("sleep", sleep_time=600)
GO = "until test -e go; do sleep 0.05; done"
JOBS = [
    left_running(f"{GO}; echo epoch 3; python3 -c 'raise SystemExit(3)'", "train"),
    left_running(f"{GO}; echo all done", "good"),
    left_running("sleep 600", "mine"),
    do("run_command", command=f"({GO}; echo no luck; exit 4) > apart.log 2>&1 &"),
    do("kill_session_processes", session_id="mine"),
    left_running("printf 'step 1\\rstep 2'; sleep 600", "serve"),
    SLEEP,
]


@pytest.fixture
def running(station: Station) -> Iterator[Station]:
    station.start()
    yield station


def start(station: Station, name: str, steps: list[dict[str, Any]]) -> str:
    task = station.task(name, budget="steps = 50\n")
    (rollout,) = station.rollout(task, station.script(steps, name))
    return rollout


def jobs(station: Station, rollout: str) -> dict[str, dict[str, Any]]:
    """By session."""
    return {job["session"]: job for job in station.json("jobs", rollout)}


def need(station: Station, rollout: str) -> dict[str, str]:
    (row,) = [one for one in station.json("rollout", "list") if one["rollout"] == rollout]
    return {one["kind"]: one["text"] for one in row["reasons"]}


def go(station: Station, rollout: str) -> None:
    (station.host_root / "rollouts" / rollout / "workspace" / "go").touch()


def state(station: Station, rollout: str) -> dict[str, tuple[str, int | None, str]]:
    """By session, how its job stands, its exit code, and the last line that it printed."""
    return {
        name: (job["state"], job["exit_code"], job["last_line"])
        for name, job in jobs(station, rollout).items()
    }


def test_jobs_are_told_while_the_agent_sleeps(running: Station) -> None:
    rollout = start(running, "jobs", JOBS)
    running.until(lambda: len(jobs(running, rollout)) == 5, why="all are told")
    told = {
        "train": ("running", None, ""),
        "good": ("running", None, ""),
        "mine": ("stopped", 143, "Terminated"),
        "main": ("running", None, ""),
        "serve": ("running", None, "step 2"),
    }
    running.until(lambda: state(running, rollout) == told, why="how each stands is told")
    assert jobs(running, rollout)["main"]["output"] == "/workspace/apart.log"
    assert "job_failed" not in need(running, rollout), "the agent ended it itself"
    assert {name: job["step"] for name, job in jobs(running, rollout).items()} == {
        "train": 1, "good": 2, "mine": 3, "main": 4, "serve": 6,
    }  # fmt: skip
    go(running, rollout)
    running.until(
        lambda: [job["exit_code"] for job in running.json("jobs", rollout)] == [3, 0, 143, 4, None],
        why="they have ended, and the agent sleeps still",
    )
    assert state(running, rollout)["train"] == ("failed", 3, "epoch 3")
    assert state(running, rollout)["good"] == ("done", 0, "all done")
    assert state(running, rollout)["main"] == ("failed", 4, "no luck")
    reason = need(running, rollout)["job_failed"]
    assert reason.startswith("background job failed: 2 jobs, the last ")
    assert reason.endswith("; the agent has closed no step since")
    assert "job_failed" not in {
        signal for step in running.steps(rollout) for signal in step["attention"]
    }, "no step could show it yet"
    assert "background job failed" in running.run("rollout", "list").stdout
    running.run("rollout", "cancel", rollout)
    running.ended(rollout)
    assert state(running, rollout)["serve"] == ("stopped", None, "step 2")
    assert need(running, rollout) == {}
    running.stop()
    assert verify_home(Home(running.home)).findings == ()


def test_what_jobs_prints(running: Station) -> None:
    rollout = start(running, "words", [*JOBS[:1], *JOBS[4:5], SLEEP])
    running.until(lambda: len(jobs(running, rollout)) == 1, why="it is told")
    shown = running.run("jobs", rollout).stdout.splitlines()
    assert shown[0].startswith("running  step 1 · session train · started 20")
    assert shown[1] == f"  {JOBS[0]['calls'][0]['arguments']['command']}"
    none = running.run("jobs", rollout, "--state", "failed")
    assert none.stdout == "" and f"No job of {rollout} is failed." in none.stderr
    quiet = start(running, "quiet", [do("run_command", command="echo hello & wait"), SLEEP])
    running.until(lambda: running.closed(quiet) == 1, why="it sleeps")
    said = running.run("jobs", quiet)
    assert said.stdout == ""
    assert f"{quiet} has no jobs: no command has outlived the call that started it." in said.stderr
    assert f"next: houston steps {quiet}" in said.stderr
    assert running.json("jobs", quiet) == []


def test_a_job_that_follows_another_takes_its_reason(running: Station) -> None:
    steps = [
        left_running(f"{GO}; exit 1", "train"),
        SLEEP,
        left_running("sleep 600", "train"),
        SLEEP,
    ]
    rollout = start(running, "again", [{**steps[0]}, *steps[1:]])
    running.until(lambda: len(jobs(running, rollout)) == 1, why="it runs")
    go(running, rollout)
    running.until(lambda: "job_failed" in need(running, rollout), why="its shell has exited")
    assert "ended with exit code 1" in need(running, rollout)["job_failed"]
    running.run("guide", rollout, "It has failed.", "--wake")
    running.until(lambda: len(running.json("jobs", rollout)) == 2, why="the agent starts another")
    assert "job_failed" not in need(running, rollout)
    assert [job["state"] for job in running.json("jobs", rollout)] == ["failed", "running"]


@pytest.mark.slow
def test_what_ended_while_no_daemon_ran_is_told_by_the_next(running: Station) -> None:
    """With the time at which it ended, and once."""
    rollout = start(running, "away", JOBS[:1] + JOBS[3:4] + JOBS[5:])
    running.until(lambda: len(jobs(running, rollout)) == 3, why="all are told")
    running.kill_daemon()
    go(running, rollout)
    folder = running.host_root / "rollouts" / rollout / "workspace"
    running.until(lambda: "no luck" in (folder / "apart.log").read_text(), why="it goes on")
    running.until(
        lambda: b"epoch 3" in b"".join(
            file.read_bytes() for file in folder.parent.glob("terminals/train/log.*")
        ),
        why="so does the other",
    )  # fmt: skip
    assert state(running, rollout)["train"][0] == "running", "as far as anybody knows"
    running.start()
    running.until(lambda: state(running, rollout)["train"][0] == "failed", why="its successor")
    running.until(lambda: state(running, rollout)["main"][1] == 4, why="tells what it finds")
    told = running.query("SELECT count(*) FROM events WHERE kind = 'job'")
    assert told == [(5,)], "three that ran, two that ended"
    assert state(running, rollout)["serve"][0] == "running"
