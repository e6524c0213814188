"""Obedience of recorded rollouts: what was tested, and what a run that goes on cannot measure."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.experiments import measure_stage
from houston_daemon.experiments.experiment_home import ExperimentHome, StageInvalid
from houston_daemon.experiments.experiment_run import StageProgress
from houston_daemon.experiments.order_vocabulary import OrderMessage, draw_orders, read_vocabulary
from houston_shared.errors import HoustonError
from houston_shared.records import AT_REST_ACTIVITY
from tests.console.home_builder import HomeBuilder

SETTINGS = {"answer_tokens": 64, "temperature": 0.7, "sandbox": "none"}
ORDER = OrderMessage("Open plan.md.", "open", True, "open_file", {"path": "plan.md"})
FOLLOWS: Any = (("open_file", {"path": "plan.md"}),)
OTHER: Any = (("list_files", {"path": "."}),)


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[HomeBuilder]:
    with HomeBuilder(tmp_path / "home") as builder:
        yield builder


@pytest.fixture
def experiment_home(builder: HomeBuilder, tmp_path: Path) -> ExperimentHome:
    return ExperimentHome(tmp_path, {})


# What each step did, before which of them the order was said (0: never), and what came of it.
TESTED = {
    "followed": ([OTHER, FOLLOWS, OTHER], 1, True),
    "not followed": ([OTHER, OTHER, FOLLOWS], 1, False),
    "no call at all": ([OTHER, (), OTHER], 1, False),
    "heard late": ([OTHER, OTHER, FOLLOWS], 2, True),
    "heard at the last step": ([OTHER, OTHER, FOLLOWS], 3, None),
    "never heard": ([OTHER, FOLLOWS], 0, None),
}


@pytest.mark.parametrize("case", TESTED)
def test_only_an_order_that_a_step_came_after_is_tested(
    case: str, builder: HomeBuilder, experiment_home: ExperimentHome
) -> None:
    steps, heard, followed = TESTED[case]
    builder.start("one")
    for step, calls in enumerate(steps, 1):
        if step == heard:
            builder.say("one", "g1", ORDER.text)
        builder.whole("one", step, "", calls)
    (order,) = measure_stage.heard_orders(experiment_home, {"one": ORDER})
    assert order.followed is followed
    shares = measure_stage.obedience_result([order])["shares"]["all"]
    tested = followed is not None
    assert (shares["followed"], shares["of"]) == (int(bool(followed)), int(tested))
    assert shares["untested"] == int(not tested)


def begun(tmp_path: Path, *rollouts: str) -> StageProgress:
    file = tmp_path / "begun.json"
    file.write_text(json.dumps({"known": {"held-out-1-1": rollouts}, "seconds": 1.0}))
    return StageProgress(file)


def test_a_rollout_that_ended_before_its_order_was_said_is_begun_anew(
    builder: HomeBuilder, experiment_home: ExperimentHome, tmp_path: Path
) -> None:
    builder.start("one")
    vocabulary = read_vocabulary()

    def begin() -> dict[str, OrderMessage]:
        ids = begun(tmp_path, "one")
        return measure_stage.begin_order_rollouts(
            experiment_home, tmp_path / "tasks", vocabulary, "model", 1, 1, SETTINGS, ids
        )

    with pytest.raises(HoustonError) as away:  # no daemon: the next --resume says it
        begin()
    assert not isinstance(away.value, StageInvalid)
    builder.state("one", "finished", "worker")
    with pytest.raises(StageInvalid, match="one because: it ended before its order was sent"):
        begin()
    builder.say("one", "g1", draw_orders(vocabulary, "held_out", 1, 1)[0].text)
    assert list(begin()) == ["one"]


@pytest.mark.parametrize(
    ("by", "problem"),
    [
        ("engine", "not over after 1 s"),
        ("host-away", "not over after 1 s"),
        ("restore", "somebody must look"),
        ("person:ada", "somebody must look"),
    ],
)
def test_a_pause_that_the_daemon_ends_is_waited_for(
    by: str, problem: str, builder: HomeBuilder, experiment_home: ExperimentHome
) -> None:
    builder.start("one")
    builder.state("one", "paused", by, "somebody must look")
    builder.activity("one", AT_REST_ACTIVITY)
    with pytest.raises(HoustonError, match=f"one does not end: {problem}"):
        experiment_home.wait(["one"], 1.0)
