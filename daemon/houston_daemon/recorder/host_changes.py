"""Stores hosts that were added or removed as events.

`houston host add` and `remove` write a file and need no daemon. So the recorder compares that file
with what it stored last, at its start and whenever the file has changed. Only the home's owner can
write the file, so the owner is the author of the change.
"""

import logging
import os

import msgspec

from houston_daemon.recorder.disk.host_keys import read_host_keys
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import Store
from houston_shared.config_reload import FileStamp, read_file_stamp
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.event_bodies import HostsChanged
from houston_shared.store.presence_queries import login_name
from houston_shared.store.store_reader import read_blob

LOGGER = logging.getLogger("houston.recorder")
_NEWEST_SQL = (
    "SELECT body, blob FROM events WHERE rollout = '' AND kind = 'hosts' ORDER BY seq DESC LIMIT 1"
)


class HostChanges:
    """Tells whether the file has changed since the last check; true at the first check."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._stamp: FileStamp | None = None

    def check(self) -> bool:
        """Look at the file."""
        before, self._stamp = self._stamp, read_file_stamp(self._home.host_keys)
        return before != self._stamp


def store_host_changes(store: Store) -> None:
    """Store what has changed since the newest event of this kind, inside the open transaction."""
    try:
        keys = read_host_keys(store.home)
        before = _stored_hosts(store)
    except HoustonError as problem:
        LOGGER.error("which hosts were added or removed is not in the journal: %s", problem)
        return
    hosts = {name: key.public_key for name, key in keys.hosts.items()} if keys else {}
    if hosts == before:
        return
    common_names = hosts.keys() & before.keys()
    body = HostsChanged(
        by=login_name(os.geteuid()),
        uid=os.geteuid(),
        hosts=hosts,
        added=tuple(sorted(hosts.keys() - common_names)),
        removed=tuple(sorted(before.keys() - common_names)),
        replaced=tuple(sorted(name for name in common_names if hosts[name] != before[name])),
    )
    store.journal.append(EventKey(), "hosts", body)


def _stored_hosts(store: Store) -> dict[str, str]:
    row = store.connection.execute(_NEWEST_SQL).fetchone()
    if row is None:
        return {}
    body, blob = row
    data = body if blob is None else read_blob(store.home, blob)
    return msgspec.msgpack.decode(data, type=HostsChanged).hosts
