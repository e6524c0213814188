"""Single keys that pause, claim and judge are undone by one key, offered for five seconds."""

import os
from typing import Any

import pytest

from houston_console.app.console_app import HoustonConsole
from houston_console.app.undo_offers import UNDO_OFFER_SECONDS, UndoableAction, UndoOffers
from houston_console.widgets.dialogs import ConfirmDialog
from houston_shared import wire
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.control_messages import JudgedSteps
from houston_shared.records import ContextHead
from houston_shared.store.presence_queries import current_person
from tests.console.conftest import SMALL, WIDE, LiveStation, Seat, Sit

ME = f"person:{current_person().name}"


@pytest.fixture
def rollout(live: LiveStation) -> str:
    """One that runs, with three steps."""
    worker = live.working()
    worker.say(wire.StoreHead, head=ContextHead(
        system="You work.", task="Look around.", tools=(), rendered="", token_ids=None,
        dialect="chatml-json", tokenizer="",
    ))  # fmt: skip
    for step in range(1, 4):
        worker.step(step)
    return str(worker.rollout)


async def ready(seat: Seat, rollout: str) -> None:
    await seat.until(lambda: seat.app.state.link == "live", "live")
    await seat.until(lambda: seat.app.state.need_of(rollout), "judged")
    seat.app.undo_offers.clock = lambda: 0.0  # offers end when a test says so


def state(live: LiveStation, rollout: str) -> tuple[str, str]:
    (row,) = live.query("SELECT state, paused_by FROM rollouts WHERE id = ?", rollout)
    return row


def holder(live: LiveStation) -> list[tuple[Any, ...]]:
    return live.query("SELECT holder FROM claims")


def ask(live: LiveStation, message: Any) -> Any:
    answer = live.person().ask(message)
    assert isinstance(answer, wire.RequestStored), answer
    return answer


def steer(live: LiveStation, rollout: str, action: Any, name: str = "ben") -> None:
    ask(live, wire.Steer(rollout=rollout, action=action, reason="data", claimed=name))


def claim(live: LiveStation, rollout: str, name: str, **fields: Any) -> None:
    ask(
        live,
        wire.ClaimRollout(request=os.urandom(8).hex(), rollout=rollout, claimed=name, **fields),
    )


async def test_a_pause_is_undone_and_its_row_is_not_written_over(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    for size in (WIDE, SMALL):
        async with sit(live.home, rollout, size) as seat:
            await ready(seat, rollout)
            await seat.press("p")
            await seat.until(lambda: state(live, rollout) == ("paused", ME), "at once")
            await seat.until(lambda: " 5 s" in seat.offered(), "offered")
            assert seat.offered().split()[1:3] == [f"{rollout}:", "Paused:"]
            assert seat.offered().endswith("Z takes it back   5 s")
            await seat.press("e", "G", "s", "U", "V", "escape", "g")  # jumps and what they say
            assert "Z takes it back" in seat.offered()
            assert "No " in seat.hint() or "home" in seat.hint()
            await seat.press("Z")
            await seat.until(lambda: state(live, rollout) == ("running", ""), "resumed")
            await seat.until(lambda: "taken back" in seat.hint(), "said")
            assert not seat.offered()
            await seat.press("Z")
            assert "Nothing to take back" in seat.hint(), "once is enough"


async def test_the_offer_ends_after_its_seconds(live: LiveStation, sit: Sit, rollout: str) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        now = 0.0
        seat.app.undo_offers.clock = lambda: now
        await seat.press("p")
        await seat.until(lambda: " 5 s" in seat.offered(), "offered")
        now = UNDO_OFFER_SECONDS - 1.5
        await seat.until(lambda: " 2 s" in seat.offered(), "how long still")
        now = UNDO_OFFER_SECONDS
        await seat.until(lambda: not seat.offered(), "gone")
        await seat.press("Z")
        assert state(live, rollout) == ("paused", ME)


async def test_only_ones_own_pause_is_undone(live: LiveStation, sit: Sit, rollout: str) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press("p")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        steer(live, rollout, "resume")
        steer(live, rollout, "pause")
        await seat.press("Z")
        await seat.until(lambda: "by ben: that is not yours" in seat.hint(), "refused")
        assert state(live, rollout) == ("paused", "person:ben")
        await seat.until(lambda: seat.app.state.rollouts[rollout].paused_by == "person:ben", "seen")
        await seat.press("p")
        await seat.until(lambda: "is already paused by person:ben" in seat.hint(), "nothing done")
        assert not seat.offered()
        await seat.press("r")
        assert isinstance(seat.app.screen, ConfirmDialog), "the end of another's pause asks"
        await seat.press("y")
        await seat.until(lambda: state(live, rollout)[0] == "running", "resumed")
        assert not seat.offered(), "what asked is not offered"


async def test_a_pause_before_the_console_knew_of_anothers_is_not_offered_to_end_theirs(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        row = seat.app.state.rollouts[rollout]
        steer(live, rollout, "pause")
        seat.app.state.rollouts[rollout] = row  # as it was before ben's pause was read
        seat.app.watch_screen._steering.steer(rollout, "pause")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        await seat.press("Z")
        await seat.until(lambda: "by ben: that is not yours" in seat.hint(), "refused")
        assert state(live, rollout) == ("paused", "person:ben")


async def test_the_end_of_ones_own_pause_is_undone(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    steer(live, rollout, "pause", current_person().name)
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press("r")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        assert state(live, rollout)[0] == "running"
        await seat.press("Z")
        await seat.until(lambda: state(live, rollout) == ("paused", ME), "paused again")
        assert live.query("SELECT reason FROM rollouts") == [("data",)]


async def test_to_go_on_with_a_failed_rollout_is_asked_and_said(
    live: LiveStation, sit: Sit
) -> None:
    worker = live.working()
    worker.step(1)
    live.recorder.worker_ended(worker.rollout, worker.lease, "it died 5 times")
    async with sit(live.home, worker.rollout) as seat:
        await ready(seat, worker.rollout)
        await seat.press("r")
        assert isinstance(seat.app.screen, ConfirmDialog)
        await seat.press("n")
        assert state(live, worker.rollout)[0] == "failed"
        await seat.press("r", "y")
        await seat.until(lambda: state(live, worker.rollout)[0] == "queued", "it goes on")
        await seat.until(lambda: f"{worker.rollout}: Resumed" in seat.hint(), "and that is said")


async def test_a_claim_is_undone_with_what_stood_before(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    claim(live, rollout, "ben")
    claim(live, rollout, "ben", note="the index is stale", release=True)
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.until(lambda: "ben left a note" in seat.text("#people"), "handed on")
        await seat.press("c")
        await seat.until(lambda: holder(live) == [(current_person().name,)], "at once")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        await seat.press("Z")
        await seat.until(lambda: holder(live) == [("",)], "released")
        await seat.until(lambda: "☞" not in seat.text("#people"), "and seen")
        assert "ben left a note" in seat.text("#people")
        await seat.press("c")
        await seat.until(lambda: "☞ you since" in seat.text("#people"), "again")
        await seat.press("C")
        await seat.until(lambda: holder(live) == [("",)], "let go")
        await seat.until(lambda: "no longer" in seat.offered(), "offered as well")
        await seat.press("Z")
        await seat.until(lambda: holder(live) == [(current_person().name,)], "it is mine again")


async def test_a_claim_that_another_took_over_is_not_released(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press("c")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        claim(live, rollout, "ben")
        await seat.press("Z")
        await seat.until(lambda: "ben claimed" in seat.hint(), "refused")
        assert holder(live) == [("ben",)]


@pytest.mark.parametrize("key", ["K", "M", "minus"])
async def test_a_verdict_is_undone_to_the_one_before(
    live: LiveStation, sit: Sit, rollout: str, key: str
) -> None:
    verdict = JudgedSteps(first=3, last=3, verdict="mask", reason="no gain")
    ask(live, wire.GiveVerdicts(request="b", rollout=rollout, steps=(verdict,), claimed="ben"))
    verdicts = "SELECT author, keep FROM verdicts WHERE source = 'human'"
    count = "SELECT count(*) FROM events WHERE kind = 'verdict'"
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press(key)
        await seat.until(lambda: live.query(count) == [(2,)], "given at once")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        await seat.press("g", "G", "e", "Z")
        await seat.until(lambda: "as it was before" in seat.hint(), "said")
        assert live.query(verdicts) == [(current_person().name, 0)]
        await seat.press("H")
        await seat.until(lambda: seat.app.screen.query("#said"), "the history")
        assert seat.text("#said FixedLines").count("no gain") >= 2, "with its reason"


async def test_one_verdict_after_the_other_takes_one_line_and_all_are_undone(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    verdicts = "SELECT step, keep FROM verdicts ORDER BY step"
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press("K", "M", "k", "K")
        await seat.until(lambda: live.query(verdicts) == [(2, 1), (3, 0)], "all of them")
        await seat.until(lambda: "Kept step 2" in seat.offered(), "the newest is offered")
        assert len(seat.offered().splitlines()) == 1
        for rows in ([(3, 0)], [(3, 1)], []):
            await seat.press("Z")
            await seat.until(lambda left=rows: live.query(verdicts) == left, "one after the other")


async def test_two_in_a_row_are_undone_the_newest_first(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press("p", "c", "K")
        await seat.until(lambda: seat.offered().count(" 5 s") == 3, "all three")
        lines = seat.offered().splitlines()
        assert "Kept step 3" in lines[0]
        assert lines[1].startswith("   then You look after")
        assert "Paused" in lines[2]
        await seat.press("Z", "Z", "Z")
        await seat.until(lambda: state(live, rollout) == ("running", ""), "the pause")
        assert holder(live) == [("",)]
        assert live.query("SELECT 1 FROM verdicts") == []
        assert not seat.offered()


async def test_a_key_behind_another_undoes_what_is_still_on_its_way(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.pilot.press("p", "p", "Z")
        moves = "SELECT count(*) FROM events WHERE kind = 'state'"
        ((before,),) = live.query(moves)
        await seat.until(lambda: "taken back" in seat.hint(), "done and undone")
        assert state(live, rollout) == ("running", "")
        assert before <= live.query(moves)[0][0]


async def test_the_row_follows_from_home_to_a_rollout_and_into_the_composer(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    live.working().step(1)
    async with sit(live.home, at_home=True) as seat:
        await ready(seat, rollout)
        chosen = seat.app.home_screen.list.chosen
        await seat.press("p")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered at home")
        await seat.press("enter")
        assert "Z takes it back" in seat.offered()
        await seat.press("i", "Z")
        assert seat.app.watch_screen.guidance.composer.text == "Z", "letters are letters"
        assert "ctrl+z takes it back" in seat.offered()
        await seat.press("ctrl+z")
        await seat.until(lambda: state(live, chosen) == ("running", ""), "resumed")
        assert seat.app.watch_screen.guidance.composer.text == "Z"


async def test_without_a_daemon_nothing_is_done_and_nothing_offered(
    live: LiveStation, sit: Sit, rollout: str
) -> None:
    async with sit(live.home, rollout) as seat:
        await ready(seat, rollout)
        await seat.press("p")
        await seat.until(lambda: "takes it back" in seat.offered(), "offered")
        live.stop()
        await seat.until(lambda: seat.app.state.link == "down", "gone")
        await seat.press("Z")
        await seat.until(lambda: "No daemon runs" in seat.hint(), "it cannot be undone now")
        for key in ("p", "c", "K"):
            await seat.press(key)
            await seat.until(lambda: "aemon" in seat.hint(), "said")
            assert not seat.offered()
        live.again()
        await seat.until(lambda: seat.app.state.link == "live", "back")
        assert state(live, rollout) == ("paused", ME)


async def test_what_fails_with_a_fault_leaves_no_row() -> None:
    async def work() -> UndoableAction | None:
        raise ValueError("not what a daemon says")

    watched: list[Any] = []
    offers = UndoOffers(lambda: None, lambda _: None, lambda _: None, watched.append)
    offers.do("Pausing …", work())
    await offers.settle()
    with pytest.raises(ValueError, match="not what a daemon says"):
        await watched[0]
    assert offers.lines() == []


async def test_who_leaves_at_once_has_done_it(
    live: LiveStation, rollout: str, tmp_path: Any
) -> None:
    app = HoustonConsole(
        LoadedConfiguration(Configuration(), live.home, "defaults"), rollout, tmp_path / "state"
    )
    async with app.run_test(size=WIDE) as pilot:
        seat = Seat(app, pilot)
        await ready(seat, rollout)
        await pilot.press("p", "q")
    assert state(live, rollout) == ("paused", ME)
    (offer,) = app.undo_offers.offers
    assert offer.action is not None
    assert offer.action.undo_command == f"houston rollout resume {rollout}"
