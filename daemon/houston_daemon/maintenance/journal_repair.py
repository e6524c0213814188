"""`houston repair`: a home that `verify` calls unsound becomes sound, and every loss has a name.

One pipeline for every kind of damage:

1. copy: the damaged files, before anything else is done
2. read: what can be read of them, and of backups (`database_salvage`)
3. decide: which events are kept (`repair_decisions`)
4. rebuild: a new database of these events, with the derived tables replayed
   (docs/decisions.md#repair-writes-a-new-database). The place of every other event is kept by a
   row without a body, and what was found of it goes to `aside.jsonl`. Rollouts that lost something
   are paused.
5. verify: what is still not sound is set aside as well, in another round of 3 and 4
6. replace: the new database takes the place of the damaged one
"""

import base64
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.maintenance import damage_report, durable_copy, home_backup
from houston_daemon.maintenance.damage_report import IntegrityFindings
from houston_daemon.maintenance.database_salvage import OPEN_ERRORS, EventOwner, SalvagedDatabase
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.projection_replay import NoRoomToCheck, ProjectionReplay
from houston_daemon.maintenance.repair_decisions import (
    DamageByRollout,
    EarlierRepairs,
    EventDecider,
    EventDecision,
)
from houston_daemon.recorder import hash_chain, identity_and_roles
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.hash_chain import EventRow
from houston_daemon.recorder.journal_writer import EventKey, JournalWriter
from houston_daemon.recorder.rollout_states import PAUSED_BY_REPAIR
from houston_shared import atomic_file
from houston_shared.errors import Damaged, HoustonError, NotFound
from houston_shared.home import Home
from houston_shared.store import event_bodies, schema, store_reader
from houston_shared.store.event_bodies import QUARANTINED_KIND
from houston_shared.store.presence_queries import LOOK_COLUMNS

ROWS_PER_REPAIRED_EVENT = 500
"""Rows that one `repaired` event vouches for."""
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
    """Repair a home that nobody has open. `backup`: also use what fits from this one, including
    what an earlier repair had set aside.

    Raises HoustonError when it cannot be done; the home is then as it was.
    """
    spare_homes = _list_spare_homes(home, backup)  # a wrong name is said before anything is done
    sound, aside = _check_home(home)
    if sound and not (backup and aside):
        return RepairResult(changed=False)
    copies = Home(home.damaged / durable_copy.make_timestamp())
    rebuilt_home = Home(home.path / "repair.new")
    copies_note = ""
    try:
        _copy_damaged_files(home, copies)
        copies_note = f"; copies are in {copies.path}"
        shutil.rmtree(rebuilt_home.path, ignore_errors=True)
        rebuilt_home.path.mkdir(mode=0o700)
        rebuilt_home.blobs.symlink_to(home.blobs)
        with contextlib.closing(_Repair(home, copies, rebuilt_home, spare_homes)) as repair:
            result = repair.rebuild_until_sound()
        if sound and not result.returned:
            shutil.rmtree(copies.path)
            return RepairResult(changed=False, stays=result.stays)
        _replace_database(home, rebuilt_home)
        return result
    except (OSError, sqlite3.Error) as problem:
        raise Damaged(
            f"The home {home.path} cannot be repaired: {problem}.",
            f"It was left as it is{copies_note}.",
            "Make room there, or restore a backup: houston backup --list",
        ) from problem
    finally:
        shutil.rmtree(rebuilt_home.path, ignore_errors=True)


def _list_spare_homes(home: Home, backup: Path | None) -> list[Home]:
    """Backups to take from, newest first."""
    own = [Home(home.backups / name) for name in reversed(damage_report.list_backup_names(home))]
    named = [Home(folder) for folder in home_backup.find_backups(home, backup)] if backup else []
    return named + [spare for spare in own if spare not in named]


def _check_home(home: Home) -> tuple[bool, int]:
    """Whether the home is sound, and how many events earlier repairs set aside."""
    if not home.database.exists() and not home.head_file.exists():
        raise NotFound(
            f"There is no database in the home {home.path}.",
            "There is nothing to repair.",
            "houston backup --restore DIR, or name the right folder with --home",
        )
    try:
        report = verify_home(home)
    except NoRoomToCheck:  # says nothing of the home
        raise
    except HoustonError:
        return False, 0
    return report.sound, report.aside


def _copy_damaged_files(home: Home, copies: Home) -> None:
    """Stage 1: copy what is damaged; raises OSError, and then keeps nothing."""
    try:
        for path in (home.database, home.head_file):
            for file in (path, path.with_name(path.name + "-wal")):
                if file.exists():
                    durable_copy.copy_file(file, copies.path / file.name)
        copies.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable_copy.sync_tree(home.damaged)
    except OSError:  # half a copy helps nobody, and takes the room that is missing
        shutil.rmtree(copies.path, ignore_errors=True)
        raise


def _replace_database(home: Home, beside: Home) -> None:
    """Stage 6. The WAL goes first: SQLite must not apply it to another database.

    What it holds is moved into the old database before: a kill in between loses nothing.
    """
    _empty_wal(home)
    for end in ("-wal", "-shm"):
        home.database.with_name(home.database.name + end).unlink(missing_ok=True)
        home.search_database.with_name(home.search_database.name + end).unlink(missing_ok=True)
    home.search_database.unlink(missing_ok=True)
    mode = home.database.stat().st_mode & 0o777 if home.database.exists() else 0o600
    beside.database.chmod(mode)
    atomic_file.sync_to_disk(beside.database)
    beside.database.replace(home.database)
    beside.head_file.replace(home.head_file)
    atomic_file.sync_to_disk(home.path)


def _empty_wal(home: Home) -> None:
    """Also of a damaged database, of which there is a copy; one that does not open stays as it is.

    SQLite removes a WAL when its last connection closes, and copies it first.
    """
    uri = f"{home.database.as_uri()}?mode=rw"
    with (
        contextlib.suppress(sqlite3.Error, UnicodeDecodeError),
        contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection,
    ):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


class JournalRewriter:
    """Stage 4: one new database, under way; it is made afresh in `beside`."""

    def __init__(self, home: Home, beside: Home) -> None:
        """home: where the blobs are."""
        self._target = beside
        beside.database.unlink(missing_ok=True)
        self._connection = sqlite3.connect(beside.database, isolation_level=None)
        for pragma in ("page_size = 8192", "synchronous = OFF", "journal_mode = MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        schema.migrate_schema(self._connection)
        self._connection.execute("BEGIN")
        # What cannot be replayed, `verify` finds in what is written, and the next round sets aside.
        self._replay = ProjectionReplay(home, self._connection, IntegrityFindings())
        self._vouched: list[tuple[int, bytes]] = []
        self._vouched_before: dict[int, bytes] = {}
        """Rows for which an earlier repair has vouched."""

    def write(self, decision: EventDecision, aside_reason: str, owner: EventOwner) -> None:
        """Write one event: as it is, or, where there is a reason, only its place."""
        kept_row = None if aside_reason else decision.row
        row = kept_row or _placeholder_row(decision, owner)
        self._replay.insert_event(row)
        if row.kind == QUARANTINED_KIND or decision.unchecked:
            self._vouched.append((decision.seq, hash_chain.row_hash(row)))
        if row.kind == "repaired":
            body = msgspec.msgpack.decode(row.body, type=event_bodies.JournalRepaired)
            self._vouched_before.update(zip(body.seqs, body.rows, strict=True))

    def copy_presence(self, rows: Iterable[tuple[str | int, ...]]) -> None:
        """Keep who looked at what, and for how long: no event says it."""
        marks = ", ".join("?" * (LOOK_COLUMNS.count(",") + 1))
        self._connection.executemany(
            f"INSERT OR IGNORE INTO looks ({LOOK_COLUMNS}) VALUES ({marks})", rows
        )

    def finish(self, copies: str, pause_reasons: dict[str, str]) -> int:
        """Say in the journal what was done, pause rollouts, write the head; the newest event.

        copies: folder of the home with what was found; pause_reasons: by rollout.
        """
        self._replay.finish()
        journal = JournalWriter(self._connection)
        author = identity_and_roles.identify_offline_author()
        new = [row for row in self._vouched if self._vouched_before.get(row[0]) != row[1]]
        for first in range(0, len(new), ROWS_PER_REPAIRED_EVENT):
            seqs, digests = zip(*new[first : first + ROWS_PER_REPAIRED_EVENT], strict=True)
            body = event_bodies.JournalRepaired(
                by=PAUSED_BY_REPAIR, seqs=seqs, rows=digests, copies=copies, **author.event_fields
            )
            journal.append(EventKey(), "repaired", body)
        for rollout, reason in pause_reasons.items():
            state = event_bodies.StoredState(state="paused", by=PAUSED_BY_REPAIR, reason=reason)
            journal.append(EventKey(rollout), "state", state)
        self._connection.execute("COMMIT")
        self._connection.close()
        home_files.write_chain_head(self._target, journal.seq, journal.chain)
        return journal.seq


def _placeholder_row(decision: EventDecision, owner: EventOwner) -> EventRow:
    """A row that keeps an event's number and, where they are known, its link, rollout and step."""
    digest = decision.row.body_hash if decision.row else b""
    return EventRow(
        seq=decision.seq,
        rollout=owner.rollout,
        step=owner.step,
        attempt=1,
        part=None,
        kind=QUARANTINED_KIND,
        at=0,
        body=None,
        blob=None,
        erased=1,
        body_hash=digest if isinstance(digest, bytes) else b"",
        chain=decision.link,
    )


class _Spare(NamedTuple):
    """A backup that events and blobs may be taken from."""

    home: Home
    database: SalvagedDatabase


class _Repair:
    """Stages 2 to 5 of one repair."""

    def __init__(self, home: Home, copies: Home, beside: Home, spare_homes: list[Home]) -> None:
        """Stage 2. Raises HoustonError where nothing can be read at all."""
        self._home = home
        self._copies = copies
        self._target = beside
        head = _read_chain_head(copies)
        self._end = (head.seq, head.value) if head else None
        """The last event that is vouched for, with its link."""
        self._source = _open_source(copies, spare_homes, head.seq if head else 0)
        self._spares = [spare for home in spare_homes if (spare := _open_spare(home))]
        self._earlier_repairs = EarlierRepairs(self._source.rows())
        self._unsound_after_rewrite: dict[int, str] = {}
        self._restored: list[str] = []

    def close(self) -> None:
        """Close what was read from."""
        self._source.close()
        for spare in self._spares:
            spare.database.close()

    def rebuild_until_sound(self) -> RepairResult:
        """Stages 3 to 5; raises HoustonError when the new database does not become sound."""
        for _ in range(REPAIR_ROUNDS):
            result = self._rebuild()
            report = verify_home(self._target)
            if report.sound:
                return result
            self._unsound_after_rewrite |= {f.seq: f.text for f in report.findings if f.seq}
        raise Damaged(
            f"The rewritten database is damaged: {report.findings[0].text}",
            f"The home was left as it is; copies are in {self._copies.path}.",
            "restore a backup: houston backup --list",
        )

    def _decisions(self) -> Iterator[EventDecision]:
        """Stage 3: each event by itself."""
        decider = EventDecider(self._read_body, self._spare_rows, self._end)
        for decision in decider.decide_all(self._source.rows(), self._source.last):
            unsound = self._unsound_after_rewrite.get(decision.seq)
            if unsound and not decision.aside_reason:
                decision = decision._replace(aside_reason=unsound)
            yield decision

    def _assess_damage(self) -> DamageByRollout:
        """Stage 3: what unsound events cost each rollout."""
        damage = DamageByRollout()
        for decision in self._decisions():
            damage.note(decision, self._owner_of(decision).rollout, _decode_state(decision))
        damage.spread_unknown()
        return damage

    def _rebuild(self) -> RepairResult:
        """Stages 3 and 4."""
        self._restored = []
        self._earlier_repairs.kept_aside.clear()
        damage = self._assess_damage()
        lost: dict[int, tuple[str, str]] = {}
        returned: dict[str, list[int]] = {}
        with (self._copies.path / "aside.jsonl").open("wb") as aside:
            rewriter = JournalRewriter(self._home, self._target)
            for decision in self._decisions():
                owner, seq = self._owner_of(decision), decision.seq
                reason = decision.aside_reason or damage.aside_reason(decision, owner.rollout)
                rewriter.write(decision, reason, owner)
                if decision.restored:
                    self._restored.append(f"Event {seq}: {decision.restored}.")
                if decision.returned and decision.row:
                    rollout = str(decision.row.rollout)
                    if reason:
                        self._earlier_repairs.kept_aside[seq] = rollout, reason
                    else:
                        returned.setdefault(rollout, []).append(seq)
                elif reason:
                    lost[seq] = owner.rollout, reason
                    aside.write(_aside_line(decision, owner.rollout, reason))
            os.fsync(aside.fileno())
        rewriter.copy_presence(self._source.looks())
        folder = str(self._copies.path.relative_to(self._home.path))
        paused = _rollouts_to_pause(damage)
        newest = rewriter.finish(folder, _pause_reasons(paused, damage, folder))
        return RepairResult(
            changed=True,
            copies=str(self._copies.path),
            losses=_group_losses(lost),
            mended=tuple(dict.fromkeys(self._restored)),
            paused=paused,
            returned={rollout: tuple(seqs) for rollout, seqs in returned.items()},
            stays=_group_losses(self._earlier_repairs.kept_aside),
            seq=newest,
        )

    def _owner_of(self, decision: EventDecision) -> EventOwner:
        """Whose an event is: by its row where that is sound, else by an index where one tells."""
        row, own = decision.row, EventOwner()
        if row is not None:
            own = EventOwner(str(row.rollout), row.step if _is_step_number(row.step) else 0)
            if not decision.aside_reason:
                return own
        indexed = self._source.owner_of(decision.seq)
        return EventOwner(indexed.rollout or own.rollout, indexed.step or own.step)

    def _read_body(self, row: EventRow) -> bytes | None:
        if row.blob is None:
            return row.body if isinstance(row.body, bytes) else None
        for home in (self._home, *(spare.home for spare in self._spares)):
            try:
                data = store_reader.read_blob(home, row.blob)
                path = store_reader.blob_path(home, row.blob)
                if home is not self._home:
                    durable_copy.copy_file(path, store_reader.blob_path(self._home, row.blob))
                    self._restored.append(f"Event {row.seq}: its blob was taken from a backup.")
                elif durable_copy.hash_file(path) != row.blob:
                    continue
                return data
            except (HoustonError, TypeError, ValueError, OSError):
                continue
        return None

    def _spare_rows(self, seq: int) -> Iterable[EventRow]:
        rows = [row for spare in self._spares if (row := spare.database.row(seq))]
        return [row for row in rows if self._earlier_repairs.allows(seq, row)]


def _open_source(copies: Home, spare_homes: list[Home], last: int) -> SalvagedDatabase:
    for home in (copies, *spare_homes):
        with contextlib.suppress(*OPEN_ERRORS):
            return SalvagedDatabase(home.database, last)
    raise Damaged(
        f"{copies.database} cannot be opened at all, and there is no backup.",
        "Nothing was changed.",
        "Ask for help with that copy; it holds all that is left.",
    )


def _open_spare(home: Home) -> _Spare | None:
    try:
        return _Spare(home, SalvagedDatabase(home.database))
    except OPEN_ERRORS:
        return None


def _read_chain_head(home: Home) -> home_files.ChainHead | None:
    try:
        return home_files.read_chain_head(home)
    except HoustonError:
        return None


def _decode_state(decision: EventDecision) -> str:
    """The state that a sound `state` event moved its rollout to."""
    row = decision.row
    if decision.aside_reason or row is None or row.kind != "state" or row.body is None:
        return ""
    return msgspec.msgpack.decode(row.body, type=event_bodies.StoredState).state


def _rollouts_to_pause(damage: DamageByRollout) -> dict[str, int]:
    """Rollouts that are to be paused: the step behind which each goes on, −1 where none is lost."""
    return {
        id: rollout.last_step if rollout.loses_steps or rollout.work_returned else -1
        for id, rollout in damage.rollouts.items()
        if (rollout.first_bad or rollout.work_returned) and rollout.has_spec and not rollout.ended
    }


def _pause_reasons(paused: dict[str, int], damage: DamageByRollout, folder: str) -> dict[str, str]:
    """What is said of each rollout that is paused."""
    reasons = {}
    for rollout, step in paused.items():
        where = "no step was lost" if step < 0 else f"it continues after step {step}"
        if damage.rollouts[rollout].first_bad:
            reason = (
                f"it was damaged; {where}. The events that were set aside are in "
                f"{folder}/aside.jsonl"
            )
        else:
            reason = f"what a repair had set aside came back from a backup; {where}"
        reasons[rollout] = reason
    return reasons


def _group_losses(aside: dict[int, tuple[str, str]]) -> tuple[RepairLoss, ...]:
    """aside: rollout and reason, by event."""
    seqs_of: dict[tuple[str, str], list[int]] = {}
    for seq, key in sorted(aside.items()):
        seqs_of.setdefault(key, []).append(seq)
    return tuple(
        RepairLoss(rollout, tuple(seqs), reason) for (rollout, reason), seqs in seqs_of.items()
    )


def _is_step_number(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**31


def _aside_line(decision: EventDecision, owner: str, reason: str) -> bytes:
    """One event that is set aside, as it was found."""
    row: list[Any] = [_encode_value(value) for value in decision.row or ()]
    line = {"seq": decision.seq, "rollout": owner, "why": reason, "row": row}
    return msgspec.json.encode(line) + b"\n"


def _encode_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
