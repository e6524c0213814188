"""A cleanup that cannot be started now costs nothing but time: the next look tries again. One that
waits as its rollout is resumed is not done."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.maintenance.host_cleanup import CleanupOrder
from houston_daemon.service import orphaned_terminals
from houston_daemon.service.orphaned_terminals import OrphanedTerminals
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_shared.home import Home
from houston_shared.store.event_bodies import StoredState
from tests.support.written_home import EventKey, WrittenHome


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    """One with a rollout that was cancelled."""
    made = WrittenHome(tmp_path)
    made.rollout("r0")
    made.event(EventKey("r0"), "state", StoredState(state="cancelled", by="person:ann"))
    yield made
    made.close()


@pytest.fixture
def home(written: WrittenHome) -> Home:
    return written.home


@pytest.mark.parametrize("place", ["here", "elsewhere"])
@pytest.mark.parametrize("fails", ["start", "watch"])
def test_it_is_tried_again(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fails: str
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    failing = True

    def start(*_: object) -> "subprocess.Popen[bytes]":
        if failing and fails == "start":
            raise OSError(errno.EAGAIN, "no more processes")
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    def watch(pid: int) -> int:
        if failing and fails == "watch":
            raise OSError(errno.EMFILE, "no more descriptors")
        return pidfd_open(pid)

    pidfd_open = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", watch)
    monkeypatch.setattr(orphaned_terminals, "start_cleanup", start)
    monkeypatch.setattr(orphaned_terminals, "_REMOTE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(orphaned_terminals, "has_leftovers", lambda *_: place == "here")
    order = CleanupOrder(str(tmp_path), "r0", "processes")
    monkeypatch.setattr(
        orphaned_terminals, "_read_remote_orders", lambda *_: [order] * (place == "elsewhere")
    )
    note = tmp_path / "r0@there.json"
    monkeypatch.setattr(orphaned_terminals.remote_part, "find_leftovers", lambda *_: [note])
    orphans = OrphanedTerminals(home.database, tmp_path / "hosts", SupervisorInbox())
    for _ in range(2):  # what is left elsewhere is looked at in the round after
        orphans.update(())
    assert [process.poll() for process in started if fails == "watch"] == [-9] * len(started)
    failing, before = False, len(started)
    orphans.update(())
    assert len(started) == before + 1
    orphans.update(())
    assert len(started) == before + 1, "one at a time"
    started[-1].kill()
    orphans.on_ended()


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_resumed_rollout_keeps_its_terminals(
    written: WrittenHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its cleanup had to wait (for another, for a machine that was away) until it was resumed."""
    orders: list[object] = []
    monkeypatch.setattr(orphaned_terminals, "start_cleanup", lambda *told: orders.append(told[1]))
    monkeypatch.setattr(orphaned_terminals, "_REMOTE_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(orphaned_terminals, "has_leftovers", lambda *_: place == "here")
    notes = [tmp_path / "r0@there.json"] * (place == "elsewhere")
    monkeypatch.setattr(
        orphaned_terminals.remote_part,
        "find_leftovers",
        lambda _, rollouts: notes if "r0" in rollouts else [],
    )
    order = CleanupOrder(str(tmp_path), "r0", "processes")
    monkeypatch.setattr(
        orphaned_terminals, "_read_remote_orders", lambda _, notes: [order] * len(notes)
    )
    orphans = OrphanedTerminals(written.home.database, tmp_path / "hosts", SupervisorInbox())
    other = subprocess.Popen([sys.executable, "-c", ""])
    orphans._process = other
    orphans.update(())
    for state in ("queued", "running"):
        written.event(EventKey("r0"), "state", StoredState(state=state, by="person:ann"))
    orphans.update({"r0"})
    orphans.on_ended()
    for _ in range(3):
        orphans.update(())  # its worker died, and another has not been started yet
    assert orders == []
