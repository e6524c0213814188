"""`houston repair`: a home that `verify` calls unsound becomes sound, and every loss has a name.

The damaged files are copied first (`damaged/<time>/`). Then a new database is written from the
events that `judge` finds sound; the place of every other is kept by a row without a body, and what
was found of it goes to `aside.jsonl` beside the copies. Derived tables are replayed, search is
rebuilt by the next daemon. Rollouts that lost something are paused by `repair`.
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

from houston_daemon.recorder.disk import damage, head_file
from houston_daemon.recorder.upkeep import backups, copying, oneself
from houston_daemon.recorder.upkeep.earlier import Earlier
from houston_daemon.recorder.upkeep.judge import BLOB, BODY, Judge, Judged
from houston_daemon.recorder.upkeep.rewind import Fates
from houston_daemon.recorder.upkeep.rewrite import Rewriting
from houston_daemon.recorder.upkeep.salvage import Place, Source
from houston_daemon.recorder.upkeep.verify import verify
from houston_daemon.recorder.upkeep.verify_events import Row
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import blobs, bodies

ROUNDS = 4
"""Times that what `verify` still finds is set aside as well."""


class Loss(msgspec.Struct, frozen=True):
    """Events of one rollout that were set aside for one reason."""

    rollout: str
    """Empty for events of the daemon, or of which nobody knows whose they were."""
    seqs: tuple[int, ...]
    why: str


class Repaired(msgspec.Struct, frozen=True):
    """What a repair did; the JSON of `houston repair --json`."""

    changed: bool
    """Whether there was anything to do."""
    copies: str = ""
    """Folder with the damaged files as they were, and `aside.jsonl`."""
    losses: tuple[Loss, ...] = ()
    mended: tuple[str, ...] = ()
    """What could be put back as it was."""
    paused: dict[str, int] = {}
    """Rollouts that were paused: the step behind which each goes on, −1 where none was lost."""
    returned: dict[str, tuple[int, ...]] = {}
    """By rollout, what an earlier repair had set aside and a backup gave back."""
    stays: tuple[Loss, ...] = ()
    """What a backup has of that and what stays aside all the same."""
    seq: int = 0
    """The journal's newest event now."""


def repair(home: Home, backup: Path | None = None) -> Repaired:
    """Repair a home that nobody has open; `backup`: also take what fits from this one, what an
    earlier repair had set aside too.

    Raises HoustonError when it cannot be done; the home is then as it was.
    """
    spares = _spares(home, backup)  # a wrong name is said before anything is done
    sound, aside = _found(home)
    if sound and not (backup and aside):
        return Repaired(changed=False)
    copies = Home(home.damaged / copying.stamp())
    beside = Home(home.path / "repair.new")
    try:
        kept = ""
        _keep(home, copies)
        kept = f"; copies are in {copies.path}"
        shutil.rmtree(beside.path, ignore_errors=True)
        beside.path.mkdir(mode=0o700)
        (beside.blobs).symlink_to(home.blobs)
        done = _Repair(home, copies, beside, spares).run()
        if sound and not done.returned:
            shutil.rmtree(copies.path)
            return Repaired(changed=False, stays=done.stays)
        _replace(home, beside)
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


def _found(home: Home) -> tuple[bool, int]:
    """Whether the home is sound, and how many events earlier repairs set aside."""
    if not home.database.exists() and not home.head_file.exists():
        raise HoustonError(
            f"There is no database in the home {home.path}.",
            "There is nothing to repair.",
            "houston backup --restore DIR, or name the right folder with --home",
        )
    try:
        report = verify(home)
    except HoustonError:
        return False, 0
    return report.sound, report.aside


def _keep(home: Home, copies: Home) -> None:
    """Copy what is damaged before anything else is done; raises OSError, and then keeps nothing."""
    try:
        for path in (home.database, home.head_file):
            wal = path.with_name(path.name + "-wal")
            for one in (path, wal):
                if one.exists():
                    copying.file(one, copies.path / one.name)
        copies.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        copying.sync_tree(home.damaged)
    except OSError:  # half a copy helps nobody, and takes the room that is missing
        shutil.rmtree(copies.path, ignore_errors=True)
        raise


def _spares(home: Home, backup: Path | None) -> list[Home]:
    """Backups to take from, newest first."""
    own = [Home(home.backups / name) for name in reversed(damage.backups(home))]
    given = [Home(folder) for folder in backups.all_of(home, backup)] if backup else []
    return given + [one for one in own if one not in given]


def _replace(home: Home, beside: Home) -> None:
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
    copying.sync(beside.database)
    beside.database.replace(home.database)
    beside.head_file.replace(home.head_file)
    copying.sync(home.path)


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


class _Repair:
    """One repair, under way."""

    def __init__(self, home: Home, copies: Home, beside: Home, spares: list[Home]) -> None:
        self._home = home
        self._copies = copies
        self._beside = beside
        self._head = _head(copies)
        self._source = _source(copies, spares, self._head.seq if self._head else 0)
        self._spares = [spare for one in spares if (spare := _spare(one))]
        self._earlier = Earlier(self._source.rows())
        self._condemned: dict[int, str] = {}
        self._mended: list[str] = []

    def run(self) -> Repaired:
        """Write the new database; raises HoustonError when it does not become sound."""
        try:
            for _ in range(ROUNDS):
                done = self._round()
                report = verify(self._beside)
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

    def _round(self) -> Repaired:
        self._mended = []
        self._earlier.stays.clear()
        fates = Fates()
        for judged in self._judged():
            fates.see(judged, self._place(judged).rollout, _state(judged))
        fates.settle()
        losses: dict[tuple[str, str], list[int]] = {}
        returned: dict[str, list[int]] = {}
        with (self._copies.path / "aside.jsonl").open("wb") as aside:
            writing = Rewriting(self._home, self._beside)
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
                    aside.write(_line(judged, place.rollout, why))
            os.fsync(aside.fileno())
        writing.look(self._source.looks())
        folder = str(self._copies.path.relative_to(self._home.path))
        paused = _paused(fates)
        seq = writing.close(folder, _reasons(paused, fates, folder), oneself.author())
        return Repaired(
            changed=True,
            copies=str(self._copies.path),
            losses=_losses(losses),
            mended=tuple(dict.fromkeys(self._mended)),
            paused=paused,
            returned={rollout: tuple(seqs) for rollout, seqs in returned.items()},
            stays=self._stays(),
            seq=seq,
        )

    def _note(self, judged: Judged, why: str, returned: dict[str, list[int]]) -> None:
        """Whether an event that a backup would give back comes back."""
        assert judged.row is not None
        rollout = str(judged.row[1])
        if why:
            self._earlier.stays[judged.seq] = rollout, why
        else:
            returned.setdefault(rollout, []).append(judged.seq)

    def _stays(self) -> tuple[Loss, ...]:
        by: dict[tuple[str, str], list[int]] = {}
        for seq, key in sorted(self._earlier.stays.items()):
            by.setdefault(key, []).append(seq)
        return _losses(by)

    def _judged(self) -> Iterator[Judged]:
        end = (self._head.seq, self._head.value) if self._head else None
        judge = Judge(self._body, self._spare_rows, end)
        for judged in judge.all(self._source.rows(), self._source.last):
            why = self._condemned.get(judged.seq)
            yield judged._replace(why=why) if why and not judged.why else judged

    def _place(self, judged: Judged) -> Place:
        """Whose an event is: by its row where that is sound, else by an index where one tells."""
        row = judged.row
        own = Place() if row is None else Place(str(row[1]), row[2] if _number(row[2]) else 0)
        if row is not None and not judged.why:
            return own
        told = self._source.place(judged.seq)
        return Place(told.rollout or own.rollout, told.step or own.step)

    def _body(self, row: Row) -> bytes | None:
        if row[BLOB] is None:
            return row[BODY] if isinstance(row[BODY], bytes) else None
        for home in (self._home, *(one for one, _ in self._spares)):
            try:
                data = blobs.read(home, row[BLOB])
                if home is not self._home:
                    copying.file(blobs.place(home, row[BLOB]), blobs.place(self._home, row[BLOB]))
                    self._mended.append(f"Event {row[0]}: its blob was taken from a backup.")
                elif copying.sha256(blobs.place(home, row[BLOB])) != row[BLOB]:
                    continue
                return data
            except (HoustonError, TypeError, ValueError, OSError):
                continue
        return None

    def _spare_rows(self, seq: int) -> Iterable[Row]:
        rows = [row for _, spare in self._spares if (row := spare.row(seq))]
        return [row for row in rows if self._earlier.allows(seq, row)]


def _source(copies: Home, spares: list[Home], last: int) -> Source:
    for home in (copies, *spares):
        try:
            return Source(home.database, last)
        except (sqlite3.DatabaseError, UnicodeDecodeError, OSError):
            continue
    raise HoustonError(
        f"{copies.database} cannot be opened at all, and there is no backup.",
        "Nothing was changed.",
        "Ask for help with that copy; it holds what there is.",
        ExitCode.DAMAGED,
    )


def _spare(home: Home) -> tuple[Home, Source] | None:
    try:
        return home, Source(home.database)
    except (sqlite3.DatabaseError, UnicodeDecodeError, OSError):
        return None


def _head(home: Home) -> head_file.Head | None:
    try:
        return head_file.read(home)
    except HoustonError:
        return None


def _state(judged: Judged) -> str:
    """The state that a sound `state` event moved its rollout to."""
    row = judged.row
    if judged.why or row is None or row[5] != "state" or row[BODY] is None:
        return ""
    return msgspec.msgpack.decode(row[BODY], type=bodies.StoredState).state


def _paused(fates: Fates) -> dict[str, int]:
    """Rollouts that are to be paused: the step behind which each goes on, −1 where none is lost."""
    return {
        id: fate.last_step if fate.rewinds or fate.back else -1
        for id, fate in fates.of.items()
        if (fate.first_bad or fate.back) and fate.spec and not fate.ended
    }


def _reasons(paused: dict[str, int], fates: Fates, folder: str) -> dict[str, str]:
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


def _losses(by: dict[tuple[str, str], list[int]]) -> tuple[Loss, ...]:
    return tuple(Loss(who, tuple(seqs), why) for (who, why), seqs in by.items())


def _number(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**31


def _line(judged: Judged, owner: str, why: str) -> bytes:
    """One event that is set aside, as it was found."""
    row: list[Any] = [_plain(value) for value in judged.row or ()]
    said = {"seq": judged.seq, "rollout": owner, "why": why, "row": row}
    return msgspec.json.encode(said) + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
