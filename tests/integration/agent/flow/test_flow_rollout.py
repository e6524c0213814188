"""Flow rollouts with a real recorder and workers: verifier, retries, limits, kills and guidance."""

import json
from typing import Any

import pytest

from houston_daemon.agent import rollout_worker, sample_requests
from houston_shared import wire
from houston_shared.records import RoleEngine, Verification
from tests.integration.agent.endpoint import Answer, Endpoint, call, error
from tests.integration.agent.endpoint import says as spoken
from tests.integration.agent.rig import Cut, Rig

pytestmark = pytest.mark.timeout(600)

TASK = '[agent]\nkind = "flow"\n[budget]\nsteps = {steps}\nanswer_tokens = 64\n'


def noop(text: str, **more: Any) -> dict[str, Any]:
    calls = [{"name": "noop", "arguments": {"text": text}}]
    return {"thought": f"try {text}", "calls": calls, **more}


def says(text: str) -> dict[str, Any]:
    return {"answers": {"verifier": text}}


FINISH = {"thought": "done", "calls": [{"name": "finish"}]}
NO = says(json.dumps({"answered": False, "reason": "nothing found"}))
YES = says(json.dumps({"answered": True, "reason": "it is 42"}))


def parts(rig: Rig, rollout: str) -> list[tuple[Any, ...]]:
    """Step, part and role of every sample, in order."""
    sql = (
        "SELECT e.step, e.part, s.role FROM samples s JOIN events e ON e.seq = s.seq"
        " WHERE s.rollout = ? ORDER BY s.seq"
    )
    return rig.query(sql, rollout)


def verification(rig: Rig, rollout: str, step: int) -> Verification | None:
    observation = rig.steps(rollout)[step - 1].observation
    assert observation is not None
    return observation.verification


def tail(rig: Rig, rollout: str, step: int) -> str:
    observation = rig.steps(rollout)[step - 1].observation
    assert observation is not None
    return observation.tail


def test_a_flow_runs_to_its_answer(rig: Rig) -> None:
    rollout = rig.rollout([noop("a", **NO), noop("b", **YES), FINISH], task=TASK.format(steps=9))
    rig.run(rollout)
    assert rig.state(rollout) == ("finished", "finish")
    assert parts(rig, rollout) == [
        (1, "sample", "planner"),
        (1, "verifier.1", "verifier"),
        (2, "sample", "planner"),
        (2, "verifier.1", "verifier"),
        (3, "sample", "planner"),
    ]
    assert verification(rig, rollout, 1) == Verification(False, "nothing found")
    assert "[verifier: not answered yet. nothing found]" in tail(rig, rollout, 1)
    assert '[tried: 1 noop "a": a]' in tail(rig, rollout, 1)
    assert verification(rig, rollout, 2) == Verification(True, "it is 42")
    assert "answered. it is 42" in tail(rig, rollout, 2)
    assert verification(rig, rollout, 3) is None, "an answer needs no verdict"


@pytest.mark.parametrize(
    ("answer", "unreadable"),
    [
        ("yes, that is enough", "it is no JSON object"),
        ('{"answered": "true"}', "`answered` is neither true nor false"),
        ('{"answered": true', "it is no JSON object"),
        ("[true]", "it is no JSON object"),
        ("", "it is no JSON object"),
    ],
)
def test_a_verifier_that_cannot_be_read_lets_the_flow_go_on(
    rig: Rig, answer: str, unreadable: str
) -> None:
    rollout = rig.rollout([noop("a", **says(answer)), noop("b"), FINISH], task=TASK.format(steps=9))
    rig.run(rollout)
    assert verification(rig, rollout, 1) == Verification(unreadable=unreadable)
    assert "it gave no readable answer; go on" in tail(rig, rollout, 1)
    assert [step.sample.calls[0].name for step in rig.steps(rollout)] == ["noop", "noop", "finish"]
    bodies = [row[4] for row in rig.journal(rollout) if row[2] == "verifier.1"]
    assert bodies[0]["malformed"] == unreadable, "it is counted in the journal"


def test_a_flow_may_do_without_its_verifier(rig: Rig) -> None:
    task = TASK.format(steps=9).replace("[budget]", "verify = false\n[budget]")
    rollout = rig.rollout([noop("a", **YES), noop("b"), FINISH], task=task)
    rig.run(rollout)
    assert {role for _, _, role in parts(rig, rollout)} == {"planner"}
    assert rig.state(rollout) == ("finished", "finish")


def test_after_a_yes_only_the_answer_is_taken(rig: Rig) -> None:
    script = [noop("a", **YES), noop("again"), FINISH]
    rollout = rig.rollout(script, task=TASK.format(steps=9))
    rig.run(rollout)
    assert parts(rig, rollout) == [
        (1, "sample", "planner"),
        (1, "verifier.1", "verifier"),
        (2, "planner.1", "planner"),
        (2, "sample", "planner"),
        (3, "sample", "planner"),
    ]
    refused = rig.steps(rollout)[1]
    assert refused.sample.malformed == "the action must be one of: finish"
    assert not refused.results
    assert "No action was taken" in tail(rig, rollout, 2)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"thought": "I wonder", "calls": []}, "it is no JSON"),
        ({"thought": '{"thought": "x", "action": "dance", "action_input": "y"}'}, "none of noop"),
        ({"thought": '{"thought": "x", "action": "noop", "action_input": [1]}'}, "is no text"),
        ({"thought": "two", "calls": noop("x")["calls"] * 2}, "2 actions, and a step is one"),
    ],
)
def test_what_is_no_action_is_asked_for_once_more(
    rig: Rig, bad: dict[str, Any], reason: str
) -> None:
    mended = rig.rollout(
        [{**bad, "lookahead": [noop("b")]}, FINISH], task=TASK.format(steps=9), name="mended"
    )
    rig.run(mended)
    assert parts(rig, mended)[:2] == [(1, "planner.1", "planner"), (1, "sample", "planner")]
    first = next(row[4] for row in rig.journal(mended) if row[2] == "planner.1")
    assert reason in first["malformed"]
    assert rig.steps(mended)[0].results[0].text == "b"
    degraded = rig.rollout([bad, FINISH], task=TASK.format(steps=9), name="degraded")
    rig.run(degraded)
    step = rig.steps(degraded)[0]
    assert reason in step.sample.malformed and not step.results
    assert rig.state(degraded) == ("finished", "finish")
    assert verification(rig, degraded, 1) is None, "nothing was done that could be verified"


def test_a_planner_may_write_its_object_as_text(rig: Rig) -> None:
    text = json.dumps({"thought": "look", "action": "noop", "action_input": "here"})
    rollout = rig.rollout([{"thought": text}, FINISH], task=TASK.format(steps=9))
    rig.run(rollout)
    step = rig.steps(rollout)[0]
    assert step.sample.thought == "look"
    assert step.results[0].text == "here"


def test_a_worker_that_dies_anywhere_changes_nothing(rig: Rig) -> None:
    """Also between what a verifier said and the end of its step, and between two tries."""
    script = [
        noop("a", **NO),
        {"thought": "no action", "lookahead": [noop("b", **YES)], **YES},
        FINISH,
    ]
    task = TASK.format(steps=9)
    whole = rig.rollout(script, task=task, name="whole")
    rig.run(whole)
    told = rig.journal(whole)
    named = {row[2] for row in told}
    assert {"verifier.1", "planner.1"} <= named
    for at, row in enumerate(told, 1):
        if row[2] not in ("verifier.1", "planner.1", "observation", "sample"):
            continue
        rollout = rig.rollout(script, task=task, name=f"cut-{at}")
        cut = Cut(rig, at, "after")
        worker = rig.work(rollout, cut.endpoint)
        assert cut.reached.wait(60)
        rig.kill(worker, rollout)
        cut.close()
        if rig.state(rollout)[0] == "running":
            rig.run(rollout)
        assert rig.journal(rollout) == told, row[:3]


def test_guidance_reaches_a_flow_and_lifts_a_verdict(rig: Rig) -> None:
    script = [noop("a", delay=1.5, **YES), noop("b"), FINISH]
    rollout = rig.rollout(script, task=TASK.format(steps=9))
    worker = rig.work(rollout)
    rig.until(lambda: rig.state(rollout)[0] == "running", why="it runs")
    rig.ask(wire.Guide(id="g-1", rollout=rollout, text="Look once more."))
    worker.join(120)
    first, second, _ = rig.steps(rollout)
    assert [one.text for one in first.guidance] == ["Look once more."]
    assert verification(rig, rollout, 1) == Verification(True, "it is 42")
    assert second.results[0].text == "b", "a person's word outranks the verifier's"


def test_planner_and_verifier_may_have_engines_of_their_own(rig: Rig) -> None:
    file = rig.folder / "checker.jsonl"
    file.write_text(json.dumps({"answers": {"verifier": '{"answered": true, "reason": "ok"}'}}))
    settings = {"kind": "script", "path": str(file)}
    rollout = rig.rollout(
        [noop("a"), FINISH],
        task=TASK.format(steps=9),
        role_engines={"verifier": RoleEngine(engine="checker", engine_settings=settings)},
    )
    rig.run(rollout)
    sql = "SELECT DISTINCT role, engine FROM samples WHERE rollout = ?"
    assert set(rig.query(sql, rollout)) == {("planner", "script"), ("verifier", "checker")}
    assert verification(rig, rollout, 1) == Verification(True, "ok")


def asking_often(words: list[str]) -> int:
    """A worker that asks a refusing engine again at once."""
    sample_requests.ENGINE_REFUSED_WAITS = (0.05,)
    return rollout_worker.main(words)


def test_a_verifier_whose_engine_refuses_pauses_the_rollout(rig: Rig) -> None:
    endpoint = Endpoint(lambda body: error(401, "no such key"))
    rollout = rig.rollout(
        [noop("a"), FINISH],
        task=TASK.format(steps=9),
        role_engines={"verifier": RoleEngine(engine="judge", engine_settings=endpoint.settings)},
    )
    worker = rig.start(asking_often, rollout)
    paused = (
        "SELECT reason FROM rollouts WHERE id = ? AND state = 'paused' AND paused_by = 'engine'"
    )
    ((reason,),) = rig.until(lambda: rig.query(paused, rollout), why="it pauses")
    assert "Engine judge" in reason
    endpoint.decide = lambda body: spoken('{"answered": true, "reason": "seen"}')
    worker.join(120)
    endpoint.close()
    assert rig.state(rollout) == ("finished", "finish")
    assert verification(rig, rollout, 1) == Verification(True, "seen")
    assert len([row for row in rig.journal(rollout) if row[2] == "verifier.1"]) == 1
    assert "tools" not in endpoint.asked[-1], "a verifier has none"


MEMORY = "[agent.memory]\nenabled = true\n"


def test_a_worker_that_dies_sees_the_memory_that_it_began_with(rig: Rig) -> None:
    """Also where others have left more meanwhile; and what it leaves itself stands once."""
    script = [noop("a", **NO), FINISH]
    task = TASK.format(steps=9) + MEMORY
    rig.run(rig.rollout(script, task=task))
    second = rig.rollout(script, task=task)
    cut = Cut(rig, 2, "after")  # its head and its first sample are stored
    worker = rig.work(second, cut.endpoint)
    assert cut.reached.wait(60)
    rig.kill(worker, second)
    cut.close()
    rig.run(rig.rollout(script, task=task))
    rig.run(second)
    (head,) = [row[4] for row in rig.journal(second) if row[2] == "head"]
    assert head["task"].count("- asked: Do the thing.") == 1
    fourth = rig.rollout(script, task=task)
    rig.run(fourth)
    (head,) = [row[4] for row in rig.journal(fourth) if row[2] == "head"]
    assert head["task"].count("- asked: Do the thing.") == 3


def test_an_evaluation_has_no_memory_whatever_its_task_says(rig: Rig) -> None:
    script, task = [noop("a", **NO), FINISH], TASK.format(steps=9) + MEMORY
    rig.run(rig.rollout(script, task=task))
    evaluated = rig.rollout(script, task=task, without_memory=True)
    rig.run(evaluated)
    after = rig.rollout(script, task=task)
    rig.run(after)
    heads = [
        row[4]["task"]
        for rollout in (evaluated, after)
        for row in rig.journal(rollout)
        if row[2] == "head"
    ]
    assert [head.count("- asked: ") for head in heads] == [0, 1], "it recalls and leaves nothing"


def test_a_failed_action_of_a_flow_may_be_corrected_ahead(rig: Rig) -> None:
    """The correction must be an action that the step may take, too."""
    unknown = {"thought": "t", "calls": [{"name": "noop", "arguments": {"words": "x"}}]}
    two = {"thought": "two", "calls": noop("x")["calls"] * 2}
    script = [{**unknown, "lookahead": [two, noop("b")], **NO}, FINISH]
    rollout = rig.rollout(script, task=TASK.format(steps=9), purify={"enabled": True, "share": 1.0})
    rig.run(rollout)
    first = rig.steps(rollout)[0]
    assert first.sample.role == "planner" and first.results[0].text == "b"
    assert first.sample.parameters["purification"]["from_attempt"] == 3
    assert verification(rig, rollout, 1) == Verification(False, "nothing found")


def test_a_chat_endpoint_plans_by_calls_or_by_text(rig: Rig) -> None:
    text = json.dumps({"thought": "look", "action": "noop", "action_input": "by text"})
    planned = [spoken(f"```json\n{text}\n```"), call(text="by a call"), call("finish")]

    def decide(body: dict[str, Any]) -> Answer:
        if "tools" not in body:
            return spoken('{"answered": false, "reason": "no"}')
        return planned.pop(0)

    endpoint = Endpoint(decide)
    rollout = rig.rollout(settings=endpoint.settings, task=TASK.format(steps=9))
    rig.run(rollout)
    endpoint.close()
    assert rig.state(rollout) == ("finished", "finish")
    first, second, _ = rig.steps(rollout)
    assert (first.sample.thought, first.results[0].text) == ("look", "by text")
    assert second.results[0].text == "by a call"
    assert "not answered yet. no" in tail(rig, rollout, 2)


FILES = """
[agent]
kind = "flow"
[small_workstation]
files = { "a.txt" = "one" }
wanted = { "a.txt" = "one", "b.txt" = "two" }
"""


def test_a_flow_in_a_world_of_its_journal_goes_on_after_a_kill(rig: Rig) -> None:
    """Its world is nothing but what was done in it; the planner's calls are all of that."""
    write = {"name": "write", "arguments": {"path": "b.txt", "text": "two"}}
    look = {"name": "list", "arguments": {}}
    script = [
        {"thought": "write", "calls": [write], **NO},
        {"thought": "look", "calls": [look], **YES},
        FINISH,
    ]
    whole = rig.rollout(script, task=FILES, environment="small_workstation", name="whole")
    rig.run(whole)
    told = rig.journal(whole)
    assert "b.txt" in rig.steps(whole)[1].results[0].text
    for at, row in enumerate(told, 1):
        if row[2] not in ("verifier.1", "observation"):
            continue
        name = f"cut-{at}"
        rollout = rig.rollout(script, task=FILES, environment="small_workstation", name=name)
        cut = Cut(rig, at, "after")
        worker = rig.work(rollout, cut.endpoint)
        assert cut.reached.wait(60)
        rig.kill(worker, rollout)
        cut.close()
        if rig.state(rollout)[0] == "running":
            rig.run(rollout)
        assert rig.journal(rollout) == told, row[:3]
