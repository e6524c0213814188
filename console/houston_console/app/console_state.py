"""What the console knows and shows, apart from any widget, and how it is kept up to date.

`ConsoleState` holds rollouts, the state of the daemon link, the guidance queue and the board of
who needs a person. `NeedsReader` reads that board with a reader of its own, so that no key waits
behind it. `ChangeWatcher` wakes after commits: by the daemon's notices, and without them by a
poll once a second. Widgets ask the state for what they draw; nothing here draws or writes.
"""

import asyncio
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from houston_console.commands.rollout_summary import apply_current_conditions
from houston_shared.async_control_client import LiveFeed
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import PURIFIED_ENGINE
from houston_shared.store import annotation_queries, journal_events, presence_queries
from houston_shared.store import attention_ranking as homes
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.attention_ranking import RolloutNeed, RolloutOverview, rank_rollouts
from houston_shared.store.journal_events import (
    JournalEvent,
    ReadPlan,
    RunSql,
    column_list,
    rows_to_records,
)
from houston_shared.store.presence_queries import SILENCE_US, WRITTEN_US, Person
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.task import BudgetSettings
from houston_shared.times_and_counts import now_us
from houston_shared.wire import Notice


class RolloutChanges(NamedTuple):
    """The rollouts that changed, guidance waiting for each, and the newest sequence."""

    rollouts: list[RolloutRow]
    waiting: dict[str, int]
    seq: int


def read_rollout_changes(since: int) -> ReadPlan[RolloutChanges]:
    """Rollouts changed after `since`, and all that have not ended (their activity has no event)."""
    rows = yield RunSql(
        f"SELECT {column_list(RolloutRow)} FROM rollouts"
        " WHERE last_seq > ? OR state IN ('queued', 'running', 'paused')",
        (since,),
    )
    waiting = yield RunSql("SELECT rollout, count(*) FROM guidance WHERE state='queued' GROUP BY 1")
    seq = yield RunSql("SELECT coalesce(max(seq), 0) FROM events")
    return RolloutChanges(rows_to_records(RolloutRow, rows), dict(waiting), seq[0][0])


MIN_READ_PAUSE_SECONDS = 0.5
"""Between two reads at least, and several times as long as a read took."""
READ_PAUSE_FACTOR = 4
MAX_READ_PAUSE_SECONDS = 5.0
MAX_READ_INTERVAL_SECONDS = 15.0
"""Between two reads at most: visits end and guidance waits without a commit."""


class NeedsBoard(NamedTuple):
    """Everything that the home screen shows."""

    needs: list[RolloutNeed]
    """All rollouts, who needs a person most first."""
    at_home: tuple[str, ...] = ()
    """Others who are at no rollout now."""
    known_names: tuple[str, ...] = ()
    """Everybody who was ever here."""


class _TaskDefinition(msgspec.Struct, frozen=True):
    definition: str = ""


class _RolloutSpec(msgspec.Struct, frozen=True):
    task: _TaskDefinition = _TaskDefinition()


def read_budgets(seqs: dict[str, int]) -> ReadPlan[dict[str, BudgetSettings]]:
    """By rollout, the budget of its task as it was stored. seqs: the specs' events by rollout."""
    events = yield from journal_events.events_by_seq(list(seqs.values()))
    budgets: dict[str, BudgetSettings] = {}
    for rollout, seq in seqs.items():
        if event := events.get(seq):
            budgets[rollout] = yield from _read_spec_budget(event)
    return budgets


def _read_spec_budget(event: JournalEvent) -> ReadPlan[BudgetSettings]:
    try:
        spec = yield from journal_events.read_event_record(event, _RolloutSpec, _RolloutSpec())
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return BudgetSettings()
    return _parse_budget(spec.task.definition)


@lru_cache(64)
def _parse_budget(definition: str) -> BudgetSettings:
    """The defaults where the text is none that this version reads; a task is parsed once."""
    try:
        return msgspec.convert(tomllib.loads(definition).get("budget", {}), BudgetSettings)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError):
        return BudgetSettings()


def read_people_at_home(person: Person, now: int) -> ReadPlan[tuple[str, ...]]:
    """Others who have a console open and look at no rollout."""
    people = yield from annotation_queries.list_annotators(now - SILENCE_US - WRITTEN_US)
    return tuple(
        person_here.name
        for person_here in people
        if not person_here.rollout and person_here.name != person.name
    )


class RolloutSpending(NamedTuple):
    """What the samples of a rollout took."""

    tokens: int = 0
    """Of prompts and answers, as engines counted them."""
    cost: float | None = None
    """By the prices of its engines as they were then; None without one."""

    def plus(self, other: "RolloutSpending") -> "RolloutSpending":
        """Both together."""
        costs = [each for each in (self.cost, other.cost) if each is not None]
        return RolloutSpending(self.tokens + other.tokens, sum(costs) if costs else None)


NOTHING_SPENT = RolloutSpending()
MAX_SAMPLES_A_READ = 20_000
"""Samples that one read of spending looks at: a home of years is read in pieces."""


def read_spending(since: int) -> ReadPlan[tuple[dict[str, RolloutSpending], int]]:
    """By rollout what its samples after the event `since` took, and the newest of them.

    Of `MAX_SAMPLES_A_READ` at most; without the samples that purification takes from others.
    """
    newest = yield RunSql(
        "SELECT max(seq) FROM (SELECT seq FROM samples WHERE seq > ? ORDER BY seq LIMIT ?)",
        (since, MAX_SAMPLES_A_READ),
    )
    last = newest[0][0] or since
    rows = yield RunSql(
        "SELECT rollout, sum(coalesce(prompt_tokens, 0)"
        " + coalesce(completion_tokens, sampled_ids, 0)), sum(cost) FROM samples"
        " WHERE seq > ? AND seq <= ? AND engine <> ? GROUP BY rollout",
        (since, last, PURIFIED_ENGINE),
    )
    return {rollout: RolloutSpending(tokens, cost) for rollout, tokens, cost in rows}, last


class NeedsReader:
    """Keeps the board of one home."""

    def __init__(
        self,
        home: Home,
        reader: AsyncReader,
        person: Person,
        changed: Callable[[NeedsBoard], None],
        failed: Callable[[HoustonError], None],
    ) -> None:
        """reader: one on which nobody waits for a key. changed: told after every read."""
        self.budgets: dict[str, BudgetSettings] = {}
        """Of every rollout; they never change."""
        self.spending: dict[str, RolloutSpending] = {}
        """Of every rollout whose samples were read: a moment after the board."""
        self._spending_seq = 0
        self._home = home
        self._reader = reader
        self._person = person
        self._on_change = changed
        self._on_failure = failed
        self._wake_event = asyncio.Event()

    def wake(self) -> None:
        """Read again soon: something was committed."""
        self._wake_event.set()

    async def run(self) -> None:
        """Read whenever it is due, until cancelled."""
        while True:
            self._wake_event.clear()
            start_time = time.monotonic()
            try:
                board = await self.read()
                self._on_change(board)
                if await self._read_spending():
                    self._on_change(board)
            except HoustonError as problem:
                self._on_failure(problem)
            took = time.monotonic() - start_time
            await asyncio.sleep(
                min(MAX_READ_PAUSE_SECONDS, max(MIN_READ_PAUSE_SECONDS, READ_PAUSE_FACTOR * took))
            )
            try:
                await asyncio.wait_for(self._wake_event.wait(), MAX_READ_INTERVAL_SECONDS)
            except TimeoutError:
                continue

    async def read(self) -> NeedsBoard:
        """Read the board. Raises HoustonError."""
        now = now_us()
        overviews = await self._reader.run(homes.read_rollout_overviews(self._person, now))
        overviews = await asyncio.to_thread(apply_current_conditions, overviews, self._home)
        await self._read_budgets(overviews)
        people = await self._reader.run(read_people_at_home(self._person, now))
        known_names = await self._reader.run(presence_queries.list_known_names())
        return NeedsBoard(rank_rollouts(overviews, now), people, tuple(known_names))

    async def _read_spending(self) -> bool:
        """Read what came since; whether anything did."""
        before = self._spending_seq
        while True:
            spent, last = await self._reader.run(read_spending(self._spending_seq))
            if last == self._spending_seq:
                return last != before
            self._spending_seq = last
            for rollout, more in spent.items():
                self.spending[rollout] = self.spending.get(rollout, NOTHING_SPENT).plus(more)

    async def _read_budgets(self, overviews: Iterable[RolloutOverview]) -> None:
        rows = [
            overview.rollout for overview in overviews if overview.rollout.id not in self.budgets
        ]
        if rows:
            seqs = {row.id: row.spec_seq for row in rows}
            self.budgets.update(await self._reader.run(read_budgets(seqs)))


DaemonLinkState = Literal["live", "reconnecting", "down", "foreign"]
"""`down`: no daemon holds the home. `reconnecting`: one does, and does not answer. `foreign`: it
answers what only another version can read."""


EMPTY_BOARD = NeedsBoard([])
"""Before anything was read."""


@dataclass
class ConsoleState:
    """Everything shown that is not the content of one rollout."""

    link: DaemonLinkState = "reconnecting"
    rollouts: dict[str, RolloutRow] = field(default_factory=dict)
    waiting_counts: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    """Newest sequence that was read."""
    announced_seq: int = 0
    """Newest sequence that a notice named."""
    selected: str = ""
    person: str = ""
    """The name of who sits here, as others see it."""
    board: NeedsBoard = EMPTY_BOARD
    """Who needs a person, as it was read last."""
    was_read: bool = False
    """Whether it is known which rollouts there are."""
    undo_lines: list[tuple[str, str]] = field(default_factory=list)
    """What can be taken back and how long still, the newest first."""
    problem: str = ""
    """Why the newest read failed; empty when it did not."""
    greeting: tuple[str, ...] = ()
    """What the configuration says to who is new here."""

    def merge(self, changes: RolloutChanges) -> bool:
        """Merge what was read; returns whether the selector shows something else now."""
        before = (dict(self.rollouts), self.waiting_counts)
        self.rollouts.update((rollout.id, rollout) for rollout in changes.rollouts)
        self.waiting_counts = changes.waiting
        self.seq = max(self.seq, changes.seq)
        self.was_read = True
        return before != (self.rollouts, self.waiting_counts)

    def empty_list_text(self, was_read: bool) -> str:
        """What a list without rollouts says. was_read: whether what it lists was read."""
        if was_read:
            return " no rollouts yet"
        return f" not read: {self.problem}" if self.problem else " loading …"

    @property
    def lag(self) -> int:
        """Events that were announced and not read yet."""
        return max(0, self.announced_seq - self.seq)

    @property
    def open_rollout(self) -> RolloutRow | None:
        """The rollout that is open."""
        return self.rollouts.get(self.selected)

    def needs(self) -> list[RolloutNeed]:
        """Who needs a person most first, with the newest rows; what nobody judged yet is last."""
        judged = [self._newest(need) for need in self.board.needs]
        ids = {need.overview.rollout.id for need in judged}
        other_needs = [
            self._overview(rollout) for rollout in self.rollouts.values() if rollout.id not in ids
        ]
        return [*judged, *rank_rollouts(other_needs, 0)]

    def _newest(self, need: RolloutNeed) -> RolloutNeed:
        row = need.overview.rollout
        newest = self._overview(self.rollouts.get(row.id, row))
        return need._replace(
            overview=need.overview._replace(rollout=newest.rollout, queued=newest.queued)
        )

    def _overview(self, rollout: RolloutRow) -> RolloutOverview:
        return RolloutOverview(rollout, queued=self.waiting_counts.get(rollout.id, 0))

    def need_of(self, rollout: str) -> RolloutNeed | None:
        """How one rollout stands; None before it was judged."""
        matches = (need for need in self.board.needs if need.overview.rollout.id == rollout)
        return next(matches, None)

    def only_one(self) -> str:
        """The rollout to open when none was named: where there is no choice."""
        return next(iter(self.rollouts)) if len(self.rollouts) == 1 else ""

    def counts(self) -> list[tuple[str, int]]:
        """Rollouts by state, for the status line; states without one are left out."""
        states = [rollout.state for rollout in self.rollouts.values()]
        kinds = ("running", "paused", "queued", "failed", "finished", "cancelled")
        return [(kind, states.count(kind)) for kind in kinds if kind in states]


POLL_SECONDS = 1.0
COALESCE_SECONDS = 0.2
LOW_BANDWIDTH_SECONDS = 1.5
"""The same over a narrow line."""


class ChangeWatcher:
    """Calls `changed` after commits, one call at a time."""

    def __init__(
        self,
        home: Home,
        reader: AsyncReader,
        changed: Callable[[], Awaitable[None]],
        announced: Callable[[Notice], None],
        failed: Callable[[HoustonError], None],
        pause: float = COALESCE_SECONDS,
    ) -> None:
        """announced: called for every notice; must not block. failed: a read did not succeed.

        pause: seconds between two calls at least.
        """
        self._pause = pause
        self._home = home
        self._reader = reader
        self._on_change = changed
        self._on_notice = announced
        self._on_failure = failed
        self._wake_event = asyncio.Event()
        self._version: tuple[int, int] | None = None

    def wake(self) -> None:
        """Check for commits now."""
        self._version = None
        self._wake_event.set()

    async def listen(self) -> None:
        """Take notices until cancelled."""
        feed = LiveFeed(self._home)
        try:
            async for notice in feed:
                self._on_notice(notice)
                self._wake_event.set()
        finally:
            feed.close()

    async def run(self) -> None:
        """Call `changed` whenever something was committed, for ever."""
        while True:
            self._wake_event.clear()
            try:
                await self._check_version()
            except HoustonError as problem:
                self._on_failure(problem)
                await asyncio.sleep(POLL_SECONDS)
                continue
            await asyncio.sleep(self._pause)
            try:
                await asyncio.wait_for(self._wake_event.wait(), POLL_SECONDS)
            except TimeoutError:
                continue

    async def _check_version(self) -> None:
        version = await self._reader.data_version()
        if version != self._version:
            await self._on_change()
            self._version = version
