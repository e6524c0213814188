"""A failed call is corrected ahead: what is stored, what counts, and what later prompts hold."""

from typing import Any, Literal

import msgspec
import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared import wire
from houston_shared.store import purification_queries, step_context, step_json, step_queries
from houston_shared.store.store_reader import Reader
from tests.integration.agent.rig import Cut, Rig

pytestmark = pytest.mark.timeout(900)

PURIFY = "[purify]\nenabled = true\nshare = 1.0\n"


def noop(text: str, thought: str = "", name: str = "noop", **more: Any) -> dict[str, Any]:
    return {"thought": thought, "calls": [{"name": name, "arguments": {"text": text}}], **more}


SCRIPT = [
    noop("one", "First."),
    noop("two", "Second.", "nop", lookahead=[noop("two", "It is called noop.", "noop")]),
    noop("three", "Third."),
]


def attempts(rig: Rig, rollout: str) -> list[tuple[int, int, int]]:
    return rig.query(
        "SELECT step, attempt, current FROM steps WHERE rollout=? ORDER BY step, attempt", rollout
    )


def counts(rig: Rig, rollout: str) -> purification_queries.PurificationCounts:
    with Reader(rig.home) as reader:
        found = reader.run(purification_queries.count_purification([rollout]))
    return found[rollout]


def test_a_failed_call_gives_way_to_its_correction(rig: Rig) -> None:
    rollout = rig.rollout(SCRIPT, task=PURIFY)
    rig.run(rollout)
    assert attempts(rig, rollout) == [
        (1, 1, 1),
        (2, 1, 0),
        (2, 2, 0),
        (2, 3, 1),
        (3, 1, 1),
        (4, 1, 1),
    ]
    step = rig.steps(rollout)[1]
    assert (step.attempt, step.sample.calls[0].name) == (3, "noop")
    assert [one.success for one in step.results] == [True]
    assert step.results[0].text == "two"
    assert step.sample.logprob_kind == "none"
    story = step.sample.parameters["purification"]
    assert story["attempts"] == story["from_attempt"] == 2
    found = counts(rig, rollout)
    assert (found.failures, found.failures_before, found.failures_after) == (1, 1, 0)
    assert found.purified == 1 and found.recovered_at == {1: 1} and found.not_recovered == 0
    assert found.lookahead_samples == 1


def test_later_prompts_hold_no_failed_call(rig: Rig) -> None:
    rollout = rig.rollout(SCRIPT, task=PURIFY)
    rig.run(rollout)
    with Reader(rig.home) as reader:
        later = step_context.read_context(reader, rollout, 3)
        ahead = step_context.read_context(reader, rollout, 2, 2)
    told = "\n".join(str(msgspec.to_builtins(one)) for one in later.messages)
    assert "nop'" not in told.replace("noop'", "") and "Error" not in told
    seen = "\n".join(str(msgspec.to_builtins(one)) for one in ahead.messages)
    assert "'nop'" in seen and "There is no tool" in seen, "the correction saw the error"


def test_the_mode_follows_the_likeness_of_the_calls(rig: Rig) -> None:
    script = [
        {"thought": "r1", "calls": [{"name": "noop", "arguments": {"txt": "a long text here"}}],
         "lookahead": [noop("a long text here", "r1 aux")]},
        {"thought": "r2", "calls": [{"name": "zzz", "arguments": {"q": "00"}}],
         "lookahead": [noop("a wholly other thing, said at length", "r2 aux")]},
    ]  # fmt: skip
    rollout = rig.rollout(script, task=PURIFY)
    rig.run(rollout)
    first, second, _ = rig.steps(rollout)
    assert first.sample.parameters["purification"]["mode"] == "shallow"
    assert first.sample.thought == "r1", "the first thought is kept"
    assert second.sample.parameters["purification"]["mode"] == "deep"
    assert second.sample.thought == "r2 aux"


def test_an_answer_without_an_action_is_corrected_too(rig: Rig) -> None:
    script = [{"thought": "no call", "calls": [], "lookahead": [noop("now", "with a call")]}]
    rollout = rig.rollout(script, task=PURIFY)
    rig.run(rollout)
    step = rig.steps(rollout)[0]
    assert step.sample.thought == "with a call" and not step.sample.malformed
    assert step.sample.parameters["purification"]["mode"] == "deep"
    assert counts(rig, rollout).no_action_before == 1
    assert counts(rig, rollout).no_action_after == 0


def test_after_k_failures_the_raw_attempt_stays(rig: Rig) -> None:
    wrong = noop("two", "Second.", "nop")
    script = [{**wrong, "lookahead": [noop("2", "again", "no"), noop("3", "and again", "nap")]}]
    rollout = rig.rollout(script, task=PURIFY + "retries = 2\n")
    rig.run(rollout)
    assert attempts(rig, rollout) == [(1, 1, 1), (1, 2, 0), (1, 3, 0), (2, 1, 1)]
    step = rig.steps(rollout)[0]
    assert step.attempt == 1 and step.observation is not None
    assert step.observation.not_purified == "2 corrections failed"
    found = counts(rig, rollout)
    assert (found.failures, found.failures_before, found.failures_after) == (3, 1, 1)
    assert found.purified == 0 and found.not_recovered == 1


def test_the_second_correction_sees_the_first(rig: Rig) -> None:
    script = [{**noop("x", "r", "nop"),
               "lookahead": [noop("x", "r'", "nup"), noop("x", "r''")]}]  # fmt: skip
    rollout = rig.rollout(script, task=PURIFY)
    rig.run(rollout)
    assert counts(rig, rollout).recovered_at == {2: 1}
    with Reader(rig.home) as reader:
        view = step_context.read_context(reader, rollout, 1, 3)
    names = [call.name for one in view.messages for call in one.calls]
    assert names == ["nop", "nup"]


def test_off_by_default_and_by_the_draw_of_the_seed(rig: Rig) -> None:
    for task in ("", "[purify]\nenabled = true\nshare = 0.0\n"):
        rollout = rig.rollout(SCRIPT, task=task, name=f"off-{len(task)}")
        rig.run(rollout)
        assert [row[1] for row in attempts(rig, rollout)] == [1] * 4


def test_a_start_may_set_it_otherwise(rig: Rig) -> None:
    rollout = rig.rollout(SCRIPT, purify={"enabled": True, "share": 1.0})
    rig.run(rollout)
    assert counts(rig, rollout).purified == 1


def test_guidance_that_waits_keeps_the_raw_attempt(rig: Rig) -> None:
    script = [{**noop("two", "Second.", "nop"), "delay": 1.0,
               "lookahead": [noop("two", "corrected")]}]  # fmt: skip
    rollout = rig.rollout(script, task=PURIFY)
    worker = rig.work(rollout)
    rig.until(lambda: rig.state(rollout)[0] == "running", why="it runs")
    rig.ask(wire.Guide(id="g1", rollout=rollout, text="Call noop."))
    worker.join(60)
    step = rig.steps(rollout)[0]
    assert step.attempt == 1 and [one.text for one in step.guidance] == ["Call noop."]
    assert step.observation is not None
    assert step.observation.not_purified == "a person has something to say"


def test_guidance_that_comes_during_the_correction_keeps_it_too(rig: Rig) -> None:
    script = [{**noop("two", "Second.", "nop"),
               "lookahead": [{**noop("two", "corrected"), "delay": 1.5}]}]  # fmt: skip
    rollout = rig.rollout(script, task=PURIFY)
    worker = rig.work(rollout)
    rig.until(
        lambda: rig.query("SELECT 1 FROM events WHERE rollout=? AND part='call.0'", rollout),
        why="the first call has failed",
    )
    rig.ask(wire.Guide(id="g1", rollout=rollout, text="Call noop."))
    worker.join(60)
    step = rig.steps(rollout)[0]
    assert step.attempt == 1 and len(step.guidance) == 1
    assert attempts(rig, rollout)[:2] == [(1, 1, 1), (1, 2, 0)], "the correction is kept"


def test_the_json_of_a_step_shows_every_attempt(rig: Rig) -> None:
    rollout = rig.rollout(SCRIPT, task=PURIFY)
    rig.run(rollout)
    with Reader(rig.home) as reader:
        steps = reader.run(step_queries.read_steps_with_attempts(rollout, 1, 9))
    line = step_json.step_json(rollout, steps[1])
    assert [one["attempt"] for one in line["attempts"]] == [1, 2]
    assert [one["role"] for one in line["attempts"]] == ["policy", "lookahead"]
    assert line["purification"]["mode"] in ("shallow", "deep")
    assert "attempts" not in step_json.step_json(rollout, steps[0])


CUT_SCRIPT = [
    {**noop("two", "Second.", "nop"), "lookahead": [noop("x", "r'", "nup"), noop("two", "r''")]},
    {**noop("2", "raw", "nop"), "lookahead": [noop("2", "again", "no"), noop("3", "more", "nap")]},
]


def after_a_kill(rig: Rig, at: int, where: Literal["before", "after"]) -> tuple[str, str]:
    """Run a rollout whose first worker dies at message `at`; its id and that message."""
    rollout = rig.rollout(CUT_SCRIPT, task=PURIFY + "retries = 2\n", name=f"cut-{at}-{where}")
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
    whole = rig.rollout(CUT_SCRIPT, task=PURIFY + "retries = 2\n", name="whole")
    rig.run(whole)
    told = rig.journal(whole)
    assert counts(rig, whole).recovered_at == {2: 1} and counts(rig, whole).not_recovered == 1
    for at in range(1, len(told) + 2):
        for where in ("before", "after"):
            rollout, message = after_a_kill(rig, at, where)
            journal = rig.journal(rollout)
            keys = [row[:3] for row in journal]
            assert len(keys) == len(set(keys)), (at, where, "nothing is doubled")
            unknown = [row for row in journal if row[4].get("kind") == "interrupted"]
            if (message, where) in {("StoreIntent", "after"), ("StoreResult", "before")}:
                assert len(unknown) <= 1, (at, where, "an honest result, and only one")
                for step in rig.steps(rollout):
                    assert step.observation is not None
                    assert len(step.results) == len(step.intents) == len(step.sample.calls)
            else:
                assert journal == told, (at, where, message)


def test_a_home_with_every_kind_of_attempt_is_sound(rig: Rig) -> None:
    """Derived rows follow from the events: a replay gives the same."""
    for script in (SCRIPT, CUT_SCRIPT):
        rig.run(rig.rollout(script, task=PURIFY, name=f"sound-{len(script)}"))
    assert verify_home(rig.home).findings == ()
