"""Who has which GPU: one ledger for a home, and the leases of rollouts in it.

Engines, trainers and rollouts share the ledger. A GPU goes to one holder, or to several that all
asked to share. A lease lasts until it is given back, also across restarts of the daemon. On each
host, whoever asked first is served first; engines go before rollouts, which need them. A rollout
gets its GPUs before its worker starts and keeps them while it is paused and until its terminals
have ended. The ledger holds numbers only: whoever starts a holder sets which GPUs it sees
(`CUDA_VISIBLE_DEVICES`). Leases of trainers are in `trainers`.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.maintenance.durable_copy import open_read_only
from houston_daemon.service.daemon_log import LOGGER
from houston_shared.atomic_file import read_json_file, write_atomically
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.errors import HoustonError, unwritable_as_error
from houston_shared.gpu_leases import GpuLease, GpuLeases, describe_gpu_leases
from houston_shared.home import Home
from houston_shared.records import RolloutSpec
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import iso_time, now_us, pluralize

GpusByHost = dict[str, tuple[int, ...]]
"""Host → numbers of its GPUs."""
_FRESH_REQUEST_SECONDS = 30.0
"""Who has not asked again for so long (a rollout that was paused, or whose engine is down) keeps
its place and holds nobody back; who waits asks every few seconds."""
ENGINE_HOLDER_PREFIX = "engine:"


@dataclass(slots=True)
class _GpuRequest:
    """What somebody waits for."""

    wanted: dict[str, int]
    at: float
    """When it was asked for last, monotonic."""


class GpuLedger:
    """The leases of one home, kept in `file`; safe to use from any thread."""

    def __init__(
        self,
        file: Path,
        gpu_counts: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """gpu_counts: host → how many GPUs it has for all together."""
        self._file = file
        self._clock = clock
        self._queue: dict[str, _GpuRequest] = {}
        """Who waits, the first first."""
        self._gpu_counts = dict(gpu_counts)
        self._turn = threading.Lock()
        leases = read_json_file(file, GpuLeases, FileNotFoundError) or GpuLeases()
        self._leases = msgspec.structs.replace(leases, waiting={})

    def lease(
        self, holder: str, gpus_by_host: Mapping[str, int], shared: bool = False
    ) -> GpusByHost | str:
        """GPUs for `holder`: all that it wants or none; if none, the reason in words.

        A waiting holder asks again, and is served in the order of first asking on each host. One
        that already has what it wants keeps it. shared: among holders that also asked to share.
        Raises HoustonError when the ledger cannot be written.
        """
        with self._turn:
            held_gpus = self._gpus_of(holder)
            counts = {host: count for host, count in gpus_by_host.items() if count}
            if {host: len(numbers) for host, numbers in held_gpus.items()} == counts:
                return held_gpus
            other_leases = [lease for lease in self._leases.leases if lease.holder != holder]
            granted: GpusByHost = {}
            for host, count in counts.items():
                numbers = self._free(other_leases, host, shared)[:count]
                first = self._blocking_holder(holder, host)
                if first or len(numbers) < count:
                    reason = self._waiting_reason(other_leases, host, count, len(numbers), first)
                    self._queue[holder] = _GpuRequest(counts, self._clock())  # its place is kept
                    self._write(tuple(other_leases), {**self._leases.waiting, holder: reason})
                    return reason
                granted[host] = tuple(sorted(numbers))
            since = iso_time(now_us())
            new = [
                GpuLease(host=host, gpu=number, holder=holder, shared=shared, since=since)
                for host, numbers in granted.items()
                for number in numbers
            ]
            waiting = {
                waiting_holder: reason
                for waiting_holder, reason in self._leases.waiting.items()
                if waiting_holder != holder
            }
            self._write((*other_leases, *new), waiting)
            self._queue.pop(holder, None)
            return granted

    def release(self, holder: str) -> None:
        """Give back whatever `holder` has, and wait for nothing."""
        self.release_others(lambda other_holder: other_holder != holder)

    def release_others(self, is_kept: Callable[[str], bool]) -> None:
        """Free the leases of holders that live no more."""
        with self._turn:
            leases = tuple(lease for lease in self._leases.leases if is_kept(lease.holder))
            waiting = {
                holder: reason for holder, reason in self._leases.waiting.items() if is_kept(holder)
            }
            self._write(leases, waiting)
            self._queue = {holder: asks for holder, asks in self._queue.items() if is_kept(holder)}

    def gpus_of(self, holder: str) -> GpusByHost:
        """What `holder` has."""
        with self._turn:
            return self._gpus_of(holder)

    def snapshot(self) -> GpuLeases:
        """All leases, and who waits."""
        with self._turn:
            return self._leases

    def describe(self) -> dict[str, str]:
        """Host → how many GPUs are leased and by whom; `waiting` → who waits for what."""
        now = self.snapshot()
        hosts = {
            host: f"{len({each.gpu for each in now.leases if each.host == host})} of {count} leased"
            + (f": {holders}" if (holders := describe_gpu_leases(host, list(now.leases))) else "")
            for host, count in self._gpu_counts.items()
            if count
        }
        waiting = "; ".join(
            f"{_describe_holder(holder)} {reason}" for holder, reason in now.waiting.items()
        )
        return {**hosts, **({"waiting": waiting} if waiting else {})}

    def _gpus_of(self, holder: str) -> GpusByHost:
        numbers_by_host: dict[str, list[int]] = {}
        for lease in self._leases.leases:
            if lease.holder == holder:
                numbers_by_host.setdefault(lease.host, []).append(lease.gpu)
        return {host: tuple(sorted(numbers)) for host, numbers in numbers_by_host.items()}

    def _free(self, leases: list[GpuLease], host: str, shared: bool) -> list[int]:
        """GPUs that may be had, the least used first."""
        users = dict.fromkeys(range(self._gpu_counts.get(host, 0)), 0)
        for lease in leases:
            if lease.host == host and lease.gpu in users:
                if lease.shared and shared:
                    users[lease.gpu] += 1
                else:
                    del users[lease.gpu]
        return sorted(users, key=lambda number: (users[number], number))

    def _blocking_holder(self, holder: str, host: str) -> str:
        """Who is to have GPUs of a host before `holder` may; empty where nobody is."""
        fresh = self._clock() - _FRESH_REQUEST_SECONDS
        engine = holder.startswith(ENGINE_HOLDER_PREFIX)
        for waiting_holder, request in self._queue.items():
            if waiting_holder == holder:
                break
            can = all(count <= self._gpu_counts.get(at, 0) for at, count in request.wanted.items())
            waits = request.at >= fresh
            if waiting_holder.startswith(ENGINE_HOLDER_PREFIX):
                waits = True  # it asks once a minute, and gives its place back when it ends
            elif engine:
                continue
            if host in request.wanted and can and waits:
                return waiting_holder
        return ""

    def _waiting_reason(
        self, leases: list[GpuLease], host: str, gpu_count: int, free: int, ahead: str
    ) -> str:
        count, asks = self._gpu_counts.get(host, 0), pluralize(gpu_count, "GPU")
        if gpu_count > count:
            return f"waits for {asks} on {host}, which has {count} (`gpus` of the host)"
        if ahead:
            its = pluralize(self._queue[ahead].wanted[host], "GPU")
            return (
                f"waits for {asks} on {host} behind {_describe_holder(ahead)},"
                f" which waits for {its}"
            )
        holders = sorted({_describe_holder(lease.holder) for lease in leases if lease.host == host})
        verb = "is" if free == 1 else "are"
        available = f"{free} of {count} {verb} available" if free else f"all {count} are taken"
        return f"waits for {asks} on {host}: {available}, used by {', '.join(holders)}"

    def _write(self, leases: tuple[GpuLease, ...], waiting: dict[str, str]) -> None:
        new = GpuLeases(leases=leases, waiting=waiting)
        if new == self._leases:
            return
        text = msgspec.json.format(msgspec.json.encode(new), indent=1) + b"\n"
        with unwritable_as_error(
            f"The ledger of GPUs {self._file}", "No GPU was leased or given back."
        ):
            write_atomically(self._file, text, durable=False)
        self._leases = new


def _describe_holder(holder: str) -> str:
    """A holder as a person reads it: `rollout r1`."""
    return holder.replace(":", " ", 1)


_ROLLOUT_PREFIX = "rollout:"


class RolloutGpus:
    """What rollouts have; used from the supervisor's thread only."""

    def __init__(self, home: Home, ledger: GpuLedger, given_elsewhere: bool = False) -> None:
        """given_elsewhere: whether a cluster gives GPUs of the worker's own machine."""
        self._given_elsewhere = given_elsewhere
        self._home = home
        self._reader = Reader(home)
        """Open from the first spec that a round of the supervisor reads to its end."""
        self._ledger = ledger
        self._requests: dict[str, tuple[dict[str, int], bool]] = {}
        """What rollouts asked for that asked for some; the others start at once, or not here."""

    def try_lease(self, rollout: str) -> bool:
        """Whether it has the GPUs it asked for; else it waits, and the ledger says why."""
        request = self._requests.get(rollout)
        if request is None:
            spec = self.read_spec(rollout)
            if spec is None:
                return True
            gpus = {
                host: count
                for host, count in spec.gpus.items()
                if not (self._given_elsewhere and host == LOCAL_HOST)
            }
            if not gpus:
                return True
            request = self._requests[rollout] = (gpus, spec.gpus_shared)
        return not isinstance(self._ledger.lease(_ROLLOUT_PREFIX + rollout, *request), str)

    def end_round(self) -> None:
        """Close the database: an open reader would keep the WAL from a clean stop's removal."""
        self._reader.close()

    def gpus_of(self, rollout: str) -> GpusByHost:
        """What it has, by host."""
        return self._ledger.gpus_of(_ROLLOUT_PREFIX + rollout)

    def describe(self) -> dict[str, str]:
        """Host → its GPUs, and who waits, for the status."""
        return self._ledger.describe()

    def ended_holders(self) -> set[str]:
        """Rollouts that have ended and are still in the ledger."""
        snapshot = self._ledger.snapshot()
        holders = {lease.holder for lease in snapshot.leases} | snapshot.waiting.keys()
        rollouts = [
            holder.removeprefix(_ROLLOUT_PREFIX)
            for holder in holders
            if holder.startswith(_ROLLOUT_PREFIX)
        ]
        return set(rollouts) - self._alive(rollouts) if rollouts else set()

    def release(self, rollouts: Collection[str]) -> None:
        """Free what these had; what cannot be written now is freed another time."""
        if not rollouts:
            return
        for rollout in rollouts:
            self._requests.pop(rollout, None)
        freed = {_ROLLOUT_PREFIX + rollout for rollout in rollouts}
        try:
            self._ledger.release_others(lambda holder: holder not in freed)
        except HoustonError as problem:  # a full disk
            LOGGER.warning("not now: %s", problem)

    def _alive(self, rollouts: Iterable[str]) -> set[str]:
        names = list(rollouts)
        marks = ", ".join("?" * len(names))
        with closing(open_read_only(self._home.database)) as reader:
            rows = reader.execute(
                f"SELECT id FROM rollouts WHERE id IN ({marks}) AND state IN"
                " ('queued', 'running', 'paused')",
                names,
            ).fetchall()
        return {row[0] for row in rows}

    def read_spec(self, rollout: str) -> RolloutSpec | None:
        """What a rollout was started with; None where that cannot be read."""
        try:
            row = self._reader.run(rollout_queries.find_rollout(rollout))
            return self._reader.run(rollout_queries.read_rollout_spec(row))
        except HoustonError:
            return None  # its worker will be told the same, and says it
