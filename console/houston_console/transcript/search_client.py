"""A search from the console: the query as typed, its hits so far, and the process that searches.

The search runs in a process of its own; a new query ends the one before, and a process that hangs
in somebody's pattern is killed. Nothing here is a widget; see `transcript.transcript_search`.
"""

import asyncio
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec

from houston_console.widgets.dialogs import InputHistory
from houston_console.widgets.styled_text import TextLine, TextSpan, fit_text, line, line_width, span
from houston_shared.command_arguments import format_permalink
from houston_shared.home import Home
from houston_shared.store.journal_search import SearchHit, SearchProgress
from houston_shared.store.search_matching import (
    SEARCH_MODES,
    SEARCH_SCOPES,
    SEARCH_TARGETS,
    SearchMode,
    SearchQuery,
    SearchScope,
    SearchTarget,
)
from houston_shared.store.search_process import SearchJob, SearchReport
from houston_shared.times_and_counts import pluralize

T = TypeVar("T")
SEARCH_CHOICE_NAMES = {
    "literal": "as written",
    "regex": "pattern",
    "words": "words",
    "rollout": "this rollout",
    "task": "this task",
    "all": "all rollouts",
    "steps": "steps",
    "diffs": "diffs",
    "searches": "searches, web",
    "terminals": "terminals",
}


class SearchInput(NamedTuple):
    """A search while it is written."""

    text: str = ""
    mode: SearchMode = "literal"
    where: SearchScope = "rollout"
    what: SearchTarget = "steps"

    def turned(self, toggle: str) -> "SearchInput":
        """The next choice of a toggle: `mode`, `where` or `what`."""
        if toggle == "mode":
            return self._replace(mode=_next_choice(SEARCH_MODES, self.mode))
        if toggle == "where":
            return self._replace(where=_next_choice(SEARCH_SCOPES, self.where))
        return self._replace(what=_next_choice(SEARCH_TARGETS, self.what))

    def query(self, rollout: str, task: str) -> SearchQuery:
        """The search, at the rollout that is open."""
        return SearchQuery(
            str(self.text), self.mode, self.where, self.what, rollout=rollout, task=task
        )

    @property
    def in_place(self) -> bool:
        """Whether what is found is shown in the trajectory itself, not in a list of places."""
        return self.where == "rollout" and self.what == "steps"

    def toggles(self, room: int) -> TextLine:
        """The choices there are, those that are on between brackets; short where it is narrow."""
        spans: list[TextSpan] = []
        for key, name, choices in (
            ("^r", "mode", SEARCH_MODES),
            ("^o", "where", SEARCH_SCOPES),
            ("^t", "what", SEARCH_TARGETS),
        ):
            on = getattr(self, name)
            spans.append(span(f" {key} ", "tool"))
            shown_choices = choices if room >= WIDE_PROMPT_CELLS else (on,)
            for choice in shown_choices:
                label = SEARCH_CHOICE_NAMES[choice]
                spans.append(
                    span(f"‹{label}› ", "title") if choice == on else span(f"{label} ", "faint")
                )
        return tuple(spans)


def _next_choice(choices: tuple[T, ...], now: T) -> T:
    return choices[(choices.index(now) + 1) % len(choices)]


WIDE_PROMPT_CELLS = 125
"""Cells from which every choice is named."""
MAX_EARLIER_SEARCHES = 50
"""Searches that are remembered while the console runs."""


class SearchHistory(InputHistory[SearchInput]):
    """Earlier searches, to be repeated."""

    def add(self, search: SearchInput) -> None:
        """Add a search as the newest."""
        rest = [entry for entry in self._entries if entry.text != search.text]
        self._entries = [*rest, search][-MAX_EARLIER_SEARCHES:] if search.text else rest
        self.leave()


MAX_LISTED_HITS = 5_000
"""Places that are kept to be listed; all are counted."""


@dataclass
class SearchHits:
    """The answer to one query, while it grows."""

    query: SearchQuery
    hits: list[SearchHit] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Steps with a hit, in order."""
    count: int = 0
    done: bool = False
    notes: tuple[str, ...] = ()
    words_by_step: dict[int, str] = field(default_factory=dict)
    """By step, the words around its newest place."""
    place_index: int = -1
    """The place of the list that was gone to last; −1 for none."""

    @property
    def in_place(self) -> bool:
        """Whether it is shown in the trajectory itself."""
        return self.query.where == "rollout" and self.query.what == "steps"

    def add_progress(self, progress: SearchProgress, more: Sequence[int] = ()) -> None:
        """More was found, or all. more: steps of hits that came without their words."""
        self.hits += progress.hits[: MAX_LISTED_HITS - len(self.hits)]
        self.count += len(progress.hits) + len(more)
        self.done, self.notes = self.done or progress.done, progress.notes
        if self.in_place:
            for hit in progress.hits if len(self.words_by_step) < MAX_LISTED_HITS else ():
                self.words_by_step.setdefault(hit.step, hit.snippet)
            self._add(sorted({hit.step for hit in progress.hits}.union(more) - {0}))

    def _add(self, new: list[int]) -> None:
        """Newest first they come, so that most go before all that are there."""
        if not new or not self.steps or new[-1] < self.steps[0]:
            self.steps = new + self.steps
        else:
            self.steps = sorted({*new, *self.steps})

    def tally(self, cursor: int) -> str:
        """Where somebody is among what was found: `3/12`, with `…` while it grows."""
        more = "" if self.done else "…"
        if self.in_place:
            return f"{bisect_right(self.steps, cursor)}/{len(self.steps)}{more}"
        place = f"{self.place_index + 1}/" if self.place_index >= 0 else ""
        return (
            f"{place}{self.count}{more} in {SEARCH_CHOICE_NAMES[self.query.where]},"
            f" {SEARCH_CHOICE_NAMES[self.query.what]}"
        )

    @property
    def total(self) -> str:
        """How much was found so far."""
        more = "" if self.done else "…"
        if self.in_place:
            count = len(self.steps)
            return pluralize(count, "step") if self.done else f"{count}{more} steps"
        return f"{self.count}{more} found"

    def words_in_step(self, step: int) -> str:
        """The words around what was found in a step; empty where they were not kept."""
        return self.words_by_step.get(step, "")

    def first_step(self, cursor: int) -> int | None:
        """The step to go to first: the next one, or the last before the cursor."""
        if not self.steps:
            return None
        at = bisect_left(self.steps, cursor)
        return self.steps[min(at, len(self.steps) - 1)]

    def next_step(self, cursor: int, by: int) -> int | None:
        """The next step with a hit or the one before, round the end."""
        if not self.steps:
            return None
        at = bisect_right(self.steps, cursor) if by > 0 else bisect_left(self.steps, cursor) - 1
        return self.steps[at % len(self.steps)]

    def next_place(self, by: int) -> SearchHit | None:
        """The next place of the list or the one before, round the end."""
        if not self.hits:
            return None
        self.place_index = (max(self.place_index, 0 if by < 0 else -1) + by) % len(self.hits)
        return self.hits[self.place_index]


TEXT_KIND_LABELS = {
    "sample": "thought, call",
    "fork": "summary",
    "edit": "guidance",
    "bookmark": "note",
}
"""What kinds of text are called for people, where it is another word."""


def hit_permalink(hit: SearchHit) -> str:
    """A step's permalink; the rollout of what belongs to none."""
    return format_permalink(hit.rollout, hit.step) if hit.step else hit.rollout


def hit_line(hit: SearchHit, width: int, longest: int) -> TextLine:
    """One place of the list: where, what it is, the words around it. longest: cells of a place."""
    name = TEXT_KIND_LABELS.get(hit.name, hit.name)
    place = line(
        span(f" {fit_text(hit_permalink(hit), min(longest, max(12, width // 3)))} ", "number"),
        span(f"{fit_text(name, min(16, max(8, width // 8)))} ", "tool"),
    )
    before, match, after = _text_around_hit(hit, width - line_width(place))
    return line(*place, span(before, "dim"), span(match, "warning"), span(after, "dim"))


def _text_around_hit(hit: SearchHit, room: int) -> tuple[str, str, str]:
    """What is before the match, it, and what is after: cut so that the match is seen."""
    before, match = hit.snippet[: hit.start], hit.snippet[hit.start : hit.end]
    most = max(0, min(len(before), room // 3))
    if most < len(before):
        before = "…" + before[len(before) - most :]
    rest = max(0, room - len(before) - len(match))
    return before, match, fit_text(hit.snippet[hit.end :], rest).rstrip()


ANSWER_SECONDS = 3.0
"""Within which a process that is well says that it has the search, also on a busy machine."""
MAX_LINE_BYTES = 64 << 20
"""Bytes of one line of the process."""


class SearchClient:
    """At most one process that searches."""

    def __init__(
        self, home: Home, on_report: Callable[[SearchReport], None], on_restart: Callable[[], None]
    ) -> None:
        """on_report: told what was found for the newest job, on the event loop. on_restart: the
        newest job begins once more, and what was found for it is found again.
        """
        self._home = home
        self._on_restart = on_restart
        self._on_report = on_report
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._job = SearchJob(0, SearchQuery(""))
        self._last_accepted = 0
        self._lock = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    async def warm(self) -> None:
        """Start it, so that the first search finds it there."""
        async with self._lock:
            if self._process is None or self._process.returncode is not None:
                await self._start()

    async def ask(self, query: SearchQuery) -> None:
        """Look for this, and for nothing else from now on; with an empty text for nothing."""
        job = self._job = SearchJob(self._job.number + 1, query)
        await self.warm()
        if job is not self._job:
            return  # something else was asked meanwhile
        await self._send()
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(self._job))

    async def close(self) -> None:
        """End the process."""
        async with self._lock:
            if self._watching is not None:
                self._watching.cancel()
            await self._end()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "houston_shared.store.search_process",
            str(self._home.path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=MAX_LINE_BYTES,
        )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _send(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(msgspec.json.encode(self._job) + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended, and its end is told by `_listen`

    async def _watch(self, job: SearchJob) -> None:
        await asyncio.sleep(ANSWER_SECONDS)
        if self._last_accepted < job.number and job is self._job:
            self._job = SearchJob(job.number + 1, job.query)  # nothing more of the old one is taken
            self._on_restart()
            async with self._lock:
                await self._end()
                await self._start()
            await self._send()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for report_line in process.stdout:
            report = msgspec.json.decode(report_line, type=SearchReport)
            self._last_accepted = max(self._last_accepted, report.number)
            if report.number == self._job.number:
                self._on_report(report)
        if process is self._process and self._job.query.text:
            cause = "The process that searches has ended."
            self._on_report(
                SearchReport(self._job.number, problem=(cause, "The search is incomplete.", ""))
            )

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
        if self._listening is not None:
            await self._listening
            self._listening = None
