"""Erasing from outside: which events hold what is to go, and the one writer that takes it out.

While a daemon runs it is asked, over `control`; else the home is opened with its lock held. Either
way the bytes leave the database, the WAL and the search index, and `left` looks whether they did.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import msgspec

from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.disk.connection import open_writer
from houston_daemon.recorder.people import erasing
from houston_daemon.recorder.steps.journal import Journal
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.upkeep import oneself, remainder
from houston_daemon.recorder.workers import Workers
from houston_daemon.supervision.judge.cache import Cache
from houston_shared.clock import iso, now_us
from houston_shared.control_client import ControlClient
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.lock import HomeLock, Owner, holder
from houston_shared.policy_names import training_folder
from houston_shared.store import blobs, opening
from houston_shared.store.in_order import OF_ROLLOUT
from houston_shared.wire_operators import EraseBodies

SWEEP_SECONDS = 15.0
"""How long a reader may keep the WAL from being emptied before that is said."""
ANSWER_SECONDS = 120.0
_CHUNK = 1024 * 1024


class Part(NamedTuple):
    """Events of one rollout (empty: of the daemon) that are erased alike."""

    rollout: str
    seqs: list[int]
    ids: bool = False
    """Only their token ids, which repeat what earlier events say."""


def of_rollout(home: Home, rollout: str) -> list[Part]:
    """Everything of a rollout."""
    return [Part(rollout, _seqs(home, OF_ROLLOUT, rollout))]


def still(home: Home, rollout: str, last: int) -> list[Part]:
    """What of a rollout's events up to `last` still has texts: an archive was cut short."""
    seqs = [
        seq
        for seq, owner, kind, data in _bodies(home)
        if owner == rollout and seq <= last and remainder.blank(kind, data) not in (None, data)
    ]
    return [Part(rollout, seqs)] if seqs else []


def of_step(home: Home, rollout: str, step: int) -> list[Part]:
    """Everything of a step, what was said to it, and the ids of all prompts behind it.

    Empty when there is no such step.
    """
    own = _seqs(
        home,
        f"{OF_ROLLOUT} AND (step = ?2 OR seq IN (SELECT text_seq FROM guidance"
        " WHERE rollout = ?1 AND delivered_step = ?2))",
        rollout,
        step,
    )
    behind = _seqs(
        home,
        f"{OF_ROLLOUT} AND kind = 'sample' AND step <> ?2 AND seq > (SELECT min(seq) FROM events"
        " WHERE rollout = ?1 AND step = ?2 AND part IS NOT NULL)",
        rollout,
        step,
    )
    if not own:
        return []
    return [part for part in (Part(rollout, own), Part(rollout, behind, ids=True)) if part.seqs]


def _seqs(home: Home, condition: str, *parameters: str | int) -> list[int]:
    connection = opening.open_journal(home).connection
    try:
        sql = f"SELECT seq FROM events WHERE {condition} ORDER BY seq"
        return [seq for (seq,) in connection.execute(sql, parameters)]
    finally:
        connection.close()


def holding(home: Home, text: str, rollout: str = "") -> list[Part]:
    """The events that hold a text, and the samples behind them, whose ids may spell it.

    rollout: only look there; empty for everywhere.
    """
    found: dict[str, list[int]] = defaultdict(list)
    for seq, owner, kind, data in _bodies(home):
        if (rollout and owner != rollout) or kind in remainder.SPARED:
            continue
        if remainder.holds(data, text) or (kind == "sample" and owner in found):
            found[owner].append(seq)
    return [Part(owner, seqs) for owner, seqs in found.items()]


def _bodies(home: Home) -> Iterator[tuple[int, str, str, bytes]]:
    seq = 0
    while True:
        connection = opening.open_journal(home).connection  # a short transaction a page
        rows = connection.execute(
            "SELECT seq, rollout, kind, body, blob FROM events WHERE seq > ?"
            " ORDER BY seq LIMIT 500",
            (seq,),
        ).fetchall()
        connection.close()
        for seq, owner, kind, body, blob in rows:
            data = blobs.read(home, blob) if blob else body
            if data is not None:
                yield seq, owner, kind, data
        if not rows:
            return


def erase(
    home: Home, parts: Iterable[Part], text: str = "", reason: str = "", archive: str = ""
) -> bool:
    """Erase these events; whether their bytes have left the files.

    text, reason, archive: of `wire.EraseBodies`. Cut short, an archive can be gone on with: only
    the last message makes the rollout one. Raises HoustonError.
    """
    words = [
        EraseBodies(
            rollout=part.rollout,
            seqs=tuple(part.seqs[first : first + erasing.LIMIT]),
            ids=part.ids,
            text=text,
            reason=reason,
            archive=archive,
        )
        for part in parts
        for first in range(0, len(part.seqs), erasing.LIMIT)
    ]
    Cache(home).forget()  # a judge's reasons quote what it judged
    if archive:
        words[:-1] = [msgspec.structs.replace(one, more=True) for one in words[:-1]]
    if holder(home) is not None:
        return _asked(home, words)
    _offline(home, words)
    return True


def _asked(home: Home, words: Iterable[EraseBodies]) -> bool:
    with ControlClient(home, ANSWER_SECONDS) as client:
        for message in words:
            client.ask(message)
        end = monotonic() + SWEEP_SECONDS
        while monotonic() < end:
            client.ask(EraseBodies(rollout=""))
            wal = home.database.with_name(home.database.name + "-wal")
            if not wal.exists() or wal.stat().st_size == 0:
                return True
            sleep(0.2)
    return False


def _offline(home: Home, words: Iterable[EraseBodies]) -> None:
    lock = HomeLock(home)
    if other := lock.take(Owner(os.getpid(), iso(now_us())), "Nothing was erased."):
        raise HoustonError(
            f"A daemon (pid {other.pid}) has just taken {home.path}.",
            "Nothing was erased.",
            "Try again.",
            ExitCode.BUSY,
        )
    try:
        connection = open_writer(home)
        try:
            store = Store(home, connection, Journal(connection), Workers())
            for message in words:
                _commit(store, message)
            erasing.sweep(store)
            connection.execute("VACUUM")  # what earlier splits of pages left behind
            erasing.sweep(store)
            head_file.write(home, store.journal.seq, store.journal.chain)
        finally:
            connection.close()
        for end in ("", "-wal", "-shm"):  # made anew by the next daemon
            path = home.search_database
            path.with_name(path.name + end).unlink(missing_ok=True)
    finally:
        lock.release()


def _commit(store: Store, message: EraseBodies) -> None:
    store.connection.execute("BEGIN IMMEDIATE")
    try:
        erasing.erase(store, message, oneself.author())
        store.connection.execute("COMMIT")
    except BaseException:
        if store.connection.in_transaction:
            store.connection.execute("ROLLBACK")
        raise
    for change in store.later:
        change()
    store.later.clear()


def left(home: Home, text: str) -> list[Path]:
    """Files of the database and its index that hold a text all the same."""
    found = []
    for base in (home.database, home.search_database):
        for end in ("", "-wal"):
            path = base.with_name(base.name + end)
            if path.exists() and _holds(path, text.encode()):
                found.append(path)
    return found


def _holds(path: Path, needle: bytes) -> bool:
    with path.open("rb") as file:
        tail = b""
        while chunk := file.read(_CHUNK):
            if needle in tail + chunk:
                return True
            tail = chunk[-len(needle) :]
    return False


def copies(home: Home) -> list[Path]:
    """Places that may hold what was erased as it was: backups, what repairs kept, archives that
    were cut short, rows that runs of training were given.
    """
    places = (
        (home.backups, "*"),
        (home.damaged, "*"),
        (home.archives, "*.new"),
        (training_folder(home), "*"),
    )
    return [path for folder, names in places for path in sorted(folder.glob(names))]
