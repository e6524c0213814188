"""Rules on rollouts as they go on: a process that follows the journal and has verdicts stored.

`python -m houston_daemon.supervision.live PARENT HOME CONFIG`, started and watched by
`service.live_rules`; CONFIG is empty for the defaults. A process of its own, at a low priority,
because a thread would take turns with the recorder's for the interpreter. It reads what is
committed and sends what differs, as `houston judge --rules-only` does; the recorder writes it.

A rollout is looked at again when a step of it closed or it ended; rules look ahead, so that what
they said of earlier steps is replaced. Only new steps are read. It keeps nothing on disk: started
again, it looks once at every rollout that has not ended or ended in the last day, and where nothing
differs it sends nothing. On its stdout it says on which rollouts a rule failed, a `Report` a line.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_daemon.service.tether import tie
from houston_daemon.supervision import trace
from houston_daemon.supervision.rules import verdicts as rules
from houston_daemon.supervision.rules.catalog import RuleFailed
from houston_daemon.supervision.storing import MAYBE
from houston_daemon.supervision.trace import TextsGone, Trace
from houston_shared import secret_values
from houston_shared.config import Loaded, load
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import StepRecord
from houston_shared.sending import send
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries.verdicts import standing
from houston_shared.store.reader import Reader

POLL_SECONDS = 1.0
"""How often is looked whether something was committed."""
RETRY_SECONDS = 5.0
SHARE = 9.0
"""After each rollout it rests so many times as long as that took: at most a tenth of one core."""
NICENESS = 15
DAY_US = 86_400 * 10**6
KEPT_CHARACTERS = 100_000_000
"""Of observations that are kept in memory, so that only new steps are read."""
_WHICH = """
SELECT r.id, r.state IN ('finished', 'failed', 'cancelled'), (
    SELECT s.observation_seq FROM steps s WHERE s.rollout = r.id AND s.current = 1
    AND s.observation_seq IS NOT NULL ORDER BY s.step DESC LIMIT 1)
FROM rollouts r WHERE r.steps > 0 AND (
    r.state NOT IN ('finished', 'failed', 'cancelled')
    OR r.updated_at >= (SELECT max(updated_at) FROM rollouts) - ?)
ORDER BY r.updated_at DESC
"""


class Report(msgspec.Struct, frozen=True):
    """What is wrong."""

    failed: dict[str, str]
    """By rollout, why nothing can be said of it now."""


class Stand(NamedTuple):
    """How far a rollout is, as rules see it."""

    rollout: str
    ended: bool
    newest: int | None
    """Event of its newest observation; None where no closed step is its own."""


class Follower:
    """Runs rules on what changes."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._reader = Reader(loaded.home)
        self._looked: dict[str, Stand] = {}
        self._traces: dict[str, Trace] = {}
        self._failed: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._version: tuple[int, int] | None = None

    def run(self) -> None:
        """Follow for ever; what goes wrong as a whole is said, and tried again."""
        while True:
            try:
                self._failed.pop("", None)
                version = self._reader.data_version()
                if version != self._version:
                    self.round()
                    self._version = version
            except HoustonError as problem:  # the daemon goes down, or the disk is full
                self._reader.close()
                self._failed[""] = str(problem)
                time.sleep(RETRY_SECONDS)
            self._say()
            time.sleep(POLL_SECONDS)

    def round(self) -> None:
        """Look at every rollout that went on."""
        stands = self._reader.run(_stands())
        there = {one.rollout for one in stands}
        for known in (self._looked, self._traces, self._failed):
            for gone in known.keys() - there:
                del known[gone]
        for one in stands:
            if self._looked.get(one.rollout) != one:
                began = time.monotonic()
                self._look(one)
                self._say()
                time.sleep((time.monotonic() - began) * SHARE)

    def _look(self, one: Stand) -> None:
        self._failed.pop(one.rollout, None)
        known = self._traces.pop(one.rollout, None)
        try:
            found = trace.read(self._reader, one.rollout, known.steps if known else ())
            stored = self._reader.run(standing(one.rollout))
            messages = rules.messages(found, stored)
        except TextsGone:  # archived: nothing is said of it any more
            self._looked[one.rollout] = one
            return
        except (RuleFailed, ConfigurationError) as problem:
            self._failed[one.rollout] = problem.cause
            self._looked[one.rollout] = one
            return
        for message in messages:
            send(self._loaded.home, message, MAYBE, f"houston verdict {one.rollout}")
        self._looked[one.rollout] = one
        if not one.ended:
            self._keep(found)

    def _keep(self, found: Trace) -> None:
        """Keep what was read; what was looked at longest ago is forgotten first."""
        self._traces[found.rollout] = found
        sizes = {name: _size(kept.steps) for name, kept in self._traces.items()}
        while len(self._traces) > 1 and sum(sizes.values()) > KEPT_CHARACTERS:
            oldest = next(iter(self._traces))
            del self._traces[oldest], sizes[oldest]

    def _say(self) -> None:
        if self._failed != self._said:
            self._said = dict(self._failed)
            os.write(sys.stdout.fileno(), msgspec.json.encode(Report(self._said)) + b"\n")


def _size(steps: Sequence[StepRecord]) -> int:
    return sum(len(result.text) for step in steps for result in step.results)


def _stands() -> Plan[list[Stand]]:
    rows = yield Ask(_WHICH, (DAY_US,))
    return [Stand(rollout, bool(ended), newest) for rollout, ended, newest in rows]


def main() -> None:
    """The process: ends with its parent."""
    parent, home, config = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    if tie(parent):
        os.nice(NICENESS)
        loaded = load(home, config or None)
        secret_values.install(loaded.config)
        Follower(loaded).run()


if __name__ == "__main__":
    main()
