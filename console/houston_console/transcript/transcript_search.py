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
    post_message_as,
)
from houston_console.transcript.search_client import (
    MAX_LISTED_HITS,
    SEARCH_CHOICE_NAMES,
    TEXT_KIND_LABELS,
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
from houston_console.widgets.line_view import set_frame_subtitle, set_frame_title
from houston_console.widgets.list_filter import FilteredList
from houston_console.widgets.styled_text import TextLine, justify_line, line, span
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import search_process
from houston_shared.store.journal_search import SearchHit, SearchProgress
from houston_shared.store.search_matching import PatternTooSlow, SearchMatcher, SearchQuery


class SearchInputLine(BottomPrompt):
    """What is typed. Leaves at once: the next key is the transcript's already."""

    def __init__(self, on_done: Callable[[bool], None], **arguments: Any) -> None:
        """on_done: told whether what stands there is to be searched."""
        super().__init__(**arguments)
        self._on_done = on_done

    def action_leave(self) -> None:
        """Leave without a search."""
        self._on_done(False)

    async def action_submit(self) -> None:
        """Go to what is found."""
        self._on_done(True)


class SearchPrompt(Pane):
    """The search line and its choices; hidden until it is opened."""

    BINDINGS = bindings_for("search")

    class Changed(Message):
        """Something else is asked for; it is still being written."""

    class Entered(Message):
        """The search was confirmed."""

    class Left(Message):
        """The prompt was left without a search."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.input_line = SearchInputLine(self._leave, id="search-line")
        self.choices = BarWidget(id="search-toggles")
        self.input = SearchInput()
        self.history = SearchHistory()
        self._count: TextLine = ()

    def compose(self) -> ComposeResult:
        """Compose the line to type in and the choices."""
        yield self.input_line
        yield self.choices

    def open(self) -> None:
        """Appear, and take what is typed; the choices of last time stay."""
        self.input = self.input._replace(text="")
        self._count = ()
        self.history.leave()
        self.display = True
        self.input_line.ask("/", "text, pattern or words to look for")
        self.update_choices()

    def _leave(self, is_wanted: bool) -> None:
        """Hide, and give the focus back."""
        self.display = False
        self.screen.set_focus(self.screen.query_one("#transcript"))
        if is_wanted:
            self.input = self.input._replace(text=self.input_line.value)
            self.history.add(self.input)
        post_message_as(self, self.Entered() if is_wanted else self.Left())

    def show_count(self, parts: TextLine) -> None:
        """Say how much was found so far."""
        self._count = parts
        self.update_choices()

    def update_choices(self) -> None:
        """Draw the choices and the count."""
        room = self.size.width or 80
        self.choices.show_lines(justify_line(self.input.toggles(room), self._count, room))

    def on_resize(self) -> None:
        """More or fewer choices fit."""
        self.update_choices()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line of keys is the prompt's while somebody writes in it."""
        event.stop()
        if isinstance(self.screen, HoustonScreen) and self.screen.focused is event.widget:
            self.screen.hints.show_area("search")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Something was typed."""
        event.stop()
        if self.input.text != event.value:
            self._change(self.input._replace(text=event.value))

    def action_turn(self, toggle: str) -> None:
        """Another choice of one of the three."""
        self._change(self.input.turned(toggle))

    def action_earlier(self, by: int) -> None:
        """Show an earlier search, or a later one."""
        earlier = self.history.walk(by)
        if earlier is not None:
            self._change(earlier)
            self.input_line.value = earlier.text
            self.input_line.cursor_position = len(earlier.text)

    def _change(self, search: SearchInput) -> None:
        self.input = search
        self.update_choices()
        post_message_as(self, self.Changed())


class HitList(FilteredList[SearchHit]):
    """One line a place that is kept."""

    def __init__(self, hits: SearchHits, **arguments: Any) -> None:
        super().__init__(hits.hits, **arguments)
        self.hits = hits
        self._counted_hits, self._cells = 0, 0

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return hit_line(self.items[number], self.line_cells, self._longest_place_cells())

    def filter_text(self, item: SearchHit) -> str:
        """Where it is, what it is, and the text around it."""
        name = TEXT_KIND_LABELS.get(item.name, item.name)
        return f"{hit_permalink(item)} {name} {item.snippet}"

    def _longest_place_cells(self) -> int:
        """Cells of the longest place, counted as more are found."""
        new = self.hits.hits[self._counted_hits :]
        self._counted_hits += len(new)
        self._cells = max([self._cells, *(cell_len(hit_permalink(hit)) for hit in new)])
        return self._cells


class HitsDialog(Dialog[SearchHit | None]):
    """Answers with the place that was chosen."""

    BINDINGS = [("escape,q,l", "close", "close"), ("enter", "choose", "go there")]

    def __init__(self, hits: SearchHits) -> None:
        super().__init__()
        self.list = HitList(hits)
        self._box = Vertical(self.list, id="results")

    def compose(self) -> ComposeResult:
        """Compose the frame and its list."""
        yield self._box

    def on_mount(self) -> None:
        """Stand where somebody went last."""
        self.refresh_hits()
        self.call_after_refresh(self.list.set_cursor, max(0, self.list.hits.place_index))

    def refresh_hits(self) -> None:
        """Show what was found meanwhile."""
        hits = self.list.hits
        query, box = hits.query, self._box
        where = " · ".join(
            SEARCH_CHOICE_NAMES[choice] for choice in (query.mode, query.where, query.what)
        )
        more = "" if hits.done else "…"
        set_frame_title(box, f"/{query.text}  {hits.count}{more} found · {where}")
        cap = f"the first {MAX_LISTED_HITS:,} are listed   " if hits.count > len(hits.hits) else ""
        notes = f"{'  '.join(hits.notes)}   " if hits.notes else ""
        set_frame_subtitle(box, line(f"{notes}{cap}enter go there   esc close"))
        words = " Nothing was found." if hits.done else " being looked for …"
        self.list.empty = line(span(words, "dim"))
        self.list.items = hits.hits
        self.list.show()

    def action_choose(self) -> None:
        """Close, and go to the hit at the cursor."""
        hits, chosen = self.list.hits, self.list.under_cursor
        if chosen is not None:
            hits.place_index = next(at for at, hit in enumerate(hits.hits) if hit is chosen)
        self.dismiss(chosen)


TYPING_PAUSE_SECONDS = 0.15
"""Without a key, after which what was typed is looked for."""


class TranscriptSearch(Pane):
    """The keys and the prompt of a search, around the transcript."""

    BINDINGS = bindings_for("hits")

    def __init__(
        self,
        transcript: Transcript,
        home: Home,
        place: Callable[[], tuple[RolloutSource | None, str]],
        clear_selection: Callable[[], bool],
        **arguments: Any,
    ) -> None:
        """place: the rollout that is open, and its task. unchoose: called before a search is ended;
        true where that was what the key was for.
        """
        super().__init__(**arguments)
        self.prompt = SearchPrompt(id="search")
        self.hits: SearchHits | None = None
        self._transcript = transcript
        self._place = place
        self._clear_selection = clear_selection
        self._client = SearchClient(home, self._take_report, self._restart)
        self._pause: Timer | None = None
        self._searched_until = 0
        """The newest event that was there when it was last looked for."""
        self._is_catching_up = False
        """Whether what is new is being looked for: another question would end that one."""
        self._jumps_to_first = False
        """Whether somebody waits for what is found, and it was not gone to yet."""

    async def on_unmount(self) -> None:
        """Let no search go on without a screen."""
        await self._client.close()

    # --- asking ------------------------------------------------------------------------------

    def ask(self) -> None:
        """Have a search written."""
        self.prompt.open()
        self.run_worker(self._client.warm(), group="search")

    def on_search_prompt_changed(self) -> None:
        """Look for it soon, so that its count is there before Enter."""
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(TYPING_PAUSE_SECONDS, self._search)

    def on_search_prompt_entered(self) -> None:
        """Go to what is found, as soon as something is."""
        self._jumps_to_first = True
        self._search()
        self._go_to_first()

    def on_search_prompt_left(self) -> None:
        """End the search."""
        self.end()

    def _search(self) -> None:
        """Begin the search that stands in the prompt, unless it runs."""
        if self._pause is not None:
            self._pause.stop()
        source, task = self._place()
        query = self.prompt.input.query(source.rollout if source else "", task)
        if self.hits is not None and self.hits.query == query:
            return
        self._clear_hits()
        self._searched_until = source.seq if source else 0
        if query.text:
            self.hits = SearchHits(query)
            self._mark(self.hits)
            self.prompt.show_count(line(span("… ", "warning")))
        else:
            self.prompt.show_count(())
        self.run_worker(self._client.ask(query), group="search")

    # --- what is found -----------------------------------------------------------------------

    def _take_report(self, report: search_process.SearchReport) -> None:
        """The process said something of the newest search."""
        hits = self.hits
        if hits is None:
            return
        if report.problem[0] or report.progress.done:
            self._is_catching_up = False
        if report.problem[0]:
            hits.add_progress(SearchProgress(done=True))
            self.report_problem(HoustonError(*report.problem))
        else:
            hits.add_progress(report.progress, report.more)
        self._show(hits)

    def _restart(self) -> None:
        """The newest search begins once more."""
        if self.hits is not None and not self.hits.done:
            self.hits = SearchHits(self.hits.query)
            self._mark(self.hits)

    def on_transcript_view_moved(self) -> None:
        """The rollout may have gone on: what is new is looked for too."""
        source, hits = self._place()[0], self.hits
        if source is None or hits is None or not (hits.done and hits.in_place):
            return
        if self._is_catching_up:
            return
        if source.rollout == hits.query.rollout and source.seq > self._searched_until > 0:
            query = msgspec.structs.replace(hits.query, after=self._searched_until)
            self._searched_until, self._is_catching_up = source.seq, True
            self.run_worker(self._client.ask(query), group="search")

    def _show(self, hits: SearchHits) -> None:
        transcript = self._transcript
        if hits.in_place and transcript.hits is not hits.steps:
            transcript.hits = hits.steps
        if hits.hits and hits.query.mode == "regex" and transcript.find_matches is None:
            self._mark(hits)
        self.prompt.show_count(line(span(f"{hits.total} ", "warning")))
        if transcript.folds.filtered and hits.in_place and hits.done:
            transcript.filter(hits.steps)
        post_message_as(transcript, Transcript.Moved())
        if isinstance(self.app.screen, HitsDialog):
            self.app.screen.refresh_hits()
        if hits.done and hits.in_place and hits.notes:
            self.show_notice(" ".join(hits.notes))
        if self._jumps_to_first:
            self._go_to_first()

    def _mark(self, hits: SearchHits) -> None:
        """Show where it is; a pattern only after the process has survived it."""
        find_spans = _match_ranges(hits.query) if hits.query.mode != "regex" or hits.hits else None
        self._transcript.mark(find_spans, hits.query.text, hits.tally, hits.words_in_step)
        if hits.in_place:
            self._transcript.hits = hits.steps

    def _go_to_first(self) -> None:
        """To the first place, when there is one and somebody waits for it."""
        hits = self.hits
        if hits is None:
            self._jumps_to_first = False
        elif not hits.in_place:
            self._jumps_to_first = False
            self.action_list()
        elif (step := hits.first_step(self._transcript.cursor)) is not None:
            self._jumps_to_first = False
            self.run_worker(self._show_step(step), group="search")
        elif hits.done:
            self._jumps_to_first = False
            self.show_notice(f"No step holds {hits.query.text!r}.")

    async def _show_step(self, step: int) -> None:
        await self._transcript.go_to(step, open=True)
        self._transcript.reveal_match(step)

    def leave_rollout(self) -> None:
        """Another rollout was opened: places elsewhere are still found, steps of here are not."""
        if self.hits is not None and self.hits.in_place:
            self.end()

    def mark_rollout(self) -> None:
        """Its steps were read: mark in them what was searched."""
        if self.hits is not None:
            self._mark(self.hits)

    def end(self) -> None:
        """End the search, and remove its marks."""
        if self._pause is not None:
            self._pause.stop()
        if self.hits is not None:
            self._clear_hits()
            self.run_worker(self._client.ask(SearchQuery("")), group="search")

    def _clear_hits(self) -> None:
        self.hits, self._is_catching_up = None, False
        self._transcript.mark(None, "", None, None)
        if self._transcript.folds.filtered:
            self._transcript.filter(None)

    # --- keys --------------------------------------------------------------------------------

    async def action_hit(self, by: int) -> None:
        """The next place or the one before, round the end."""
        hits = self.hits
        if hits is None:
            return
        if not hits.in_place:
            self._go_to_hit(hits.next_place(by))
        elif (step := hits.next_step(self._transcript.cursor, by)) is not None:
            await self._show_step(step)

    def action_list(self) -> None:
        """List all places."""
        if self.hits is None:
            self.show_notice("Search first (/): then what was found is listed.")
        else:
            self.app.push_screen(HitsDialog(self.hits), self._go_to_hit)

    def _go_to_hit(self, hit: SearchHit | None) -> None:
        hits = self.hits
        if hit is not None and hit.byte >= 0:
            post_message_as(self, GoToTerminalLine(hit.rollout, hit.step, hit.name, hit.byte))
        elif hit is not None and hits is not None:
            same = hits.query.where == "rollout"  # a shared step is a step of the branch, too
            post_message_as(self, GoToStep(hit.step, "" if same else hit.rollout))

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
        if self._clear_selection():
            return
        if self._transcript.folds.filtered:
            self._transcript.filter(None)
        else:
            self.end()


def _match_ranges(query: SearchQuery) -> Callable[[str], list[tuple[int, int]]]:
    """Where a query is in a line that is shown; nowhere once it has taken too long for one."""
    matcher = SearchMatcher(query)
    given_up = False

    def find_spans(text: str) -> list[tuple[int, int]]:
        nonlocal given_up
        try:
            return [] if given_up else matcher.spans(text)
        except PatternTooSlow:
            given_up = True
            return []

    return find_spans
