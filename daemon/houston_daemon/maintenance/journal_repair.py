"""`houston repair`: a home that `verify` calls unsound becomes sound, and every loss has a name.

The damaged files are copied first. Then a new database is written from the events that are kept
(docs/decisions.md#repair-writes-a-new-database); the place of every other is kept by a row without
a body, and what was found of it goes to `aside.jsonl`. Derived tables are replayed; rollouts that
lost something are paused. Which events are kept is decided in `repair_decisions`.
"""

import base64
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.maintenance import damage_report, durable_copy, home_backup
from houston_daemon.maintenance.database_salvage import EventOwner, SalvagedDatabase
from houston_daemon.maintenance.home_verification import EVENT_COLUMNS, EventRow, verify_home
from houston_daemon.maintenance.projection_replay import REPLAY_ERRORS
from houston_daemon.maintenance.repair_decisions import (
    BLOB_COLUMN,
    BODY_COLUMN,
    DamageByRollout,
    EarlierRepairs,
    EventDecider,
    EventDecision,
)
from houston_daemon.recorder import hash_chain, identity_and_roles
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.event_projections import EventHeader, project_event
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey, JournalWriter
from houston_daemon.recorder.rollout_states import PAUSED_BY_REPAIR
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import event_bodies, schema, store_reader
from houston_shared.store.presence_queries import LOOK_COLUMNS as LOOKS

ROWS_PER_REPAIRED_EVENT = 500
"""Rows that one `repaired` event vouches for."""
_INSERT_EVENT = f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({', '.join('?' * 12)})"


class JournalRewriter:
    """One new database, under way; it is made afresh in `beside`."""

    def __init__(self, home: Home, beside: Home) -> None:
        """home: where the blobs are."""
        self._home = home
        self._beside = beside
        beside.database.unlink(missing_ok=True)
        self._connection = sqlite3.connect(beside.database, isolation_level=None)
        for pragma in ("page_size = 8192", "synchronous = OFF", "journal_mode = MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        schema.migrate_schema(self._connection)
        self._connection.execute("BEGIN")
        self._vouched: list[tuple[int, bytes]] = []
        self._before: dict[int, bytes] = {}
        """Rows for which an earlier repair has vouched."""

    def put(self, judged: EventDecision, why: str, place: EventOwner) -> None:
        """Write one event: as it is, or, where there is a `why`, only its place."""
        row = _placeholder_row(judged, place) if judged.row is None or why else judged.row
        self._connection.execute(_INSERT_EVENT, row)
        if row[5] == event_bodies.QUARANTINED_KIND or judged.taken:
            self._vouched.append((judged.seq, hash_chain.row_hash(row)))
        if row[5] == "repaired":
            told = msgspec.msgpack.decode(row[BODY_COLUMN], type=event_bodies.JournalRepaired)
            self._before.update(zip(told.seqs, told.rows, strict=True))
        if row[5] != event_bodies.QUARANTINED_KIND:
            self._derive(row)

    def look(self, rows: Iterable[tuple[str | int, ...]]) -> None:
        """Keep who looked at what, and for how long: no event says it."""
        marks = ", ".join("?" * (LOOKS.count(",") + 1))
        self._connection.executemany(
            f"INSERT OR IGNORE INTO looks ({LOOKS}) VALUES ({marks})", rows
        )

    def close(self, copies: str, paused: dict[str, str], author: Author) -> int:
        """Say in the journal what was done, pause rollouts, write the head; the newest event.

        copies: folder of the home with what was found; paused: reasons by rollout; author: who
        repairs.
        """
        journal = JournalWriter(self._connection)
        new = [(seq, digest) for seq, digest in self._vouched if self._before.get(seq) != digest]
        for first in range(0, len(new), ROWS_PER_REPAIRED_EVENT):
            part = new[first : first + ROWS_PER_REPAIRED_EVENT]
            said = event_bodies.JournalRepaired(
                by=PAUSED_BY_REPAIR,
                seqs=tuple(seq for seq, _ in part),
                rows=tuple(digest for _, digest in part),
                copies=copies,
                **author.fields,
            )
            journal.append(EventKey(), "repaired", said)
        for rollout, reason in paused.items():
            state = event_bodies.StoredState(state="paused", by=PAUSED_BY_REPAIR, reason=reason)
            journal.append(EventKey(rollout), "state", state)
        self._connection.execute("COMMIT")
        self._connection.close()
        home_files.write_chain_head(self._beside, journal.seq, journal.chain)
        return journal.seq

    def _derive(self, row: EventRow) -> None:
        data = (
            store_reader.read_blob(self._home, row[BLOB_COLUMN])
            if row[BLOB_COLUMN] is not None
            else row[BODY_COLUMN]
        )
        try:
            record = msgspec.msgpack.decode(data, type=event_bodies.BODY_TYPES[row[5]])
            project_event(self._connection, EventHeader(*row[:7]), record)
        except REPLAY_ERRORS:
            return  # `verify` of what is written finds it, and the next round sets it aside


def _placeholder_row(judged: EventDecision, place: EventOwner) -> tuple[Any, ...]:
    """A row that keeps an event's number and, where they are known, its link, rollout and step."""
    row = judged.row
    digest = row[10] if row is not None and isinstance(row[10], bytes) else b""
    return (
        judged.seq, place.rollout, place.step, 1, None, event_bodies.QUARANTINED_KIND, 0, None,
        None, 1,
        digest, judged.link,
    )  # fmt: skip


REPAIR_ROUNDS = 4
"""Times that what `verify` still finds is set aside as well."""


class RepairLoss(msgspec.Struct, frozen=True):
    """Events of one rollout that were set aside for one reason."""

    rollout: str
    """Empty for events of the daemon, or of which nobody knows whose they were."""
    seqs: tuple[int, ...]
    why: str


class RepairResult(msgspec.Struct, frozen=True):
    """What a repair did; the JSON of `houston repair --json`."""

    changed: bool
    """Whether there was anything to do."""
    copies: str = ""
    """Folder with the damaged files as they were, and `aside.jsonl`."""
    losses: tuple[RepairLoss, ...] = ()
    mended: tuple[str, ...] = ()
    """What could be put back as it was."""
    paused: dict[str, int] = {}
    """Rollouts that were paused: the step behind which each goes on, −1 where none was lost."""
    returned: dict[str, tuple[int, ...]] = {}
    """By rollout, what an earlier repair had set aside and a backup gave back."""
    stays: tuple[RepairLoss, ...] = ()
    """What a backup has of that and what stays aside all the same."""
    seq: int = 0
    """The journal's newest event now."""


def repair_home(home: Home, backup: Path | None = None) -> RepairResult:
    """Repair a home that nobody has open; `backup`: also take what fits from this one, what an
    earlier repair had set aside too.

    Raises HoustonError when it cannot be done; the home is then as it was.
    """
    spares = _list_spare_homes(home, backup)  # a wrong name is said before anything is done
    sound, aside = _check_home(home)
    if sound and not (backup and aside):
        return RepairResult(changed=False)
    copies = Home(home.damaged / durable_copy.make_timestamp())
    beside = Home(home.path / "repair.new")
    try:
        kept = ""
        _copy_damaged_files(home, copies)
        kept = f"; copies are in {copies.path}"
        shutil.rmtree(beside.path, ignore_errors=True)
        beside.path.mkdir(mode=0o700)
        (beside.blobs).symlink_to(home.blobs)
        done = _RepairRun(home, copies, beside, spares).run()
        if sound and not done.returned:
            shutil.rmtree(copies.path)
            return RepairResult(changed=False, stays=done.stays)
        _replace_database(home, beside)
        return done
    except (OSError, sqlite3.Error) as problem:
        raise HoustonError(
            f"The home {home.path} cannot be repaired: {problem}.",
            f"It was left as it is{kept}.",
            "Make room there, or restore a backup: houston backup --list",
            ExitCode.DAMAGED,
        ) from problem
    finally:
        shutil.rmtree(beside.path, ignore_errors=True)


def _check_home(home: Home) -> tuple[bool, int]:
    """Whether the home is sound, and how many events earlier repairs set aside."""
    if not home.database.exists() and not home.head_file.exists():
        raise HoustonError(
            f"There is no database in the home {home.path}.",
            "There is nothing to repair.",
            "houston backup --restore DIR, or name the right folder with --home",
        )
    try:
        report = verify_home(home)
    except HoustonError:
        return False, 0
    return report.sound, report.aside


def _copy_damaged_files(home: Home, copies: Home) -> None:
    """Copy what is damaged before anything else is done; raises OSError, and then keeps nothing."""
    try:
        for path in (home.database, home.head_file):
            wal = path.with_name(path.name + "-wal")
            for one in (path, wal):
                if one.exists():
                    durable_copy.copy_file(one, copies.path / one.name)
        copies.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable_copy.sync_tree(home.damaged)
    except OSError:  # half a copy helps nobody, and takes the room that is missing
        shutil.rmtree(copies.path, ignore_errors=True)
        raise


def _list_spare_homes(home: Home, backup: Path | None) -> list[Home]:
    """Backups to take from, newest first."""
    own = [Home(home.backups / name) for name in reversed(damage_report.list_backup_names(home))]
    given = [Home(folder) for folder in home_backup.find_backups(home, backup)] if backup else []
    return given + [one for one in own if one not in given]


def _replace_database(home: Home, beside: Home) -> None:
    """Put the new database in place. The WAL goes first: SQLite must not apply it to another.

    What it holds is moved into the old database before: a kill in between loses nothing.
    """
    _empty_wal(home)
    for end in ("-wal", "-shm"):
        home.database.with_name(home.database.name + end).unlink(missing_ok=True)
        home.search_database.with_name(home.search_database.name + end).unlink(missing_ok=True)
    home.search_database.unlink(missing_ok=True)
    mode = home.database.stat().st_mode & 0o777 if home.database.exists() else 0o600
    beside.database.chmod(mode)
    durable_copy.sync_path(beside.database)
    beside.database.replace(home.database)
    beside.head_file.replace(home.head_file)
    durable_copy.sync_path(home.path)


def _empty_wal(home: Home) -> None:
    """Also of a damaged database, of which there is a copy; one that does not open stays as it is.

    SQLite removes a WAL when its last connection closes, and copies it first.
    """
    place = f"{home.database.as_uri()}?mode=rw"
    with (
        contextlib.suppress(sqlite3.Error, UnicodeDecodeError),
        contextlib.closing(sqlite3.connect(place, uri=True, timeout=5)) as connection,
    ):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class _RepairRun:
    """One repair, under way."""

    def __init__(self, home: Home, copies: Home, beside: Home, spares: list[Home]) -> None:
        self._home = home
        self._copies = copies
        self._beside = beside
        self._head = _read_chain_head(copies)
        self._source = _open_source(copies, spares, self._head.seq if self._head else 0)
        self._spares = [spare for one in spares if (spare := _open_spare(one))]
        self._earlier = EarlierRepairs(self._source.rows())
        self._condemned: dict[int, str] = {}
        self._mended: list[str] = []

    def run(self) -> RepairResult:
        """Write the new database; raises HoustonError when it does not become sound."""
        try:
            for _ in range(REPAIR_ROUNDS):
                done = self._round()
                report = verify_home(self._beside)
                if report.sound:
                    return done
                self._condemned |= {f.seq: f.text for f in report.findings if f.seq}
            raise HoustonError(
                f"What was written anew is not sound: {report.findings[0].text}",
                f"The home was left as it is; copies are in {self._copies.path}.",
                "restore a backup: houston backup --list",
                ExitCode.DAMAGED,
            )
        finally:
            self._source.close()
            for _, spare in self._spares:
                spare.close()

    def _round(self) -> RepairResult:
        self._mended = []
        self._earlier.stays.clear()
        fates = DamageByRollout()
        for judged in self._judged():
            fates.see(judged, self._place(judged).rollout, _decode_state(judged))
        fates.settle()
        losses: dict[tuple[str, str], list[int]] = {}
        returned: dict[str, list[int]] = {}
        with (self._copies.path / "aside.jsonl").open("wb") as aside:
            writing = JournalRewriter(self._home, self._beside)
            for judged in self._judged():
                place = self._place(judged)
                why = judged.why or fates.aside(judged, place.rollout)
                writing.put(judged, why, place)
                if judged.mended:
                    self._mended.append(f"Event {judged.seq}: {judged.mended}.")
                if judged.back:
                    self._note(judged, why, returned)
                elif why:
                    losses.setdefault((place.rollout, why), []).append(judged.seq)
                    aside.write(_aside_line(judged, place.rollout, why))
            os.fsync(aside.fileno())
        writing.look(self._source.looks())
        folder = str(self._copies.path.relative_to(self._home.path))
        paused = _rollouts_to_pause(fates)
        seq = writing.close(
            folder,
            _pause_reasons(paused, fates, folder),
            identity_and_roles.identify_offline_author(),
        )
        return RepairResult(
            changed=True,
            copies=str(self._copies.path),
            losses=_group_losses(losses),
            mended=tuple(dict.fromkeys(self._mended)),
            paused=paused,
            returned={rollout: tuple(seqs) for rollout, seqs in returned.items()},
            stays=self._stays(),
            seq=seq,
        )

    def _note(self, judged: EventDecision, why: str, returned: dict[str, list[int]]) -> None:
        """Whether an event that a backup would give back comes back."""
        assert judged.row is not None
        rollout = str(judged.row[1])
        if why:
            self._earlier.stays[judged.seq] = rollout, why
        else:
            returned.setdefault(rollout, []).append(judged.seq)

    def _stays(self) -> tuple[RepairLoss, ...]:
        by: dict[tuple[str, str], list[int]] = {}
        for seq, key in sorted(self._earlier.stays.items()):
            by.setdefault(key, []).append(seq)
        return _group_losses(by)

    def _judged(self) -> Iterator[EventDecision]:
        end = (self._head.seq, self._head.value) if self._head else None
        judge = EventDecider(self._body, self._spare_rows, end)
        for judged in judge.all(self._source.rows(), self._source.last):
            why = self._condemned.get(judged.seq)
            yield judged._replace(why=why) if why and not judged.why else judged

    def _place(self, judged: EventDecision) -> EventOwner:
        """Whose an event is: by its row where that is sound, else by an index where one tells."""
        row = judged.row
        own = (
            EventOwner()
            if row is None
            else EventOwner(str(row[1]), row[2] if _is_step_number(row[2]) else 0)
        )
        if row is not None and not judged.why:
            return own
        told = self._source.place(judged.seq)
        return EventOwner(told.rollout or own.rollout, told.step or own.step)

    def _body(self, row: EventRow) -> bytes | None:
        if row[BLOB_COLUMN] is None:
            return row[BODY_COLUMN] if isinstance(row[BODY_COLUMN], bytes) else None
        for home in (self._home, *(one for one, _ in self._spares)):
            try:
                data = store_reader.read_blob(home, row[BLOB_COLUMN])
                if home is not self._home:
                    durable_copy.copy_file(
                        store_reader.blob_path(home, row[BLOB_COLUMN]),
                        store_reader.blob_path(self._home, row[BLOB_COLUMN]),
                    )
                    self._mended.append(f"Event {row[0]}: its blob was taken from a backup.")
                elif (
                    durable_copy.hash_file(store_reader.blob_path(home, row[BLOB_COLUMN]))
                    != row[BLOB_COLUMN]
                ):
                    continue
                return data
            except (HoustonError, TypeError, ValueError, OSError):
                continue
        return None

    def _spare_rows(self, seq: int) -> Iterable[EventRow]:
        rows = [row for _, spare in self._spares if (row := spare.row(seq))]
        return [row for row in rows if self._earlier.allows(seq, row)]


def _open_source(copies: Home, spares: list[Home], last: int) -> SalvagedDatabase:
    for home in (copies, *spares):
        try:
            return SalvagedDatabase(home.database, last)
        except (sqlite3.DatabaseError, UnicodeDecodeError, OSError):
            continue
    raise HoustonError(
        f"{copies.database} cannot be opened at all, and there is no backup.",
        "Nothing was changed.",
        "Ask for help with that copy; it holds what there is.",
        ExitCode.DAMAGED,
    )


def _open_spare(home: Home) -> tuple[Home, SalvagedDatabase] | None:
    try:
        return home, SalvagedDatabase(home.database)
    except (sqlite3.DatabaseError, UnicodeDecodeError, OSError):
        return None


def _read_chain_head(home: Home) -> home_files.ChainHead | None:
    try:
        return home_files.read_chain_head(home)
    except HoustonError:
        return None


def _decode_state(judged: EventDecision) -> str:
    """The state that a sound `state` event moved its rollout to."""
    row = judged.row
    if judged.why or row is None or row[5] != "state" or row[BODY_COLUMN] is None:
        return ""
    return msgspec.msgpack.decode(row[BODY_COLUMN], type=event_bodies.StoredState).state


def _rollouts_to_pause(fates: DamageByRollout) -> dict[str, int]:
    """Rollouts that are to be paused: the step behind which each goes on, −1 where none is lost."""
    return {
        id: fate.last_step if fate.rewinds or fate.back else -1
        for id, fate in fates.of.items()
        if (fate.first_bad or fate.back) and fate.spec and not fate.ended
    }


def _pause_reasons(paused: dict[str, int], fates: DamageByRollout, folder: str) -> dict[str, str]:
    """What is said of each rollout that is paused."""
    reasons = {}
    for rollout, step in paused.items():
        where = "no step was lost" if step < 0 else f"it goes on after step {step}"
        if fates.of[rollout].first_bad:
            where = f"it was damaged; {where}. What was set aside is in {folder}/aside.jsonl"
        else:
            where = f"what a repair had set aside came back from a backup; {where}"
        reasons[rollout] = where
    return reasons


def _group_losses(by: dict[tuple[str, str], list[int]]) -> tuple[RepairLoss, ...]:
    return tuple(RepairLoss(who, tuple(seqs), why) for (who, why), seqs in by.items())


def _is_step_number(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**31


def _aside_line(judged: EventDecision, owner: str, why: str) -> bytes:
    """One event that is set aside, as it was found."""
    row: list[Any] = [_encode_value(value) for value in judged.row or ()]
    said = {"seq": judged.seq, "rollout": owner, "why": why, "row": row}
    return msgspec.json.encode(said) + b"\n"


def _encode_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
