"""A worker killed at every message of a rollout: what follows is as if it had never died."""

from typing import Any, Literal

import pytest

from tests.integration.agent.rig import Cut, Rig

pytestmark = pytest.mark.timeout(900)

SCRIPT = [
    {"thought": f"t{n}", "calls": [{"name": "noop", "arguments": {"text": f"{n} " * 400}}]}
    for n in range(4)
] + [{"thought": "nothing", "calls": []}]
TASK = "[budget]\ncontext_tokens = 1500\nanswer_tokens = 64\n"


def summed_up(journal: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [row for row in journal if row[3] == "fork"]


def after_a_kill(rig: Rig, at: int, where: Literal["before", "after"]) -> tuple[str, str]:
    """Run a rollout whose first worker dies at message `at`; its id and that message."""
    rollout = rig.rollout(SCRIPT, task=TASK, name=f"cut-{at}-{where}")
    cut = Cut(rig, at, where)
    worker = rig.work(rollout, cut.endpoint)
    assert cut.reached.wait(60), f"message {at} is sent"
    rig.kill(worker, rollout)
    cut.close()
    if rig.state(rollout)[0] == "running":
        rig.run(rollout)
    assert rig.state(rollout)[0] == "finished"
    return rollout, cut.message


@pytest.mark.slow
def test_every_message_is_a_place_to_die(rig: Rig) -> None:
    whole = rig.rollout(SCRIPT, task=TASK, name="whole")
    rig.run(whole)
    told = rig.journal(whole)
    assert summed_up(told), "the rollout forks"
    open_calls = 0
    for at in range(1, len(told) + 2):
        for where in ("before", "after"):
            rollout, message = after_a_kill(rig, at, where)
            journal = rig.journal(rollout)
            unknown = [row for row in journal if row[4].get("kind") == "interrupted"]
            if (message, where) in {("StoreIntent", "after"), ("StoreResult", "before")}:
                open_calls += 1
                assert len(unknown) == 1, (at, where, "an honest result, and only one")
                honest(rig, rollout, journal)
            else:
                assert journal == told, (at, where, message)
    assert open_calls == 2 * sum(row[3] == "intent" for row in told)


def honest(rig: Rig, rollout: str, journal: list[tuple[Any, ...]]) -> None:
    """Nothing lost, nothing doubled, although one call's outcome is unknown."""
    keys = [row[:3] for row in journal]
    assert len(keys) == len(set(keys))
    steps = rig.steps(rollout)
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    assert [step.sample.thought for step in steps][: len(SCRIPT)] == [
        line["thought"] for line in SCRIPT
    ]
    for step in steps:
        assert step.observation is not None
        assert len(step.results) == len(step.intents) == len(step.sample.calls)


def test_a_successor_makes_the_worker_before_it_end(rig: Rig) -> None:
    slow = [{**SCRIPT[0], "delay": 0.3}] * 8
    rollout = rig.rollout(slow)
    first = rig.work(rollout)
    rig.until(lambda: rig.steps(rollout), why="the first step")
    second = rig.work(rollout)  # a higher lease, as after a partition
    first.join(30)
    assert first.exitcode == 0
    second.join(60)
    assert rig.state(rollout) == ("finished", "finish")
    assert [step.step for step in rig.steps(rollout)] == list(range(1, 10))
