"""GPUs of rollouts that have ended: free when nothing of them can run, and not before."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from houston_daemon.hosts.ssh import remote_part
from houston_daemon.hosts.ssh.ssh_protocol import Hello
from houston_daemon.service.gpu_ledger import GpuLedger, RolloutGpus
from houston_daemon.service.orphaned_terminals import OrphanedTerminals
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_shared.config_sections import HostSettings
from houston_shared.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home whose rollout r1 has ended, while r2 is paused."""
    made = Home(tmp_path / "home")
    made.path.mkdir()
    with closing(sqlite3.connect(made.database)) as database:
        database.execute("CREATE TABLE rollouts (id, state, last_seq)")
        database.execute("INSERT INTO rollouts VALUES ('r1', 'cancelled', 9), ('r2', 'paused', 8)")
        database.commit()
    return made


def test_they_are_held_while_processes_may_run_on_a_machine_that_is_away(
    home: Home, tmp_path: Path
) -> None:
    ledger = GpuLedger(tmp_path / "gpus.json", {"gpu2": 2})
    gpus = RolloutGpus(home, ledger)
    for rollout in ("r1", "r2"):
        ledger.lease(f"rollout:{rollout}", {"gpu2": 1})
    ledger.lease("rollout:r1-b", {"gpu2": 2})  # waits
    leftovers = OrphanedTerminals(home.database, tmp_path / "hosts", SupervisorInbox())
    note = remote_part.leftover_path(tmp_path / "hosts", "r1", "gpu2")
    hello = Hello(
        version="0", rollout="r1", root="", key="k", owner="", sandbox="bubblewrap", network=False
    )
    remote_part.write_leftover(
        note,
        remote_part.RemoteLeftover(host="gpu2", settings=HostSettings(ssh="gpu2"), hello=hello),
    )
    assert gpus.ended_holders() == {"r1", "r1-b"}
    assert leftovers.may_run("r1") and not leftovers.may_run("r1-b")
    note.unlink()
    assert not leftovers.may_run("r1")
    gpus.release({"r1", "r1-b"})
    assert [one.holder for one in ledger.snapshot().leases] == ["rollout:r2"]
    assert ledger.snapshot().waiting == {}


def test_a_ledger_that_cannot_be_written_keeps_them_and_ends_nothing(
    home: Home, tmp_path: Path
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    ledger = GpuLedger(folder / "gpus.json", {"local": 1})
    ledger.lease("rollout:r1", {"local": 1})
    folder.rename(tmp_path / "away")
    gpus = RolloutGpus(home, ledger)
    gpus.release({"r1"})
    assert gpus.gpus_of("r1") == {"local": (0,)}
    (tmp_path / "away").rename(folder)
    gpus.release(gpus.ended_holders())
    assert gpus.gpus_of("r1") == {}
