"""A whole experiment with scripts in the model's place: worlds, guidance, masks, rows, report.

Real daemon, real simulators, real commands; only training and the model are left out.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.experiments import experiment_report, measure_stage, run_stages
from houston_daemon.experiments.experiment_run import ExperimentRun, prepare_run
from houston_daemon.experiments.order_vocabulary import draw_orders
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedEndpoint,
    ScriptedTurn,
    endpoint_engine,
)
from houston_shared.store import rollout_queries as queries
from houston_shared.store import step_json
from tests.support.small_tokenizer import small_tokenizer
from tests.training.experiments.test_order_vocabulary import measured_in

pytestmark = pytest.mark.slow
RECIPE = """
name = "whole"
seeds = [1]
at_once = 4
sandbox = "bubblewrap"

[model]
engine = {engine}

[expert]
drift = 1.0
habits = ["dither", "guess"]
gives_up = 1.0

[annotator]
failing = ["Use plain commands."]
idle = ["Go on with the task."]

[orders]
train = 2
each = 3
held_out = 6

[[worlds]]
name = "house"
domain = "puzzles"
environment = "textworld"
instructions = "You play a text game."
train = 1
held_out = 1
steps = 24
[worlds.world]
game = "house"
rooms = 2
objects = 5
quest_length = 2
goal = "detailed"

[[worlds]]
name = "lifespan"
domain = "biology"
environment = "scienceworld"
instructions = "You are in a school of science."
train = 1
held_out = 1
steps = 40
[worlds.world]
tasks = ["lifespan-longest-lived"]
"""


class Half:
    """The model's stand-in: it follows orders to open or list, and does nothing in worlds."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[str, Any]] = {}

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        for text in chat.heard:
            tool, arguments = self.calls[text]
            if tool in ("open_file", "list_files"):
                return ScriptedTurn("", tool, arguments)
        return (
            ScriptedTurn("", "finish", {})
            if "act" in chat.tools
            else ScriptedTurn("", "think", {"thought": "?"})
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExperimentRun]:
    """Sampled, judged, measured; the daemon is stopped at the end."""
    folder = tmp_path_factory.mktemp("experiment")
    half = Half()
    with ScriptedEndpoint(half) as endpoint:
        table = ", ".join(
            f"{k} = {json.dumps(v)}" for k, v in endpoint_engine(endpoint.port).items()
        )
        file = folder / "whole.toml"
        table += f", window = 8192, tokenizer = {json.dumps(small_tokenizer(folder))}"
        file.write_text(RECIPE.replace("{engine}", f"{{ {table} }}"))
        prepare_run(file, folder / "run", False, ["experiment", "whole.toml"])
        run = run_stages.open_run(folder / "run", lambda line: None)
        for order in draw_orders(run.orders, "held_out", 6, 1):
            half.calls[order.text] = (order.tool, order.arguments)
        run.experiment_home.start()
        try:
            run_stages.sample_and_judge(run, run.recipe.arms)
            run.stages.run_stage(
                "measure-base-1", lambda begun: measure_stage.measure_arm(run, "", 1, begun)
            )
            yield run
        finally:
            run.experiment_home.stop()


def stage(run: ExperimentRun, name: str) -> dict[str, Any]:
    result = run.stages.result(name)
    assert result is not None
    return result


def rollouts(run: ExperimentRun, kind: str, what: str) -> list[str]:
    by_id = stage(run, f"sample-{kind}")["rollouts"]
    return [rollout for rollout, each in by_id.items() if each == what]


@pytest.mark.parametrize("world", ["house", "lifespan"])
def test_a_word_brings_a_drifting_agent_to_the_end_and_without_it_it_gives_up(
    run: ExperimentRun, world: str
) -> None:
    (guided,), (alone,) = (rollouts(run, kind, world) for kind in ("guided", "alone"))
    scores = run.experiment_home.scores([guided, alone])
    assert scores[guided][-1].score == 100
    assert scores[alone][-1].score < 100
    assert run.experiment_home.guidance(guided)
    assert not run.experiment_home.guidance(alone)
    assert run.experiment_home.steps(alone)[-1].sample.calls[0].name == "finish"


def test_orders_are_followed_at_the_next_step(run: ExperimentRun) -> None:
    for rollout in rollouts(run, "guided", "orders"):
        guidance = run.experiment_home.guidance(rollout)
        assert [message.step for message in guidance] == [1, 2, 3]
        steps = {step.step: step for step in run.experiment_home.steps(rollout)}
        for message in guidance:
            assert steps[message.step + 1].sample.thought.startswith("The person comes first")
    assert not any(map(run.experiment_home.guidance, rollouts(run, "alone", "orders")))


def test_what_is_measured_stands_in_nothing_that_is_learned_from(run: ExperimentRun) -> None:
    for rollout in rollouts(run, "guided", "orders") + rollouts(run, "alone", "orders"):
        row = run.experiment_home.read(queries.find_rollout(rollout))
        texts = [repr(run.experiment_home.read(queries.read_rollout_head(row)))]
        texts += [
            step_json.observation_as_seen(step) + repr(step.sample.calls)
            for step in run.experiment_home.steps(rollout)
        ]
        assert not [word for text in texts for word in measured_in(run.orders.held_out, text)]


def test_what_brought_a_rollout_no_further_is_masked_by_both_and_rows_differ_by_arm(
    run: ExperimentRun,
) -> None:
    masked = stage(run, "judge-guided")["steps"]
    assert masked["masked by human"] > 0
    exports = {
        arm: run.stages.run_stage(
            f"rows-{arm}", lambda begun, arm=arm: run_stages.export_arm_rows(run, arm, begun)
        )
        for arm in run_stages.ARM_ENGINES
    }
    trained = {arm: export["counts"]["trained"] for arm, export in exports.items()}
    assert trained["without-masking"] > trained["full"] > trained["without-interaction"] > 0
    data = run.folder / exports["without-masking"]["folder"] / "data.jsonl"
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    ids = list(stage(run, "sample-guided")["rollouts"])
    assert list(dict.fromkeys(line["rollout"] for line in lines)) == ids


def test_the_report_says_what_came_out_and_how_to_get_it_again(run: ExperimentRun) -> None:
    file = Path(experiment_report.write_report(run))
    text = file.read_text(encoding="utf-8")
    results = json.loads((file.parent / "results.json").read_text(encoding="utf-8"))
    shares = stage(run, "measure-base-1")["obedience"]["shares"]
    assert shares["all"]["followed"] == 2  # one order to open, one to list, of six kinds
    assert f"2 of 6, {2 / 6:.0%}" in text
    assert "houston experiment whole.toml" in text
    assert "**Not complete**" in text
    assert "without-masking" in text
    assert results["arms"]["base"]["scores"]["final"]["task-weighted mean"]["value"] == 0
    for name in ("scores", "score-over-time", "obedience"):
        assert f"![{name}]({name}.svg)" in text
        assert (file.parent / f"{name}.svg").stat().st_size > 1_000
        assert (file.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_done_is_not_done_again(run: ExperimentRun) -> None:
    before = len(run.experiment_home.read(queries.list_rollouts()))
    run_stages.sample_and_judge(run, run.recipe.arms)
    assert len(run.experiment_home.read(queries.list_rollouts())) == before
