"""The strip above the trajectory: what happened since this person last looked, and who is here.

One line that unfolds to a list, and a walk with one stop for each step with events. It takes no
line when there is nothing to say. The headless command is `commands.since_command`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from textual.app import ComposeResult
from textual.message import Message

from houston_console.app.key_bindings import bindings_for, key_label
from houston_console.commands.rollout_summary import format_score
from houston_console.screens.base_screen import GoToStep, Pane, post_message_as
from houston_console.screens.rollout_lists import (
    format_moment,
    other_viewers,
    own_note,
    people_text,
    read_text,
    unread_note,
)
from houston_console.widgets.line_view import FixedLines
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    justify_line,
    line,
    line_text,
    line_width,
    span,
    text_block,
)
from houston_shared.errors import HoustonError
from houston_shared.store import changes_since_visit, presence_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.attention_ranking import RolloutOverview
from houston_shared.store.changes_since_visit import (
    ChangesSinceEvent,
    HeardGuidance,
    NotableEvent,
    ScoredEvaluation,
    TouchedFile,
)
from houston_shared.store.presence_queries import IDLE_US, ClaimStatus, LastSeen, Person
from houston_shared.times_and_counts import format_age, now_us, pluralize

EVENT_GLYPHS: dict[str, tuple[str, Tone]] = {
    "error": ("✗", "error"),
    "attention": ("!", "warning"),
    "evaluation": ("★", "score"),
    "guidance": ("✎", "guidance"),
    "fork": ("↳", "fork"),
    "job": ("▶", "tool"),
    "verdict": ("✓", "dim"),
    "claim": ("☞", "guidance"),
    "bookmark": ("⚑", "dim"),
    "state": ("●", "dim"),
    "cancel": ("⊘", "warning"),
}
"""Glyph and tone of each kind of event."""


class ChangesSinceVisit(NamedTuple):
    """What happened, and since when."""

    changes: ChangesSinceEvent
    seen_at: int
    """When this person was here before, UTC microseconds; 0 for never."""


class SinceEntry(NamedTuple):
    """A line of the list, and the step it leads to."""

    line: TextLine
    step: int = 0
    """0 for none."""
    head: bool = False
    """Whether it stands over others."""


def summary_strip(
    visit: ChangesSinceVisit,
    now: int,
    width: int,
    unfolded: bool,
    named: tuple[str, str] = ("", ""),
) -> TextLine:
    """One line that says it all, as far as it fits. named: the keys that unfold and walk."""
    keys = line(
        span(f"  {named[0]} ", "tool"),
        span("fold" if unfolded else "show", "dim"),
        span(f" {named[1]} ", "tool"),
        span("next ", "dim"),
    )
    room = width - line_width(keys)
    leads = ["new to you:"]
    if visit.seen_at:
        when = format_age(visit.seen_at, now)
        leads = [f"since you were here, {when}:", f"since {when}:"]
    facts = _summary_facts(visit.changes)
    candidates = [_join_fitting_facts(lead, facts, room) for lead in leads]
    whole_line = next((line for line, left_out in candidates if not left_out), candidates[-1][0])
    return justify_line(whole_line, keys, width)


def _join_fitting_facts(lead: str, facts: list[TextLine], room: int) -> tuple[TextLine, int]:
    """The facts that fit behind the lead, and how many were left out."""
    parts, left_out = [span(f" {lead}", "dim")], 0
    for fact in facts:
        if line_width([*parts, span("  "), *fact]) > room:
            left_out += 1
        else:
            parts += [span("  "), *fact]
    return tuple(parts), left_out


def _summary_facts(changes: ChangesSinceEvent) -> list[TextLine]:
    lines = [line(span(pluralize(changes.steps, "step"), "strong"))]
    scores = [
        evaluation.score for evaluation in changes.evaluations if evaluation.score is not None
    ]
    if changes.evaluations:
        best = f", best {format_score(max(scores))}" if scores else ", no score"
        before = (
            f" (was {format_score(changes.best_before)})" if changes.best_before is not None else ""
        )
        lines.append(line(span(f"★ {len(changes.evaluations)}{best}{before}", "score")))
    if changes.errors:
        lines.append(line(span(f"✗ {pluralize(changes.errors, 'error')}", "error")))
    if changes.guidance:
        lines.append(line(span(f"✎ {len(changes.guidance)} heard", "guidance")))
    if changes.files:
        lines.append(
            line(span(f"± {pluralize(len(changes.files) + changes.more_files, 'file')}", "dim"))
        )
    return lines


def since_entries(visit: ChangesSinceVisit, now: int, width: int) -> list[SinceEntry]:
    """All of it: scores, guidance and what followed, files, then every event in order."""
    changes = visit.changes
    entries: list[SinceEntry] = []
    if changes.evaluations:
        entries.append(_heading_entry("Evaluations"))
        entries += [_evaluation_entry(evaluation, now) for evaluation in changes.evaluations]
    if changes.guidance:
        entries.append(_heading_entry("Guidance that was heard, and what followed"))
        entries += [
            entry for guidance in changes.guidance for entry in _guidance_entries(guidance, now)
        ]
    if changes.files:
        more = f", {changes.more_files} more not shown" if changes.more_files else ""
        entries.append(_heading_entry(f"Files that changed most{more}"))
        entries += [_file_entry(file) for file in changes.files]
    if changes.events:
        entries.append(_heading_entry("In the order in which it happened"))
        entries += [_event_entry(event, now) for event in changes.events]
    return [entry._replace(line=justify_line(entry.line, (), width)) for entry in entries]


def _heading_entry(text: str) -> SinceEntry:
    return SinceEntry(line(span(f" {text}", "title")), head=True)


def _step_and_time(step: int, at: int, now: int) -> list[TextSpan]:
    where = f"{step:>7} " if step else "        "
    return [span(where, "number"), span(f"{format_moment(at, now)}  ", "faint")]


def _evaluation_entry(evaluation: ScoredEvaluation, now: int) -> SinceEntry:
    label = (
        format_score(evaluation.score)
        if evaluation.score is not None
        else f"no score: {evaluation.state}"
    )
    tone: Tone = "score" if evaluation.score is not None else "warning"
    return SinceEntry(
        line(*_step_and_time(evaluation.step, evaluation.at, now), span(label, tone)),
        evaluation.step,
    )


def _guidance_entries(guidance: HeardGuidance, now: int) -> list[SinceEntry]:
    head = [
        *_step_and_time(guidance.step, guidance.at, now),
        span(f"{guidance.author}: ", "guidance"),
    ]
    entries = [
        SinceEntry(
            line(*head, span(" ".join(guidance.text.split()), "guidance_text")), guidance.step
        )
    ]
    if guidance.followed is not None:
        reaction = span(f"→ {guidance.followed.text}", "text")
        entries.append(
            SinceEntry(
                line(*_step_and_time(guidance.followed.step, guidance.followed.at, now), reaction),
                guidance.followed.step,
            )
        )
    return entries


def _file_entry(file: TouchedFile) -> SinceEntry:
    return SinceEntry(
        line(
            span(f"{file.step:>7} ", "number"),
            span(f"{file.path}  ", "text"),
            span(f"{pluralize(file.times, 'change')} ", "dim"),
            span(f"+{file.added} ", "added"),
            span(f"−{file.removed}", "removed"),
        ),
        file.step,
    )


def _event_entry(event: NotableEvent, now: int) -> SinceEntry:
    glyph, tone = EVENT_GLYPHS.get(event.kind, ("·", "dim"))
    return SinceEntry(
        line(
            *_step_and_time(event.step, event.at, now),
            span(f"{glyph} ", tone),
            span(event.text, "text"),
        ),
        event.step,
    )


class WalkStop(NamedTuple):
    """A step, and what happened at it."""

    step: int
    at: int
    """When the first of it did, UTC microseconds."""
    text: str


def walk_stops(events: Sequence[NotableEvent]) -> list[WalkStop]:
    """Steps that are worth a stop; events that belong to no step have none."""
    stops: dict[int, WalkStop] = {}
    for event in sorted(events, key=lambda event: (event.step, event.seq)):
        if not event.step:
            continue
        earlier_stop = stops.get(event.step)
        text = f"{earlier_stop.text}; {event.text}" if earlier_stop else event.text
        stops[event.step] = WalkStop(
            event.step, earlier_stop.at if earlier_stop else event.at, text
        )
    return list(stops.values())


class EventWalk:
    """A walk through the steps with events, and where somebody is on it."""

    def __init__(self, events: Sequence[NotableEvent]) -> None:
        self.stops = walk_stops(events)
        self.position = -1
        """Index of the last stop; -1 before the first."""

    def go(self, by: int, step: int) -> WalkStop | None:
        """The next stop (`by` 1) or the one before (-1); None at either end.

        step: where the cursor is: who has gone elsewhere walks on from there.
        """
        current = self.stops[self.position].step if 0 <= self.position < len(self.stops) else None
        if current is not None and current != step:
            after = [at for at, stop in enumerate(self.stops) if stop.step > step]
            before = [at for at, stop in enumerate(self.stops) if stop.step < step]
            place = (after or [len(self.stops)])[0] if by > 0 else (before or [-1])[-1]
        else:
            place = min(max(self.position + by, -1), len(self.stops))
        self.position = place
        return self.stops[place] if 0 <= place < len(self.stops) else None


MAX_NOTE_LINES = 3
"""Of a note of who was here before."""


class SinceList(FilteredList[SinceEntry]):
    """Everything that happened; enter leads to its step."""

    BINDINGS = bindings_for("since")

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return self.items[number].line

    def selectable(self, number: int) -> bool:
        """All lines but headings."""
        return not self.items[number].head

    def filter_text(self, item: SinceEntry) -> str:
        """The line as it is shown."""
        return line_text(item.line)

    def is_heading(self, item: SinceEntry) -> bool:
        """What stands over others."""
        return item.head

    def show_entries(self, entries: list[SinceEntry]) -> None:
        """Show these entries from the first."""
        self.items, self.cursor = entries, 0
        self.show()
        if self.items:
            self.set_cursor(0)

    def scroll_line_into_view(self, number: int) -> None:
        """As every list, but with its first head, and not before there is room for any line."""
        if self.size.height:
            super().scroll_line_into_view(0 if number <= 1 else number)

    def on_resize(self) -> None:
        """There is room now, or another."""
        super().on_resize()
        self.scroll_line_into_view(self.cursor)

    def action_choose(self) -> None:
        """Go to the step."""
        entry = self.under_cursor
        if entry and entry.step:
            post_message_as(self, GoToStep(entry.step))

    def on_click(self, event: Any) -> None:
        """Go to the step of the line that was clicked."""
        super().on_click(event)
        self.action_choose()


class SinceVisitPane(Pane):
    """People, a note, a line of what happened, and all of it when it is unfolded."""

    class Read(Message):
        """What happened, and since when, is known."""

    def __init__(self, reader: AsyncReader, person: Person, **arguments: Any) -> None:
        """reader: one that no key waits for. person: who sits here."""
        super().__init__(**arguments)
        self.people = FixedLines(focusable=False, id="people")
        self.shown_note: ClaimStatus | None = None
        """The note above the steps that this person had not read before."""
        self.strip = FixedLines(focusable=False, id="since-line")
        self.events = SinceList(id="since-list")
        self.visit: ChangesSinceVisit | None = None
        self._reader, self._person = reader, person
        self._shown_seq, self._shown_at = 0, now_us()
        """The newest event that was shown when a key was last pressed here, and when that was."""
        self._before_silence: tuple[int, int] | None = None
        """The same two of before a long silence; None before the first."""
        self._walk = EventWalk(())
        self._rollout = ""
        self._last_seen: LastSeen | None = None
        self._is_strip_hidden = False
        self._was_read, self._unfold_once_read = False, False
        """Whether it was read; whether somebody has asked for all of it before that."""

    def compose(self) -> ComposeResult:
        """Three parts, none of which is there without something to say."""
        yield self.people
        yield self.strip
        yield self.events

    def on_mount(self) -> None:
        """Begin without a rollout."""
        for part in (self.people, self.strip, self.events):
            part.display = False

    # --- what is read ------------------------------------------------------------------------

    def switch_rollout(self, rollout: str) -> None:
        """Switch to another rollout, of which nothing was read yet."""
        self._rollout, self._last_seen = rollout, None
        self.events.end_filter()
        self._show(None)
        self._was_read = self._unfold_once_read = False
        self.people.display = False

    def open(self, seq: int) -> None:
        """The rollout that was turned to is shown up to the event `seq`."""
        self._before_silence = None
        self._shown_seq, self._shown_at = seq, now_us()
        self.run_worker(self._read(self._rollout), group="since", exclusive=True)

    def note_key(self, seq: int) -> None:
        """A key, with everything up to the event `seq` shown; the first one after a long silence
        is of somebody who comes back.
        """
        now = now_us()
        if now - self._shown_at > IDLE_US:
            self._before_silence = (self._shown_seq, self._shown_at)
            self.run_worker(self._read(self._rollout), group="since", exclusive=True)
        self._shown_seq, self._shown_at = seq, now

    async def _read(self, rollout: str) -> None:
        try:
            if self._before_silence is not None:
                await self._read_after(rollout, *self._before_silence)
            else:
                await self._read_last_seen(rollout)
        except HoustonError as problem:
            self.report_problem(problem)
        else:
            post_message_as(self, self.Read())

    async def _read_last_seen(self, rollout: str) -> None:
        last_seen = await self._reader.run(presence_queries.read_last_seen(rollout, self._person))
        if rollout != self._rollout:
            return
        self._last_seen = last_seen
        if last_seen is not None:
            await self._read_after(rollout, last_seen.seq, last_seen.at)
        self._was_read = True
        if self._unfold_once_read and rollout == self._rollout:
            await self.unfold()

    async def _read_after(self, rollout: str, seq: int, at: int) -> None:
        """What happened behind the event `seq`, when somebody was here at `at`."""
        happened = await self._reader.run(changes_since_visit.read_changes_since(rollout, seq))
        if rollout == self._rollout:
            anything = happened.steps or happened.events
            self._show(ChangesSinceVisit(happened, at) if anything else None)

    def _show(self, visit: ChangesSinceVisit | None) -> None:
        self.visit, self._is_strip_hidden = visit, False
        self._walk = EventWalk(visit.changes.events if visit else ())
        self.events.display = False
        self._update_strip()

    # --- what is shown -----------------------------------------------------------------------

    def _update_strip(self) -> None:
        visit = self.visit
        self.strip.display = visit is not None and not self._is_strip_hidden
        if visit is not None:
            open, named = (
                self.events.display,
                (key_label("whole", "since"), key_label("whole", "walk(1)")),
            )
            self.strip.show_lines(
                lambda width: [summary_strip(visit, now_us(), width, open, named)]
            )

    def show_people(self, overview: RolloutOverview | None, person: str) -> None:
        """Who else is here and who looks after it, and a note that was not read yet."""
        ours = overview is not None and overview.rollout.id == self._rollout
        note = unread_note(overview.holding, self._last_seen, person) if overview and ours else None
        is_shown = bool(
            overview
            and ours
            and (
                other_viewers(overview, person)
                or (overview.holding and overview.holding.holder)
                or own_note(overview.holding, person)
            )
        )
        self.shown_note = note
        self.people.display = is_shown or note is not None
        if overview is not None and self.people.display:
            self.people.show_lines(partial(_people_lines, overview, self._last_seen, person))
            self.people.styles.height = max(1, len(self.people.lines))

    def on_resize(self) -> None:
        """A note is wrapped for the width there is; the list for its own."""
        self.people.styles.height = max(1, len(self.people.lines))
        self._fill_list()

    def _fill_list(self) -> None:
        if self.visit is not None and self.events.display:
            at = self.events.cursor
            entries = since_entries(self.visit, now_us(), self.events.line_cells)
            self.events.styles.height = min(len(entries) + 1, self.screen.size.height * 2 // 5)
            self.events.show_entries(entries)
            self.events.set_cursor(at)

    async def unfold(self) -> bool:
        """Show all of it, or fold it; whether it is shown now."""
        if self.events.display:
            self.events.display = False
            self._update_strip()
            return False
        if not self._was_read:
            self._unfold_once_read = True
            return False
        if self.visit is None:
            await self._read_all()
        if self.visit is None:
            return False
        self._is_strip_hidden, self.events.display = False, True
        self._update_strip()
        self.events.cursor = 0
        self._fill_list()
        self.events.focus()
        return True

    async def _read_all(self) -> None:
        """Who was never here, or missed nothing, may still ask for everything."""
        if self._last_seen is not None:
            words = (
                f"Nothing happened since you were here {format_age(self._last_seen.at, now_us())}."
            )
            self.show_notice(words)
            return
        try:
            await self._read_after(self._rollout, 0, 0)
        except HoustonError as problem:
            self.report_problem(problem)
        else:
            if self.visit is None:
                self.show_notice("Nothing has happened yet.")

    # --- the walk ----------------------------------------------------------------------------

    def walk(self, by: int, step: int) -> int:
        """The step of the next event, or of the one before; 0 for none, which is said."""
        if self.visit is None:
            key = key_label("whole", "since")
            words = f"Nothing is new since you were here; {key} shows all that happened."
            self.show_notice(words)
            return 0
        stop = self._walk.go(by, step)
        if stop is None:
            self.show_notice(
                "That was all since you were here." if by > 0 else "That was the first."
            )
            if by > 0:
                self._is_strip_hidden, self.events.display = True, False
                self._update_strip()
            return 0
        place = f"{self._walk.position + 1}/{len(self._walk.stops)}"
        self.show_notice(
            f"{place}  step {stop.step}, {format_age(stop.at, now_us())}: {stop.text}", True
        )
        return stop.step


def _people_lines(
    overview: RolloutOverview, last_seen: LastSeen | None, person: str, width: int
) -> list[TextLine]:
    """One line of who is here; under it a note that was not read."""
    now = now_us()
    people = [(mark, text) for mark, text in people_text(overview, person, now) if mark != "✉"]
    rows = [line(*(span(f" {mark} {text}  ", "tool") for mark, text in people))] if people else []
    if mine := own_note(overview.holding, person):
        to = f"handed to {mine.note_to}" if mine.note_to else "handed over"
        rows.append(line(span(" ✉ ", "guidance"), span(f"{to} by you, {read_text(mine, now)}")))
    note = unread_note(overview.holding, last_seen, person)
    if note is not None:
        to = " to you" if note.note_to else ""
        text = f"{note.note_by} left a note{to} {format_age(note.note_at, now)}: {note.note}"
        wrapped = text_block(text, width - 3, "guidance_text")
        if len(wrapped) > MAX_NOTE_LINES:
            wrapped[MAX_NOTE_LINES - 1 :] = [line(span("… in full under 1", "dim"))]
        rows += [(span("   " if at else " ✉ ", "guidance"), *row) for at, row in enumerate(wrapped)]
    return rows
