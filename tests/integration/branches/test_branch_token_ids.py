"""A branch asks its engine with the very ids that its parent asked with: the prefix cache hits."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.conftest import free_port
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station

PROGRAM = Path(__file__).parents[2] / "faults/engine.py"
TASK = """
name = "words"
instructions = "Go on."
environment = "null"
[budget]
steps = 14
context_tokens = 1200
answer_tokens = 300
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    folder = tmp_path_factory.mktemp("tokens")
    tokenizer, port = small_tokenizer(folder), free_port()
    engine = subprocess.Popen([sys.executable, PROGRAM, str(port), tokenizer, str(folder / "seen")])
    (folder / "houston.toml").write_text(
        f"[engines.small]\nkind = 'token'\nurl = 'http://127.0.0.1:{port}/v1'\n"
        f"tokenizer = '{tokenizer}'\n"
    )
    made = Station(folder)
    made.environment["HOUSTON_CONFIG"] = str(folder / "houston.toml")
    try:
        (folder / "task.toml").write_text(TASK)
        made.start()
        yield made
    finally:
        made.clear()
        engine.kill()
        engine.wait()


def prompts(place: Station) -> list[list[int]]:
    lines = (place.folder / "seen").read_text().splitlines()
    return [json.loads(line)["prompt"] for line in lines]


@pytest.mark.slow
def test_the_shared_context_is_the_same_token_by_token(place: Station) -> None:
    hold = place.folder / "seen.hold"
    hold.touch()
    (parent,) = place.rollout(place.folder / "task.toml", "small")
    place.run("guide", parent, "Keep to the words.")
    hold.unlink()
    assert place.ended(parent)["state"] == "finished"
    forks = [step for (step,) in place.query("SELECT step FROM forks WHERE rollout = ?", parent)]
    assert len(forks) >= 2, "the context must have been forked for this to prove anything"
    theirs = {step: place.json("context", parent, str(step))[0] for step in (6, 7, 11, 12)}
    for step in (7, 12):
        before = len(prompts(place))
        (row,) = place.json("rollout", "branch", parent, "--at", str(step - 1))
        made = row["rollout"]
        assert place.ended(made)["state"] == "finished"
        mine = place.json("context", made, str(step))[0]
        if step not in forks:  # there the branch sums up for itself
            assert mine["token_ids"] == theirs[step]["token_ids"]
            assert mine["messages"] == theirs[step]["messages"]
            assert prompts(place)[before] == theirs[step]["token_ids"]
            assert mine["drift"] in ("clean", theirs[step]["drift"])
        assert same(place.json("context", made, str(step - 1))[0], theirs[step - 1])
        last = place.json("context", made, "14")[0]
        assert last["token_ids"], "the chain of parents leads through both"
        said = "<real_user>Keep to the words.</real_user>"
        assert last["rendered"].count(said) == 1, "verbatim through forks of both"
        kinds = ("--kind", "observation", "-n", "13")
        told = [(row["rollout"], row["step"]) for row in place.json("tail", made, *kinds)]
        assert told == [(made if n >= step else parent, n) for n in range(2, 15)]
        asked = place.json("tail", made, "--kind", "observation", "-n", "2")
        assert [row["step"] for row in asked] == [13, 14]
    place.run("verify")


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {**one, "rendered": ""} == {**other, "rendered": ""}
