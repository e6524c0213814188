"""A whole search, page by page: events and terminal logs, the newest first, until it is cancelled.

A page is one short read; matching happens outside the reads, so that no pattern, however slow,
keeps the WAL from being reset. Terminal output is read from raw logs on this machine, without
escape sequences, and reported with the step that printed it. Logs on other machines are not
searched, and the search says so.
"""

import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_shared import terminal_log_files
from houston_shared.errors import HoustonError
from houston_shared.secret_redaction import redact
from houston_shared.store import journal_events, rollout_queries, search_matching, workspace_queries
from houston_shared.store.journal_events import (
    OPEN_END,
    JournalEvent,
    ReadPlan,
    Row,
    RunSql,
    column_list,
    placeholders,
    split_for_in,
)
from houston_shared.store.rollout_queries import OwnedStepRange, RolloutRow
from houston_shared.store.search_matching import (
    EVENT_KINDS_BY_TARGET,
    PatternTooSlow,
    SearchMatcher,
    SearchQuery,
    SearchTerm,
    iterate_event_texts,
    rollout_tag,
)
from houston_shared.store.store_reader import NoSearchIndex, Reader
from houston_shared.times_and_counts import iso_time

EVENTS_PER_PAGE = 400
"""Events read in one transaction."""
MAX_INDEX_GUESSES = 1_000
"""Events that the index names before the journal is looked through."""
EVENTS_ON_FIRST_PAGE = 50
"""Of the first page: something is to be seen soon."""
_EVENT_STEP_SQL = (
    "CASE WHEN e.step THEN e.step ELSE"
    " coalesce((SELECT delivered_step FROM guidance g WHERE g.text_seq = e.seq), 0) END"
)
"""The step of an event; of guidance that which heard it, 0 before."""
_EVENT_COLUMNS = f"{column_list(JournalEvent, 'e')}, {_EVENT_STEP_SQL}"


class SearchableText(NamedTuple):
    """A text that may match."""

    event: JournalEvent
    step: int
    name: str
    """What it is: a kind of event, a file's path, a tool."""
    text: str


class SearchPage(NamedTuple):
    """Texts of one page, and where the next ends."""

    texts: list[SearchableText]
    before: int
    done: bool


def read_indexed_seqs(matcher: SearchMatcher) -> ReadPlan[tuple[list[int], int]]:
    """Events that the index finds, newest first, and the last event that it has indexed.

    That is 0 where there is no index, or it cannot answer: then every event must be searched.
    """
    query = matcher.query
    ready = query.mode == "words" and query.what == "steps" and query.where != "task"
    if not ready or not search_matching.is_indexable(matcher.terms):
        return [], 0
    within = rollout_tag(query.rollout) if query.where == "rollout" else ""
    expression = search_matching.fts_expression(matcher.terms, within)
    try:
        indexed = yield RunSql("SELECT seq FROM indexed WHERE id = 1", where="search")
        rows = yield RunSql(
            "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY rowid DESC",
            (expression,),
            where="search",
        )
    except NoSearchIndex:
        return [], 0
    upto = int(indexed[0][0]) if indexed else 0
    return [row[0] for row in rows if row[0] <= upto], upto


def read_guessed_seqs(matcher: SearchMatcher) -> ReadPlan[list[int]]:
    """Events of a rollout that likely hold a text as it stands, or the longest run of characters
    that a pattern must find, by the index: the newest first.

    Empty where the index cannot help. What is in the middle of a word only the journal tells.
    """
    query, text = matcher.query, matcher.text
    if query.mode == "regex":
        text = max(search_matching.required_runs(text), key=len, default="")
    words = re.findall(r"[^\W_]+", text)
    terms = [SearchTerm(" ".join(words), True)]
    ready = query.mode != "words" and (query.what, query.where) == ("steps", "rollout")
    if not ready or not words or not search_matching.is_indexable(terms):
        return []
    expression = search_matching.fts_expression(terms, rollout_tag(query.rollout))
    try:
        rows = yield RunSql(
            "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY rowid DESC LIMIT ?",
            (expression, MAX_INDEX_GUESSES),
            where="search",
        )
    except NoSearchIndex:
        return []
    return [row[0] for row in rows]


def read_named_texts(
    matcher: SearchMatcher, seqs: Sequence[int], rollout: str
) -> ReadPlan[list[SearchableText]]:
    """The texts of events that the index has named; of one rollout unless that is empty."""
    texts: list[SearchableText] = []
    for marks, part in split_for_in(seqs):
        rows = yield RunSql(
            f"SELECT {_EVENT_COLUMNS} FROM events e WHERE seq IN ({marks}) ORDER BY seq DESC", part
        )
        for event, step in _events_and_steps(rows):
            if rollout in ("", event.rollout):
                texts += yield from _read_matching_texts(matcher, event, step, sure=True)
    return texts


def read_rollout_page(
    matcher: SearchMatcher, part: OwnedStepRange, before: int, after: int, size: int
) -> ReadPlan[SearchPage]:
    """A page of the events of one rollout, of its steps up to `part.last`."""
    if before == OPEN_END and part.last < OPEN_END:
        before = yield from _seq_after_range(part)
    kinds = EVENT_KINDS_BY_TARGET[matcher.query.what]
    rows = yield from journal_events.events_backward(
        _EVENT_COLUMNS, part.rollout, before, size, kinds, after
    )
    return (yield from _read_page(matcher, rows, before, size, part.last))


def _seq_after_range(part: OwnedStepRange) -> ReadPlan[int]:
    rows = yield RunSql(
        "SELECT sample_seq FROM steps WHERE rollout = ? AND step = ? AND attempt = 1",
        (part.rollout, part.last + 1),
    )
    return int(rows[0][0]) if rows else OPEN_END


def read_home_page(
    matcher: SearchMatcher, before: int, after: int, size: int
) -> ReadPlan[SearchPage]:
    """A page of the events of all rollouts, or of those of one task."""
    query, kinds = matcher.query, EVENT_KINDS_BY_TARGET[matcher.query.what]
    task = "AND rollout IN (SELECT id FROM rollouts WHERE task = ?)" * (query.where == "task")
    rows = yield RunSql(
        f"SELECT {_EVENT_COLUMNS} FROM events e WHERE seq > ? AND seq < ?"
        f" AND kind IN ({placeholders(kinds)}) {task} ORDER BY seq DESC LIMIT ?",
        (after, before, *kinds, *([query.task] if task else []), size),
    )
    return (yield from _read_page(matcher, rows, before, size))


def _read_page(
    matcher: SearchMatcher, rows: list[Row], before: int, size: int, last_step: int = OPEN_END
) -> ReadPlan[SearchPage]:
    """The page of the events `rows`, of steps up to `last_step`; the last where they are few."""
    texts: list[SearchableText] = []
    for event, step in _events_and_steps(rows):
        if step <= last_step:
            texts += yield from _read_matching_texts(matcher, event, step)
    return SearchPage(texts, rows[-1][0] if rows else before, len(rows) < size)


def _events_and_steps(rows: list[Row]) -> Iterator[tuple[JournalEvent, int]]:
    """Rows selected with `_EVENT_COLUMNS`."""
    return ((JournalEvent(*columns), step) for *columns, step in rows)


def newest_step_ranges(rollout: str) -> ReadPlan[list[OwnedStepRange]]:
    """Where the steps of a rollout lie, newest first: a branch shares its parent's."""
    return (yield from rollout_queries.step_ranges(rollout))[::-1]


def _read_matching_texts(
    matcher: SearchMatcher, event: JournalEvent, step: int, sure: bool = False
) -> ReadPlan[list[SearchableText]]:
    """Texts of an event; none when it was erased, is damaged, or cannot hold it."""
    raw = yield from journal_events.read_event_body(event)
    if raw is None or not (sure or matcher.possible(raw, event.kind)):
        return []
    bare = JournalEvent(event.seq, event.rollout, event.step, event.attempt, event.part, event.kind,
                 event.at, None, None, 0)  # fmt: skip
    try:
        texts = list(iterate_event_texts(matcher.query.what, event.kind, raw))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []  # `houston verify` names it
    return [SearchableText(bare, step, name, text) for name, text in texts if text]


LOG_BLOCK_BYTES = 1 << 20
"""Bytes read at once."""
LONGEST_LINE_BYTES = 64 * 1024
"""Bytes of a line that are kept for one that has no end."""
_ESCAPE_SEQUENCES = re.compile(
    rb"\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    rb"|\x1b[()][0-9A-B]|\x1b[@-Z\\^_=>]"
)

_LINE_ENDS = re.compile(
    rb"(?:\x1b\]7771;p;)?[^\r\n\x1b]*(?:\x1b(?!\]7771;p;)[^\r\n\x1b]*)*(?:\r\n|\r|\n)?"
)
"""Lines as the console draws them: a prompt begins one, whatever stands before it."""


class TerminalLogLine(NamedTuple):
    """A line that may match."""

    rollout: str
    step: int
    terminal: str
    text: str
    byte: int
    """Where in the terminal's log it begins."""


def find_terminal_lines(
    reader: Reader, matcher: SearchMatcher, notes: list[str]
) -> Iterator[TerminalLogLine | None]:
    """Lines that may match the query, and None after each block that was read.

    notes: collects what could not be searched.
    """
    for rollout in _rollouts_to_search(reader, matcher):
        root = reader.run(rollout_queries.read_rollout_spec(rollout)).host_root
        terminals = reader.run(workspace_queries.list_terminals(rollout.id))
        if far := sorted({terminal.host for terminal in terminals} - {"local"}):
            notes.append(f"{rollout.id}: logs on {', '.join(far)} are not on this machine.")
        if root:
            folder = terminal_log_files.terminals_folder(Path(root), rollout.id)
            for name in terminal_log_files.terminals_with_log(folder):
                yield from _lines_of_terminal(reader, matcher, rollout.id, folder / name, notes)


def _rollouts_to_search(reader: Reader, matcher: SearchMatcher) -> list[RolloutRow]:
    query = matcher.query
    rows = reader.run(rollout_queries.list_rollouts(query.task if query.where == "task" else ""))
    if query.where == "rollout":
        rows = [row for row in rows if row.id == query.rollout]
    return sorted(rows, key=lambda row: -row.created_at)


def _lines_of_terminal(
    reader: Reader, matcher: SearchMatcher, rollout: str, folder: Path, notes: list[str]
) -> Iterator[TerminalLogLine | None]:
    spans = reader.run(workspace_queries.list_terminal_spans(rollout, "local", folder.name))
    starts = [(span.start, span.step) for span in spans]
    try:
        for at, path in reversed(terminal_log_files.list_segments(folder)):
            for offset, raw in _lines_of_segment(matcher, path):
                if raw is None:
                    yield None
                    continue
                text = redact(_strip_escapes(raw).decode("utf-8", "replace"))
                yield TerminalLogLine(
                    rollout, _step_at_offset(starts, at + offset), folder.name, text, at + offset
                )
    except OSError as problem:
        notes.append(f"{rollout}: the log of {folder.name} could not be read ({problem}).")


def _step_at_offset(starts: list[tuple[int, int]], offset: int) -> int:
    """The step that printed the byte at `offset` of a log; 0 before the first."""
    index = bisect_right(starts, (offset, OPEN_END))
    return starts[index - 1][1] if index else 0


def _lines_of_segment(matcher: SearchMatcher, path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Lines that hold it with their offsets in the file; (0, None) after each block."""
    with path.open("rb") as file:
        offset, rest = 0, b""
        while data := file.read(LOG_BLOCK_BYTES):
            block = rest + data
            cut = block.rfind(b"\n") + 1 or (len(block) if len(block) > LONGEST_LINE_BYTES else 0)
            yield from _lines_of_block(matcher, block[:cut], offset)
            offset, rest = offset + cut, block[cut:]
            yield 0, None
        yield from _lines_of_block(matcher, rest, offset)


def _lines_of_block(
    matcher: SearchMatcher, block: bytes, offset: int
) -> Iterator[tuple[int, bytes]]:
    if not matcher.possible(_strip_escapes(block)):
        return
    for line in _LINE_ENDS.finditer(block):
        if _line_may_match(matcher, line.group()):
            yield offset + line.start(), line.group().rstrip(b"\r\n")


def _line_may_match(matcher: SearchMatcher, raw: bytes) -> bool:
    plain = _strip_escapes(raw)
    if not matcher.possible(plain):
        return False
    try:
        return matcher.first(plain.decode("utf-8", "replace")) is not None
    except PatternTooSlow:
        return True  # counted where it is looked at again


def _strip_escapes(raw: bytes) -> bytes:
    return _ESCAPE_SEQUENCES.sub(b"", raw) if b"\x1b" in raw else raw


MAX_SLOW_TEXTS = 20
"""Texts that a pattern may be given up on; then the search is."""
PROGRESS_SECONDS = 0.1
"""How long matching goes on before what was found is said."""


class SearchHit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text that matches."""

    rollout: str
    """Whose step it is."""
    step: int
    """0 for what belongs to no step (guidance that nobody has heard)."""
    name: str
    """What the text is: a kind of event, a file's path, a tool, a terminal."""
    snippet: str
    start: int
    """Where in the snippet it begins."""
    end: int
    at: int = 0
    """UTC microseconds; 0 where that is not known."""
    seq: int = 0
    byte: int = -1
    """Of a terminal's log, where the line begins; −1 for everything else."""


class SearchProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new since the last one."""

    hits: tuple[SearchHit, ...] = ()
    looked: int = 0
    """Texts and logs that were looked at, in all."""
    done: bool = False
    notes: tuple[str, ...] = ()
    """What could not be looked at; with the last one."""


def search_home(reader: Reader, query: SearchQuery, soon: bool = False) -> Iterator[SearchProgress]:
    """Search the home, the newest first; the last report says `done`. Raises HoustonError.

    soon: begin with hits that the index guesses, in any order: for a screen that sorts.
    """
    matcher = SearchMatcher(query)
    if matcher.empty:
        yield SearchProgress(done=True)
        return
    counter = _HitCounter(matcher)
    notes: list[str] = []
    if query.what == "terminals":
        yield from counter.lines(find_terminal_lines(reader, matcher, notes))
    else:
        if soon and not query.after:
            seqs = reader.run(read_guessed_seqs(matcher))
            yield from counter.guesses(_search_named(reader, matcher, seqs))
        for texts in _search_pages(reader, matcher):
            yield from counter.texts(texts)
    if counter.slow:
        notes.append(f"The pattern was given up on {counter.slow} texts: it took too long.")
    yield SearchProgress(looked=counter.looked, done=True, notes=tuple(notes))


def search_hit_json(hit: SearchHit) -> dict[str, Any]:
    """A line of `search --json`."""
    return {
        "rollout": hit.rollout,
        "step": hit.step or None,
        "kind": hit.name,
        "snippet": hit.snippet,
        "match": [hit.start, hit.end],
        "at": iso_time(hit.at) if hit.at else None,
        "seq": hit.seq or None,
    }


def _search_pages(reader: Reader, matcher: SearchMatcher) -> Iterator[Sequence[SearchableText]]:
    query = matcher.query
    seqs, upto = ([], query.after) if query.after else reader.run(read_indexed_seqs(matcher))
    if query.where == "rollout":
        own, *shared = reader.run(newest_step_ranges(query.rollout))
        yield from _search_backward(reader, matcher, own, upto)
        yield from _search_named(reader, matcher, seqs)
        for part in () if query.after else shared:
            yield from _search_backward(reader, matcher, part, 0)
    else:
        yield from _search_backward(reader, matcher, None, upto)
        yield from _search_named(reader, matcher, seqs)


def _search_backward(
    reader: Reader, matcher: SearchMatcher, part: OwnedStepRange | None, after: int
) -> Iterator[Sequence[SearchableText]]:
    """Events behind `after`, newest first; of one stretch of a rollout, or of the home."""
    page, size = SearchPage([], OPEN_END, False), EVENTS_ON_FIRST_PAGE
    while not page.done:
        if part is not None:
            page = reader.run(read_rollout_page(matcher, part, page.before, after, size))
        else:
            page = reader.run(read_home_page(matcher, page.before, after, size))
        yield page.texts
        size = EVENTS_PER_PAGE


def _search_named(
    reader: Reader, matcher: SearchMatcher, seqs: Sequence[int]
) -> Iterator[Sequence[SearchableText]]:
    rollout = matcher.query.rollout if matcher.query.where == "rollout" else ""
    start, size = 0, EVENTS_ON_FIRST_PAGE
    while start < len(seqs):
        yield reader.run(read_named_texts(matcher, seqs[start : start + size], rollout))
        start, size = start + size, EVENTS_PER_PAGE


class _HitCounter:
    """Matches texts and keeps count."""

    def __init__(self, matcher: SearchMatcher) -> None:
        self._matcher = matcher
        self.looked = 0
        self.slow = 0
        self._guessed_seqs: set[int] = set()

    def guesses(self, pages: Iterable[Sequence[SearchableText]]) -> Iterator[SearchProgress]:
        """What is in texts that are looked at again later, where they do not count twice."""
        guessed: set[int] = set()
        for texts in pages:
            for progress in self.texts(texts):
                guessed.update(hit.seq for hit in progress.hits)
                yield progress
        self._guessed_seqs = guessed

    def texts(self, candidates: Iterable[SearchableText]) -> Iterator[SearchProgress]:
        """What is in these texts, reported at least every `PROGRESS_SECONDS`."""
        hits: list[SearchHit] = []
        reported_at = time.monotonic()
        for text in candidates:
            event = text.event
            if event.seq in self._guessed_seqs:
                continue
            self.looked += 1
            if place := self._place(text.text):
                snippet = self._matcher.snippet(text.text, place)
                hits.append(
                    SearchHit(
                        event.rollout, text.step, text.name, *snippet, at=event.at, seq=event.seq
                    )
                )
            if time.monotonic() - reported_at > PROGRESS_SECONDS:
                yield SearchProgress(tuple(hits), self.looked)
                hits, reported_at = [], time.monotonic()
        yield SearchProgress(tuple(hits), self.looked)

    def lines(self, log_lines: Iterable[TerminalLogLine | None]) -> Iterator[SearchProgress]:
        """What is in these lines; None says only that time went by."""
        for line in log_lines:
            hits: tuple[SearchHit, ...] = ()
            if line is None:
                self.looked += 1
            elif place := self._place(line.text):
                snippet = self._matcher.snippet(line.text, place)
                hits = (
                    SearchHit(line.rollout, line.step, line.terminal, *snippet, byte=line.byte),
                )
            yield SearchProgress(hits, self.looked)

    def _place(self, text: str) -> tuple[int, int] | None:
        try:
            return self._matcher.first(text)
        except PatternTooSlow:
            self.slow += 1
        if self.slow >= MAX_SLOW_TEXTS:
            raise HoustonError(
                f"The pattern {self._matcher.text!r} takes too long for {self.slow} texts.",
                "The search has ended.",
                "write it so that it can match in one way only",
            )
        return None
