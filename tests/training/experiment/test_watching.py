"""The simulated annotator beside rollouts that a model samples: it reads what was recorded."""

import json
import threading
from pathlib import Path

from houston_daemon.training.experiment import conduct
from houston_daemon.training.experiment.annotator import AUTHOR
from houston_daemon.training.experiment.endpoint import Conversation, Endpoint, Turn, engine
from houston_daemon.training.experiment.run import prepare

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
            steps = run.ground.steps(rollout)
            assert [one.sample.calls[0].name for one in steps][-1] == "finish"
            judged = (run.stages.done("judge-guided") or {})["steps"]
            assert judged["masked by human"] == judged["all"] == len(steps) > 2
        finally:
            run.ground.stop()
