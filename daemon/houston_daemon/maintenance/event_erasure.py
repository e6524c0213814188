"""Erasing from outside the recorder: finds the events to erase, and has the one writer erase them.

A running daemon is asked over `control`; else the home is opened with its lock held. Either way the
bytes leave database, WAL and search index, which is checked afterwards.
`recorder.handlers.erase_handlers` has the transaction.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import msgspec

from houston_daemon.maintenance import erased_body
from houston_daemon.recorder import identity_and_roles
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.disk.writer_connection import open_writer
from houston_daemon.recorder.handlers import erase_handlers
from houston_daemon.recorder.journal_writer import JournalWriter
from houston_daemon.recorder.live_workers import LiveWorkers
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_shared.control_client import ControlClient
from houston_shared.control_messages import EraseBodies
from houston_shared.errors import Busy
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner, find_running_daemon
from houston_shared.policy_and_run_files import training_folder
from houston_shared.store import store_reader
from houston_shared.store.event_bodies import VOUCHING_KINDS
from houston_shared.store.journal_events import EVENTS_OF_ROLLOUT, split_for_in
from houston_shared.times_and_counts import iso_time, now_us

EMPTY_WAL_SECONDS = 15.0
"""How long a reader may keep the WAL from being emptied before that is said."""
ANSWER_TIMEOUT_SECONDS = 120.0
_CHUNK_BYTES = 1024 * 1024


class ErasureBatch(NamedTuple):
    """Events of one rollout (empty: of the daemon) that are erased alike."""

    rollout: str
    seqs: list[int]
    only_token_ids: bool = False
    """Only their token ids, which repeat what earlier events say."""


class _GuidanceId(msgspec.Struct):
    """Of an event with a text of guidance, whose it is."""

    id: str


def select_unerased_events(home: Home, rollout: str, last: int) -> list[ErasureBatch]:
    """The events of a rollout up to `last`, the newest of its archive, that still have texts."""
    seqs = [
        seq
        for seq, _, kind, data in _iterate_bodies(home, rollout)
        if seq <= last and erased_body.blank_body(kind, data) not in (None, data)
    ]
    return [ErasureBatch(rollout, seqs)] if seqs else []


def select_step_events(home: Home, rollout: str, step: int) -> list[ErasureBatch]:
    """All events of a step, all guidance for it, and the token ids of all later prompts.

    Guidance includes its text before an edit, and the draft that it was made from. Empty when there
    is no such step.
    """
    own = _select_seqs(
        home,
        f"{EVENTS_OF_ROLLOUT} AND (step = ?2 OR seq IN (SELECT d.seq FROM critic_drafts d"
        " JOIN guidance g ON g.id = d.guidance WHERE g.rollout = ?1 AND g.delivered_step = ?2))",
        rollout,
        step,
    )
    own += _select_guidance_texts(home, rollout, step)
    behind = _select_seqs(
        home,
        f"{EVENTS_OF_ROLLOUT} AND kind = 'sample' AND step <> ?2"
        " AND seq > (SELECT min(seq) FROM events"
        " WHERE rollout = ?1 AND step = ?2 AND part IS NOT NULL)",
        rollout,
        step,
    )
    if not own:
        return []
    return [
        part
        for part in (ErasureBatch(rollout, own), ErasureBatch(rollout, behind, only_token_ids=True))
        if part.seqs
    ]


def _select_guidance_texts(home: Home, rollout: str, step: int) -> list[int]:
    """Events with a text, the last one or an earlier one, of guidance that a step was given."""
    connection = store_reader.open_journal(home).connection
    try:
        sql = "SELECT id FROM guidance WHERE rollout = ? AND delivered_step = ?"
        ids = {id for (id,) in connection.execute(sql, (rollout, step))}
    finally:
        connection.close()
    return [
        seq
        for seq, _, kind, data in (_iterate_bodies(home, rollout) if ids else ())
        if kind in ("guidance", "edit") and msgspec.msgpack.decode(data, type=_GuidanceId).id in ids
    ]


def _select_seqs(home: Home, condition: str, *parameters: str | int) -> list[int]:
    connection = store_reader.open_journal(home).connection
    try:
        sql = f"SELECT seq FROM events WHERE {condition} ORDER BY seq"
        return [seq for (seq,) in connection.execute(sql, parameters)]
    finally:
        connection.close()


def select_events_with_text(home: Home, text: str, rollout: str = "") -> list[ErasureBatch]:
    """The events that hold a text, and the samples behind them, whose ids may spell it.

    rollout: only look there; empty for everywhere.
    """
    needles = erased_body.encoded_spellings(text)
    seqs_of: dict[str, list[int]] = defaultdict(list)
    for seq, owner, kind, data in _iterate_bodies(home, rollout):
        if kind in VOUCHING_KINDS:
            continue
        if erased_body.has_any(data, needles) or (kind == "sample" and owner in seqs_of):
            seqs_of[owner].append(seq)
    return [ErasureBatch(owner, seqs) for owner, seqs in seqs_of.items()]


def _iterate_bodies(home: Home, rollout: str) -> Iterator[tuple[int, str, str, bytes]]:
    """In order, with what is stored meanwhile. rollout: empty for the whole home."""
    last = 0
    while seqs := _list_seqs_behind(home, rollout, last):
        for marks, page in split_for_in(seqs):
            connection = store_reader.open_journal(home).connection  # a short transaction a page
            rows = connection.execute(
                "SELECT seq, rollout, kind, body, blob FROM events"
                f" WHERE seq IN ({marks}) ORDER BY seq",
                page,
            ).fetchall()
            connection.close()
            for seq, owner, kind, body, blob in rows:
                data = store_reader.read_blob(home, blob) if blob else body
                if data is not None:
                    yield seq, owner, kind, data
        last = seqs[-1]


def _list_seqs_behind(home: Home, rollout: str, last: int) -> Sequence[int]:
    """Numbers of events behind `last`. rollout: empty for the whole home."""
    if rollout:
        return [seq for seq in _select_seqs(home, EVENTS_OF_ROLLOUT, rollout) if seq > last]
    newest = _select_seqs(home, "seq = (SELECT max(seq) FROM events)")
    return range(last + 1, max(newest, default=0) + 1)


def erase_events(
    home: Home, parts: Iterable[ErasureBatch], text: str = "", reason: str = "", archive: str = ""
) -> bool:
    """Erase these events; returns whether their bytes have left the files.

    text, reason, archive: of `EraseBodies`. An interrupted archive can be continued: only the last
    message marks the rollout as archived. Raises HoustonError.
    """
    messages = [
        EraseBodies(
            rollout=part.rollout,
            seqs=tuple(part.seqs[first : first + erase_handlers.ERASE_LIMIT]),
            ids=part.only_token_ids,
            text=text,
            reason=reason,
            archive=archive,
        )
        for part in parts
        for first in range(0, len(part.seqs), erase_handlers.ERASE_LIMIT)
    ]
    JudgeCache(home).forget()  # a judge's reasons quote what it judged
    if archive:
        messages[:-1] = [msgspec.structs.replace(message, more=True) for message in messages[:-1]]
    if find_running_daemon(home) is not None:
        return _ask_daemon(home, messages)
    _erase_offline(home, messages)
    return True


def _ask_daemon(home: Home, messages: Iterable[EraseBodies]) -> bool:
    with ControlClient(home, ANSWER_TIMEOUT_SECONDS) as client:
        for message in messages:
            client.ask(message)
        end = monotonic() + EMPTY_WAL_SECONDS
        while monotonic() < end:
            client.ask(EraseBodies(rollout=""))
            wal = home.database.with_name(home.database.name + "-wal")
            if not wal.exists() or wal.stat().st_size == 0:
                return True
            sleep(0.2)
    return False


def _erase_offline(home: Home, messages: Iterable[EraseBodies]) -> None:
    lock = HomeLock(home)
    if other_owner := lock.take(HomeOwner(os.getpid(), iso_time(now_us())), "Nothing was erased."):
        raise Busy(
            f"A daemon (pid {other_owner.pid}) has just started on {home.path}.",
            "Nothing was erased.",
            "Try again.",
        )
    try:
        connection = open_writer(home)
        try:
            store = Store(home, connection, JournalWriter(connection), LiveWorkers())
            for message in messages:
                _erase_in_transaction(store, message)
            erase_handlers.empty_wal(store)
            connection.execute("VACUUM")  # what earlier splits of pages left behind
            erase_handlers.empty_wal(store)
            home_files.write_chain_head(home, store.journal.seq, store.journal.chain)
        finally:
            connection.close()
        for end in ("", "-wal", "-shm"):  # made anew by the next daemon
            path = home.search_database
            path.with_name(path.name + end).unlink(missing_ok=True)
    finally:
        lock.release()


def _erase_in_transaction(store: Store, message: EraseBodies) -> None:
    store.connection.execute("BEGIN IMMEDIATE")
    try:
        erase_handlers.erase_bodies(store, message, identity_and_roles.identify_offline_author())
        store.connection.execute("COMMIT")
    except BaseException:
        if store.connection.in_transaction:
            store.connection.execute("ROLLBACK")
        raise
    for change in store.after_commit:
        change()
    store.after_commit.clear()


def find_files_with_text(home: Home, text: str) -> list[Path]:
    """Files of the database and its index that hold a text all the same."""
    needles = erased_body.encoded_spellings(text)
    files = []
    for base in (home.database, home.search_database):
        for end in ("", "-wal"):
            path = base.with_name(base.name + end)
            if path.exists() and _has_bytes(path, needles):
                files.append(path)
    return files


def _has_bytes(path: Path, needles: Sequence[bytes]) -> bool:
    longest = max(map(len, needles))
    with path.open("rb") as file:
        tail = b""
        while chunk := file.read(_CHUNK_BYTES):
            if erased_body.has_any(tail + chunk, needles):
                return True
            tail = chunk[-longest:]
    return False


def list_possible_copies(home: Home, text: str = "") -> list[Path]:
    """Places that may still hold erased text: backups, files kept by repairs, interrupted archives,
    rows given to training runs; waiting messages to people, if they hold `text`.
    """
    places = (
        (home.backups, "*"),
        (home.damaged, "*"),
        (home.archives, "*.new"),
        (training_folder(home), "*"),
    )
    copies = [path for folder, names in places for path in sorted(folder.glob(names))]
    waiting = home.sent_notifications
    if text and waiting.is_file() and _has_bytes(waiting, [msgspec.json.encode(text)[1:-1]]):
        copies.append(waiting)
    return copies
