"""Several people: who is where, who looks after what, notes handed on; what is refused is said."""

import os
from typing import Any

from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_shared import wire
from houston_shared.records import ContextHead
from houston_shared.store.presence_queries import current_person
from tests.console.conftest import SMALL, LiveStation, Seat, Sit


async def _is_live(seat: Seat) -> None:
    await seat.until(lambda: seat.app.state.link == "live", "live")


def _claim(live: LiveStation, rollout: str, name: str, **fields: Any) -> None:
    message = wire.ClaimRollout(
        request=os.urandom(8).hex(), rollout=rollout, claimed=name, **fields
    )
    assert isinstance(live.person().ask(message), wire.RequestStored)


def _holds(live: LiveStation) -> list[tuple[Any, ...]]:
    return live.query("SELECT rollout, holder FROM claims ORDER BY rollout")


def _work(live: LiveStation) -> str:
    worker = live.working()
    worker.say(wire.StoreHead, head=ContextHead(
        system="You work.", task="Look around.", tools=(), rendered="", token_ids=None,
        dialect="chatml-json", tokenizer="",
    ))  # fmt: skip
    worker.step(1)
    return str(worker.rollout)


async def test_where_a_console_looks_is_known_to_others_and_ends_when_it_leaves(
    live: LiveStation, sit: Sit
) -> None:
    first, second = _work(live), _work(live)
    looks = "SELECT rollout, step, here FROM looks ORDER BY last"
    async with sit(live.home, at_home=True) as seat:
        await _is_live(seat)
        query = "SELECT name, rollout FROM annotators"
        await seat.until(lambda: live.query(query) == [(current_person().name, "")], "at home")
        await seat.press("1", "enter")
        opened = seat.app.state.selected
        assert opened in (first, second)
        await seat.until(lambda: live.query(looks) == [(opened, 1, 1)], "at a rollout")
        await seat.press("0")
        await seat.until(lambda: live.query(looks) == [(opened, 1, 0)], "gone from it")
        await seat.press("escape")
        await seat.until(lambda: live.query(looks) == [(opened, 1, 1)], "back")
    live.stop()  # writes what it knows
    assert live.query(looks) == [(opened, 1, 0)]
    live.again()


async def test_others_are_seen_at_home_and_beside_the_rollout(live: LiveStation, sit: Sit) -> None:
    first, _ = _work(live), _work(live)
    ben = live.person()
    assert isinstance(
        ben.ask(wire.ReportPresence(rollout=first, step=1, active=True, claimed="ben")),
        wire.RequestStored,
    )
    async with sit(live.home, size=SMALL, at_home=True) as seat:
        await seat.until(lambda: "◉ben?" in seat.text("#home-list"), "who is there")
    async with sit(live.home, first, SMALL) as seat:
        await seat.until(lambda: "ben? at step 1" in seat.text("#people"), "beside it too")
        ben.ask(wire.ReportPresence(rollout="", claimed="ben"))
        await seat.until(lambda: not seat.app.watch_screen.since.people.display, "gone: no line")


async def test_a_rollout_is_looked_after_handed_on_and_taken_over(
    live: LiveStation, sit: Sit
) -> None:
    mine, _ = _work(live), _work(live)
    me = current_person().name
    async with sit(live.home, mine) as seat:
        await _is_live(seat)
        await seat.until(lambda: seat.app.state.need_of(mine), "judged")
        await seat.press("c")
        await seat.until(lambda: _holds(live) == [(mine, me)], "claimed")
        await seat.until(
            lambda: "C lets go" in seat.text("#people"), "shown here, with the way out"
        )
        await seat.press("C")
        await seat.until(lambda: _holds(live) == [(mine, "")], "taken back, and nothing was asked")
        await seat.until(lambda: not seat.app.watch_screen.since.people.display, "and seen here")
        await seat.press("c")
        await seat.until(lambda: "☞ you since" in seat.text("#people"), "claimed again")
        await seat.press("0")
        await seat.until(lambda: "☞you" in seat.text("#home-list"), "shown at home")
        assert "you look after 1" in seat.frame("#home")
        assert seat.app.home_screen.list.chosen == mine
        await seat.press("c")
        assert isinstance(seat.app.screen, QuestionDialog)
        await seat.press("escape")
        assert _holds(live) == [(mine, me)]  # leaving the question leaves the claim
        await seat.press("c", *"stale", "enter")
        await seat.until(lambda: _holds(live) == [(mine, "")], "released")
        await seat.until(lambda: "Your note waits" in seat.hint(), "said")
        _claim(live, mine, "ben")
        await seat.until(lambda: "☞ben?" in seat.text("#home-list"), "another holds it")
        await seat.press("c")
        assert isinstance(seat.app.screen, ConfirmDialog)
        await seat.press("n")
        assert _holds(live) == [(mine, "ben")]
        await seat.press("c", "y")
        await seat.until(lambda: _holds(live) == [(mine, me)], "taken over")


async def test_a_note_is_shown_to_who_comes_next_until_it_was_seen(
    live: LiveStation, sit: Sit
) -> None:
    rollout, _ = _work(live), _work(live)
    _claim(live, rollout, "ben")
    _claim(live, rollout, "ben", note="It waits for the index. " * 12, release=True)
    async with sit(live.home, at_home=True) as seat:
        await seat.until(lambda: "✉" in seat.text("#home-list"), "at home")
    async with sit(live.home, rollout) as seat:
        await seat.until(lambda: "ben left a note" in seat.text("#people"), "above the steps")
        assert "in full under 1" in seat.text("#people")
        await _is_live(seat)
        await seat.press("j")
        query = "SELECT seen_at > 0 FROM looks WHERE here = 1"
        await seat.until(lambda: live.query(query) == [(1,)], "seen")
        assert "ben left a note" in seat.text("#people")  # as long as this visit lasts
    live.stop()
    _past(live)
    live.again()
    async with sit(live.home, rollout) as seat:
        await seat.until(lambda: seat.app.watch_screen.since._was_read, "read")
        await seat.until(lambda: seat.app.state.need_of(rollout), "judged")
        await seat.press("j")
        assert not seat.app.watch_screen.since.people.display


async def test_a_hand_over_goes_to_one_person_and_says_when_it_was_read(
    live: LiveStation, sit: Sit
) -> None:
    rollout, _ = _work(live), _work(live)
    live.person().ask(wire.ReportPresence(rollout=rollout, step=1, claimed="benjamin"))
    live.person().ask(wire.ReportPresence(claimed="benjamin"))
    note_to = "SELECT note_to, read_by FROM claims"
    async with sit(live.home, rollout, name="ada") as seat:
        await _is_live(seat)
        await seat.until(lambda: "benjamin" in seat.app.state.board.known_names, "names are known")
        await seat.press("c")
        await seat.until(lambda: "☞ you since" in seat.text("#people"), "claimed")
        await seat.press("c", "shift+tab", *"benjamn", "enter")
        assert isinstance(seat.app.screen, QuestionDialog), "a note is missing: asked again"
        await seat.press(*"stale", "enter")
        assert isinstance(seat.app.screen, ConfirmDialog), "the name may be a slip"
        await seat.press("n")
        assert isinstance(seat.app.screen, QuestionDialog)
        assert [field.value for field in seat.app.screen.fields] == ["benjamn", "stale"]
        await seat.press("shift+tab", "end", "backspace", *"in", "enter")
        await seat.until(lambda: live.query(note_to) == [("benjamin", "")], "handed over")
        await seat.until(lambda: "by you, unread" in seat.text("#people"), "its author sees so")
        async with sit(live.home, at_home=True, name="cleo") as other:
            await other.until(lambda: other.app.state.board.needs, "judged")
            assert "handed" not in other.text("#home-list")
        async with sit(live.home, at_home=True, name="benjamin") as receiver:
            await receiver.until(
                lambda: "handed to you by ada: stale" in receiver.text("#home-list"), "asked for"
            )
            await _is_live(receiver)
            await receiver.press("enter")
            assert receiver.app.state.selected == rollout, "what was handed over comes first"
            await receiver.until(
                lambda: "ada left a note to you" in receiver.text("#people"), "above the steps"
            )
            assert live.query(note_to) == [("benjamin", "")]
            await receiver.press("j")
            await receiver.until(
                lambda: live.query(note_to) == [("benjamin", "benjamin")], "read with a key"
            )
            assert "ada left a note to you" in receiver.text("#people"), "while the visit lasts"
        await seat.until(lambda: "by you, read by benjamin" in seat.text("#people"), "seen")
        await seat.press("0")
        await seat.until(lambda: "✉benjamin read" in seat.text("#home-list"), "at home, too")


async def test_two_names_on_one_login_are_two_people(live: LiveStation, sit: Sit) -> None:
    rollout, _ = _work(live), _work(live)
    async with sit(live.home, rollout, name="ada") as seat:
        await _is_live(seat)
        await seat.until(lambda: seat.app.state.need_of(rollout), "judged")
        await seat.press("c")
        await seat.until(lambda: "☞ you since" in seat.text("#people"), "claimed")
        await seat.press("c")
        await seat.write("the index is stale")
        await seat.press("enter")
        await seat.until(lambda: _holds(live) == [(rollout, "")], "handed on")
        await seat.press("K", "i")
        await seat.write("look again")
        await seat.press("enter")
        query = "SELECT author, verified FROM guidance"
        await seat.until(lambda: live.query(query) == [("ada", 0)], "said under that name")
        judged = "SELECT author FROM verdicts"
        await seat.until(lambda: live.query(judged) == [("ada",)], "judged under it")
        assert "left a note" not in seat.text("#people")
    async with sit(live.home, rollout, name="ben") as seat:
        await seat.until(lambda: "ada left a note" in seat.text("#people"), "unread by ben")
        assert "the index is stale" in seat.text("#people")
        assert not seat.app.watch_screen.guidance.composer.text
        await _is_live(seat)
        query = "SELECT name, verified FROM looks WHERE here = 1"
        await seat.until(lambda: live.query(query) == [("ben", 0)], "seen under his name")
    _claim(live, rollout, "ben")
    _claim(live, rollout, "ben", note="it is not", release=True)
    async with sit(live.home, rollout, name="ada") as seat:
        await seat.until(lambda: "ben left a note" in seat.text("#people"), "unread by ada")


def _past(live: LiveStation) -> None:
    """As if an hour had gone by since anybody looked."""
    import sqlite3

    connection = sqlite3.connect(live.home.database)
    with connection:
        connection.execute("UPDATE looks SET last = last - 3600000000")
    connection.close()


async def test_what_the_daemon_refuses_is_said(live: LiveStation, sit: Sit) -> None:
    rollout, other = _work(live), _work(live)
    async with sit(live.home, rollout) as seat:
        await _is_live(seat)
        await seat.press("g", "plus")
        assert "Go to the step after which" in seat.hint()
        await seat.press("f", "plus")
        assert isinstance(seat.app.screen, QuestionDialog)
        await seat.press("shift+tab", "backspace", *"99", "enter")
        assert "not a number from 1 to 16" in seat.hint()
        await seat.press("plus", *"try it", "enter")
        await seat.until(lambda: "No branch was started" in seat.hint(), "refused")
        await seat.until(lambda: seat.app.state.need_of(rollout), "judged")
        stale = seat.app.state.need_of(rollout)
        assert stale is not None
        _claim(live, rollout, "ben")
        seat.app.state.seq = 1  # as of before ben's claim
        seat.app.watch_screen._claims.toggle(rollout, stale.overview.holding, seat.app.state)
        await seat.until(lambda: "ben claimed" in seat.hint(), "refused")
        await seat.press("0", "2", "p")
        chosen = seat.app.home_screen.list.chosen
        state = "SELECT state FROM rollouts WHERE id = ?"
        await seat.until(lambda: live.query(state, chosen) == [("paused",)], "paused from home")
        assert chosen in (rollout, other)
