"""Suites through the real daemon: runs, results, comparisons, and worlds that survive a kill."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.suites.suite_catalog import SUITES, write_suite_task
from tests.support.station import Station

SCORES = "SELECT best_score, last_score, evaluations, steps FROM rollouts WHERE id = ?"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


def script(calls: list[dict[str, Any]], delay: float = 0.0) -> list[dict[str, Any]]:
    return [{"thought": "", "calls": [call], "delay": delay} for call in calls]


def solution(name: str, split: str, index: int) -> list[dict[str, Any]]:
    solve = SUITES[name].solve
    assert solve is not None
    return solve(split, index)


def test_a_world_of_words_is_the_same_after_a_kill_and_in_a_branch(station: Station) -> None:
    station.start()
    calls = solution("word-worlds", "test", 0)
    wrong = {"name": "search", "arguments": {"words": "coin"}}
    engine = station.script(script([calls[0], wrong, *calls[1:]], delay=0.3))
    task = write_suite_task("word-worlds", "test", 0, station.folder / "tasks")
    (rollout,) = station.rollout(task, engine)
    station.until(lambda: station.closed(rollout) >= 2, why="two steps")
    station.kill_daemon()
    station.start()
    assert station.ended(rollout)["state"] == "finished"
    assert station.query(SCORES, rollout) == [(100.0, 100.0, 1, 4)], "the box was open still"
    branch = station.json("rollout", "branch", rollout, "--at", "3")[0]["rollout"]
    assert station.ended(branch)["state"] == "finished"
    assert station.query(SCORES, branch)[0][:2] == (100.0, 100.0), "in the world as it was"
    station.run("verify")


def test_a_suite_is_run_kept_and_compared(station: Station) -> None:
    station.start()
    solving = solution("word-worlds-easy", "test", 0)
    good = station.script(script(solving), "good")
    poor = station.script(script([{"name": "push", "arguments": {}}] * 8), "poor")
    words = ("suite", "run", "word-worlds-easy", "-n", "6", "--attempts", "2")
    (solved,) = station.json(*words, "--engine", good, "--name", "good")
    (failed,) = station.json(*words, "--engine", poor, "--name", "poor")
    assert solved["worlds"] == 6 and solved["attempts"] == 2 and solved["unfinished"] == 0
    assert solved["pass@1"]["value"] >= 1 / 6 and solved["failures"]["value"] < 2
    assert failed["pass@1"]["value"] == 0.0 and failed["pass@2"]["value"] == 0.0
    assert failed["failures"]["value"] == 8.0 and failed["steps"]["value"] == 8.0
    kept = json.loads(Path(solved["file"]).read_text())
    assert kept["worlds"][0]["attempts"][0]["score"] == 100.0, "its own solution was played"
    (report,) = station.json("evaluate", "--compare", "word-worlds-easy/poor", solved["file"])
    compared = report["difference"]
    assert compared["worlds"] == 6
    assert "word-worlds-easy-1-test-0" in compared["flips"]["gained"]
    assert compared["failures"]["value"] < 0 and not compared["flips"]["lost"]
    assert compared["pass@2"]["value"] == solved["pass@2"]["value"]
    again = station.run(*words, "--engine", good, "--name", "good", code=1)
    assert "already exists" in again.stderr
    assert "word-worlds-easy: " in station.run("suite", "list").stdout


def test_a_failed_call_is_taken_back_and_corrected_ahead(station: Station) -> None:
    station.start()
    way = solution("word-worlds", "test", 0)
    wrong = {"name": "open", "arguments": {"box": "coin"}}
    first, *rest = script([wrong, *way[1:]])
    engine = station.script([{**first, "lookahead": script([wrong, way[0]])}, *rest])
    words = ("suite", "run", "word-worlds", "-n", "1", "--engine", engine, "--purify", "on")
    (figures,) = station.json(*words)
    assert figures["pass@1"]["value"] == 1.0
    assert figures["failures"]["value"] == 2.0, "what was taken back was a failure all the same"
    assert figures["steps"]["value"] == 3.0


@pytest.mark.parametrize("name", ["small-workstation", "python-problems"])
def test_suites_for_language_models_are_solved_by_their_calls(station: Station, name: str) -> None:
    station.start()
    task = write_suite_task(name, "validation", 3, station.folder / "tasks")
    engine = station.script(script(solution(name, "validation", 3)))
    (rollout,) = station.rollout(task, engine)
    assert station.ended(rollout)["state"] == "finished"
    assert station.query(SCORES, rollout)[0][:2] == (100.0, 100.0)
