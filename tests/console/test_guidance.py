"""Saying something to an agent: sent, heard, taken back, changed; nothing typed is ever lost."""

import asyncio
from typing import Any

import pytest
from textual import events

from houston_console.app import daemon_link
from houston_console.panes.guidance_composer import Composer
from houston_console.panes.guidance_pane import GuidanceQueue
from houston_console.screens.base_screen import HintBar
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.dialogs import ConfirmDialog
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.wire import EditGuidance
from tests.console.conftest import SMALL, WIDE, LiveStation, Seat, Sit
from tests.console.home_builder import HomeBuilder
from tests.support.recorder_client import Worker


def _work(live: LiveStation) -> Worker:
    worker = live.working()
    worker.step(1)
    return worker


def _queue(seat: Seat) -> str:
    return seat.text(GuidanceQueue)


async def _is_live(seat: Seat) -> None:
    await seat.until(lambda: seat.app.state.link == "live", "live")


def _texts(live: LiveStation) -> list[tuple[Any, ...]]:
    return live.query("SELECT mode, state, delivered_step FROM guidance ORDER BY number")


async def test_a_message_is_queued_then_heard_at_a_step(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.press("5")
        await seat.write("look at it")
        assert "<real_user>look at it</real_user>" in seat.text("#heard")
        await seat.press("enter")
        await seat.until(lambda: "queued" in _queue(seat), "queued")
        assert seat.app.query_one(Composer).text == ""
        ack = worker.step(2)
        assert [message.text for message in ack.guidance] == ["look at it"]
        await seat.until(lambda: "step 2" in _queue(seat), "delivered")
        await seat.until(lambda: "✎" in seat.text(), "flag")
        await seat.press("tab", "enter")
        await seat.until(lambda: "┃ look at it" in seat.text(), "the step that heard it")


async def test_modes_are_keys_and_interrupting_asks_first(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.press("i")
        await seat.write("one")
        await seat.press("ctrl+w")
        await seat.until(lambda: len(_texts(live)) == 1, "wake")
        await seat.write("two")
        await seat.press("ctrl+x")
        assert isinstance(seat.app.screen, ConfirmDialog)
        await seat.press("n")
        assert seat.app.query_one(Composer).text == "two"
        await seat.press("ctrl+x", "y")
        await seat.until(lambda: len(_texts(live)) == 2, "interrupt")
        assert _texts(live) == [("wake", "queued", None), ("interrupt", "queued", None)]


async def test_lines_are_written_with_ctrl_j_and_space_is_not_sent(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.press("i", "space", "enter")
        await seat.press("a", "ctrl+j", "b", "ctrl+s")
        await seat.until(lambda: len(_texts(live)) == 1, "sent")
        ack = worker.step(2)
        assert [message.text for message in ack.guidance] == [" a\nb"]


async def test_queued_guidance_is_withdrawn_and_edited(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    live.person().guide(worker.rollout, "first")
    live.person().guide(worker.rollout, "second")
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.until(
            lambda: "second" in seat.lines(GuidanceQueue)[1], "both, as they will be heard"
        )
        await seat.press("6", "j", "minus")
        await seat.until(lambda: "withdrawn" in _queue(seat), "withdrawn")
        await seat.press("k", "quotation_mark")
        assert "Editing" in seat.frame("#guidance")
        await seat.write(" and more")
        await seat.press("enter")
        await seat.until(lambda: "first and more" in _queue(seat), "edited")
        ack = worker.step(2)
        assert [message.text for message in ack.guidance] == ["first and more"]
        await seat.until(lambda: "step 2" in _queue(seat), "delivered")
        await seat.press("escape", "6", "minus")
        assert "only queued guidance can change" in seat.bar("#hints")


async def test_what_was_heard_while_it_was_edited_stays_as_it_was_heard(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    live.person().guide(worker.rollout, "first")
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.until(lambda: "first" in _queue(seat), "there")
        await seat.press("6", "quotation_mark")
        await seat.write(" too late")
        worker.step(2)
        await seat.press("enter")
        await seat.until(lambda: "delivered" in seat.bar("#hints"), "refused with a reason")
        assert seat.app.query_one(Composer).text == "first too late"
        await seat.press("enter")
        await seat.until(
            lambda: "first too late" in seat.lines(GuidanceQueue)[0], "as a new message"
        )


async def test_two_people_change_the_same_guidance_and_the_second_decides(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    live.person().guide(worker.rollout, "first")
    async with sit(live.home, worker.rollout, size=SMALL) as seat:
        await _is_live(seat)
        await seat.press("6")
        await seat.until(lambda: "first" in _queue(seat), "there")
        await seat.press("quotation_mark")
        await seat.write(" mine")
        ((message_id, revision),) = live.query("SELECT id, revision FROM guidance")
        live.person().ask(EditGuidance(id=message_id, revision=revision, text="first theirs"))
        await seat.press("enter")
        await seat.until(lambda: "changed meanwhile" in seat.bar("#hints"), "told")
        hints = seat.app.top_screen.hints
        shown = "".join(hints.render_line(y).text for y in range(hints.size.height))
        assert "your words instead" in shown, "to its end, in as many lines as it takes"
        await seat.until(lambda: "first theirs" in _queue(seat), "theirs is shown")
        await seat.press("enter")
        await seat.until(lambda: "first mine" in _queue(seat), "mine after all")
        assert hints.size.height == 1


async def test_a_message_in_the_queue_stays_under_the_cursor(
    builder: HomeBuilder, sit: Sit
) -> None:
    with builder.bulk():
        builder.start("r")
        for step in range(1, 31):
            builder.say("r", f"g{step}", f"word {step}")
            builder.whole("r", step)
    async with sit(builder.home) as seat:
        await seat.press("6", *"j" * 12)
        queue = seat.app.watch_screen.guidance.queue
        under, line = queue.under_cursor, queue.cursor - round(queue.scroll_y)
        assert under is not None
        builder.say("r", "newest", "one more")
        await seat.until(lambda: len(queue.items) == 31, "one more above")
        assert queue.under_cursor == under
        assert queue.cursor - round(queue.scroll_y) == line


async def test_a_draft_outlives_the_console_and_belongs_to_its_rollout(
    live: LiveStation, sit: Sit
) -> None:
    worker, other = _work(live), _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await seat.press("i")
        await seat.write("not sent")
    async with sit(live.home, worker.rollout) as seat:
        assert seat.app.query_one(Composer).text == "not sent"
        await seat.app.watch_screen.open_rollout(other.rollout)
        assert seat.app.query_one(Composer).text == ""
        await seat.app.watch_screen.open_rollout(worker.rollout)
        assert seat.app.query_one(Composer).text == "not sent"


async def test_the_daemon_goes_and_comes_back_and_the_message_is_sent_once(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await asyncio.to_thread(live.stop)
        await seat.until(lambda: "daemon down" in seat.bar("#status"), "down")
        await seat.press("i")
        await seat.write("hello")
        await seat.press("enter")
        await seat.until(lambda: "unsent" in _queue(seat), "unsent")
        await seat.write("draft")
        assert "output of 1" in await _unfolded(seat)  # reading goes on
        await asyncio.to_thread(live.again)
        await seat.until(lambda: "queued" in _queue(seat), "sent")
        assert "unsent" not in _queue(seat)
        assert seat.app.query_one(Composer).text == "draft"
        await seat.app.link.send_unsent()
        assert [mode for mode, *_ in _texts(live)] == ["next"]


async def _unfolded(seat: Seat) -> str:
    await seat.press("escape", "enter")
    return seat.text()


async def test_an_unsent_message_goes_out_from_another_console_and_can_be_dropped(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    await asyncio.to_thread(live.stop)
    async with sit(live.home, worker.rollout) as seat:
        for text in ("keep", "drop"):
            await seat.press("i")
            await seat.write(text)
            await seat.press("enter")
            await seat.until(lambda text=text: text in _queue(seat), text)
        await seat.press("tab", "j", "minus")
        await seat.until(lambda: "drop" not in _queue(seat), "dropped")
    await asyncio.to_thread(live.again)
    async with sit(live.home, worker.rollout) as seat:
        await seat.until(lambda: "queued" in _queue(seat), "sent by the next console")
        assert [row[1] for row in _texts(live)] == ["queued"]


async def _end(live: LiveStation, worker: Worker, seat: Seat) -> None:
    live.person().ask(_cancel(worker.rollout))
    worker.say(_moved(), state="cancelled", reason="asked")
    await seat.until(lambda: seat.app.state.open_rollout.state == "cancelled", "ended")


async def test_a_message_that_the_daemon_refuses_keeps_its_words_and_says_why(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await _end(live, worker, seat)
        seat.app.outbox.post(worker.rollout, "written before it ended", "next")
        await seat.app.link.send_unsent()
        await seat.until(lambda: "refused" in _queue(seat), "refused")
        assert "written" in _queue(seat)


async def _queue_unsent(seat: Seat, live: LiveStation, text: str) -> None:
    """A message that waits for a daemon that is away, under the cursor of the queue."""
    await asyncio.to_thread(live.stop)
    await seat.press("i")
    await seat.write(text)
    await seat.press("enter")
    await seat.until(lambda: text in _queue(seat), "kept as unsent")


async def test_a_message_from_the_queue_never_replaces_a_draft(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    live.person().guide(worker.rollout, "first")
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.until(lambda: "first" in _queue(seat), "there")
        composer = seat.app.query_one(Composer)
        await seat.press("6", "quotation_mark")
        await seat.write(" edited")
        await seat.press("escape", "6", "quotation_mark")
        assert composer.text == "first edited", "the same message again"
        await seat.press("ctrl+u", "escape")
        await _queue_unsent(seat, live, "unsent words")
        await seat.write("half a thought")
        await seat.press("escape", "6", "g", "quotation_mark")
        assert "There is a draft in the composer" in seat.bar("#hints")
        assert composer.text == "half a thought"
        assert seat.app.outbox.draft(worker.rollout).text == "half a thought"
        assert [message.text for message in seat.app.outbox.unsent()] == ["unsent words"]


async def test_what_is_not_sent_has_no_place_in_the_order(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await _queue_unsent(seat, live, "unsent words")
        await seat.press("escape", "6")
        for key in ("right_curly_bracket", "left_curly_bracket"):
            await seat.press(key)
            assert "only queued guidance can be moved" in seat.bar("#hints")
        assert seat.app.query_one(Composer).text == ""
        assert [message.text for message in seat.app.outbox.unsent()] == ["unsent words"]


@pytest.mark.parametrize(
    ("typed_behind", "problem", "left"),
    [
        ("", None, ""),
        (" more", None, " more"),
        ("", HoustonError("It is delivered already."), "first edited"),
    ],
)
async def test_an_edit_that_is_answered_late_leaves_other_rollouts_alone(
    live: LiveStation,
    sit: Sit,
    monkeypatch: pytest.MonkeyPatch,
    typed_behind: str,
    problem: HoustonError | None,
    left: str,
) -> None:
    worker, other = _work(live), _work(live)
    live.person().guide(worker.rollout, "first")
    answered = asyncio.Event()

    async def edit_late(*_: Any) -> str:
        await answered.wait()
        if problem is not None:
            raise problem
        return "changed"

    monkeypatch.setattr(daemon_link, "edit_guidance", edit_late)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.until(lambda: "first" in _queue(seat), "there")
        await seat.press("6", "quotation_mark")
        await seat.write(" edited")
        await seat.press("enter")
        await seat.write(typed_behind)
        await seat.app.watch_screen.open_rollout(other.rollout)
        await seat.write("for the other")
        answered.set()
        words = "delivered already" if problem else "changed"
        await seat.until(lambda: words in seat.bar("#hints"), "answered")
        outbox = seat.app.outbox
        assert outbox.draft(worker.rollout).text.strip() == left.strip()
        assert outbox.draft(other.rollout).text == "for the other"
        assert seat.app.query_one(Composer).text == "for the other"


async def test_why_a_message_was_refused_is_told_at_once(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout, size=SMALL) as seat:
        await _is_live(seat)
        await seat.press("i")
        seat.app.query_one(Composer).insert("much\n" * 60_000)
        await seat.press("enter")
        await seat.until(lambda: "text of guidance has" in seat.bar("#hints"), "said")
        await seat.press("escape", "6")
        await seat.until(lambda: "never heard" in seat.text("#heard"), "not what the agent reads")
        assert "The text of guidance has" in seat.text("#heard")
        assert "Put long material into a file" in seat.text("#heard"), "to its end"


async def test_nothing_is_sent_to_a_rollout_that_has_ended(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await _end(live, worker, seat)
        composer = seat.app.query_one(Composer)
        words = "This rollout has ended; nobody would hear it."
        await seat.until(lambda: composer.placeholder == words, "it says so")
        await seat.press("i")
        await seat.write("too late")
        for key in ("enter", "ctrl+w", "ctrl+x"):
            await seat.press(key)
            await seat.until(lambda: "nobody would hear it" in seat.bar("#hints"), key)
            assert composer.text == "too late"
        assert seat.app.outbox.unsent() == []
        assert _texts(live) == []


async def test_words_typed_behind_the_choice_of_a_rollout_are_for_that_rollout(
    live: LiveStation, sit: Sit
) -> None:
    first, second = _work(live), _work(live)
    for size in (WIDE, SMALL):
        async with sit(live.home, first.rollout, size) as seat:
            await _is_live(seat)
            await seat.press("1", "k")
            await _burst(seat, "enter", "i", *"hear", "enter", "escape")
            await seat.until(lambda: "hear" in _texts_of(live, second), "said to the second")
            assert _texts_of(live, first) == []
            assert f"Say to {second.rollout}" in seat.frame("#guidance")


async def test_a_composer_turns_before_anything_was_read(live: LiveStation, sit: Sit) -> None:
    first, second = _work(live), _work(live)
    async with sit(live.home, first.rollout) as seat:
        await _is_live(seat)
        seat.app.watch_screen._switch_rollout(second.rollout)
        assert seat.app.watch_screen.guidance.composer.draft.rollout == second.rollout
        assert f"Say to {second.rollout}" in seat.frame("#guidance")
        assert seat.transcript.line_count() == 0  # no step of the first under the second's name


async def test_an_open_question_shows_its_keys_and_no_others_work(
    live: LiveStation, sit: Sit
) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.press("ctrl+k")
        keys = seat.app.screen.query_one(HintBar)
        assert keys.render_line(0).text.split() == ["y", "yes", "n", "no"]
        assert keys.region.y == seat.app.size.height - 1
        await seat.press("i", "p", "tab")
        assert isinstance(seat.app.screen, ConfirmDialog)
        assert seat.app.state.open_rollout.state == "running"
        await seat.press("n")
        assert isinstance(seat.app.focused, Transcript)


def _cancel(rollout: str) -> Any:
    from houston_shared.wire import Steer

    return Steer(rollout=rollout, action="cancel")


def _moved() -> Any:
    from houston_shared.wire import StoreState

    return StoreState


async def test_pause_resume_and_cancel_are_keys(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await seat.press("p")
        await seat.until(lambda: "Paused" in seat.offered(), "said")
        await seat.until(lambda: "paused" in seat.frame("#trajectory"), "shown")
        await seat.press("r")
        await seat.until(lambda: "paused" not in seat.frame("#trajectory"), "resumed")
        await seat.press("ctrl+k")
        assert isinstance(seat.app.screen, ConfirmDialog)
        await seat.press("escape")
        assert live.query("SELECT cancelling FROM rollouts") == [("",)]
        await seat.press("ctrl+k", "y")
        await seat.until(
            lambda: live.query("SELECT 1 FROM rollouts WHERE cancelling <> ''"), "cancelled"
        )


async def test_a_console_before_any_daemon_waits_and_then_shows(tmp_path: Any, sit: Sit) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    async with sit(home) as seat:
        await seat.until(lambda: "no database" in seat.bar("#hints"), "said")
        assert seat.text("#facts") is not None
        live = LiveStation(home.path).start()
        try:
            worker = _work(live)
            await seat.until(lambda: seat.app.state.selected == worker.rollout, "opened by itself")
        finally:
            await asyncio.to_thread(live.stop)


async def _burst(seat: Seat, *keys: str) -> None:
    """Keys that arrive at once, as over a slow line."""
    for key in keys:
        seat.app.post_message(events.Key(key, key if len(key) == 1 else None))
    await seat.press()


async def test_keys_that_arrive_at_once_keep_their_order(live: LiveStation, sit: Sit) -> None:
    worker = _work(live)
    async with sit(live.home, worker.rollout) as seat:
        await _is_live(seat)
        await _burst(seat, "i", *"pqrd", "enter", *"next")
        await seat.until(lambda: _texts_of(live, worker) == ["pqrd"], "the message")
        composer = seat.app.watch_screen.guidance.composer
        await seat.until(lambda: composer.text == "next", "the draft behind it")
        assert seat.app.state.open_rollout.state == "running"  # no letter was taken for a key


def _texts_of(live: LiveStation, worker: Worker) -> list[str]:
    from houston_shared.store import annotation_queries
    from houston_shared.store.store_reader import Reader

    with Reader(live.home) as reader:
        return [row.text for row in reader.run(annotation_queries.list_guidance(worker.rollout))]
