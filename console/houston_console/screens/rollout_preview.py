"""The right column of the home screen: the rollout at the cursor, without opening it.

`preview_lines` draws its card, the score over active time in braille with ✗ and ✎ below it, its
last steps and the last lines of its terminal, in as many lines as there are. `RolloutPreviewPane`
reads them late, on other threads, drops a read when the cursor goes on, and holds a composer for
the same rollout. What is read is in `screens.preview_reader`.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from textual.app import ComposeResult

from houston_console.app.daemon_link import DaemonLink
from houston_console.commands.job_commands import read_printed_lines
from houston_console.commands.rollout_summary import format_score
from houston_console.panes.guidance_composer import Composer
from houston_console.panes.guidance_outbox import GuidanceEntry
from houston_console.panes.guidance_pane import GuidancePane
from houston_console.screens.base_screen import Pane
from houston_console.screens.home_columns import (
    HomeEntry,
    HomeViewContext,
    format_tokens,
    time_left_text,
)
from houston_console.screens.home_list import UNSEEN_GLYPH
from houston_console.screens.job_lines import running_job
from houston_console.screens.preview_reader import (
    MARK_PLACES,
    RolloutPreview,
    TerminalTail,
    read_preview,
    read_terminal_tail,
)
from houston_console.screens.rollout_card import rollout_card
from houston_console.screens.rollout_lists import (
    DIRECTION_MARKS,
    STATE_GLYPHS,
    is_unseen,
    name_within_task,
    score_direction,
)
from houston_console.transcript.step_rendering import folded_line
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.widgets.braille_chart import draw_curve
from houston_console.widgets.line_view import FixedLines, set_frame_title
from houston_console.widgets.styled_text import (
    LOADING_LINE,
    TextLine,
    Tone,
    fit_text,
    justify_line,
    line,
    line_width,
    span,
    text_block,
)
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.attention_ranking import RolloutNeed, RolloutOverview
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.store.refinement_queries import RefinementTree
from houston_shared.times_and_counts import format_compact_duration, format_cost, pluralize

# --- lines ---------------------------------------------------------------------------------------

SCALE_CELLS = 7
"""Cells of the scale before the curve."""
MIN_CURVE_LINES, MAX_CURVE_LINES = 3, 8
LABEL_TONE: Tone = "faint"
MAX_LISTED_JOBS = 3
"""Jobs that are shown at most."""


class RolloutDetails(NamedTuple):
    """What is known of the rollout at the cursor beside its line in the list."""

    spent: Sequence[AttentionCost] = ()
    """Attention that people gave to it."""
    tree: RefinementTree | None = None


def score_chart_lines(preview: RolloutPreview, width: int, height: int) -> list[TextLine]:
    """Scores over active time in `height` lines, below them where steps failed and where guidance
    was heard, and the time. The curve has the tone of the direction that the newest score goes."""
    cells = max(1, width - SCALE_CELLS - 1)
    lines: list[TextLine] = []
    if preview.scores:
        lines += _curve_lines(preview, cells, height)
    marked: tuple[tuple[str, str, Tone, frozenset[int]], ...] = (
        ("errors", "✗", "error", preview.error_places),
        ("heard", "✎", "guidance", preview.guidance_places),
    )
    for label, glyph, tone, places in marked:
        if places:
            marks = _mark_text(places, glyph, cells)
            lines.append(line(span(f"{label:>{SCALE_CELLS - 1}} ", LABEL_TONE), span(marks, tone)))
    end = format_compact_duration(preview.active_us / 1e6)
    axis = f"{'0':<{max(1, cells - len(end))}}{end}"
    lines.append(line(span(" " * SCALE_CELLS), span(axis, LABEL_TONE)))
    return lines


def _curve_lines(preview: RolloutPreview, cells: int, height: int) -> list[TextLine]:
    values = [point.score for point in preview.scores]
    low, high = min(values), max(values)
    spread = high - low
    points = [
        (point.active_us / preview.active_us, (point.score - low) / spread if spread else 0.5)
        for point in preview.scores
    ]
    glyph, tone = DIRECTION_MARKS[score_direction(values)]
    labels = [""] * height
    labels[0], labels[-1] = format_score(high), format_score(low) if spread else ""
    newest = round((height - 1) * (1.0 - points[-1][1]))
    if not labels[newest]:
        labels[newest] = f"{format_score(values[-1])}{glyph.strip()}"
    return [
        line(
            span(f"{label:>{SCALE_CELLS - 1}} ", tone if at == newest else LABEL_TONE),
            span(drawn, tone),
        )
        for at, (label, drawn) in enumerate(
            zip(labels, draw_curve(points, cells, height), strict=True)
        )
    ]


def _mark_text(places: frozenset[int], glyph: str, cells: int) -> str:
    """The glyph at every cell that has one of the places."""
    marked = {min(cells - 1, place * cells // MARK_PLACES) for place in places}
    return "".join(glyph if cell in marked else " " for cell in range(cells)).rstrip()


def budget_line(entry: HomeEntry, width: int) -> TextLine:
    """Steps, time left, tokens and cost."""
    rollout, budget = entry.need.overview.rollout, entry.budget
    parts = [f"{rollout.steps}/{budget.steps} steps"]
    if rollout.state not in ENDED_STATES:
        most = format_compact_duration(budget.active_seconds)
        parts.append(f"{time_left_text(entry)[0]} of {most} left")
    else:
        parts.append(f"{format_compact_duration(rollout.active_us / 1e6)} active")
    if entry.spent.tokens:
        parts.append(f"{format_tokens(entry.spent.tokens)} tokens")
    if entry.spent.cost is not None:
        parts.append(f"cost {format_cost(entry.spent.cost)}")
    return justify_line(line(span(" ◔ ", "key"), span(" · ".join(parts), "text")), (), width)


def _section(title: str, width: int) -> TextLine:
    """A rule with a title."""
    head = line(span(f"── {title} ", "dim"))
    return justify_line(head, line(span("─" * max(0, width - line_width(head)), "faint")), width)


def _guidance_line(said: Sequence[GuidanceEntry], width: int) -> list[TextLine]:
    """The newest of what waits, or else of what was said."""
    if not said:
        return []
    newest = said[0]
    where = f"heard at step {newest.step}" if newest.step is not None else newest.state
    message = line(
        span(" ✎ ", "guidance"),
        span(f"{where}, {newest.author}: ", "dim"),
        span(newest.text, "guidance_text"),
    )
    return [justify_line(message, (), width)]


def preview_lines(
    entry: HomeEntry,
    details: RolloutDetails,
    preview: RolloutPreview | None,
    tail: TerminalTail,
    said: Sequence[GuidanceEntry],
    view: HomeViewContext,
    height: int,
    printed: Mapping[str, str],
) -> list[TextLine]:
    """Everything, in at most `height` lines of the view's width; None for what is not read yet.

    printed: by id, what jobs that run printed last.
    """
    width = view.width
    card = rollout_card(entry, details.spent, view, details.tree, is_brief=True)
    lines = [*card[: max(2, height // 4)], budget_line(entry, width), *_guidance_line(said, width)]
    lines += _job_lines(entry.need.overview, printed, view)
    if preview is None:
        return [*lines, (), LOADING_LINE][:height]
    curve = min(MAX_CURVE_LINES, max(MIN_CURVE_LINES, (height - len(lines)) // 4))
    lines.append(_section("score over active time" if preview.scores else "no score yet", width))
    lines += score_chart_lines(preview, width, curve)
    rest = max(0, height - len(lines))
    tail_lines = _terminal_lines(tail, width, max(0, rest - 2 - min(len(preview.steps), rest // 2)))
    lines += _step_lines(preview, width, rest - len(tail_lines))
    return [*lines, *tail_lines][:height]


def _job_lines(
    overview: RolloutOverview, printed: Mapping[str, str], view: HomeViewContext
) -> list[TextLine]:
    """The newest jobs that run, a line each."""
    if overview.rollout.state in ENDED_STATES:
        return []
    jobs = overview.jobs.running[-MAX_LISTED_JOBS:]
    facts = (running_job(job, printed.get(job.id, ""), view.now_us) for job in jobs)
    return [justify_line(line(span(" "), *fact), (), view.width) for fact in facts]


def _step_lines(preview: RolloutPreview, width: int, max_lines: int) -> list[TextLine]:
    """The last steps that a title and `max_lines` lines have room for."""
    if max_lines < 2:
        return []
    steps = preview.steps[-(max_lines - 1) :]
    title = "last steps" if steps else "no step yet"
    return [_section(title, width), *(folded_line(row, width) for row in steps)]


def _terminal_lines(tail: TerminalTail, width: int, max_lines: int) -> list[TextLine]:
    """The last lines of a terminal that a title and `max_lines` lines have room for."""
    if max_lines < 1 or not tail.name:
        return []
    title = _section(f"terminal {tail.name}", width)
    if tail.reason:
        return [title, *text_block(tail.reason, width, "dim", span(" "))[:max_lines]]
    first = max(0, len(tail.lines) - max_lines)
    if tail.cursor >= 0:  # a program has the whole screen: from its top, as far as its cursor
        first = min(first, max(0, tail.cursor - max_lines + 1))
    printed = tail.lines[first : first + max_lines]
    return [title, *(justify_line((span(" "), *parts), (), width) for parts in printed)]


def fold_lines(task: str, ended: Sequence[RolloutNeed], width: int, height: int) -> list[TextLine]:
    """What a fold holds: a line for each rollout, the best first."""
    unseen = sum(map(is_unseen, ended))
    head = f" {pluralize(len(ended), 'rollout')} of {task} ended, {unseen} unseen"
    lines: list[TextLine] = [line(span(fit_text(head, width), "strong")), ()]
    rows = sorted(ended, key=lambda need: -(need.overview.rollout.best_score or -1.0))
    for need in rows[: max(0, height - len(lines))]:
        rollout = need.overview.rollout
        glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
        label = line(
            span(UNSEEN_GLYPH if is_unseen(need) else " ", "warning"),
            span(f" {glyph} ", tone),
            span(name_within_task(rollout.id, rollout.task), "strong"),
        )
        figures = f"{rollout.steps:>6} steps{format_score(rollout.best_score):>7} "
        lines.append(justify_line(label, line(span(figures, "text")), width))
    return lines


# --- the pane ------------------------------------------------------------------------------------

CURSOR_REST_SECONDS = 0.08
"""How long the cursor rests before anything is read for it: a held key reads nothing."""
MIN_PAUSE_SECONDS, PAUSE_FACTOR = 1.0, 4
"""Between two reads of one rollout at least, and several times as long as a read took."""
TERMINAL_POLL_SECONDS = 2.0
"""How often the end of a terminal is looked at while its rollout runs."""


class RolloutPreviewPane(Pane):
    """The preview and the composer of the rollout at the cursor."""

    def __init__(self, link: DaemonLink, reader: AsyncReader, **arguments: Any) -> None:
        """reader: one of its own; it closes it."""
        super().__init__(**arguments)
        self.text = FixedLines(focusable=False, id="preview-text")
        self.guidance = GuidancePane(link.outbox, link, key="i", id="home-guidance")
        self._reader = reader
        self._entry: HomeEntry | None = None
        self._fold: tuple[str, tuple[RolloutNeed, ...]] | None = None
        self._details, self._view = RolloutDetails(), HomeViewContext("", 0, 0)
        self._preview: RolloutPreview | None = None
        self._tail, self._failure = TerminalTail(), ""
        self._printed: dict[str, str] = {}
        """By id, what its jobs that run printed last."""
        self._changed = asyncio.Event()
        self._was_read = asyncio.Event()
        """Set when what is at the cursor was read, or when nothing is read for it."""
        self._followed = ""
        """The rollout that is read and read again; empty for none."""

    def compose(self) -> ComposeResult:
        """The preview above, what is said to the rollout below."""
        yield self.text
        yield self.guidance

    def on_mount(self) -> None:
        """Nothing is at the cursor yet."""
        set_frame_title(self, "Preview")

    async def on_unmount(self) -> None:
        """Let go of the database."""
        await self._reader.close()

    @property
    def _is_read(self) -> bool:
        """Whether the rollout at the cursor was read, or could not be."""
        read = self._preview.rollout if self._preview else ""
        return bool(self._failure) or read == self._followed != ""

    @property
    def composer_rollout(self) -> str:
        """The rollout that the composer writes to."""
        return self.guidance.composer.draft.rollout

    # --- what to show ------------------------------------------------------------------------

    def show_entry(self, entry: HomeEntry, details: RolloutDetails, view: HomeViewContext) -> None:
        """A rollout, as it stands now; what must be read for it comes later."""
        rollout = entry.need.overview.rollout
        self._fold, self._view = None, view
        self._entry, self._details = entry, details
        if self._followed != rollout.id:
            self._follow(rollout.id)
        elif self._is_read:
            if self._preview is not None and rollout.last_seq != self._preview.seq:
                self._changed.set()
            self._draw()
        if self.composer_rollout == rollout.id:
            self.guidance.show_rollout_state(rollout)

    def show_fold(self, task: str, ended: tuple[RolloutNeed, ...]) -> None:
        """What a fold holds; none of it is read."""
        self.stop()
        self._fold = (task, ended)
        self._draw()

    def show_nothing(self) -> None:
        """No rollout is at the cursor."""
        self.stop()
        self._draw()

    def stop(self) -> None:
        """Read nothing any more."""
        self._followed, self._entry, self._fold, self._preview = "", None, None, None
        self._was_read.set()
        self.workers.cancel_group(self, "preview")

    def turn_composer(self) -> Composer:
        """The composer, from now on that of the rollout at the cursor: nothing was read for it."""
        if self._entry is not None:
            self._turn_composer(self._entry.need.overview.rollout.id)
        return self.guidance.composer

    async def settle(self) -> None:
        """Wait until what is at the cursor was read."""
        if self._followed and not self._is_read:
            await self._was_read.wait()

    # --- reading -----------------------------------------------------------------------------

    def _follow(self, rollout: str) -> None:
        self._followed, self._failure = rollout, ""
        self._was_read.clear()
        self._changed.clear()
        # Not a coroutine yet: one that is cancelled before it begins would never be awaited.
        work = partial(self._read_again, rollout)
        self.run_worker(cast(Any, work), group="preview", exclusive=True)

    async def _read_again(self, rollout: str) -> None:
        """Read a rollout now and whenever it has changed, until the cursor goes elsewhere."""
        await asyncio.sleep(CURSOR_REST_SECONDS)
        while True:
            self._changed.clear()
            began = time.monotonic()
            await self._read(rollout)
            pause = max(MIN_PAUSE_SECONDS, PAUSE_FACTOR * (time.monotonic() - began))
            await asyncio.sleep(pause)
            while not await self._has_changed():
                await self._read_tail()

    async def _has_changed(self) -> bool:
        """Wait for a change; False where a running rollout's terminal is to be looked at."""
        running = self._entry is not None and self._entry.need.overview.rollout.state == "running"
        try:
            await asyncio.wait_for(self._changed.wait(), TERMINAL_POLL_SECONDS if running else None)
        except TimeoutError:
            return False
        return True

    async def _read(self, rollout: str) -> None:
        try:
            preview = await self._reader.run(read_preview(rollout))
            printed = await asyncio.to_thread(self._read_printed, preview)
            self._preview, self._failure = preview, ""
            self._tail, self._printed = printed
            self._turn_composer(rollout)
            await self.guidance.refresh_queue()
        except HoustonError as problem:
            follow = f"next: {problem.next}" if problem.next else ""
            self._failure = " ".join(filter(None, (problem.cause, problem.effect, follow)))
        self._was_read.set()
        self._draw()

    async def _read_tail(self) -> None:
        if self._preview is not None:
            self._tail, self._printed = await asyncio.to_thread(self._read_printed, self._preview)
            self._draw()

    def _read_printed(self, preview: RolloutPreview) -> tuple[TerminalTail, dict[str, str]]:
        """What its terminal and its jobs printed last. Files: on another thread."""
        entry = self._entry
        is_same = entry is not None and entry.need.overview.rollout.id == preview.rollout
        running = entry.need.overview.jobs.running if entry and is_same else ()
        lines = read_printed_lines(running, preview.rollout, preview.host_root)
        return read_terminal_tail(preview), lines

    def _turn_composer(self, rollout: str) -> None:
        """Have the composer write to a rollout, but not under somebody's hands."""
        composer = self.guidance.composer
        if composer.has_focus or not self.is_mounted:
            return
        if self.composer_rollout != rollout:
            self.guidance.switch_rollout(RolloutSource(self._reader, rollout))
        else:
            composer.take_up_draft()
        if self._entry is not None:
            self.guidance.show_rollout_state(self._entry.need.overview.rollout)

    # --- drawing -----------------------------------------------------------------------------

    def _draw(self) -> None:
        if self.is_mounted:
            self.guidance.display = self._entry is not None
            self.text.show_lines(self._lines)

    def _lines(self, width: int) -> list[TextLine]:
        """Always as many as there is room for: then nothing has to be laid out anew."""
        height = self.text.size.height
        lines = self._make_lines(width, height)[:height]
        return [*lines, *[()] * (height - len(lines))]

    def _make_lines(self, width: int, height: int) -> list[TextLine]:
        if self._fold is not None:
            return fold_lines(*self._fold, width, height)
        if self._entry is None:
            return []
        if self._failure:
            return text_block(self._failure, width, "error", span(" "))
        rollout = self._entry.need.overview.rollout.id
        preview = self._preview if self._is_read else None
        messages = self.guidance.queue.items if self.composer_rollout == rollout else ()
        view = self._view._replace(width=width)
        return preview_lines(
            self._entry, self._details, preview, self._tail, messages, view, height, self._printed
        )
