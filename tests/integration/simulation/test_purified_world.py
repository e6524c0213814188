"""Purification where calls change a world: what counts happened in it, and nothing else did."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent.rig import Cut, Rig
from tests.integration.simulation.worlds import Played

pytestmark = pytest.mark.timeout(900)
TASK = (
    '[textworld]\ngame = "coin_collector"\nlevel = 1\nseed = 3\n'
    "[purify]\nenabled = true\nshare = 1.0\nretries = 2\n"
)


def says(thought: str, action: str, *wrong: str, **more: Any) -> dict[str, Any]:
    """One turn in the world, then calls of tools that there are not."""
    calls = [{"name": "act", "arguments": {"action": action}}]
    return {"thought": thought, "calls": calls + [{"name": one} for one in wrong], **more}


SCRIPT = [
    says("r1", "look", "nop", lookahead=[says("a", "inventory", "nup"), says("b", "look")]),
    says("r2", "inventory", "nop", lookahead=[says("c", "look", "nup"), says("d", "look", "nap")]),
    says("r3", "look"),
]
TURNS = [("1.0.3", "look"), ("2.0", "inventory"), ("3.0", "look")]
"""The correction that came right, the raw attempt that stayed, and what followed."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def turns(rig: Rig, rollout: str) -> list[tuple[str, str]]:
    log = rig.folder / "host" / "rollouts" / rollout / "textworld.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    return [(one["call"], one["action"]) for one in lines]


@pytest.mark.slow
def test_only_what_counts_happened_in_the_world(rig: Rig) -> None:
    rollout = rig.rollout(SCRIPT, task=TASK, environment="textworld", name="world")
    rig.run(rollout)
    assert turns(rig, rollout) == TURNS
    first, second, third, _ = rig.steps(rollout)
    assert (first.attempt, second.attempt, third.attempt) == (4, 1, 1)
    assert third.results[0].fields["turns"] == 3


CUTS = [(11, "after"), (14, "before"), (25, "after")]
"""In the second correction, before it counts, and after all of the second step have failed."""


@pytest.mark.slow
def test_a_kill_while_it_looks_ahead_leaves_the_same_world(rig: Rig) -> None:
    whole = rig.rollout(SCRIPT, task=TASK, environment="textworld", name="whole")
    rig.run(whole)
    told = rig.journal(whole)
    for at, where in CUTS:
        rollout = rig.rollout(SCRIPT, task=TASK, environment="textworld", name=f"cut-{at}")
        cut = Cut(rig, at, where)  # type: ignore[arg-type]
        worker = rig.work(rollout, cut.endpoint)
        assert cut.reached.wait(120), f"message {at} is sent"
        rig.kill(worker, rollout)
        cut.close()
        rig.run(rollout, 240)
        assert turns(rig, rollout) == TURNS, (at, where, cut.message)
        assert rig.journal(rollout) == told, (at, where, cut.message)


async def test_a_state_is_restored_also_after_a_restart(tmp_path: Path) -> None:
    settings = 'game = "coin_collector"\nlevel = 1\nseed = 3'
    played = await Played(tmp_path, "textworld", settings).open()
    try:
        await played("act", action="look")
        await played.environment.save_state("before")
        await played.environment.restore_state("before")  # nothing was done since: nothing to do
        assert played.environment.world.last is not None
        await played("act", action="inventory")
        await played("act", action="look")
        await played.environment.save_state("after")
        await played.environment.restore_state("before")
        assert (await played("act", action="inventory")).fields["turns"] == 2
        await played.again()
        await played.environment.restore_state("after")
        assert (await played("act", action="look")).fields["turns"] == 4
    finally:
        await played.environment.close(ended=True)
