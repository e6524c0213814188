"""Judging steps: one key, ranges, reasons, undo; and what stands beside a step."""

import asyncio
from typing import Any

import pytest
from textual import events
from textual.keys import _character_to_key

from houston_console.app import key_order
from houston_console.transcript import step_rendering
from houston_console.transcript.trajectory_reader import StepAnnotations
from houston_console.transcript.verdict_actions import (
    MAX_RANGES_PER_REQUEST,
    StepRange,
    VerdictActions,
    VerdictSession,
    verdict_messages,
    verdicts_within,
    with_reason,
)
from houston_console.widgets.styled_text import line_text
from houston_shared import wire
from houston_shared.control_messages import JudgedSteps
from houston_shared.store import annotation_queries
from houston_shared.store.annotation_queries import BookmarkRow, NoteRow, SourceVerdict
from houston_shared.store.store_reader import Reader
from tests.console.conftest import LiveStation, Seat, Sit
from tests.console.home_builder import HomeBuilder

KEEP, MASK = (
    JudgedSteps(first=3, last=3, verdict="keep"),
    JudgedSteps(first=4, last=9, verdict="mask"),
)


def test_a_range_is_chosen_from_either_end_and_never_holds_the_task() -> None:
    bench = VerdictSession()
    assert bench.chosen_steps("r", 7) == StepRange("r", 7, 7)
    assert bench.chosen_steps("r", 0) is None
    bench.anchor = 9
    assert bench.chosen_steps("r", 4) == StepRange("r", 4, 9)
    assert bench.chosen_steps("r", 12) == StepRange("r", 9, 12)


def test_steps_that_are_not_shown_are_not_judged_with_those_that_are() -> None:
    bench = VerdictSession()
    bench.anchor = 10
    steps = bench.chosen_steps("r", 3, {1, 3, 4, 5, 9, 40})
    assert steps is not None
    assert steps.text == "4 steps between 3 and 10"
    request = bench.verdict_request(steps, "mask", 1)
    assert [(verdict.first, verdict.last) for verdict in request.verdicts] == [(3, 5), (9, 9)]
    stood = (JudgedSteps(first=3, last=10, verdict="mask"),)
    assert [(row.first, row.last) for row in verdicts_within(stood, steps)] == [(3, 5), (9, 9)]


def test_more_ranges_than_the_daemon_takes_at_once_are_several_messages() -> None:
    many = tuple(
        JudgedSteps(first=n, last=n, verdict="keep")
        for n in range(1, 2 * MAX_RANGES_PER_REQUEST + 2)
    )
    parts = verdict_messages(
        VerdictSession().request_for(StepRange("r", 1, 2 * MAX_RANGES_PER_REQUEST + 1), many, 7)
    )
    assert [len(part.verdicts) for part in parts] == [
        MAX_RANGES_PER_REQUEST,
        MAX_RANGES_PER_REQUEST,
        1,
    ]
    assert len({part.key for part in parts}) == 3
    assert tuple(verdict for part in parts for verdict in part.verdicts) == many


def test_what_was_not_answered_is_sent_again_under_its_own_key() -> None:
    bench = VerdictSession()
    steps = StepRange("r", 3, 9)
    first = bench.verdict_request(steps, "mask", 40)
    bench.unanswered = first
    assert bench.verdict_request(steps, "mask", 55) == first
    assert bench.verdict_request(steps, "keep", 55).key != first.key
    bench.record_applied(first, (KEEP, MASK), 60)
    assert bench.verdict_request(steps, "mask", 61).key != first.key


def test_undo_gives_back_what_stood_in_the_rollout_that_is_open_newest_first() -> None:
    bench = VerdictSession()
    for rollout, before in (("r", KEEP), ("other", KEEP), ("r", MASK)):
        bench.record_applied(
            bench.verdict_request(StepRange(rollout, 3, 9), "mask", 1), (before,), 70
        )
    applied, request = bench.newest_undo("r") or (None, None)
    assert request and (request.verdicts, request.seen_seq) == ((MASK,), 70)
    assert applied
    bench.record_undone(applied)
    assert (bench.newest_undo("r") or (0, request))[1].verdicts == (KEEP,)
    assert bench.newest_undo("none") is None


def test_a_reason_is_for_what_was_just_judged_and_changes_no_verdict() -> None:
    bench = VerdictSession()
    bench.record_applied(bench.verdict_request(StepRange("r", 3, 9), "mask", 1), (), 70)
    assert bench.reason_steps("r", 5) == StepRange("r", 3, 9)
    assert bench.reason_steps("r", 12) == StepRange("r", 12, 12)
    assert bench.reason_steps("other", 5) == StepRange("other", 5, 5)
    undecided = JudgedSteps(first=10, last=12, verdict="undecided")
    verdicts = with_reason((KEEP, undecided, MASK), "copied the answer")
    assert [(verdict.verdict, verdict.reason) for verdict in verdicts] == [
        ("keep", "copied the answer"), ("mask", "copied the answer"),
    ]  # fmt: skip


def test_a_step_says_who_judged_it_and_why_and_what_was_outranked() -> None:
    verdicts = (
        SourceVerdict(7, 1, "human", "keep", "ada", "it learns from the log", 0, 9),
        SourceVerdict(7, 1, "judge", "mask", "judge", "repeats step 5", 0, 8),
        SourceVerdict(7, 1, "rule", "mask", "blind_edit", "", 0, 7),
    )
    marks = (BookmarkRow("r", 7, "ben", 5, 0, "a turn"), BookmarkRow("r", 7, "ada", 6, 0))
    notes = (NoteRow(5, "r", 7, "ben", 0, "a turn"),)
    text = "\n".join(
        line_text(row)
        for row in step_rendering.annotation_lines(StepAnnotations(verdicts, marks, notes), 70)
    )
    assert "✓ keep by ada (person): it learns from the log" in text
    assert "∅ mask by judge: repeats step 5  (outranked)" in text
    assert "∅ mask by rule blind_edit, no reason given  (outranked)" in text
    assert ("⚑ ada" in text, "¶ ben" in text, "⚑ ben" in text) == (True, True, False)
    assert "│ a turn" in text


def _verdicts(live: LiveStation, rollout: str) -> dict[int, str]:
    with Reader(live.home) as reader:
        by = reader.run(annotation_queries.read_verdicts_with_reasons(rollout))
    return {step: f"{rows[0].verdict} {rows[0].reason}".strip() for step, rows in by.items()}


async def _until(seat: Seat, live: LiveStation, rollout: str, wanted: dict[int, str]) -> None:
    await seat.until(lambda: _verdicts(live, rollout) == wanted, f"{wanted}")


async def test_steps_are_kept_masked_explained_and_given_back(live: LiveStation, sit: Sit) -> None:
    worker = live.working()
    for step in range(1, 7):
        worker.step(step)
    rollout = worker.rollout
    async with sit(live.home, rollout) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "the daemon")
        await seat.press("K")
        await _until(seat, live, rollout, {6: "keep"})
        await seat.press("k", "V", "k", "k")
        assert "▌ 3–5 chosen" in seat.frame("#trajectory")
        assert sum("▌" in row for row in seat.lines()) == 3
        await seat.press("M")
        masked = {3: "mask", 4: "mask", 5: "mask", 6: "keep"}
        await _until(seat, live, rollout, masked)
        await seat.until(lambda: sum("∅h" in row for row in seat.lines()) == 3, "the column")
        await seat.press("R")
        await seat.write("no gain")
        await seat.press("enter")
        await _until(seat, live, rollout, {**dict.fromkeys((3, 4, 5), "mask no gain"), 6: "keep"})
        await seat.press("enter")
        await seat.until(lambda: "(person): no gain" in seat.text(), "why is this step masked?")
        await seat.press("Z")
        await _until(seat, live, rollout, masked)
        await seat.press("ctrl+z")
        await _until(seat, live, rollout, {6: "keep"})
        await seat.press("H")
        await seat.until(lambda: seat.app.screen.query("#said"), "the history")
        await seat.until(lambda: "undecided" in seat.text("#said FixedLines"), "all four words")
        await seat.press("escape")
        person = live.person()
        other = wire.GiveVerdicts(
            request="o", rollout=rollout, steps=(JudgedSteps(first=6, last=6, verdict="mask"),),
            claimed="ben",
        )  # fmt: skip
        assert isinstance(person.ask(other), wire.RequestStored)
        await seat.until(lambda: any("∅h" in row for row in seat.lines()), "another's verdict")


async def test_a_reason_does_not_overrule_what_was_said_while_it_was_typed(
    live: LiveStation, sit: Sit
) -> None:
    worker = live.working()
    worker.step(1)
    async with sit(live.home, worker.rollout) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "the daemon")
        await seat.press("K")
        await _until(seat, live, worker.rollout, {1: "keep"})
        await seat.press("R")
        await seat.write("it works")
        other = wire.GiveVerdicts(
            request="o",
            rollout=worker.rollout,
            steps=(JudgedSteps(first=1, last=1, verdict="mask"),),
            claimed="ben",
        )
        stored = live.person().ask(other)
        source = seat.app.watch_screen.source
        assert source is not None
        await seat.until(lambda: source.seq >= stored.seq, "it is on the screen")
        await seat.press("enter")
        await seat.until(
            lambda: "ben gave step 1 the verdict mask meanwhile" in seat.bar("#hints"), "told"
        )
        assert _verdicts(live, worker.rollout) == {1: "mask"}


def _type_at_once(seat: Seat, text: str) -> None:
    """Keys of one read, as a fast person's over SSH or a paste's are; `\n` is enter."""
    for character in text:
        key = "enter" if character == "\n" else _character_to_key(character)
        seat.app.post_message(events.Key(key, "\r" if key == "enter" else character))


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("MRMissed K and M.\n", {3: "mask Missed K and M."}),
        ("Mk", {3: "mask"}),
        ("MR no gain\nkK", {3: "mask no gain", 2: "keep"}),
        ("MH\nkK", {3: "mask", 2: "keep"}),
        (":1\nK", {1: "keep"}),
        (":none\nK", {}),
    ],
)
async def test_a_reason_typed_in_one_breath_is_a_reason(
    live: LiveStation,
    sit: Sit,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    wanted: dict[int, str],
) -> None:
    """Also where the store is slow: longer than a key waits for anything else."""
    read = VerdictActions._read_standing

    async def read_late(*arguments: Any) -> tuple[JudgedSteps, ...]:
        await asyncio.sleep(0.3)
        return await read(*arguments)

    monkeypatch.setattr(key_order, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(VerdictActions, "_read_standing", read_late)
    worker = live.working()
    for step in range(1, 4):
        worker.step(step)
    async with sit(live.home, worker.rollout) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "the daemon")
        _type_at_once(seat, typed)
        await _until(seat, live, worker.rollout, wanted)
        await seat.press()
        assert _verdicts(live, worker.rollout) == wanted
        assert len(seat.app.screen_stack) == 1


async def test_words_for_a_reason_that_is_not_asked_for_judge_nothing(
    live: LiveStation, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has judged the step; or the store is so slow that nobody waits for it. Who types goes
    on for a while: up to the first pause none of it is a command."""
    worker = live.working()
    worker.step(1)
    async with sit(live.home, worker.rollout) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "the daemon")
        _type_at_once(seat, "RMissed\n")
        await seat.until(lambda: "7 keys that followed were not used" in seat.bar("#hints"), "said")
        assert "Nobody has judged step 1" in seat.bar("#hints")
        for number, character in enumerate("K and M", 8):
            await asyncio.sleep(0.1)
            _type_at_once(seat, character)
            words = f" {number} keys that followed were not used"
            await seat.until(lambda words=words: words in seat.bar("#hints"), words)
        assert _verdicts(live, worker.rollout) == {}
        await asyncio.sleep(2 * key_order.PAUSE_SECONDS)
        monkeypatch.setattr(key_order, "WORK_PATIENCE_SECONDS", 0.05)
        go_on, read = asyncio.Event(), VerdictActions._read_standing

        async def read_late(*arguments: Any) -> tuple[JudgedSteps, ...]:
            await go_on.wait()
            return await read(*arguments)

        monkeypatch.setattr(VerdictActions, "_read_standing", read_late)
        _type_at_once(seat, "RM")
        await seat.until(lambda: "A key that followed was not used" in seat.bar("#hints"), "said")
        go_on.set()
        await seat.press()
        assert _verdicts(live, worker.rollout) == {}


async def test_bookmarks_and_notes_are_for_everybody_and_are_listed(
    live: LiveStation, sit: Sit
) -> None:
    worker = live.working()
    for step in range(1, 4):
        worker.step(step)
    async with sit(live.home, worker.rollout) as seat:
        await seat.until(lambda: seat.app.state.link == "live", "the daemon")
        await seat.press("m")
        await seat.until(lambda: "⚑" in seat.lines()[3], "a bookmark")
        await seat.press("k", "semicolon")
        await seat.write("here it turned")
        await seat.press("enter")
        await seat.until(lambda: "¶" in seat.lines()[2], "a note")
        await seat.press("g", "L")
        await seat.until(lambda: "here it turned" in seat.text("MarkList"), "the list")
        await seat.press("enter")
        assert seat.transcript.cursor == 2
        await seat.until(lambda: "│ here it turned" in seat.text(), "the note, in the step")
        await seat.press("Y")
        link = f"{worker.rollout}@2"
        await seat.until(lambda: seat.app.clipboard == link, "the permalink")
        await seat.press("Y")
        await seat.until(lambda: seat.app.clipboard == f"houston steps {link} --full", "command")
        await seat.press("j", "b")
        assert seat.transcript.cursor == 3
        await seat.press("m")
        await seat.until(lambda: not any("⚑" in row for row in seat.lines()[1:]), "taken away")


async def test_without_a_daemon_no_verdict_is_lost_unsaid(builder: HomeBuilder, sit: Sit) -> None:
    with builder.bulk():
        builder.start("r")
        for step in range(1, 5):
            builder.whole("r", step, "work")
    async with sit(builder.home, "r") as seat:
        await seat.until(lambda: seat.app.state.link == "down", "no daemon")
        await seat.press("V", "k", "M")
        await seat.until(lambda: "verdicts do not wait" in seat.bar("#hints"), "a sentence")
        assert "▌ 3–4 chosen" in seat.frame("#trajectory")
