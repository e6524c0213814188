"""Branches: a sibling from the middle of a rollout shares its past and has its own world."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.station import Station, alive

BIG = 17 * 1024 * 1024


def run(command: str, **more: Any) -> dict[str, Any]:
    return {
        "thought": command,
        "calls": [{"name": "run_command", "arguments": {"command": command}}],
        **more,
    }


EVAL = {"thought": "score", "calls": [{"name": "eval", "arguments": {}}]}
FIRST = [
    run("echo one > a.txt; mkdir -p sub/deep; ln -s a.txt link"),
    EVAL,
    run(f"head -c {BIG} /dev/zero > big.bin; cp big.bin gone.bin; echo three > a.txt"),
    run("rm -r sub gone.bin; echo four > a.txt; echo yes > answer.txt"),
]
OTHER = [*FIRST[:3], run("cat a.txt; echo changed > b.txt"), run("sleep 30 &", delay=0), EVAL]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    made = Station(tmp_path_factory.mktemp("branches"))
    try:
        made.start()
        yield made
    finally:
        made.clear()


@pytest.fixture(scope="module")
def parent(place: Station) -> str:
    """A finished rollout of four steps and a last evaluation."""
    task = place.task("tree", budget="steps = 40\nevaluations = 5")
    (rollout,) = place.rollout(task, place.script(FIRST, "tree"))
    assert place.ended(rollout)["state"] == "finished"
    return rollout


def branch(place: Station, parent: str, step: int, *words: str) -> str:
    (row,) = place.json("rollout", "branch", parent, "--at", str(step), *words)
    return str(row["rollout"])


def test_a_branch_goes_on_from_the_step_in_a_world_of_its_own(place: Station, parent: str) -> None:
    place.script(OTHER, "tree")  # what the model would say another time
    before = place.query("SELECT count(*), max(seq) FROM events WHERE rollout = ?", parent)
    made = branch(place, parent, 3, "--guidance", "Look at b.txt first.")
    shown = place.ended(made)
    assert (shown["state"], shown["steps"], shown["evaluations"]) == ("finished", 7, 2)
    assert shown["parent"] == {"rollout": parent, "step": 3}
    steps = place.steps(made)
    assert [one["step"] for one in steps] == list(range(1, 8))
    assert [one.get("inherited") for one in steps] == [parent] * 3 + [None] * 4
    strip = ("rollout", "inherited")
    assert [{k: v for k, v in one.items() if k not in strip} for one in steps[:3]] == [
        {k: v for k, v in one.items() if k not in strip} for one in place.steps(parent)[:3]
    ]
    own = steps[3]
    assert "three" in own["observation"]
    assert own["guidance"][0]["text"] == "Look at b.txt first."
    assert "no session is open" in own["observation"]
    assert "[these files could not be brought back: gone.bin]" in own["observation"]
    assert "no session is open" not in steps[4]["observation"]
    workspace = Path(shown["workspace"])
    assert (workspace / "a.txt").read_text() == "three\n"
    assert (workspace / "b.txt").read_text() == "changed\n"
    assert (workspace / "sub/deep").is_dir()
    assert (workspace / "link").is_symlink()
    assert (workspace / "big.bin").stat().st_size == BIG
    # Nothing is stored twice: the parent has no new event, the branch none of the shared steps.
    assert place.query("SELECT count(*), max(seq) FROM events WHERE rollout = ?", parent) == before
    first = "SELECT min(step) FROM events WHERE rollout = ? AND part IS NOT NULL"
    assert place.query(first, made) == [(4,)]
    place.run("verify")


def test_the_first_request_of_a_branch_is_that_of_its_parent(place: Station, parent: str) -> None:
    made = branch(place, parent, 2)
    place.ended(made)
    (mine,) = place.json("context", made, "3")
    (theirs,) = place.json("context", parent, "3")
    assert mine["messages"] == theirs["messages"]
    assert mine["rendered"] == theirs["rendered"]
    assert mine["parent"] == theirs["parent"]
    assert mine["drift"] == "clean"
    assert place.json("context", made, "2") == place.json("context", parent, "2")


def test_a_branch_of_a_branch_is_a_sibling_of_both(place: Station, parent: str) -> None:
    one = branch(place, parent, 3)
    place.ended(one)
    two = branch(place, one, 4)
    three = branch(place, one, 2)
    assert place.ended(two)["parent"] == {"rollout": one, "step": 4}
    assert place.ended(three)["parent"] == {"rollout": parent, "step": 2}
    assert [s.get("inherited") for s in place.steps(two)[:5]] == [parent] * 3 + [one, None]
    listed = {row["rollout"]: row["parent"] for row in place.json("rollout", "list")}
    assert listed[two] == {"rollout": one, "step": 4}
    assert f"branch of {one} at 4" in place.run("rollout", "list").stdout
    place.run("verify")


def test_a_killed_branch_goes_on_where_it_was(place: Station) -> None:
    slow = [
        run("echo a >> log"),
        run("echo b >> log"),
        run("echo c >> log"),
        run("true", delay=1.5),
    ]
    task = place.task("slow", budget="steps = 40\ncommand_seconds = 60")
    (rollout,) = place.rollout(task, place.script([*slow, run("cat log")], "slow"))
    place.until(lambda: place.closed(rollout) >= 3, why="three steps are closed")
    made = branch(place, rollout, 2, "--guidance", "Go on.")  # its parent still runs
    place.until(lambda: place.closed(made) >= 3, why="the branch has a step")
    pid = place.process("houston_daemon.agent.rollout_worker", f"--rollout {made} ")
    os.kill(pid, 9)
    place.until(lambda: not alive(pid), 60, "the worker is gone")
    assert place.ended(made)["state"] == "finished"
    assert place.ended(rollout)["state"] == "finished"
    assert place.steps(made)[-2]["observation"].splitlines()[1:4] == ["a", "b", "c"]
    heard = [g["text"] for one in place.steps(made) for g in one["guidance"]]
    assert heard == ["Go on."]


@pytest.mark.parametrize(
    ("step", "cause", "code"),
    [("9", "no closed step 9", 66), ("0", "usage", 2), ("3x", "usage", 2)],
)
def test_what_cannot_be_branched_is_said(
    place: Station, parent: str, step: str, cause: str, code: int
) -> None:
    done = place.run("rollout", "branch", parent, "--at", step, code=code)
    assert cause in done.stderr


def test_a_branch_with_nothing_to_say_is_a_mistake(place: Station, parent: str) -> None:
    """Such as of a script whose variable is empty: it would start one that nobody guides."""
    for nothing in ("", " \n"):
        done = place.run("rollout", "branch", parent, "--at", "1", "--guidance", nothing, code=2)
        assert "no text to say" in done.stderr


def test_a_step_or_a_submission_can_be_written_into_a_folder(
    place: Station, parent: str, tmp_path: Path
) -> None:
    place.run("rollout", "restore", parent, "--at", "1", "--out", str(tmp_path / "one"))
    assert (tmp_path / "one/a.txt").read_text() == "one\n"
    assert (tmp_path / "one/sub/deep").is_dir()
    lost = place.run(
        "rollout", "restore", parent, "--at", "3", "--out", str(tmp_path / "three"), code=1
    )
    assert lost.stderr == "not brought back: gone.bin\n"
    assert (tmp_path / "three/big.bin").stat().st_size == BIG
    (best,) = place.json("rollout", "restore", parent, "--best", "--out", str(tmp_path / "best"))
    assert (best["score"], best["lost"]) == (100, [])
    assert (tmp_path / "best/answer.txt").is_file()
    assert (tmp_path / "best/big.bin").stat().st_size == BIG
    again = ["rollout", "restore", parent, "--at", "1", "--out", str(tmp_path / "one")]
    assert "not an empty folder" in place.run(*again, code=2).stderr
