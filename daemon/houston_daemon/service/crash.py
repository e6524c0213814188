"""What is known of a daemon that died on this home, said at the next start: log, command, audit.

The lock kept its name, the journal the time of its last event. It knows neither why the daemon died
nor whether everything it stored is sound: the start has checked the journal's end, `houston verify`
checks the rest.
"""

import sqlite3
from contextlib import closing

from houston_daemon.service.log import LOGGER
from houston_daemon.service.progress import read_standings
from houston_shared.clock import iso
from houston_shared.home import Home
from houston_shared.lock import Owner
from houston_shared.store.bodies import DaemonDied


def died(owner: Owner | None, home: Home) -> DaemonDied | None:
    """The daemon before this one as the journal keeps it; None when it came to its own end.

    owner: `HomeLock.died`. To be asked before the new daemon stores anything.
    """
    if owner is None:
        return None
    return DaemonDied(pid=owner.pid, since=owner.since, last_stored=_last_stored(home))


def _last_stored(home: Home) -> int:
    """When the newest event was stored, UTC microseconds; 0 where that cannot be read."""
    try:
        uri = f"{home.database.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=5)) as reader:
            row = reader.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    except sqlite3.Error:  # whoever opens it for writing says what is wrong with it
        return 0
    return int(row[0]) if row else 0


def told(dead: DaemonDied | None, home: Home) -> str:
    """What is said of it in the log and by the command that starts a daemon; empty for None.

    To be asked when the store is open.
    """
    if dead is None:
        return ""
    newest = f"; the newest that it stored is of {iso(dead.last_stored)}" * bool(dead.last_stored)
    said = (
        f"the last daemon (pid {dead.pid}, since {dead.since}) did not come to its own end{newest}."
        f" What it acknowledged is stored (the journal's end was checked); {_going_on(home)}."
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
