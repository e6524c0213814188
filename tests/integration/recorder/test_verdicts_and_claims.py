"""Verdicts, the order of guidance, claims: what stands, what stays in the journal, who wins."""

import grp
import os
import sqlite3
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.journal_repair import repair_home
from houston_shared import wire
from houston_shared.config_sections import DaemonSettings
from houston_shared.control_messages import JudgedSteps
from houston_shared.store import annotation_queries, presence_queries
from houston_shared.store.store_reader import Reader
from tests.support.other_user import NOBODY, needs_root, open_place, speak
from tests.support.recorder_client import Person, Station, Worker

ADA, BEN = "ada", "ben"


def judge(
    person: Person, rollout: str, *steps: JudgedSteps, claimed: str = ADA, **fields: Any
) -> Any:
    fields = {"request": os.urandom(8).hex(), **fields}
    return person.ask(wire.GiveVerdicts(rollout=rollout, steps=steps, claimed=claimed, **fields))


def on(first: int, last: int, verdict: Any, reason: str = "") -> JudgedSteps:
    return JudgedSteps(first=first, last=last, verdict=verdict, reason=reason)


def worked(station: Station, steps: int) -> Worker:
    worker = station.working()
    for step in range(1, steps + 1):
        worker.step(step)
    return worker


def stands(station: Station, rollout: str) -> dict[int, str]:
    """By step, whose verdict counts."""
    with Reader(station.home) as reader:
        by = reader.run(annotation_queries.read_verdicts_with_reasons(rollout))
    return {
        step: f"{found[0].verdict} {found[0].by} {found[0].reason}" for step, found in by.items()
    }


def test_a_verdict_stands_its_history_stays_and_undo_gives_back_what_stood(
    station: Station,
) -> None:
    worker, person = worked(station, 6), station.person()
    rollout = worker.rollout
    assert isinstance(judge(person, rollout, on(1, 2, "keep", "good")), wire.RequestStored)
    assert isinstance(judge(person, rollout, on(2, 2, "mask")), wire.RequestStored)
    with Reader(station.home) as reader:
        before = reader.run(annotation_queries.read_human_verdict_ranges(rollout, 1, 5))
    judge(person, rollout, on(1, 5, "mask", "all of it"), claimed=BEN)
    assert stands(station, rollout) == dict.fromkeys(range(1, 6), "mask ben all of it")
    judge(person, rollout, *before, claimed=BEN)
    assert stands(station, rollout) == {1: "keep ben good", 2: "mask ben "}
    with Reader(station.home) as reader:
        said = reader.run(annotation_queries.read_verdict_history(rollout, 2, 2))
    assert [(one.by, one.verdict, one.first, one.last) for one in said] == [
        (ADA, "keep", 1, 2), (ADA, "mask", 2, 2), (BEN, "mask", 1, 5), (BEN, "mask", 2, 2),
    ]  # fmt: skip
    station.stop()
    assert verify_home(station.home).findings == ()


def test_a_verdict_sent_again_is_one_and_never_overrules_another_unseen(station: Station) -> None:
    worker, person = worked(station, 3), station.person()
    rollout = worker.rollout
    first = judge(
        person, rollout, on(1, 3, "keep"), request="r1", seen=worker.say(wire.Heartbeat).seq
    )
    again = judge(person, rollout, on(1, 3, "keep"), request="r1")
    assert (again.seq, stands(station, rollout)[3]) == (first.seq, "keep ada ")
    judge(person, rollout, on(2, 2, "mask"), claimed=BEN)
    assert judge(person, rollout, on(1, 3, "keep"), request="r1", seen=1).seq == first.seq
    assert stands(station, rollout)[2] == "mask ben "
    late = judge(person, rollout, on(1, 3, "mask"), seen=first.seq)
    assert isinstance(late, wire.Denied)
    assert late.cause == "ben gave step 2 the verdict mask meanwhile."
    assert isinstance(judge(person, rollout, on(3, 3, "mask"), seen=first.seq), wire.RequestStored)
    assert isinstance(judge(person, rollout, on(2, 2, "keep")), wire.RequestStored), (
        "knowing, one may"
    )
    assert len(station.query("SELECT 1 FROM events WHERE kind = 'verdict'")) == 4


def test_what_was_said_before_a_restart_is_known_after_it(station: Station) -> None:
    worker, person = worked(station, 3), station.person()
    rollout = worker.rollout
    first = judge(person, rollout, on(1, 3, "keep"), request="r1")
    held = claim(person, rollout, ADA, request="r2")
    station.restart()
    person = station.person()
    assert judge(person, rollout, on(1, 3, "keep"), request="r1").seq == first.seq
    assert claim(person, rollout, ADA, request="r2").seq == held.seq
    assert judge(person, rollout, on(1, 1, "mask"), request="r1", claimed=BEN).seq > held.seq


REFUSED: dict[str, tuple[tuple[JudgedSteps, ...], str]] = {
    "an open step": ((on(3, 3, "keep"),), "closed steps 1 to 2; step 3 cannot be judged"),
    "a range into the future": ((on(1, 9, "keep"),), "steps 1 to 9 cannot be judged"),
    "no step": ((on(0, 0, "keep"),), "step 0 cannot be judged"),
    "backwards": ((on(2, 1, "keep"),), "cannot be judged"),
    "nothing": ((), "1 to 500 ranges"),
    "a long reason": ((on(1, 1, "keep", "x" * 3000),), "at most 2000 characters"),
}


def test_no_message_judges_so_much_that_everybody_waits(station: Station) -> None:
    worker = worked(station, 100)
    denied = judge(station.person(), worker.rollout, *[on(1, 100, "mask")] * 300)
    assert isinstance(denied, wire.Denied)
    assert "at most 20000 steps" in denied.cause
    assert isinstance(
        judge(station.person(), worker.rollout, *[on(1, 100, "mask")] * 200), wire.RequestStored
    )


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_judged_is_refused_clearly(station: Station, case: str) -> None:
    steps, words = REFUSED[case]
    worker = worked(station, 2)
    worker.sample(3)
    denied = judge(station.person(), worker.rollout, *steps)
    assert isinstance(denied, wire.Denied)
    assert words in denied.cause
    assert station.query("SELECT count(*) FROM verdicts") == [(0,)]


def test_a_shared_step_has_one_verdict_for_the_branch_and_its_parent(station: Station) -> None:
    worker, person = worked(station, 4), station.person()
    (branch,) = person.start()
    change = "UPDATE rollouts SET parent = ?, parent_step = 2, steps = 2 WHERE id = ?"
    station.recorder._call(
        lambda store: store.connection.execute(change, (worker.rollout, branch)) and None
    )
    judge(person, branch, on(1, 2, "mask", "both"))
    assert stands(station, branch) == stands(station, worker.rollout) == {
        1: "mask ada both", 2: "mask ada both",
    }  # fmt: skip


def test_a_step_that_runs_again_has_no_verdict_of_its_past(station: Station) -> None:
    """After a repair set it aside, what somebody said of it was of another step."""
    worker, person = worked(station, 3), station.person()
    judge(person, worker.rollout, on(1, 3, "mask"))
    person.ask(wire.ReportPresence(rollout=worker.rollout, step=2, active=True))
    ((seq,),) = station.query("SELECT observation_seq FROM steps WHERE step = 3")
    station.stop()
    with sqlite3.connect(station.home.database) as connection:
        connection.execute("UPDATE events SET body = x'00' WHERE seq = ?", (seq,))
    connection.close()
    assert repair_home(station.home).changed
    again = Station(station.home.path).start()
    assert sorted(stands(again, worker.rollout)) == [1, 2]
    assert again.query("SELECT step, visits FROM looks") == [(2, 1)], "no event could give it back"
    again.person().ask(wire.Steer(rollout=worker.rollout, action="resume"))
    mended = again.worker(worker.rollout)
    mended.step(3)
    assert sorted(stands(again, worker.rollout)) == [1, 2]
    again.stop()
    assert verify_home(station.home).findings == ()


def queue(person: Person, rollout: str, *ids: str) -> None:
    for id in ids:
        person.guide(rollout, f"word {id}", id=id)


def test_guidance_is_heard_in_the_order_that_people_gave_it(station: Station) -> None:
    worker, person = station.working(), station.person()
    queue(person, worker.rollout, "a", "b", "c")
    order = ("c", "a", "b")
    done = person.ask(
        wire.ReorderGuidance(rollout=worker.rollout, order=order, seen=("a", "b", "c"))
    )
    assert isinstance(done, wire.RequestStored)
    again = person.ask(
        wire.ReorderGuidance(rollout=worker.rollout, order=order, seen=("a", "b", "c"))
    )
    assert isinstance(again, wire.RequestStored)
    assert len(station.query("SELECT 1 FROM events WHERE kind = 'reorder'")) == 1
    queue(person, worker.rollout, "d")
    again = person.ask(
        wire.ReorderGuidance(rollout=worker.rollout, order=order, seen=("a", "b", "c"))
    )
    assert isinstance(again, wire.RequestStored), "what was queued since changes nothing of it"
    with Reader(station.home) as reader:
        assert [
            one.id for one in reader.run(annotation_queries.list_guidance(worker.rollout))
        ] == list("cabd")
    heard = [one.text for one in worker.step(1).guidance]
    assert heard == ["word c", "word a", "word b", "word d"]
    assert [one.text for one in worker.observation(1).guidance] == heard
    station.stop()
    assert verify_home(station.home).findings == ()


STALE: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "something was queued meanwhile": (("b", "a"), (), "it holds a, b, c"),
    "one twice": (("a", "b", "b"), (), "it holds a, b, c"),
    "one that is none": (("a", "b", "x"), (), "it holds a, b, c"),
    "somebody ordered it otherwise": (("c", "b", "a"), ("a", "c", "b"), "it holds a, b, c"),
}


@pytest.mark.parametrize("case", STALE)
def test_a_stale_order_hears_what_is_queued_now(station: Station, case: str) -> None:
    order, seen, words = STALE[case]
    worker, person = station.working(), station.person()
    queue(person, worker.rollout, "a", "b", "c")
    denied = person.ask(wire.ReorderGuidance(rollout=worker.rollout, order=order, seen=seen))
    assert isinstance(denied, wire.Denied)
    assert words in denied.cause


def test_delivered_first_wins_over_an_order(station: Station) -> None:
    worker, person = station.working(), station.person()
    queue(person, worker.rollout, "a", "b")
    worker.step(1)
    denied = person.ask(wire.ReorderGuidance(rollout=worker.rollout, order=("b", "a")))
    assert isinstance(denied, wire.Denied)
    assert "it holds nothing" in denied.cause


def held(station: Station, rollout: str) -> tuple[str, str, str]:
    with Reader(station.home) as reader:
        one = reader.run(presence_queries.find_claim(rollout))
    assert one is not None
    return one.holder, one.note, one.note_by


def claim(person: Person, rollout: str, who: str, **fields: Any) -> Any:
    fields = {"request": os.urandom(8).hex(), **fields}
    return person.ask(wire.ClaimRollout(rollout=rollout, claimed=who, **fields))


def test_a_claim_is_shown_taken_over_and_handed_on(station: Station) -> None:
    person = station.person()
    (rollout,) = person.start()
    done = claim(person, rollout, ADA, request="r1")
    assert claim(person, rollout, ADA, request="r1") == done
    assert isinstance(person.guide(rollout, "anybody may speak"), wire.RequestStored)
    late = claim(person, rollout, BEN, seen=done.seq - 1)
    assert isinstance(late, wire.Denied)
    assert late.cause == f"ada claimed {rollout} meanwhile."
    since = "SELECT since FROM claims"
    began = station.query(since)
    claim(person, rollout, ADA, note="the data is wrong")
    assert station.query(since) == began, "a note does not begin it anew"
    assert held(station, rollout) == (ADA, "the data is wrong", ADA)
    claim(person, rollout, BEN, seen=station.query("SELECT max(seq) FROM events")[0][0])
    assert held(station, rollout) == (BEN, "the data is wrong", ADA)
    claim(person, rollout, BEN, release=True, note="mended; watch the loss")
    assert held(station, rollout) == ("", "mended; watch the loss", BEN)
    seq = station.query("SELECT max(seq) FROM events")
    assert isinstance(claim(person, rollout, BEN, release=True), wire.RequestStored)
    assert station.query("SELECT max(seq) FROM events") == seq, "released twice is released"
    station.stop()
    assert verify_home(station.home).findings == ()


def note_of(station: Station, rollout: str) -> presence_queries.ClaimStatus:
    with Reader(station.home) as reader:
        found = reader.run(presence_queries.find_claim(rollout))
    assert found is not None
    return found


def test_a_hand_over_is_read_by_whom_it_is_for(station: Station) -> None:
    person = station.person()
    (rollout,) = person.start()
    claim(person, rollout, ADA)
    claim(person, rollout, ADA, release=True, note="the index is stale", to=BEN)
    left = note_of(station, rollout)
    assert (left.is_handed_over, left.note_to, left.read_by) == (True, BEN, "")

    def read(who: str, note: int) -> None:
        answer = person.ask(wire.ReadNote(rollout=rollout, note=note, claimed=who))
        assert isinstance(answer, wire.RequestStored)

    events = "SELECT count(*) FROM events WHERE kind = 'note-read'"
    for who, note in ((ADA, left.note_seq), ("cleo", left.note_seq), (BEN, left.note_seq - 1)):
        read(who, note)
    assert station.query(events) == [(0,)], "the author, somebody else, an older note"
    read(BEN, left.note_seq)
    read(BEN, left.note_seq)
    assert station.query(events) == [(1,)]
    seen = note_of(station, rollout)
    assert (seen.is_handed_over, seen.read_by) == (True, BEN)
    assert seen.read_at > seen.note_at
    claim(person, rollout, BEN)
    taken = note_of(station, rollout)
    assert (taken.holder, taken.is_handed_over, taken.read_by) == (BEN, False, BEN)
    claim(person, rollout, BEN, release=True, note="mended")
    back = note_of(station, rollout)
    assert (back.is_handed_over, back.note_to, back.read_by) == (True, "", "")
    read("cleo", back.note_seq)
    assert note_of(station, rollout).read_by == "cleo", "a note for anybody is read by the first"
    station.stop()
    assert verify_home(station.home).findings == ()


HAND_OVER_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "without a note": ({"to": BEN, "release": True}, "by releasing it with a note"),
    "and kept": ({"to": BEN, "note": "x"}, "by releasing it with a note"),
    "to oneself": ({"to": ADA, "note": "x", "release": True}, "You are ada"),
    "to a name that is too long": (
        {"to": "b" * 65, "note": "x", "release": True},
        "1 to 64 printable",
    ),
    "to a name with a control character": (
        {"to": "be\x1bn", "note": "x", "release": True},
        "1 to 64 printable",
    ),
}


@pytest.mark.parametrize("case", HAND_OVER_REFUSED)
def test_a_hand_over_that_makes_no_sense_is_refused(case: str, station: Station) -> None:
    fields, words = HAND_OVER_REFUSED[case]
    person = station.person()
    (rollout,) = person.start()
    claim(person, rollout, ADA)
    denied = claim(person, rollout, ADA, **fields)
    assert isinstance(denied, wire.Denied)
    assert words in denied.cause
    assert held(station, rollout)[0] == ADA


def test_a_claim_that_comes_again_late_takes_nothing_back(station: Station) -> None:
    person = station.person()
    (rollout,) = person.start()
    claim(person, rollout, ADA, request="r1", seen=1)
    claim(person, rollout, BEN)
    assert isinstance(claim(person, rollout, ADA, request="r1", seen=1), wire.RequestStored)
    assert held(station, rollout)[0] == BEN


@needs_root
def test_only_an_operator_releases_another_s_claim() -> None:
    group = grp.getgrgid(NOBODY).gr_name
    with open_place() as place:
        station = Station(place / "home", daemon=DaemonSettings(group=group)).start()
        try:
            person, endpoint = station.person(), station.home.socket("control")
            (rollout,) = person.start()
            claim(person, rollout, "")
            release = wire.ClaimRollout(request="x", rollout=rollout, release=True)
            (denied,) = speak(endpoint, NOBODY, NOBODY, [release])
            assert isinstance(denied, wire.Denied)
            assert "may only change what the same Unix user wrote" in denied.cause
            mine = wire.ClaimRollout(request="y", rollout=rollout)
            (done,) = speak(endpoint, NOBODY, NOBODY, [mine])
            assert isinstance(done, wire.RequestStored)
            assert isinstance(claim(person, rollout, "", release=True), wire.RequestStored)
            assert held(station, rollout)[0] == ""
        finally:
            station.stop()
