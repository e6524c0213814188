"""What is known of a daemon that died on this home, said at the next start: log, command, audit.

The lock kept its name, files kept the time of its last sign. It knows neither why the daemon died
nor whether everything it stored is sound: the start has checked the journal's end, `houston verify`
checks the rest.
"""

import sqlite3
from pathlib import Path

from houston_daemon.service.log import LOGGER
from houston_daemon.service.progress import read_standings
from houston_shared.clock import iso
from houston_shared.home import Home
from houston_shared.lock import Owner
from houston_shared.store.bodies import DaemonDied


def last_sign(home: Home) -> int:
    """When a daemon last wrote into this home, UTC microseconds; 0 when none ever did.

    To be asked before a new one logs its first line.
    """
    wal = home.database.with_name(f"{home.database.name}-wal")
    places = (home.logs / "daemon.log", wal, home.head_file)
    return max(map(_changed, places))


def _changed(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1000
    except OSError:
        return 0


def died(owner: Owner | None, sign: int) -> DaemonDied | None:
    """The daemon before this one as the journal keeps it; None when it came to its own end.

    owner: `HomeLock.died`; sign: see `last_sign`.
    """
    return DaemonDied(pid=owner.pid, since=owner.since, last_sign=sign) if owner else None


def told(dead: DaemonDied | None, home: Home) -> str:
    """What is said of it in the log and by the command that starts a daemon; empty for None.

    To be asked when the store is open.
    """
    if dead is None:
        return ""
    said = (
        f"the last daemon (pid {dead.pid}, since {dead.since}) did not come to its own end; its "
        f"last sign was at {iso(dead.last_sign)}. What it acknowledged is stored (the journal's "
        f"end was checked); {_going_on(home)}."
    )
    LOGGER.warning("%s", said)
    return said


def _going_on(home: Home) -> str:
    try:
        count = sum(not one.waits for one in read_standings(home.database).values())
    except sqlite3.Error as problem:  # a full disk: no reason not to start
        return f"its rollouts could not be counted ({problem})"
    if not count:
        return "no rollout was under way"
    return f"{count} rollout{'s go' if count > 1 else ' goes'} on"
