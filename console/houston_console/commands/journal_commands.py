"""`houston tail` and `houston log`: events of the journal as lines, live, or as an audit.

Which kinds of events each shows, who did them, and reading by pages so that nothing is missed or
shown twice. The words for an event are `houston_shared.store.event_text`.
"""

import argparse
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from houston_console.commands import command_options
from houston_console.commands.daemon_requests import JournalFollower
from houston_console.commands.output_page import OutputPage, span
from houston_shared import command_output
from houston_shared.command_arguments import whole_number
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode, UsageError
from houston_shared.records import ENDED_STATES
from houston_shared.store import event_text, journal_events, rollout_queries
from houston_shared.store.journal_events import (
    OPEN_END,
    JournalEvent,
    JournalEventHeader,
    ReadPlan,
    RunSql,
)
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import iso_time, local_time

TAIL_KINDS = (
    "sample", "result", "observation", "delivery", "fork",
    "spec", "state", "cancel", "guidance", "edit", "withdraw", "reorder", "bookmark", "verdict",
    "claim", "note-read", "policy", "training", "training-moved", "activation", "activated",
)  # fmt: skip
"""Kinds that `tail` shows; the others (intents, clocks, leases, heads) only repeat or announce."""
AUDIT_KINDS = (
    "daemon", "stop", "spec", "guidance", "edit", "withdraw", "reorder", "bookmark", "verdict",
    "claim", "note-read", "state", "cancel", "erased", "repaired", "cleaned", "refused",
    "hosts", "policy", "training", "training-cancel", "activation",
)  # fmt: skip
"""Kinds that somebody did: `log --audit`."""

EventFields = dict[str, Any]


class JournalEntry(NamedTuple):
    """An event and what its body says."""

    event: JournalEvent
    fields: EventFields


def read_entries(condition: str, parameters: tuple[Any, ...]) -> ReadPlan[list[JournalEntry]]:
    """Events that meet an SQL condition (with its ORDER BY), with their bodies."""
    entries = []
    for event in (yield from journal_events.select_events(condition, parameters)):
        entries.append(JournalEntry(event, (yield from journal_events.read_event_fields(event))))
    return entries


def entry_text(entry: JournalEntry) -> str:
    """What the event says, in a few words; may hold line breaks of its own text."""
    return event_text.describe_event(entry.event.kind, entry.fields, entry.event.step)


def entry_author(entry: JournalEntry) -> str:
    """Who did it: a person's name, or `worker`, `supervisor`, `daemon`, …; empty when unknown."""
    fields = entry.fields
    name = str(fields.get("asked") or fields.get("by") or fields.get("author") or "")
    if entry.event.kind in ("daemon", "activated"):
        return "daemon"
    return name.removeprefix("person:")


def is_audited(entry: JournalEntry) -> bool:
    """Whether a person (or a start of the daemon) is behind it, and not a rollout's own course."""
    by = str(entry.fields.get("by", ""))
    return entry.event.kind != "state" or by.startswith("person:") or "erased" in entry.fields


def is_failure(entry: JournalEntry) -> bool:
    """Whether something went wrong: a failed call, no action, a signal, a failure."""
    fields = entry.fields
    match entry.event.kind:
        case "result":
            return not fields.get("success", True)
        case "sample":
            return bool(fields.get("malformed"))
        case "observation":
            return bool(fields.get("attention"))
        case "fork":
            return bool(fields.get("mechanical"))
        case "state":
            by = str(fields.get("by", ""))
            stopped = fields.get("state") == "paused" and not by.startswith("person:")
            return stopped or fields.get("state") == "failed"
        case "training-moved":
            return fields.get("state") == "failed"
        case "activated":
            return not fields.get("ok")
    return False


AUDIT_EVENTS_PER_READ = 500
"""Events of one read: short transactions, whatever the length of the journal."""


class AuditFilter(NamedTuple):
    """Which audited events are shown; an empty filter shows all."""

    rollout: str = ""
    by: str = ""
    """A name, claimed or not, or a numeric uid."""
    since_us: int = 0
    newest: int | None = None


def read_audit(reader: Reader, audit_filter: AuditFilter) -> Iterator[JournalEntry]:
    """What people and the daemon did, oldest first."""
    newest: deque[JournalEntry] = deque(maxlen=audit_filter.newest)
    for entry in _read_all_audited(reader, audit_filter.rollout):
        if not _matches_filter(entry, audit_filter):
            continue
        if audit_filter.newest is None:
            yield entry
        else:
            newest.append(entry)
    yield from newest


def _read_all_audited(reader: Reader, rollout: str) -> Iterator[JournalEntry]:
    cancels: dict[str, dict[str, Any]] = {}
    after = 0
    while page := reader.run(_read_audit_page(after, rollout)):
        for entry in page:
            if entry.event.kind == "cancel":
                cancels[entry.event.rollout] = entry.fields
            if is_audited(entry):
                yield _attribute_ending(entry, cancels)
        after = page[-1].event.seq


def _attribute_ending(entry: JournalEntry, cancels: dict[str, dict[str, Any]]) -> JournalEntry:
    """A rollout that its worker ended at a person's word is that person's deed, as they asked."""
    if entry.event.kind != "state" or entry.fields.get("uid") is not None:
        return entry
    cancel = cancels.get(entry.event.rollout, {})
    if cancel.get("by") != entry.fields.get("by"):
        return entry
    identity = {"uid", "verified", "pid", "role"} & cancel.keys()
    return JournalEntry(entry.event, {**entry.fields, **{key: cancel[key] for key in identity}})


_AUDIT_PAGE = (
    f"seq IN (SELECT seq FROM events WHERE {journal_events.OUT_OF_STEP_EVENTS} AND {{within}}"
    f" AND seq > ? AND kind IN ({journal_events.placeholders(AUDIT_KINDS)})"
    " ORDER BY +seq LIMIT ?) ORDER BY seq"
)
"""All that is audited is out of step, and few. By `rollout` and `+seq`, or SQLite would walk over
every event of the home in their order, for seconds."""


def _read_audit_page(after: int, rollout: str) -> ReadPlan[list[JournalEntry]]:
    within = "rollout >= ''"
    if rollout:
        within = "rollout IN (?, '') AND (rollout = ? OR kind = 'refused')"
    condition = _AUDIT_PAGE.format(within=within)
    named = (rollout, rollout) if rollout else ()
    parameters = (*named, after, *AUDIT_KINDS, AUDIT_EVENTS_PER_READ)
    return (yield from read_entries(condition, parameters))


def _matches_filter(entry: JournalEntry, audit_filter: AuditFilter) -> bool:
    if entry.event.at < audit_filter.since_us:
        return False
    refused = entry.event.kind == "refused"
    if audit_filter.rollout and refused and entry.fields.get("about") != audit_filter.rollout:
        return False
    return audit_filter.by in ("", entry_author(entry), str(entry.fields.get("uid")))


def print_audit_entry(page: OutputPage, entry: JournalEntry, json: bool) -> None:
    """Print one audited event as a line."""
    event, fields, author = entry.event, entry.fields, entry_author(entry)
    refused, verified = event.kind == "refused", bool(fields.get("verified", True))
    rollout = event.rollout or (str(fields.get("about", "")) if refused else "")
    if json:
        line: dict[str, Any] = {"seq": event.seq, "at": iso_time(event.at), "who": author}
        line |= {"verified": verified, "did": event.kind, "rollout": rollout}
        line |= {"step": event.step or None, "text": entry_text(entry)}
        line |= {"uid": fields.get("uid"), "pid": fields.get("pid") or None}
        line |= {"role": fields.get("role") or None, "outcome": "refused" if refused else "done"}
        command_output.print_json_line({**line, "times": int(fields.get("times", 1))})
        return
    role = f" {fields['role']}" if fields.get("role") else ""
    uid = f" [uid {fields['uid']}{role}]" if fields.get("uid") is not None else ""
    page.line(
        span(f"{local_time(event.at)} ", "dim"),
        span(f"{author}{'' if verified else ' (unverified)'}", "person"),
        span(f"{uid} ", "dim"),
        span(f"{event.kind} ", "bad" if refused else ""),
        span(f"{rollout or '–'}{f' {event.step}' if event.step else ''} ", "name"),
        span(entry_text(entry)),
    )


HEADERS_PER_READ = 500
"""Events of one read: short transactions, whatever the length of the journal."""

DEFAULT_LOG_LINES = 50
"""Lines for a person who names no number; a program that asks for JSON gets all."""


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """`--audit`, `--rollout`, `--by`, `--since`, `-n`, `--json`."""
    parser.add_argument(
        "--audit",
        action="store_true",
        help="only what people and the daemon did, and who was refused what",
    )
    parser.add_argument("--by", default="", metavar="WHO", help="with --audit: a name or a uid")
    parser.add_argument(
        "--since",
        type=command_options.parse_since_time,
        default=0,
        metavar="WHEN",
        help="with --audit: from this time on (2026-11-20T09:00, or 30m, 2h, 3d ago)",
    )
    parser.add_argument("--rollout", default="", metavar="R", help="only of this rollout")
    parser.add_argument(
        "-n",
        type=command_options.positive_int,
        metavar="N",
        help=f"only the last N (default: {DEFAULT_LOG_LINES}; with --json: all)",
    )
    command_options.add_json_option(parser, "one JSON line per event")


def run_log(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print events, oldest first."""
    if (arguments.by or arguments.since) and not arguments.audit:
        raise UsageError("--by and --since are of the audit.", next="houston log --audit")
    page, rollout = OutputPage(), ""
    with Reader(loaded.home) as reader:
        if arguments.rollout:
            rollout = reader.run(rollout_queries.resolve_rollout_id(arguments.rollout))
        newest = arguments.n or (None if arguments.json else DEFAULT_LOG_LINES)
        count = 0
        if arguments.audit:
            audit_filter = AuditFilter(rollout, arguments.by, arguments.since, newest)
            for entry in read_audit(reader, audit_filter):
                count += 1
                print_audit_entry(page, entry, arguments.json)
        else:
            for header in read_headers(reader, rollout, newest):
                count += 1
                _print_header(page, header, arguments.json)
    if arguments.n is None and count == newest:
        page.flush()
        command_output.print_note(
            f"These are the newest {DEFAULT_LOG_LINES} events; -n N shows the newest N."
        )
    return int(ExitCode.DONE)


def read_headers(reader: Reader, rollout: str, newest: int | None) -> Iterator[JournalEventHeader]:
    """All headers, or the newest, oldest first; read a page at a time."""
    after = 0
    if newest:
        headers = reader.run(rollout_queries.newest_events(newest, rollout))
        after = headers[0].seq - 1 if headers else 0
    while headers := reader.run(rollout_queries.events_since(after, rollout, HEADERS_PER_READ)):
        yield from headers
        after = headers[-1].seq


def _print_header(page: OutputPage, header: JournalEventHeader, json: bool) -> None:
    if json:
        fields: dict[str, Any] = {name: getattr(header, name) for name in header.__struct_fields__}
        fields |= {"at": iso_time(header.at), "erased": bool(header.erased)}
        return command_output.print_json_line(fields)
    place = f"{header.rollout or '–'} {header.step or '–'}"
    attempt = f" attempt {header.attempt}" if header.attempt > 1 else ""
    page.line(
        span(f"{header.seq} ", "dim"),
        span(f"{local_time(header.at)} "),
        span(f"{place} ", "name"),
        span(f"{header.kind} {header.part or '–'}{attempt}"),
        span(" erased" if header.erased else "", "bad"),
    )


TAIL_EVENTS_PER_READ = 200
"""Events of one read."""
MAX_ERROR_LOOK_BACK = 20_000
"""Events that are looked through at most for the newest that went wrong."""


class TailFilter(NamedTuple):
    """Which events `tail` shows."""

    rollouts: tuple[str, ...]
    """Ids; empty for all."""
    task: str
    kinds: tuple[str, ...]
    errors: bool
    """Only what went wrong."""

    @property
    def single_rollout(self) -> str:
        """The rollout, where it is one alone."""
        return self.rollouts[0] if len(self.rollouts) == 1 and not self.task else ""

    def where(self) -> tuple[str, tuple[str, ...]]:
        """The condition for rows of `events`, and its parameters."""
        parts = [f"kind IN ({journal_events.placeholders(self.kinds)})"]
        if self.rollouts:
            parts.append(f"rollout IN ({journal_events.placeholders(self.rollouts)})")
        if self.task:
            parts.append("rollout IN (SELECT id FROM rollouts WHERE task = ?)")
        values = (*self.kinds, *self.rollouts, *([self.task] if self.task else []))
        return " AND ".join(parts), values


class TailPage(NamedTuple):
    """The events that one read found."""

    entries: list[JournalEntry]
    seq: int
    """Everything up to here was looked at."""
    more: bool


def read_newest_events(
    tail_filter: TailFilter, count: int
) -> ReadPlan[tuple[list[JournalEntry], int]]:
    """The last events, oldest first, and the sequence behind which the next ones are."""
    last = yield from rollout_queries.newest_seq()
    entries: list[JournalEntry] = []
    before, looked_at = OPEN_END, 0
    while len(entries) < count and looked_at < MAX_ERROR_LOOK_BACK:
        size = TAIL_EVENTS_PER_READ if tail_filter.errors else count - len(entries)
        seqs = yield from _read_sequences_before(tail_filter, before, size)
        if not seqs:
            break
        before, looked_at = seqs[0], looked_at + len(seqs)
        entries = (yield from _read_entries_by_sequence(tail_filter, seqs)) + entries
    if tail_filter.single_rollout and len(entries) < count and not tail_filter.errors:
        entries = (yield from _read_shared_past(tail_filter, count - len(entries))) + entries
    return entries[-count:] if count else [], last


def read_events_after(tail_filter: TailFilter, after: int) -> ReadPlan[TailPage]:
    """The next events behind a sequence."""
    if tail_filter.single_rollout:
        headers = yield from rollout_queries.events_since(
            after, tail_filter.single_rollout, TAIL_EVENTS_PER_READ, tail_filter.kinds
        )
        seqs = [header.seq for header in headers]
    else:
        condition, values = tail_filter.where()
        rows = yield RunSql(
            f"SELECT seq FROM events WHERE seq > ? AND {condition} ORDER BY seq LIMIT ?",
            (after, *values, TAIL_EVENTS_PER_READ),
        )
        seqs = [seq for (seq,) in rows]
    if len(seqs) == TAIL_EVENTS_PER_READ:
        return TailPage((yield from _read_entries_by_sequence(tail_filter, seqs)), seqs[-1], True)
    # The same state of the journal: what is not wanted is not looked through again.
    return TailPage(
        (yield from _read_entries_by_sequence(tail_filter, seqs)),
        (yield from rollout_queries.newest_seq()),
        False,
    )


def _read_sequences_before(tail_filter: TailFilter, before: int, count: int) -> ReadPlan[list[int]]:
    """The last sequences ahead of one, oldest first."""
    if tail_filter.single_rollout:
        rows = yield from journal_events.events_backward(
            "seq", tail_filter.single_rollout, before, count, tail_filter.kinds
        )
    else:
        condition, values = tail_filter.where()
        rows = yield RunSql(
            f"SELECT seq FROM events WHERE seq < ? AND {condition} ORDER BY seq DESC LIMIT ?",
            (before, *values, count),
        )
    return [row[0] for row in rows[::-1]]


def _read_shared_past(tail_filter: TailFilter, count: int) -> ReadPlan[list[JournalEntry]]:
    """The last events of the past that a branch shares, as those of the rollouts that have it."""
    entries: list[JournalEntry] = []
    rollout = yield from rollout_queries.find_rollout(tail_filter.single_rollout)
    while rollout.parent and count:
        origin = (yield from rollout_queries.read_rollout_spec(rollout)).origin
        if origin is None:
            break
        headers = yield from rollout_queries.newest_events_until(
            origin.seq, rollout.parent, count, tail_filter.kinds
        )
        seqs = [header.seq for header in headers]
        entries = (yield from _read_entries_by_sequence(tail_filter, seqs)) + entries
        count -= len(headers)
        rollout = yield from rollout_queries.find_rollout(rollout.parent)
    return entries


def _read_entries_by_sequence(
    tail_filter: TailFilter, seqs: Sequence[int]
) -> ReadPlan[list[JournalEntry]]:
    entries: list[JournalEntry] = []
    for start in range(0, len(seqs), TAIL_EVENTS_PER_READ):
        chunk = tuple(seqs[start : start + TAIL_EVENTS_PER_READ])
        entries += yield from read_entries(
            f"seq IN ({journal_events.placeholders(chunk)}) ORDER BY seq", chunk
        )
    return [entry for entry in entries if is_failure(entry)] if tail_filter.errors else entries


MAX_EVENT_CHARACTERS = 300
"""Characters of an event's text on its line; --json has all of it."""
KINDS_WITH_AUTHOR = (
    "guidance", "edit", "withdraw", "reorder", "bookmark", "verdict", "claim", "note-read",
)  # fmt: skip
"""Kinds whose line begins with who did it."""
EVENT_TONES = {"guidance": "person", "edit": "person", "withdraw": "person", "delivery": "person",
         "sample": "", "result": "dim", "observation": "dim", "state": "name"}  # fmt: skip


def add_tail_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `-f`, `-n`, `--rollout`, `--task`, `--kind`, `--errors`, `--json`."""
    command_options.add_rollout_argument(parser, optional=True)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="continue as events are stored, until R ends"
    )
    parser.add_argument(
        "-n", type=whole_number(), default=20, metavar="N", help="start with the last N (20)"
    )
    parser.add_argument(
        "--rollout",
        dest="more",
        action="append",
        default=[],
        metavar="R",
        help="only of this rollout (may be given again)",
    )
    parser.add_argument(
        "--task", default="", metavar="TASK", help="only this task's rollouts, including later ones"
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=TAIL_KINDS,
        metavar="KIND",
        help=f"only these (may be given again): {', '.join(TAIL_KINDS)}",
    )
    parser.add_argument(
        "--errors",
        action="store_true",
        help="only what went wrong: failed calls, no action, signals, failures, forced pauses",
    )
    command_options.add_json_option(parser, "one JSON line per event")


def run_tail(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Print what is there, and with -f what comes, until the rollouts end or interrupted."""
    page = OutputPage()
    with Reader(loaded.home) as reader:
        tail_filter = _tail_filter(arguments, reader)
        if not arguments.follow:
            entries, _ = reader.run(read_newest_events(tail_filter, arguments.n))
            _print_events(page, arguments.json, entries)
            return int(ExitCode.DONE)
        with JournalFollower(loaded.home, reader) as following:
            # Looked at before its events are: nothing that ended it is left out.
            ended = _is_over(following, tail_filter)
            entries, seq = following.read(lambda: read_newest_events(tail_filter, arguments.n))
            _print_events(page, arguments.json, entries)
            while not ended:
                following.wait_while_read()
                ended = _is_over(following, tail_filter)
                show = partial(_print_events, page, arguments.json)
                seq = _print_new_events(following, tail_filter, seq, show)
    many = len(tail_filter.rollouts) > 1
    command_output.print_note(
        f"{', '.join(tail_filter.rollouts)} {'have' if many else 'has'} ended."
    )
    return int(ExitCode.DONE)


def _tail_filter(arguments: argparse.Namespace, reader: Reader) -> TailFilter:
    names = [name for name in (arguments.rollout, *arguments.more) if name]
    ids = dict.fromkeys(reader.run(rollout_queries.resolve_rollout_id(name)) for name in names)
    if arguments.task and not reader.run(rollout_queries.list_rollouts(arguments.task)):
        command_output.print_note(f"No rollout of a task {arguments.task!r} was started yet.")
    kinds = tuple(dict.fromkeys(arguments.kind or TAIL_KINDS))
    return TailFilter(tuple(ids), arguments.task, kinds, arguments.errors)


def _is_over(following: JournalFollower, tail_filter: TailFilter) -> bool:
    """Whether nothing comes any more; of all rollouts together, or a task, something always may."""
    ids = tail_filter.rollouts
    return (
        bool(ids)
        and not tail_filter.task
        and all(
            following.read(partial(rollout_queries.find_rollout, id)).state in ENDED_STATES
            for id in ids
        )
    )


def _print_new_events(
    following: JournalFollower,
    tail_filter: TailFilter,
    after: int,
    show: Callable[[list[JournalEntry]], None],
) -> int:
    """Show everything behind a sequence, a page at a time; returns the newest."""
    while True:
        entries, after, more = following.read(partial(read_events_after, tail_filter, after))
        show(entries)
        if not more:
            return after


def _print_events(page: OutputPage, json: bool, entries: list[JournalEntry]) -> None:
    for entry in entries:
        if json:
            command_output.print_json_line(event_json(entry))
        else:
            _print_event(page, entry)
    page.flush()


def event_json(entry: JournalEntry) -> dict[str, Any]:
    """A line of `tail --json`."""
    event = entry.event
    return {
        "seq": event.seq,
        "rollout": event.rollout,
        "step": event.step or None,
        "attempt": event.attempt,
        "kind": event.kind,
        "at": iso_time(event.at),
        "text": entry_text(entry),
    }


def _print_event(page: OutputPage, entry: JournalEntry) -> None:
    event, text = entry.event, " ".join(entry_text(entry).split())
    author = entry_author(entry) if event.kind in KINDS_WITH_AUTHOR else ""
    text = text if len(text) <= MAX_EVENT_CHARACTERS else f"{text[:MAX_EVENT_CHARACTERS]}…"
    page.line(
        span(f"{local_time(event.at)} ", "dim"),
        span(f"{event.rollout or '–'} {event.step or '–'} ", "name"),
        span(f"{event.kind} ", "dim"),
        span(f"{author}: {text}" if author else text, EVENT_TONES.get(event.kind, "")),
    )
