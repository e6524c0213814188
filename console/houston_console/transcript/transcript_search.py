"""Searching in the console: the keys around the transcript, the search line, the page of hits.

Hits in the open rollout are highlighted in its trajectory; everything else is a list of places.
The process that searches is in `transcript.search_client`.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Input

from houston_console.app.key_bindings import bindings_for
from houston_console.screens.base_screen import (
    BarWidget,
    GoToStep,
    GoToTerminalLine,
    HoustonScreen,
    Pane,
    post_from,
)
from houston_console.transcript.search_client import (
    MAX_LISTED_HITS,
    SEARCH_CHOICE_NAMES,
    SearchClient,
    SearchHistory,
    SearchHits,
    SearchInput,
    hit_line,
    hit_permalink,
)
from houston_console.transcript.trajectory_reader import RolloutSource
from houston_console.transcript.transcript_view import Transcript
from houston_console.widgets.dialogs import BottomPrompt, Dialog
from houston_console.widgets.line_view import LineView, set_frame_subtitle, set_frame_title
from houston_console.widgets.styled_text import TextLine, justify_line, line, span
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import search_process
from houston_shared.store.journal_search import SearchHit, SearchProgress
from houston_shared.store.search_matching import PatternTooSlow, SearchMatcher, SearchQuery


class SearchInputLine(BottomPrompt):
    """What is typed. Leaves at once: the next key is the transcript's already."""

    def __init__(self, done: Callable[[bool], None], **arguments: Any) -> None:
        """done: told whether what stands there is to be searched."""
        super().__init__(**arguments)
        self._done = done

    def action_leave(self) -> None:
        """Nothing is to be searched."""
        self._done(False)

    async def action_submit(self) -> None:
        """Go to what is found."""
        self._done(True)


class SearchPrompt(Pane):
    """Hidden until it is opened."""

    BINDINGS = bindings_for("search")

    class Changed(Message):
        """Something else is asked for; it is still being written."""

    class Entered(Message):
        """Go to what is found."""

    class Left(Message):
        """Search nothing."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.line = SearchInputLine(self._leave, id="search-line")
        self.below = BarWidget(id="search-toggles")
        self.asked = SearchInput()
        self.earlier = SearchHistory()
        self._count: TextLine = ()

    def compose(self) -> ComposeResult:
        """Two lines."""
        yield self.line
        yield self.below

    def open(self) -> None:
        """Appear, and take what is typed; the choices of last time stay."""
        self.asked = self.asked._replace(text="")
        self._count = ()
        self.earlier.leave()
        self.display = True
        self.line.ask("/", "text, pattern or words to look for")
        self.dress()

    def _leave(self, wanted: bool) -> None:
        """Hide, and give the focus back."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#transcript"))
        if wanted:
            self.asked = self.asked._replace(text=self.line.value)
            self.earlier.add(self.asked)
        post_from(self, self.Entered() if wanted else self.Left())

    def count(self, said: TextLine) -> None:
        """Say how much was found so far."""
        self._count = said
        self.dress()

    def dress(self) -> None:
        """Draw the choices and the count."""
        room = self.size.width or 80
        self.below.put(justify_line(self.asked.toggles(room), self._count, room))

    def on_resize(self) -> None:
        """More or fewer choices fit."""
        self.dress()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys is the prompt's while somebody writes in it."""
        event.stop()
        if isinstance(self.screen, HoustonScreen):
            self.screen.hints.area("search")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Something was typed."""
        event.stop()
        if self.asked.text != event.value:
            self._change(self.asked._replace(text=event.value))

    def action_turn(self, toggle: str) -> None:
        """Another choice of one of the three."""
        self._change(self.asked.turned(toggle))

    def action_earlier(self, by: int) -> None:
        """A search of before."""
        found = self.earlier.walk(by)
        if found is not None:
            self._change(found)
            self.line.value = found.text
            self.line.cursor_position = len(found.text)

    def _change(self, asked: SearchInput) -> None:
        self.asked = asked
        self.dress()
        post_from(self, self.Changed())


class HitList(LineView):
    """One line a place."""

    def __init__(self, found: SearchHits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.found = found
        self._counted, self._cells = 0, 0

    def line_count(self) -> int:
        """As many as are kept."""
        return len(self.found.hits)

    def line_at(self, number: int) -> TextLine:
        """One of them."""
        return hit_line(self.found.hits[number], self.room, self._longest())

    def _longest(self) -> int:
        """Cells of the longest place, counted as more are found."""
        new = self.found.hits[self._counted :]
        self._counted += len(new)
        self._cells = max([self._cells, *(cell_len(hit_permalink(hit)) for hit in new)])
        return self._cells


class HitsDialog(Dialog[SearchHit | None]):
    """Answers with the place that was chosen."""

    BINDINGS = [("escape,q,l", "close", "close"), ("enter", "choose", "go there")]

    def __init__(self, found: SearchHits) -> None:
        super().__init__()
        self.places = HitList(found)
        self._box = Vertical(self.places, id="results")

    def compose(self) -> ComposeResult:
        """One list."""
        yield self._box

    def on_mount(self) -> None:
        """Stand where somebody went last."""
        self.grew()
        self.call_after_refresh(self.places.put_cursor, max(0, self.places.found.at))

    def grew(self) -> None:
        """More was found."""
        found = self.places.found
        query, box = found.query, self._box
        where = " · ".join(
            SEARCH_CHOICE_NAMES[one] for one in (query.mode, query.where, query.what)
        )
        more = "" if found.done else "…"
        set_frame_title(box, f"/{query.text}  {found.count}{more} found · {where}")
        kept = (
            f"the first {MAX_LISTED_HITS:,} are listed   " if found.count > len(found.hits) else ""
        )
        notes = f"{'  '.join(found.notes)}   " if found.notes else ""
        set_frame_subtitle(box, line(f"{notes}{kept}enter go there   esc close"))
        words = " Nothing was found." if found.done else " being looked for …"
        self.places.empty = line(span(words, "dim"))
        self.places.show()

    def action_choose(self) -> None:
        """Go there."""
        hits = self.places.found.hits
        if hits:
            self.places.found.at = self.places.cursor
        self.dismiss(hits[self.places.cursor] if hits else None)


TYPING_PAUSE_SECONDS = 0.15
"""Without a key, after which what was typed is looked for."""


class TranscriptSearch(Pane):
    """Around the transcript."""

    BINDINGS = bindings_for("hits")

    def __init__(
        self,
        transcript: Transcript,
        home: Home,
        place: Callable[[], tuple[RolloutSource | None, str]],
        unchoose: Callable[[], bool],
        **arguments: Any,
    ) -> None:
        """place: the rollout that is open, and its task. unchoose: called before a search is ended;
        true where that was what the key was for.
        """
        super().__init__(**arguments)
        self.prompt = SearchPrompt(id="search")
        self.found: SearchHits | None = None
        self._transcript = transcript
        self._place = place
        self._unchoose = unchoose
        self._finder = SearchClient(home, self._heard, self._anew)
        self._pause: Timer | None = None
        self._upto = 0
        """The newest event that was there when it was last looked for."""
        self._entered = False
        """Whether somebody waits for what is found, and it was not gone to yet."""

    async def on_unmount(self) -> None:
        """Let no search go on without a screen."""
        await self._finder.close()

    # --- asking ------------------------------------------------------------------------------

    def ask(self) -> None:
        """Have a search written."""
        self.prompt.open()
        self.run_worker(self._finder.warm(), group="search")

    def on_search_prompt_changed(self) -> None:
        """Look for it soon, so that its count is there before Enter."""
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(TYPING_PAUSE_SECONDS, self._look)

    def on_search_prompt_entered(self) -> None:
        """Go to what is found, as soon as something is."""
        self._entered = True
        self._look()
        self._go()

    def on_search_prompt_left(self) -> None:
        """Nothing is searched."""
        self.end()

    def _look(self) -> None:
        """Begin the search that stands in the prompt, unless it runs."""
        if self._pause is not None:
            self._pause.stop()
        source, task = self._place()
        query = self.prompt.asked.query(source.rollout if source else "", task)
        if self.found is not None and self.found.query == query:
            return
        self._forget()
        self._upto = source.seq if source else 0
        if query.text:
            self.found = SearchHits(query)
            self._mark(self.found)
            self.prompt.count(line(span("… ", "warning")))
        else:
            self.prompt.count(())
        self.run_worker(self._finder.ask(query), group="search")

    # --- what is found -----------------------------------------------------------------------

    def _heard(self, heard: search_process.SearchReport) -> None:
        """The process said something of the newest search."""
        found = self.found
        if found is None:
            return
        if heard.problem[0]:
            found.take(SearchProgress(done=True))
            self.report_problem(HoustonError(*heard.problem))
        else:
            found.take(heard.progress, heard.more)
        self._show(found)

    def _anew(self) -> None:
        """The newest search begins once more."""
        if self.found is not None and not self.found.done:
            self.found = SearchHits(self.found.query)
            self._mark(self.found)

    def on_transcript_view_moved(self) -> None:
        """The rollout may have gone on: what is new is looked for too."""
        source, found = self._place()[0], self.found
        if source is None or found is None or not (found.done and found.in_place):
            return
        if source.rollout == found.query.rollout and source.seq > self._upto > 0:
            query = msgspec.structs.replace(found.query, after=self._upto)
            self._upto = source.seq
            self.run_worker(self._finder.ask(query), group="search")

    def _show(self, found: SearchHits) -> None:
        transcript = self._transcript
        if found.in_place and transcript.hits is not found.steps:
            transcript.hits = found.steps
        if found.hits and found.query.mode == "regex" and transcript.spots is None:
            self._mark(found)
        self.prompt.count(line(span(f"{found.total} ", "warning")))
        if transcript.folds.filtered and found.in_place and found.done:
            transcript.filter(found.steps)
        post_from(transcript, Transcript.Moved())
        if isinstance(self.app.screen, HitsDialog):
            self.app.screen.grew()
        if found.done and found.in_place and found.notes:
            self.show_notice(" ".join(found.notes))
        if self._entered:
            self._go()

    def _mark(self, found: SearchHits) -> None:
        """Show where it is; a pattern only after the process has survived it."""
        spots = _match_ranges(found.query) if found.query.mode != "regex" or found.hits else None
        self._transcript.mark(spots, found.query.text, found.tally, found.said)
        if found.in_place:
            self._transcript.hits = found.steps

    def _go(self) -> None:
        """To the first place, when there is one and somebody waits for it."""
        found = self.found
        if found is None:
            self._entered = False
        elif not found.in_place:
            self._entered = False
            self.action_list()
        elif (step := found.near(self._transcript.cursor)) is not None:
            self._entered = False
            self.run_worker(self._show_step(step), group="search")
        elif found.done:
            self._entered = False
            self.show_notice(f"No step holds {found.query.text!r}.")

    async def _show_step(self, step: int) -> None:
        await self._transcript.go_to(step, open=True)
        self._transcript.reveal_match(step)

    def turned(self) -> None:
        """Another rollout was opened: places elsewhere are still found, steps of here are not."""
        if self.found is not None and self.found.in_place:
            self.end()

    def opened(self) -> None:
        """Its steps were read: mark in them what was searched."""
        if self.found is not None:
            self._mark(self.found)

    def end(self) -> None:
        """Stop looking and show nothing of it."""
        if self._pause is not None:
            self._pause.stop()
        if self.found is not None:
            self._forget()
            self.run_worker(self._finder.ask(SearchQuery("")), group="search")

    def _forget(self) -> None:
        self.found = None
        self._transcript.mark(None, "", None, None)
        if self._transcript.folds.filtered:
            self._transcript.filter(None)

    # --- keys --------------------------------------------------------------------------------

    async def action_hit(self, by: int) -> None:
        """The next place or the one before, round the end."""
        found = self.found
        if found is None:
            return
        if not found.in_place:
            self._went(found.place(by))
        elif (step := found.step(self._transcript.cursor, by)) is not None:
            await self._show_step(step)

    def action_list(self) -> None:
        """List all places."""
        if self.found is None:
            self.show_notice("Search first (/): then what was found is listed.")
        else:
            self.app.push_screen(HitsDialog(self.found), self._went)

    def _went(self, hit: SearchHit | None) -> None:
        found = self.found
        if hit is not None and hit.byte >= 0:
            post_from(self, GoToTerminalLine(hit.rollout, hit.step, hit.name, hit.byte))
        elif hit is not None and found is not None:
            here = found.query.where == "rollout"  # a shared step is a step of the branch, too
            post_from(self, GoToStep(hit.step, "" if here else hit.rollout))

    def action_filter(self) -> None:
        """Show only the steps that were found, or all again."""
        if self._transcript.folds.filtered:
            self._transcript.filter(None)
        elif self._transcript.hits:
            self._transcript.filter(self._transcript.hits)
        else:
            self.show_notice("Search first (/): then only the steps that were found are shown.")

    def action_clear(self) -> None:
        """End the chosen range; else show all steps again; else end the search."""
        if self._unchoose():
            return
        if self._transcript.folds.filtered:
            self._transcript.filter(None)
        else:
            self.end()


def _match_ranges(query: SearchQuery) -> Callable[[str], list[tuple[int, int]]]:
    """Where a query is in a line that is shown; nowhere once it has taken too long for one."""
    matcher = SearchMatcher(query)
    given_up = False

    def spots(text: str) -> list[tuple[int, int]]:
        nonlocal given_up
        try:
            return [] if given_up else matcher.spans(text)
        except PatternTooSlow:
            given_up = True
            return []

    return spots
