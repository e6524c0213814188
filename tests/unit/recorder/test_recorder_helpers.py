"""The recorder's small parts on their own, as tables of named scenarios."""

import os
import pwd
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.recorder import rollout_reader
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.event_projections import PROJECTED_TABLES, PROJECTIONS
from houston_daemon.recorder.identity_and_roles import Peer, PeerIdentities, resolve_author
from houston_daemon.recorder.request_checks import is_disk_full
from houston_daemon.recorder.rollout_reader import is_call_allowed
from houston_shared import records
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import event_bodies, schema
from houston_shared.wire import QueuedGuidance, WorkerControl

ME = pwd.getpwuid(os.getuid()).pw_name

ADDRESSES: dict[str, tuple[str | None, int | None]] = {
    "ours": (f"localhost:{os.getuid()}:{os.getgid()}:77", os.getuid()),
    "another user": ("localhost:65534:65534:77", 65534),
    "a user without a name": ("localhost:3999999:3999999:77", 3999999),
    "none": (None, None),
    "a network address": ("192.168.0.7", None),
    "an IPv6 address": ("fe80::1:2:3", None),
    "words": ("localhost:root:root:1", None),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_peer_is_who_the_kernel_says(name: str) -> None:
    address, uid = ADDRESSES[name]
    peer = PeerIdentities("").peer(address)
    assert (peer.uid if peer else None) == uid
    if peer:
        assert peer.owner == (uid in (os.geteuid(), 0))
        assert peer.role == ("operator" if peer.owner else None)


CLAIMS = {
    "nothing": ("", ("ada", True)),
    "the login": (" ada ", ("ada", True)),
    "another": ("bob", ("bob", False)),
    "a very long one": ("b" * 200, ("b" * 64, False)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_verified_only_when_it_is_the_login(name: str) -> None:
    claimed, expected = CLAIMS[name]
    found = resolve_author(Peer(1000, "ada", "annotator", 12), claimed)
    assert (found.name, found.verified) == expected
    assert (found.uid, found.pid, found.role) == (1000, 12, "annotator")


HEADS: dict[str, bytes] = {
    "not JSON": b"\0\0\0",
    "empty": b"",
    "a field too many": b'{"seq":1,"chain":"' + b"0" * 64 + b'","more":1}\n',
    "a short chain": b'{"seq":1,"chain":"00"}\n',
    "no hex": b'{"seq":1,"chain":"' + b"z" * 64 + b'"}\n',
    "upper case": b'{"seq":1,"chain":"' + b"A" * 64 + b'"}\n',
    "other spaces": b'{"seq": 1,"chain":"' + b"0" * 64 + b'"}\n',
    "a negative sequence": b'{"seq":-01,"chain":"' + b"0" * 64 + b'"}\n',
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_was_changed_is_damaged(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    home.head_file.write_bytes(HEADS[name])
    with pytest.raises(HoustonError, match="damaged"):
        home_files.read_chain_head(home)


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home_files.read_chain_head(home) is None
    for seq in (0, 1, 2**40):
        home_files.write_chain_head(home, seq, bytes(range(32)))
        found = home_files.read_chain_head(home)
        assert found is not None
        assert (found.seq, found.value) == (seq, bytes(range(32)))
    assert [path.name for path in tmp_path.iterdir()] == ["chain.head"]


def test_every_kind_has_a_type_and_a_rule() -> None:
    assert set(PROJECTIONS) == set(event_bodies.BODY_TYPES)


def test_every_table_is_derived_or_named_as_not() -> None:
    connection = sqlite3.connect(":memory:")
    schema.migrate_schema(connection)
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    assert tables == set(PROJECTED_TABLES) | {"events", "annotators", "looks"}


ACTS: dict[str, tuple[str | None, float, bool]] = {
    "nothing waits": (None, 9.0, True),
    "next": ("next", 9.0, True),
    "wake, a call": ("wake", 0.0, True),
    "wake, a sleep": ("wake", 9.0, False),
    "interrupt, a call": ("interrupt", 0.0, False),
    "interrupt, a sleep": ("interrupt", 9.0, False),
}


@pytest.mark.parametrize("name", ACTS)
def test_whether_a_call_may_still_run(name: str) -> None:
    urgency, deadline, act = ACTS[name]
    call = records.ToolCall(id="1.0", name="sleep", arguments={})
    control = WorkerControl(waiting=QueuedGuidance(1 if urgency else 0, urgency))  # type: ignore[arg-type]
    assert is_call_allowed(records.CallIntent(call=call, deadline=deadline), control) is act


def test_what_counts_as_a_full_disk(tmp_path: Path) -> None:
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    lost = sqlite3.OperationalError("disk I/O error")
    lost.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert is_disk_full(full, tmp_path)
    assert is_disk_full(OSError(28, "No space left on device"), tmp_path)
    assert not is_disk_full(lost, tmp_path)  # a failed sync is never forgiven
    assert not is_disk_full(OSError(5, "Input/output error"), tmp_path)
    assert not is_disk_full(sqlite3.IntegrityError("UNIQUE"), tmp_path)


def test_control_states_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def read(_: object, rollout: str) -> WorkerControl:
        reads.append(rollout)
        return WorkerControl(cancel=rollout == "cancelled")

    monkeypatch.setattr(rollout_reader, "read_control_state", read)
    nobody: Any = None
    cache = rollout_reader.ControlStateCache(nobody)
    for number in range(2 * rollout_reader.KNOWN_CONTROLS_LIMIT):
        cache.get(f"r{number}")
    assert len(cache._known) <= rollout_reader.KNOWN_CONTROLS_LIMIT
    reads.clear()
    assert [cache.get("cancelled").cancel for _ in range(3)] == [True] * 3
    assert reads == ["cancelled"]
