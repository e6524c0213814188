"""The keys that search: around the transcript, whose steps they mark and go to.

What is found in the rollout that is open is shown in its trajectory; everything else is a list of
places. The search itself runs in a process of its own (`finder`).
"""

from collections.abc import Callable
from typing import Any

import msgspec
from textual.containers import Vertical
from textual.timer import Timer

from houston_console.app.drawing.lines import line, span
from houston_console.app.error_boundary import ErrorBoundary
from houston_console.app.keys import bindings
from houston_console.app.messages import Failed, GoTo, GoToLine, Told, say
from houston_console.app.search.finder import Finder
from houston_console.app.search.found import Found
from houston_console.app.search.prompt import SearchPrompt
from houston_console.app.search.results import Results
from houston_console.app.source import RolloutSource
from houston_console.app.transcript.transcript import Transcript
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.finding import process
from houston_shared.store.finding.looking import Hit, Progress
from houston_shared.store.finding.query import Matcher, Query, TooSlow

PAUSE_SECONDS = 0.15
"""Without a key, after which what was typed is looked for."""


class Searching(ErrorBoundary, Vertical):
    """Around the transcript."""

    BINDINGS = bindings("hits")

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
        self.found: Found | None = None
        self._transcript = transcript
        self._place = place
        self._unchoose = unchoose
        self._finder = Finder(home, self._heard, self._anew)
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
        self._pause = self.set_timer(PAUSE_SECONDS, self._look)

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
            self.found = Found(query)
            self._mark(self.found)
            self.prompt.count(line(span("… ", "warning")))
        else:
            self.prompt.count(())
        self.run_worker(self._finder.ask(query), group="search")

    # --- what is found -----------------------------------------------------------------------

    def _heard(self, heard: process.Found) -> None:
        """The process said something of the newest search."""
        found = self.found
        if found is None:
            return
        if heard.problem[0]:
            found.take(Progress(done=True))
            say(self, Failed(HoustonError(*heard.problem)))
        else:
            found.take(heard.progress, heard.more)
        self._show(found)

    def _anew(self) -> None:
        """The newest search begins once more."""
        if self.found is not None and not self.found.done:
            self.found = Found(self.found.query)
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

    def _show(self, found: Found) -> None:
        transcript = self._transcript
        if found.in_place and transcript.hits is not found.steps:
            transcript.hits = found.steps
        if found.hits and found.query.mode == "regex" and transcript.spots is None:
            self._mark(found)
        self.prompt.count(line(span(f"{found.total} ", "warning")))
        if transcript.folds.filtered and found.in_place and found.done:
            transcript.filter(found.steps)
        say(transcript, Transcript.Moved())
        if isinstance(self.app.screen, Results):
            self.app.screen.grew()
        if found.done and found.in_place and found.notes:
            say(self, Told(" ".join(found.notes)))
        if self._entered:
            self._go()

    def _mark(self, found: Found) -> None:
        """Show where it is; a pattern only after the process has survived it."""
        spots = _spots(found.query) if found.query.mode != "regex" or found.hits else None
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
            say(self, Told(f"No step holds {found.query.text!r}."))

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
            self.run_worker(self._finder.ask(Query("")), group="search")

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
            say(self, Told("Search first (/): then what was found is listed."))
        else:
            self.app.push_screen(Results(self.found), self._went)

    def _went(self, hit: Hit | None) -> None:
        found = self.found
        if hit is not None and hit.byte >= 0:
            say(self, GoToLine(hit.rollout, hit.step, hit.name, hit.byte))
        elif hit is not None and found is not None:
            here = found.query.where == "rollout"  # a shared step is a step of the branch, too
            say(self, GoTo(hit.step, "" if here else hit.rollout))

    def action_filter(self) -> None:
        """Show only the steps that were found, or all again."""
        if self._transcript.folds.filtered:
            self._transcript.filter(None)
        elif self._transcript.hits:
            self._transcript.filter(self._transcript.hits)
        else:
            say(self, Told("Search first (/): then only the steps that were found are shown."))

    def action_clear(self) -> None:
        """End the chosen range; else show all steps again; else end the search."""
        if self._unchoose():
            return
        if self._transcript.folds.filtered:
            self._transcript.filter(None)
        else:
            self.end()


def _spots(query: Query) -> Callable[[str], list[tuple[int, int]]]:
    """Where a query is in a line that is shown; nowhere once it has taken too long for one."""
    matcher = Matcher(query)
    given_up = False

    def spots(text: str) -> list[tuple[int, int]]:
        nonlocal given_up
        try:
            return [] if given_up else matcher.spans(text)
        except TooSlow:
            given_up = True
            return []

    return spots
