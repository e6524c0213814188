"""The simulated annotator beside rollouts that a model samples: it reads what was recorded."""

import json
import threading
from pathlib import Path

import pytest

from houston_daemon.experiments import experiment_run, run_stages
from houston_daemon.experiments.experiment_home import ExperimentHome, StageInvalid
from houston_daemon.experiments.experiment_run import StageProgress, prepare_run
from houston_daemon.experiments.experiment_tasks import WorldSolutions
from houston_daemon.experiments.sample_stage import LOOKED_KEY, AnnotatorWatch
from houston_daemon.experiments.scripted_agents import ANNOTATOR_AUTHOR
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedEndpoint,
    ScriptedTurn,
    endpoint_engine,
)
from houston_shared.errors import HoustonError
from houston_shared.store import rollout_queries
from tests.console.home_builder import HomeBuilder

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


def looking(chat: ChatHistory) -> ScriptedTurn:
    """Looks again and again until somebody speaks, slowly enough to be seen."""
    threading.Event().wait(0.1)
    if chat.all_guidance:
        return ScriptedTurn("", "finish", {})
    return ScriptedTurn("", "act", {"action": "look"})


def test_what_ran_on_while_nobody_watched_is_no_guided_rollout(tmp_path: Path) -> None:
    file = tmp_path / "watched.toml"
    file.write_text(RECIPE.replace("{engine}", "{}"))
    prepare_run(file, tmp_path / "run", False, ["experiment"])
    run = run_stages.open_run(tmp_path / "run", lambda line: None)
    begun = tmp_path / "sample-guided.begun.json"
    with HomeBuilder(run.experiment_home.home.path) as builder:
        for rollout in ("one", "two"):
            builder.start(rollout)
            for step in (1, 2, 3):
                builder.whole(rollout, step)
        StageProgress(begun).put("house", ["one", "two"])
        StageProgress(begun).put(LOOKED_KEY, {"one": 2, "two": 1})
        builder.state("one", "finished", "worker")  # its last step needs no look
        watch = AnnotatorWatch(run, ("one", "two"), WorldSolutions(), StageProgress(begun))
        builder.state("two", "finished", "worker")
        watch.look()  # it ended beside somebody who watched
        with pytest.raises(StageInvalid, match=r"1 of 2 .* two because: .* while nobody watched"):
            AnnotatorWatch(run, ("one", "two"), WorldSolutions(), StageProgress(begun))


def test_a_command_that_takes_too_long_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HoustonError, match="houston rollout list did not end within") as ended:
        ExperimentHome(tmp_path, {}).run("rollout", "list", seconds=0.0)
    assert "--resume" in ended.value.next


def test_rollouts_of_another_policy_are_refused(tmp_path: Path) -> None:
    with HomeBuilder(tmp_path / "home") as builder:
        builder.start("one")  # with policy@1
        rows = ExperimentHome(tmp_path, {}).read(rollout_queries.list_rollouts())
    experiment_run.check_sampled_policy(rows, "policy@1")
    with pytest.raises(StageInvalid, match="one because: it sampled with policy@1, not base"):
        experiment_run.check_sampled_policy(rows, "")


def test_a_model_that_drifts_is_spoken_to_and_its_drift_is_masked(tmp_path: Path) -> None:
    with ScriptedEndpoint(looking) as endpoint:
        table = ", ".join(
            f"{k} = {json.dumps(v)}" for k, v in endpoint_engine(endpoint.port).items()
        )
        file = tmp_path / "watched.toml"
        file.write_text(RECIPE.replace("{engine}", f"{{ {table} }}"))
        prepare_run(file, tmp_path / "run", False, [])
        run = run_stages.open_run(tmp_path / "run", lambda line: None)
        run.experiment_home.start()
        try:
            run_stages.sample_and_judge(run, run.recipe.arms)
            ((rollout, what),) = (run.stages.result("sample-guided") or {})["rollouts"].items()
            assert what == "house"
            guidance = run.experiment_home.guidance(rollout)
            assert guidance[0].text == "Go on with the task."
            assert guidance[0].author == ANNOTATOR_AUTHOR
            begun = StageProgress(run.folder / "stages" / "sample-guided.begun.json")
            assert begun.get(LOOKED_KEY, dict)[rollout] >= 2
            steps = run.experiment_home.steps(rollout)
            assert [step.sample.calls[0].name for step in steps][-1] == "finish"
            judged = (run.stages.result("judge-guided") or {})["steps"]
            assert judged["masked by human"] == judged["all"] == len(steps) > 2
        finally:
            run.experiment_home.stop()
