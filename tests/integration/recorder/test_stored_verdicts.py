"""Verdicts of rules and judges: they stand beside people's, replace only their own, and replay."""

import os
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_shared import wire
from houston_shared.control_messages import JudgedSteps
from houston_shared.store import annotation_queries, changes_since_visit
from houston_shared.store.store_reader import Reader
from tests.support.recorder_client import Person, Station, Worker


def on(first: int, last: int, verdict: Any, reason: str = "") -> JudgedSteps:
    return JudgedSteps(first=first, last=last, verdict=verdict, reason=reason)


def store(person: Person, rollout: str, *steps: JudgedSteps, **fields: Any) -> Any:
    fields = {"request": os.urandom(8).hex(), "source": "rule", "by": "rules", **fields}
    return person.ask(wire.StoreVerdicts(rollout=rollout, steps=steps, **fields))


def judge(person: Person, rollout: str, *steps: JudgedSteps) -> Any:
    request = os.urandom(8).hex()
    return person.ask(
        wire.GiveVerdicts(rollout=rollout, steps=steps, request=request, claimed="ada")
    )


def worked(station: Station, steps: int) -> Worker:
    worker = station.working()
    for step in range(1, steps + 1):
        worker.step(step)
    return worker


def stands(station: Station, rollout: str) -> dict[int, list[str]]:
    """By step, all that its sources say, the one that counts first."""
    with Reader(station.home) as reader:
        by = reader.run(annotation_queries.read_verdicts_with_reasons(rollout))
    return {
        step: [f"{one.verdict} {one.source} {one.by} {one.reason}".strip() for one in given]
        for step, given in by.items()
    }


def test_sources_stand_beside_each_other_and_each_replaces_only_its_own(station: Station) -> None:
    worker, person = worked(station, 4), station.person()
    rollout = worker.rollout
    assert isinstance(
        store(person, rollout, on(1, 2, "mask", "error@1: ls failed")), wire.RequestStored
    )
    judge(person, rollout, on(2, 2, "keep", "it taught us"))
    judged = {"source": "judge", "by": "judge:local"}
    assert isinstance(
        store(person, rollout, on(1, 3, "keep", "sound"), **judged), wire.RequestStored
    )
    assert stands(station, rollout) == {
        1: ["keep judge judge:local sound", "mask rule rules error@1: ls failed"],
        2: ["keep human ada it taught us", "keep judge judge:local sound",
            "mask rule rules error@1: ls failed"],
        3: ["keep judge judge:local sound"],
    }  # fmt: skip
    store(person, rollout, on(1, 4, "undecided"))
    store(person, rollout, on(3, 3, "mask", "no use"), **judged)
    assert stands(station, rollout) == {
        1: ["keep judge judge:local sound"],
        2: ["keep human ada it taught us", "keep judge judge:local sound"],
        3: ["mask judge judge:local no use"],
    }
    station.stop()
    assert verify_home(station.home).findings == (), "rows follow from the events, by replay"


def test_the_same_request_is_one_whatever_was_said_since(station: Station) -> None:
    worker, person = worked(station, 2), station.person()
    rollout = worker.rollout
    first = store(person, rollout, on(1, 1, "mask", "error@1: x"), on(2, 2, "mask"), request="r1")
    judge(person, rollout, on(1, 1, "keep"))
    assert store(person, rollout, on(1, 1, "mask", "error@1: x"), request="r1").seq == first.seq
    assert len(station.query("SELECT 1 FROM events WHERE kind = 'verdict'")) == 3


def test_who_ran_it_is_in_the_journal_and_a_run_is_one_thing_that_happened(
    station: Station,
) -> None:
    worker, person = worked(station, 5), station.person()
    rollout = worker.rollout
    said = (on(2, 3, "mask", "error@1: x"), on(5, 5, "mask", "error@1: y"), on(4, 4, "undecided"))
    store(person, rollout, *said, request="r1", claimed="ben")
    with Reader(station.home) as reader:
        found = reader.run(changes_since_visit.read_changes_since(rollout, 0)).events
        history = reader.run(annotation_queries.read_verdict_history(rollout, 5, 5))
    (one,) = [each for each in found if each.kind == "verdict"]
    assert (one.step, one.text) == (2, "ben: mask 3 steps, undecided 1 step by rules")
    assert [(each.by, each.source, each.verified) for each in history] == [("rules", "rule", False)]


REFUSED: dict[str, tuple[dict[str, Any], tuple[JudgedSteps, ...], str]] = {
    "an open step": ({}, (on(3, 3, "mask"),), "step 3 cannot be judged"),
    "nothing": ({}, (), "1 to 500 ranges"),
    "a long reason": ({}, (on(1, 1, "mask", "x" * 3000),), "at most 2000 characters"),
    "a rule with another name": (
        {"by": "ada"},
        (on(1, 1, "mask"),),
        "'ada' is not a valid name for a rule",
    ),
    "a judge named as rules": (
        {"source": "judge"},
        (on(1, 1, "mask"),),
        "not a valid name for a judge",
    ),
    "a long name": ({"source": "judge", "by": "judge:" + "x" * 400}, (on(1, 1, "mask"),), "judge"),
    "no request": ({"request": ""}, (on(1, 1, "mask"),), "A request key has"),
    "a person's": ({"source": "human"}, (on(1, 1, "mask"),), "Invalid enum value 'human'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stored_is_refused_clearly(station: Station, case: str) -> None:
    fields, steps, words = REFUSED[case]
    worker = worked(station, 2)
    worker.sample(3)
    denied = store(station.person(), worker.rollout, *steps, **fields)
    assert isinstance(denied, wire.Denied)
    assert words in denied.cause
    assert station.query("SELECT count(*) FROM verdicts") == [(0,)]
