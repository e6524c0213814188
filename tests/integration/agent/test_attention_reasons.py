"""Reasons that order rollouts, of rollouts that really ran: a background job that failed, no gain
for long, an end that is low and that nobody has seen, an evaluator that fails, a budget that goes
without a submission, guidance that is not followed, an engine that refuses. Shown by every command
and by home.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from houston_console.app.console_app import HoustonConsole
from houston_console.screens.home_list import HomeList
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.home import Home
from tests.console.conftest import Seat
from tests.integration.agent.endpoint import Endpoint, error
from tests.support.station import Station

EVALUATE = """
import json, os, pathlib
file = pathlib.Path(os.environ["WORKSPACE"]) / "score.txt"
print(json.dumps({"overall_score": float(file.read_text())}))
"""


def do(name: str, **arguments: Any) -> dict[str, Any]:
    return {"thought": "On.", "calls": [{"name": name, "arguments": arguments}]}


def score(value: float) -> list[dict[str, Any]]:
    return [do("run_command", command=f"echo {value} > score.txt"), do("eval")]


def left_running(command: str, session: str) -> dict[str, Any]:
    return do("run_command", command=command, session_id=session, wait_for_completion=False)


WAIT = do("sleep", sleep_time=600)
JOBS = [
    left_running("until test -e go; do sleep 0.05; done; python3 -c 'raise SystemExit(3)'", "gpu"),
    left_running("until test -e go; do sleep 0.05; done; true", "good"),
    left_running("sleep 600", "mine"),
    do("run_command", command="touch go; sleep 1"),
    do("kill_session_processes", session_id="mine"),
    do("get_session_output", session_id="good"),
    do("get_session_output", session_id="mine"),
    do("get_session_output", session_id="gpu"),
    do("run_command", command="python3 -c 'import nowhere' > train.log 2>&1 & sleep 1"),
    do("run_command", command="tail -n 20 train.log"),
    WAIT,
]
NO_GAIN = [*score(60), *score(58), *score(60), *score(57), WAIT, *score(61), WAIT]
LOW = [*score(20), do("finish")]
GOOD = [*score(90), do("finish")]


@pytest.fixture
def running(station: Station) -> Iterator[Station]:
    station.start()
    yield station


def start(
    station: Station, name: str, steps: list[dict[str, Any]], limits: str = "", most: int = 50
) -> str:
    files = {"score.txt": "0"}
    budget = f"steps = {most}\nevaluations = 9\n[attention]\n{limits}"
    task = station.task(name, files=files, budget=budget, evaluate=EVALUATE, seconds=60)
    (rollout,) = station.rollout(task, station.script(steps, name))
    return rollout


def told(station: Station, rollout: str) -> dict[int, dict[str, str]]:
    """By step, the signals with their reasons."""
    return {
        one["step"]: one["attention_reasons"] for one in station.steps(rollout) if one["attention"]
    }


def need(station: Station, rollout: str) -> dict[str, str]:
    (row,) = [one for one in station.json("rollout", "list") if one["rollout"] == rollout]
    return {one["kind"]: one["text"] for one in row["reasons"]}


async def at_home(station: Station, words: str) -> None:
    """Wait until home says it."""
    loaded = LoadedConfiguration(Configuration(), Home(station.home), "defaults")
    app = HoustonConsole(loaded, folder=station.folder / "drafts")
    async with app.run_test(size=(220, 40)) as pilot:
        await app.refresh_from_store()
        await app.action_home()
        seat = Seat(app, pilot)
        await seat.until(lambda: words in seat.text(HomeList), words)


@pytest.mark.slow
async def test_a_background_job_that_failed_asks_for_a_person(running: Station) -> None:
    rollout = start(running, "jobs", JOBS)
    running.until(lambda: running.closed(rollout) == 10, why="the agent waits")
    failed = {step: said["job_failed"] for step, said in told(running, rollout).items()
              if "job_failed" in said}  # fmt: skip
    assert list(failed) == [8, 10], "neither the good one, nor the one that the agent killed"
    assert "SystemExit(3)" in failed[8] and failed[8].endswith("ended with exit code 3")
    assert "session gpu" in failed[8]
    assert "No module named 'nowhere'" in failed[10]
    assert need(running, rollout)["job_failed"] == f"background job failed: {failed[10]}"
    assert "background job failed" in running.run("rollout", "list").stdout
    assert "job failed" in running.run("since", rollout, "--peek").stdout
    await at_home(running, "background job failed")


async def test_no_better_score_for_long_asks_for_a_person_until_there_is_one(
    running: Station,
) -> None:
    rollout = start(running, "gain", NO_GAIN, "no_gain_evaluations = 2\nno_gain_seconds = 0\n")
    running.until(lambda: running.closed(rollout) == 8, why="it has scored four times")
    said = told(running, rollout)
    signs = {step: reasons["no_gain"] for step, reasons in said.items() if "no_gain" in reasons}
    assert signs == {
        6: "no better score than 60 in 2 evaluations",
        7: "no better score than 60 in 2 evaluations",
        8: "no better score than 60 in 3 evaluations",
    }
    assert need(running, rollout)["no_gain"] == f"no gain: {signs[8]}"
    assert "no gain" in running.run("rollout", "list").stdout
    assert "no gain" in running.run("since", rollout, "--peek").stdout
    await at_home(running, "no gain: no better score than 60")
    running.run("guide", rollout, "Try another way.", "--wake")
    running.until(lambda: running.closed(rollout) == 11, why="it scores better")
    assert "no_gain" not in need(running, rollout)


@pytest.mark.slow
def test_a_successor_counts_on_from_the_best_score(running: Station) -> None:
    steps = [*score(60), *score(50), {**do("list_files", path="."), "delay": 2.0}, *score(55), WAIT]
    rollout = start(running, "again", steps, "no_gain_evaluations = 2\nno_gain_seconds = 0\n")
    running.until(lambda: running.closed(rollout) == 4, why="it has scored twice")
    running.kill_daemon()
    running.start()
    running.until(lambda: running.closed(rollout) == 7, why="its successor scores")
    assert "no better score than 60 in 2 evaluations" in told(running, rollout)[7]["no_gain"]


@pytest.mark.slow
async def test_a_low_end_asks_for_a_person_until_somebody_has_looked(running: Station) -> None:
    low, good = start(running, "low", LOW), start(running, "good", GOOD)
    spent = start(running, "spent", score(20), most=2)
    enough = start(running, "enough", LOW, "low_score = 15\n")
    for rollout in (low, good, spent, enough):
        assert running.ended(rollout)["state"] == "finished"
    words = "ended low, unseen: best score 20"
    assert need(running, low) == {"ended_low": words}
    assert need(running, spent) == {"ended_low": words}, "a budget ended it"
    assert need(running, good) == need(running, enough) == {}
    assert words in running.run("rollout", "list").stdout
    await at_home(running, words)
    running.run("since", low, "--peek")
    assert need(running, low) == {"ended_low": words}, "who only peeks has not been there"
    running.run("since", low)
    running.until(lambda: need(running, low) == {}, why="somebody has looked")


EVALUATOR_FAILS = [
    do("run_command", command="echo none > score.txt"),
    do("eval"),
    *[do("run_command", command=f"echo {number}") for number in range(6)],
    do("eval"),
    WAIT,
    *score(30),
    WAIT,
]


async def test_an_evaluator_that_fails_asks_for_a_person_until_there_is_a_score(
    running: Station,
) -> None:
    rollout = start(running, "crash", EVALUATOR_FAILS)
    running.until(lambda: running.closed(rollout) == 9, why="it failed twice")
    reason = need(running, rollout)["evaluator_failed"]
    assert reason.startswith("evaluator failing, 2 submissions without a score: ")
    assert "failed with exit code 1" in reason and "could not convert string to float" in reason
    marked = [step for step, said in told(running, rollout).items() if "evaluator_failed" in said]
    assert marked == [2, 9], "steps in between do not fail"
    await at_home(running, "evaluator failing, 2 submissions")
    running.run("guide", rollout, "Go on.", "--wake")
    running.until(lambda: running.closed(rollout) == 12, why="it is scored")
    assert "evaluator_failed" not in need(running, rollout)


def test_a_budget_that_goes_without_a_submission_asks_for_a_person(running: Station) -> None:
    steps = [*[do("run_command", command=f"echo {n}") for n in range(9)], WAIT, *score(90)]
    rollout = start(running, "late", steps, "budget_share = 0.4\n", most=14)
    running.until(lambda: running.closed(rollout) == 9, why="little is left")
    assert min(told(running, rollout)) == 9, "5 of 14 steps are less than four tenths"
    words = "budget nearly gone: nothing was submitted, 5 of 14 steps left"
    assert need(running, rollout)["no_submission"] == words
    running.run("guide", rollout, "Go on.", "--wake")
    running.until(lambda: running.closed(rollout) >= 12, why="it submits")
    assert "no_submission" not in need(running, rollout)


def test_guidance_that_is_not_followed_asks_for_a_person(running: Station) -> None:
    steps = [WAIT, *[do("run_command", command=f"echo {n}") for n in range(3)], WAIT]
    rollout = start(running, "deaf", steps)
    running.until(lambda: running.query("SELECT 1 FROM events WHERE kind = 'intent'"), why="sleeps")
    running.run("guide", rollout, "Read README.md.", "--wake")
    running.until(lambda: running.closed(rollout) == 4, why="three steps went on")
    reason = need(running, rollout)["guidance_ignored"]
    assert reason == (
        "guidance not followed: heard in step 1, and 3 steps since name nothing of it"
        " (readme.md): Read README.md."
    )
    assert "not followed" in running.run("rollout", "list").stdout


def test_guidance_that_is_not_followed_is_found_by_a_successor(running: Station) -> None:
    slow = {**do("run_command", command="echo 2"), "delay": 3.0}
    steps = [WAIT, do("run_command", command="echo 1"), slow, do("list_files", path="."), WAIT]
    rollout = start(running, "deaf-again", steps)
    running.until(lambda: running.query("SELECT 1 FROM events WHERE kind = 'intent'"), why="sleeps")
    running.run("guide", rollout, "Read README.md.", "--wake")
    running.until(lambda: running.closed(rollout) == 2, why="it heard, and went on")
    running.kill_daemon()
    running.start()
    running.until(lambda: running.closed(rollout) == 4, why="its successor goes on")
    assert "heard in step 1, and 3 steps" in told(running, rollout)[4]["guidance_ignored"]


def test_an_engine_that_refuses_asks_for_a_person(station: Station) -> None:
    endpoint = Endpoint(lambda body: error(401, "Incorrect API key provided"))
    try:
        station.home.mkdir()
        (station.home / "houston.toml").write_text(
            "[daemon]\nengine_patience_seconds = 0\n"
            f'[engines.far]\nkind = "chat"\nmodel = "m"\nurl = "{endpoint.url}"\n'
        )
        station.start()
        (rollout,) = station.rollout(station.task(), "far")
        station.until(lambda: station.state(rollout) == "paused", why="the engine refused")
        station.until(
            lambda: need(station, rollout).get("engine", "").startswith("engine refuses: "),
            why="its worker says that it asks again",
        )
        assert "Incorrect API key provided" in need(station, rollout)["engine"]
        assert "refused the request with 401" in station.run("rollout", "list").stdout
    finally:
        endpoint.close()
