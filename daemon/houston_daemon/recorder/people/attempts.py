"""Refused attempts, kept as events of the journal without letting who is refused fill the disk.

The first attempt of a user at a thing is stored at once; further ones are counted, and the count is
stored when a while has passed, which doubles each time up to an hour. Over all users there is a
limit an hour; what comes beyond it waits, counted. Nothing here decides who is refused.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from houston_daemon.recorder.people.identity import Peer
from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.work import Work
from houston_shared.errors import HoustonError
from houston_shared.store.bodies import RefusedAttempt
from houston_shared.wire import Control

LOGGER = logging.getLogger("houston.recorder")
FIRST_WAIT = 60.0
LONGEST_WAIT = 3600.0
"""Seconds before the count of further attempts is stored."""
LOOK_SECONDS = 0.2
"""How often is looked for what is due."""
HOURLY = 240
"""Events of this kind in an hour at most."""
REMEMBERED = 500
"""Users and things that are told apart; beyond, they are counted together."""


@dataclass(slots=True)
class _Tried:
    body: RefusedAttempt
    """The newest attempt."""
    times: int = 0
    """Attempts that no event holds yet."""
    wait: float = 0.0
    not_before: float = 0.0
    writing: int = 0
    """Of `times`, those in the event that is being stored."""


class Attempts:
    """Counts of one recorder; belongs to its thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried: dict[tuple[int, str], _Tried] = {}
        self._hour = clock()
        self._stored = 0
        self._looked = -LOOK_SECONDS

    def note(self, peer: Peer | None, what: str, needs: str = "", about: str = "") -> None:
        """Somebody was refused.

        peer: None for who came without the kernel's word. needs: the role that would do.
        about: the rollout or guidance that was meant.
        """
        uid, name = (peer.uid, peer.name) if peer else (-1, "unknown")
        key = (uid, what)
        if key not in self._tried and len(self._tried) >= REMEMBERED:
            key, uid, name = (-2, ""), -2, "others"
        body = RefusedAttempt(
            by=name,
            uid=uid,
            pid=peer.pid if peer else 0,
            role=(peer.role or "") if peer else "",
            what=what,
            needs=needs,
            about=about[:80],
        )
        tried = self._tried.setdefault(key, _Tried(body))
        tried.body = body
        tried.times += 1

    def due(self, last: bool = False) -> "StoreAttempts | None":
        """Work that stores what is due; None when nothing is. With `last`, everything is."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS and not last:
            return None
        self._looked = now
        if now - self._hour >= 3600.0:
            self._hour, self._stored = now, 0
        room = HOURLY - self._stored
        found = [t for t in self._tried.values() if t.times and (last or t.not_before <= now)]
        if not found or room <= 0:
            return None
        return StoreAttempts(self, found[:room])

    @property
    def waiting(self) -> int:
        """Attempts that no event holds yet."""
        return sum(tried.times for tried in self._tried.values())

    def put_off(self, all_tried: list[_Tried]) -> None:
        """They could not be stored: they stay counted and are tried again later."""
        for tried in all_tried:
            tried.not_before = self._clock() + FIRST_WAIT

    def stored(self, all_tried: list[_Tried]) -> None:
        """They are on disk: the next events of the same kind come later."""
        now = self._clock()
        for tried in all_tried:
            quiet = not tried.wait or now - tried.not_before >= LONGEST_WAIT
            tried.wait = FIRST_WAIT if quiet else min(LONGEST_WAIT, tried.wait * 2)
            tried.not_before = now + tried.wait
            tried.times -= tried.writing
        self._stored += len(all_tried)
        if len(self._tried) >= REMEMBERED:
            self._tried = {key: one for key, one in self._tried.items() if one.times}


class StoreAttempts(Work):
    """Stores counts; whoever was refused has been answered already."""

    def __init__(self, attempts: Attempts, tried: list[_Tried]) -> None:
        self._attempts = attempts
        self.tried = tried
        """What it stores."""
        self._done = False

    def do(self, store: Store) -> None:
        """Append an event for each."""
        for tried in self.tried:
            tried.writing = tried.times
            body = msgspec.structs.replace(tried.body, times=tried.times)
            store.journal.append(Key(), "refused", body)
        self._done = True

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """They stay counted and are tried again."""
        self._done = False
        self._attempts.put_off(self.tried)
        LOGGER.warning("refused attempts could not be stored yet: %s", problem)

    def answer(self, store: Store, controls: Callable[[str], Control]) -> None:
        """Nobody waits for this; what was stored is counted no more."""
        if self._done:
            self._attempts.stored(self.tried)
