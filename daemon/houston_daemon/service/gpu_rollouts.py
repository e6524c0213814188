"""GPUs of rollouts: leased before a worker starts, given back when nothing of the rollout runs.

What a rollout asks for stands in its specification, which never changes. A paused rollout keeps
its GPUs: what runs in its terminals goes on. One that has ended keeps them until its terminals have
ended, too.
"""

import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing

from houston_daemon.service.gpus import Found, GpuLedger
from houston_daemon.service.log import LOGGER
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import RolloutSpec
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader

_KIND = "rollout:"


class RolloutGpus:
    """What rollouts have; used from the supervisor's thread only."""

    def __init__(self, home: Home, ledger: GpuLedger) -> None:
        self._home = home
        self._ledger = ledger
        self._asked: dict[str, tuple[dict[str, int], bool]] = {}
        """What rollouts asked for that asked for some; the others start at once, or not here."""

    def ready(self, rollout: str) -> bool:
        """Whether it has what it asked for; else it waits, and the ledger says for what."""
        asked = self._asked.get(rollout)
        if asked is None:
            spec = self._spec(rollout)
            if spec is None or not spec.gpus:
                return True
            asked = self._asked[rollout] = (spec.gpus, spec.gpus_shared)
        return not isinstance(self._ledger.lease(_KIND + rollout, *asked), str)

    def of(self, rollout: str) -> Found:
        """What it has, by host."""
        return self._ledger.of(_KIND + rollout)

    def told(self) -> dict[str, str]:
        """Host → its GPUs, and who waits, for the status."""
        return self._ledger.words()

    def over(self) -> set[str]:
        """Rollouts that have ended and are still in the ledger."""
        told = self._ledger.told()
        holders = {one.holder for one in told.leases} | told.waiting.keys()
        named = [one.removeprefix(_KIND) for one in holders if one.startswith(_KIND)]
        return set(named) - self._alive(named) if named else set()

    def free(self, rollouts: Collection[str]) -> None:
        """Free what these had; what cannot be written now is freed another time."""
        if not rollouts:
            return
        for rollout in rollouts:
            self._asked.pop(rollout, None)
        freed = {_KIND + rollout for rollout in rollouts}
        try:
            self._ledger.keep(lambda one: one not in freed)
        except HoustonError as problem:  # a full disk
            LOGGER.warning("not now: %s", problem)

    def _alive(self, named: Iterable[str]) -> set[str]:
        names = list(named)
        marks = ", ".join("?" * len(names))
        where = f"{self._home.database.as_uri()}?mode=ro"
        with closing(sqlite3.connect(where, uri=True, timeout=5)) as reader:
            rows = reader.execute(
                f"SELECT id FROM rollouts WHERE id IN ({marks}) AND state IN"
                " ('queued', 'running', 'paused')",
                names,
            ).fetchall()
        return {row[0] for row in rows}

    def _spec(self, rollout: str) -> RolloutSpec | None:
        try:
            with Reader(self._home) as reader:
                return reader.run(rollouts.spec(reader.run(rollouts.rollout(rollout))))
        except HoustonError:
            return None  # its worker will be told the same, and says it
