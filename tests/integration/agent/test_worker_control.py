"""What people want of a running worker: guidance in three modes, pause, resume, cancel, drain."""

import fcntl
from typing import Any

import pytest

from houston_shared import context_messages, wire
from houston_shared.records import StepRecord
from tests.integration.agent.rig import Rig
from tests.support.tiers import sampled

SLEEP = {"name": "sleep", "arguments": {"sleep_time": 600}}
LIST = {"name": "list_files", "arguments": {"path": "."}}
THINK = {"name": "think", "arguments": {"thought": "so"}}


def line(*calls: dict[str, Any], delay: float = 0.0) -> dict[str, Any]:
    return {"thought": "on", "calls": list(calls), "delay": delay}


def seen(step: StepRecord) -> str:
    assert step.observation is not None
    return context_messages.observation_text(step.results, step.observation.tail, step.guidance)


def guide(rig: Rig, rollout: str, text: str, mode: str = "next") -> None:
    rig.ask(wire.Guide(id=f"g-{text}", rollout=rollout, text=text, mode=mode))  # type: ignore[arg-type]


def calling(rig: Rig, rollout: str, index: int = 0) -> None:
    rig.until(
        lambda: rig.query(
            "SELECT 1 FROM events WHERE rollout=? AND part=?", rollout, f"intent.{index}"
        ),
        why="the call runs",
    )


@pytest.mark.parametrize(
    ("name", "calls", "mode", "results"),
    [
        ("wake ends a sleep", [SLEEP], "wake", [("sleep", True)]),
        ("wake lets other calls run", [SLEEP, LIST], "wake", [("sleep", True), ("listing", True)]),
        ("wake cancels the next sleep", [SLEEP, SLEEP], "wake",
         [("sleep", True), ("interrupted", True)]),
        ("interrupt ends a sleep", [SLEEP], "interrupt", [("sleep", True)]),
        ("interrupt cancels the rest", [SLEEP, LIST], "interrupt",
         [("sleep", True), ("interrupted", True)]),
    ],
)  # fmt: skip
def test_guidance_while_a_call_runs(
    rig: Rig, name: str, calls: list[Any], mode: str, results: list[tuple[str, bool]]
) -> None:
    rollout = rig.rollout([line(*calls)], environment="workstation")
    worker = rig.work(rollout)
    calling(rig, rollout)
    guide(rig, rollout, "first")
    guide(rig, rollout, "now", mode)
    worker.join(60)
    step = rig.steps(rollout)[0]
    assert [(one.kind, one.success) for one in step.results] == results, name
    assert [one.text for one in step.guidance] == ["first", "now"]
    assert seen(step).endswith("<real_user>first</real_user>\n<real_user>now</real_user>")
    assert rig.state(rollout) == ("finished", "finish")


@pytest.mark.slow
def test_next_does_not_wake(rig: Rig) -> None:
    short = {"name": "sleep", "arguments": {"sleep_time": 2}}
    rollout = rig.rollout([line(short)], environment="workstation")
    worker = rig.work(rollout)
    calling(rig, rollout)
    guide(rig, rollout, "later")
    worker.join(60)
    step = rig.steps(rollout)[0]
    assert step.results[0].fields["ended_by"] == "time"
    assert [one.text for one in step.guidance] == ["later"]


def test_interrupt_stops_the_sample_in_flight(rig: Rig) -> None:
    rollout = rig.rollout([line(LIST, delay=600), line(LIST)], environment="workstation")
    worker = rig.work(rollout)
    rig.until(
        lambda: rig.query("SELECT 1 FROM rollouts WHERE id=? AND activity='sampling'", rollout),
        why="it samples",
    )
    guide(rig, rollout, "think again", "interrupt")
    worker.join(60)
    first, second, _ = rig.steps(rollout)
    assert first.sample.finish_reason == "interrupted"
    assert first.sample.calls == ()
    assert first.results == ()
    assert first.observation is not None
    assert first.observation.attention == ("interrupted",)
    assert "[interrupted by a person]" in seen(first)
    assert seen(first).endswith("<real_user>think again</real_user>")
    assert second.sample.calls[0].name == "list_files"


def test_a_person_who_speaks_as_the_agent_finishes_is_heard(rig: Rig) -> None:
    rollout = rig.rollout([line(SLEEP, {"name": "finish", "arguments": {}}), line(THINK)],
                          environment="workstation")  # fmt: skip
    worker = rig.work(rollout)
    calling(rig, rollout)
    guide(rig, rollout, "not yet", "wake")
    worker.join(60)
    steps = rig.steps(rollout)
    assert [one.text for one in steps[0].guidance] == ["not yet"]
    assert "put off" in seen(steps[0])
    assert len(steps) == 3, "it goes on, and finishes later"
    assert rig.state(rollout) == ("finished", "finish")


@pytest.mark.parametrize("mode", ["wake", "interrupt"])
def test_a_last_score_is_taken_whatever_a_person_says(rig: Rig, mode: str) -> None:
    """After the last step nobody hears the word; the task's one slot is another's for a while."""
    task = (
        "[budget]\nsteps = 1\nevaluations = 1\n[evaluate]\nslots = 1\n"
        "command = 'echo {\\\"overall_score\\\": 50}'\n"
    )
    rollout = rig.rollout([line(SLEEP)], environment="workstation", task=task)
    worker = rig.work(rollout)
    calling(rig, rollout)
    slots = rig.folder / "host" / "evaluation-slots"
    slots.mkdir()
    with (slots / "probe.1").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        guide(rig, rollout, "stop", mode)
        calling(rig, rollout, 1)
    worker.join(60)
    (step,) = rig.steps(rollout)
    assert [one.text for one in step.guidance] == ["stop"]
    assert step.results[-1].fields.get("overall_score") == 50.0
    assert rig.state(rollout) == ("finished", "budget: steps")


def test_pause_holds_at_a_safe_point_and_is_no_active_time(rig: Rig) -> None:
    rollout = rig.rollout([line(THINK, delay=0.2), line(LIST, delay=0.2)] * 4,
                          environment="workstation")  # fmt: skip
    worker = rig.work(rollout)
    rig.until(lambda: len(rig.steps(rollout)) >= 2, why="two steps")
    rig.ask(wire.Steer(rollout=rollout, action="pause"))
    rig.until(
        lambda: rig.query("SELECT 1 FROM rollouts WHERE id=? AND activity='paused'", rollout),
        why="the worker says that it is paused",
    )
    held = len(rig.steps(rollout))
    rig.ask(wire.Steer(rollout=rollout, action="resume"))
    worker.join(60)
    assert rig.state(rollout) == ("finished", "finish")
    assert len(rig.steps(rollout)) == 9 > held


@pytest.mark.parametrize("during", sampled(["call", "sample"], 1))
def test_cancel_ends_the_rollout_at_once(rig: Rig, during: str) -> None:
    script = [line(SLEEP)] if during == "call" else [line(LIST, delay=600)]
    rollout = rig.rollout(script, environment="workstation")
    worker = rig.work(rollout)
    if during == "call":
        calling(rig, rollout)
    else:
        rig.until(
            lambda: rig.query("SELECT 1 FROM rollouts WHERE id=? AND activity='sampling'", rollout),
            why="it samples",
        )
    rig.ask(wire.Steer(rollout=rollout, action="cancel", reason="no use"))
    worker.join(60)
    assert worker.exitcode == 0
    state, reason = rig.state(rollout)
    assert state == "cancelled"
    assert reason.startswith("cancelled by person:")
    steps = rig.steps(rollout)
    assert len(steps) == (during == "call"), "what was under way can be seen"
    for step in steps:
        assert [one.kind for one in step.results] == ["interrupted"]
        assert reason.removesuffix(": no use") in seen(step)


@pytest.mark.parametrize("how", sampled(["recorder", "signal"], 1))
def test_drain_leaves_a_sleep_that_goes_on_later(rig: Rig, how: str) -> None:
    sleep = {"name": "sleep", "arguments": {"sleep_time": 3}}
    rollout = rig.rollout([line(sleep)], environment="workstation")
    worker = rig.work(rollout)
    calling(rig, rollout)
    if how == "recorder":
        rig.recorder.drain()
    else:
        worker.terminate()
    worker.join(30)
    assert worker.exitcode == 0
    assert rig.state(rollout)[0] == "running"
    assert rig.query("SELECT 1 FROM events WHERE rollout=? AND part='call.0'", rollout) == []
    if how == "signal":  # a recorder that drains gives no new work
        rig.recorder.worker_ended(rollout, worker.lease, "")
        rig.run(rollout)
        (result,) = rig.steps(rollout)[0].results
        assert result.kind == "sleep"
        assert result.success
        assert rig.state(rollout) == ("finished", "finish")


@pytest.mark.parametrize("then", sampled(["cancel", "drain"], 1))
def test_a_worker_whose_engine_is_away_waits_and_can_be_told_to_go(rig: Rig, then: str) -> None:
    rollout = rig.rollout(settings={"kind": "chat", "url": "http://127.0.0.1:9/v1", "model": "m"})
    worker = rig.work(rollout)
    rig.until(
        lambda: (
            "waiting for the engine"
            in rig.query("SELECT activity FROM rollouts WHERE id=?", rollout)[0][0]
        ),
        why="it says what it waits for",
    )
    if then == "cancel":
        rig.ask(wire.Steer(rollout=rollout, action="cancel"))
    else:
        worker.terminate()
    worker.join(30)
    assert worker.exitcode == 0
    assert rig.state(rollout)[0] == ("cancelled" if then == "cancel" else "running")
