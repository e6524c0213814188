"""The simulated annotator beside rollouts that a model samples: it reads what was recorded."""

import json
import threading
from pathlib import Path

import pytest

from houston_daemon.training.experiment import conduct, serving
from houston_daemon.training.experiment.annotator import AUTHOR
from houston_daemon.training.experiment.endpoint import Conversation, Endpoint, Turn, engine
from houston_daemon.training.experiment.own_home import OwnHome, Spoiled
from houston_daemon.training.experiment.run import prepare
from houston_daemon.training.experiment.solutions import Solutions
from houston_daemon.training.experiment.stages import Begun
from houston_daemon.training.experiment.watching import LOOKED, Watching
from houston_shared.store.queries import rollouts
from tests.console.homes import HomeBuilder

RECIPE = """
name = "watched"
sampler = "policy"
arms = ["full"]

[model]
engine = {engine}

[annotator]
failing = ["Use plain commands."]
idle = ["Go on with the task."]

[masks]
rules = false

[[worlds]]
name = "house"
domain = "puzzles"
environment = "textworld"
instructions = "You play a text game."
train = 1
steps = 200
[worlds.world]
game = "house"
rooms = 2
objects = 5
quest_length = 2
goal = "detailed"
"""


def looking(seen: Conversation) -> Turn:
    """Looks again and again until somebody speaks, slowly enough to be seen."""
    threading.Event().wait(0.1)
    if seen.all_heard:
        return Turn("", "finish", {})
    return Turn("", "act", {"action": "look"})


def test_what_ran_on_while_nobody_watched_is_no_guided_rollout(tmp_path: Path) -> None:
    file = tmp_path / "watched.toml"
    file.write_text(RECIPE.replace("{engine}", "{}"))
    prepare(file, tmp_path / "run", False, ["experiment"])
    run = conduct.opened(tmp_path / "run", lambda line: None)
    kept = tmp_path / "sample-guided.begun.json"
    with HomeBuilder(run.ground.home.path) as builder:
        for rollout in ("one", "two"):
            builder.start(rollout)
            for step in (1, 2, 3):
                builder.whole(rollout, step)
        Begun(kept).put("house", ["one", "two"])
        Begun(kept).put(LOOKED, {"one": 2, "two": 1})
        builder.state("one", "finished", "worker")  # its last step needs no look
        watch = Watching(run, ("one", "two"), Solutions(), Begun(kept))
        builder.state("two", "finished", "worker")
        watch.look()  # it ended beside somebody who watched
        with pytest.raises(Spoiled, match=r"1 of 2 .* two because: .* while nobody watched"):
            Watching(run, ("one", "two"), Solutions(), Begun(kept))


def test_rollouts_of_another_policy_are_refused(tmp_path: Path) -> None:
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("one")  # with policy@1
        found = OwnHome(tmp_path, {}).read(rollouts.all_rollouts())
    serving.check(found, "policy@1")
    with pytest.raises(Spoiled, match="one because: it sampled with policy@1, not base"):
        serving.check(found, "")


def test_a_model_that_drifts_is_spoken_to_and_its_drift_is_masked(tmp_path: Path) -> None:
    with Endpoint(looking) as endpoint:
        table = ", ".join(f"{k} = {json.dumps(v)}" for k, v in engine(endpoint.port).items())
        file = tmp_path / "watched.toml"
        file.write_text(RECIPE.replace("{engine}", f"{{ {table} }}"))
        prepare(file, tmp_path / "run", False, [])
        run = conduct.opened(tmp_path / "run", lambda line: None)
        run.ground.start()
        try:
            conduct.sample(run, run.recipe.arms)
            ((rollout, what),) = (run.stages.done("sample-guided") or {})["rollouts"].items()
            assert what == "house"
            said = run.ground.guidance(rollout)
            assert said[0].text == "Go on with the task."
            assert said[0].author == AUTHOR
            kept = Begun(run.folder / "stages" / "sample-guided.begun.json")
            assert kept.get(LOOKED, dict)[rollout] >= 2
            steps = run.ground.steps(rollout)
            assert [one.sample.calls[0].name for one in steps][-1] == "finish"
            judged = (run.stages.done("judge-guided") or {})["steps"]
            assert judged["masked by human"] == judged["all"] == len(steps) > 2
        finally:
            run.ground.stop()
