"""Who needs a person: read again when something was committed, and now and then because time went.

It has a reader of its own, so that no key waits behind a read over all rollouts. What a need is,
`houston_shared.need` says; who shows it, the screens.
"""

import asyncio
import time
import tomllib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from houston_console.headless.standing_now import as_it_is
from houston_shared.clock import now_us
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.need import Need, Standing, ordered
from houston_shared.person import Person
from houston_shared.store import journal
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal import Event
from houston_shared.store.looks import SILENCE_US, WRITTEN_US
from houston_shared.store.plan import Plan
from houston_shared.store.queries import home as homes
from houston_shared.store.queries import people
from houston_shared.task import Budget

REST_SECONDS = 0.5
"""Between two reads at least, and several times as long as a read took."""
RESTS = 4
MOST_REST_SECONDS = 5.0
LATER_SECONDS = 15.0
"""Between two reads at most: visits end and guidance waits without a commit."""


class Board(NamedTuple):
    """Everything that the home screen shows."""

    needs: list[Need]
    """All rollouts, who needs a person most first."""
    at_home: tuple[str, ...] = ()
    """Others who are at no rollout now."""


class _Task(msgspec.Struct, frozen=True):
    definition: str = ""


class _Spec(msgspec.Struct, frozen=True):
    task: _Task = _Task()


def budgets(seqs: dict[str, int]) -> Plan[dict[str, Budget]]:
    """By rollout, the budget of its task as it was stored. seqs: the specs' events by rollout."""
    events = yield from journal.by_seq(list(seqs.values()))
    found: dict[str, Budget] = {}
    for rollout, seq in seqs.items():
        if event := events.get(seq):
            found[rollout] = yield from _of_spec(event)
    return found


def _of_spec(event: Event) -> Plan[Budget]:
    try:
        spec = yield from journal.record(event, _Spec, _Spec())
    except HoustonError:  # one damaged body, which `houston verify` names, must not hide the rest
        return Budget()
    return _budget(spec.task.definition)


def _budget(definition: str) -> Budget:
    """The defaults where the text is none that this version reads."""
    try:
        return msgspec.convert(tomllib.loads(definition).get("budget", {}), Budget)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError):
        return Budget()


def at_home(person: Person, now: int) -> Plan[tuple[str, ...]]:
    """Others who have a console open and look at no rollout."""
    found = yield from people.annotators(now - SILENCE_US - WRITTEN_US)
    return tuple(one.name for one in found if not one.rollout and one.name != person.name)


class Needs:
    """Keeps the board of one home."""

    def __init__(
        self,
        home: Home,
        reader: AsyncReader,
        person: Person,
        changed: Callable[[Board], None],
        failed: Callable[[HoustonError], None],
    ) -> None:
        """reader: one on which nobody waits for a key. changed: told after every read."""
        self.budgets: dict[str, Budget] = {}
        """Of every rollout; they never change."""
        self._home = home
        self._reader = reader
        self._person = person
        self._changed = changed
        self._failed = failed
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something was committed."""
        self._woken.set()

    async def run(self) -> None:
        """Read whenever it is due, for ever."""
        while True:
            self._woken.clear()
            begun = time.monotonic()
            try:
                self._changed(await self.read())
            except HoustonError as problem:
                self._failed(problem)
            took = time.monotonic() - begun
            await asyncio.sleep(min(MOST_REST_SECONDS, max(REST_SECONDS, RESTS * took)))
            try:
                await asyncio.wait_for(self._woken.wait(), LATER_SECONDS)
            except TimeoutError:
                continue

    async def read(self) -> Board:
        """How things stand now. Raises HoustonError."""
        now = now_us()
        found = await self._reader.run(homes.standings(self._person, now))
        found = await asyncio.to_thread(as_it_is, found, self._home)
        await self._read_budgets(found)
        here = await self._reader.run(at_home(self._person, now))
        return Board(ordered(found, now), here)

    async def _read_budgets(self, found: Iterable[Standing]) -> None:
        rows = [one.rollout for one in found if one.rollout.id not in self.budgets]
        if rows:
            seqs = {one.id: one.spec_seq for one in rows}
            self.budgets.update(await self._reader.run(budgets(seqs)))
