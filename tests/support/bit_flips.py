"""Single flipped bits and cut tails, wherever a home can have them, and whether `verify` sees them.

`run` harms a copy at a time. A harm that changes nothing of what the home holds (a bit in the
unused part of a page) is `harmless`; everything else must be found.
"""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.event_projections import PROJECTED_TABLES, UNPROJECTED_COLUMNS
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from tests.support.full_home import fill, flip
from tests.support.recorder_client import Station

ROOT = Path(__file__).parents[2]
COLUMNS = (
    "seq", "rollout", "step", "attempt", "part", "kind", "at", "body", "erased", "body_hash",
    "chain",
)  # fmt: skip
Harm = Callable[[Home, random.Random], None]


def stopped(path: Path) -> Home:
    """A home after a clean stop, with rows in every derived table that can have some."""
    station = Station(path).start()
    fill(station)
    station.stop()
    return station.home


def killed(path: Path) -> Home:
    """A home whose daemon was killed: much of it is in the WAL, and the head file names its end."""
    script = (
        "import sys, time, os\n"
        "from pathlib import Path\n"
        "from tests.support.full_home import fill\n"
        "from tests.support.recorder_client import Station\n"
        "station = Station(Path(sys.argv[1])).start()\n"
        "fill(station)\n"
        "worker = station.working()\n"
        "for step in range(1, 12):\n"
        "    worker.step(step)\n"
        "last = station.query('SELECT max(seq) FROM events')[0][0]\n"
        "named = f'\"seq\":{last},'\n"
        "while named not in station.home.head_file.read_text():\n"
        "    time.sleep(0.02)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )
    return Home(path)


def run(home: Home, harms: dict[str, int], dice: random.Random, scratch: Path) -> Counter[str]:
    """Do each harm so many times; counts of `<harm> found`, `harmless`, `missed`."""
    whole = content(home)
    counts: Counter[str] = Counter()
    for name, times in harms.items():
        for number in range(times):
            copy = Home(scratch / f"{name}-{number}".replace(" ", "-"))
            shutil.copytree(home.path, copy.path, ignore=shutil.ignore_patterns("*-shm", "run"))
            HARMS[name](copy, dice)
            counts[f"{name}: {_outcome(copy, whole)}"] += 1
            shutil.rmtree(copy.path)
    return counts


def _outcome(home: Home, whole: list[Any]) -> str:
    try:
        if not verify_home(home).sound:
            return "found"
    except HoustonError:  # it does not even open, and says so
        return "found"
    return "harmless" if content(home) == whole else "missed"


def content(home: Home) -> list[Any]:
    """Everything that the database holds."""
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    try:
        return [
            connection.execute(f"SELECT * FROM {name}").fetchall()
            for name in [*PROJECTED_TABLES, "events"]
        ]
    finally:
        connection.close()


def _event_column(home: Home, dice: random.Random) -> None:
    column = dice.choice(COLUMNS)
    _cell(home, "events", column, dice)


def _derived_column(home: Home, dice: random.Random) -> None:
    connection = sqlite3.connect(home.database)
    filled = [
        table
        for table in PROJECTED_TABLES
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
    ]
    table = dice.choice(filled)
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    connection.close()
    _cell(
        home,
        table,
        dice.choice([n for n in names if n not in UNPROJECTED_COLUMNS.get(table, ())]),
        dice,
    )


def _cell(home: Home, table: str, column: str, dice: random.Random) -> None:
    """One bit of one value, written past CHECKs and unique keys as a disk would."""
    connection = sqlite3.connect(home.database, isolation_level=None)
    key = PROJECTED_TABLES.get(table, "seq").split(", ")
    columns = ", ".join([*key, column])
    rows = connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()
    row = dice.choice([row for row in rows if row[-1] not in (None, "", b"")] or rows)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    where = " AND ".join(f"{name} IS ?" for name in key)
    try:
        connection.execute(
            f"UPDATE {table} SET {column} = ? WHERE {where}", (_bit(row[-1], dice), *row[:-1])
        )
    except sqlite3.IntegrityError:  # the value of another row: take this row away instead
        connection.execute(f"DELETE FROM {table} WHERE {where}", row[:-1])
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def _bit(value: Any, dice: random.Random) -> Any:
    if isinstance(value, bytes) and value:
        changed = bytearray(value)
        changed[dice.randrange(len(value))] ^= 1 << dice.randrange(8)
        return bytes(changed)
    if isinstance(value, str) and value:
        at = dice.randrange(len(value))
        return value[:at] + chr(ord(value[at]) ^ (1 << dice.randrange(5))) + value[at + 1 :]
    if isinstance(value, float):
        return value + 2.0 ** dice.randrange(-8, 8)
    return value ^ (1 << dice.randrange(31)) if isinstance(value, int) else 1


def _body_bit(home: Home, dice: random.Random) -> None:
    """A bit of a body, in the file itself: SQLite's own check sees nothing."""
    connection = sqlite3.connect(home.database)
    rows = connection.execute("SELECT body FROM events WHERE length(body) BETWEEN 60 AND 1000")
    body = dice.choice(rows.fetchall())[0]
    connection.close()
    at = home.database.read_bytes().find(body) + dice.randrange(len(body))
    flip(home.database, at, dice.randrange(8))


def _file_bit(path: Path, dice: random.Random) -> None:
    flip(path, dice.randrange(path.stat().st_size), dice.randrange(8))


def _used_bit(home: Home, dice: random.Random) -> None:
    data = home.database.read_bytes()
    used = [at for at, byte in enumerate(data) if byte]
    flip(home.database, dice.choice(used), dice.randrange(8))


def _wal(home: Home) -> Path:
    return home.database.with_name("houston.db-wal")


def _cut(path: Path, dice: random.Random) -> None:
    os.truncate(path, dice.randrange(path.stat().st_size))


def _cut_events(home: Home, dice: random.Random) -> None:
    connection = sqlite3.connect(home.database)
    with connection:
        connection.execute(
            "DELETE FROM events WHERE seq > (SELECT max(seq) - ? FROM events)",
            (dice.randrange(1, 20),),
        )
    connection.close()


HARMS: dict[str, Harm] = {
    "event column": _event_column,
    "derived column": _derived_column,
    "body in the file": _body_bit,
    "blob": lambda home, dice: _file_bit(dice.choice([*home.blobs.rglob("*.zst")]), dice),
    "head file": lambda home, dice: _file_bit(home.head_file, dice),
    "database page": _used_bit,
    "wal": lambda home, dice: _file_bit(_wal(home), dice),
    "cut wal": lambda home, dice: _cut(_wal(home), dice),
    "cut database": lambda home, dice: _cut(home.database, dice),
    "cut events": _cut_events,
}
STOPPED = tuple(name for name in HARMS if "wal" not in name)
"""Harms of a home after a clean stop; those of the WAL need one that was killed."""
