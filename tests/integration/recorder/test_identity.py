"""Who may speak: the kernel says who somebody is, whatever they claim."""

import getpass
import grp
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_shared import wire
from tests.support.recorder_client import Station

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Imports come first: the other user may not be able to read the interpreter's library.
STRANGER = """
import os, sys, zmq
from houston_shared import wire
os.setgroups([int(group) for group in sys.argv[3:]])
os.setgid({uid}); os.setuid({uid})
context = zmq.Context()
socket = context.socket(zmq.DEALER)
socket.connect(sys.argv[1])
kind = wire.ingest_reply_decoder if "ingest" in sys.argv[1] else wire.control_reply_decoder
for message in (
    wire.Hello(rollout=sys.argv[2], lease=1, pid=1) if "ingest" in sys.argv[1] else None,
    wire.Guide(id="s", rollout=sys.argv[2], text="hello", claimed="root"),
    wire.StopDaemon(),
    wire.StartRollouts(request="r", specs=()),
):
    if message is None:
        continue
    socket.send_multipart([b"12345678", wire.encode_message(message)])
    if not socket.poll(3000):
        print("silence")
        break
    print(kind.decode(socket.recv_multipart()[1]))
    if "ingest" in sys.argv[1]:
        break
context.destroy(linger=0)
"""


def speak(endpoint: str, rollout: str, *groups: int) -> list[str]:
    """What another user hears on an endpoint."""
    done = subprocess.run(
        [sys.executable, "-c", STRANGER.format(uid=NOBODY), endpoint, rollout, *map(str, groups)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A folder that everybody may enter (pytest's own is the owner's alone)."""
    with tempfile.TemporaryDirectory(prefix="houston-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_home_is_its_owner_s_alone(station: Station) -> None:
    for folder in (station.home.path, station.home.run, station.home.blobs):
        assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("ingest", "control", "live"):
        assert (station.home.run / f"{name}.sock").stat().st_mode & 0o777 == 0o600
    assert station.home.database.stat().st_mode & 0o777 == 0o600


def test_a_claimed_name_is_kept_and_marked_unverified(station: Station) -> None:
    person, worker = station.person(), station.working()
    login = getpass.getuser()
    cases = {"": (login, True), login: (login, True), "ada": ("ada", False)}
    for number, (claimed, (name, verified)) in enumerate(cases.items()):
        message = wire.Guide(id=str(number), rollout=worker.rollout, text="hello", claimed=claimed)
        said = person.ask(message).guidance
        assert (said.author, said.verified) == (name, verified)
    rows = station.query("SELECT author, verified, uid FROM guidance ORDER BY number")
    assert [row[:2] for row in rows] == [(login, 1), (login, 1), ("ada", 0)]
    assert {row[2] for row in rows} == {os.getuid()}


@needs_root
def test_another_user_is_kept_out_by_the_folder_and_refused_behind_it(open_place: Path) -> None:
    station = Station(open_place / "home").start()
    try:
        worker = station.working()
        for name in ("ingest", "control"):
            assert speak(station.home.socket(name), worker.rollout) == ["silence"]
        for folder in (station.home.path, station.home.run):
            folder.chmod(0o755)
        for name in ("ingest", "control"):
            (station.home.run / f"{name}.sock").chmod(0o666)
            for line in speak(station.home.socket(name), worker.rollout):
                assert line.startswith(("Refused", "Denied"))
                assert "is not allowed to send messages here" in line
        assert station.query("SELECT count(*) FROM guidance") == [(0,)]
    finally:
        station.stop()


@needs_root
def test_a_member_of_the_group_guides_but_neither_starts_nor_stops(open_place: Path) -> None:
    from houston_shared.config_sections import DaemonSettings

    group = grp.getgrgid(NOBODY).gr_name
    station = Station(open_place / "home", daemon=DaemonSettings(group=group)).start()
    try:
        worker = station.working()
        assert station.home.path.stat().st_mode & 0o7777 == 0o2750
        assert (station.home.run / "control.sock").stat().st_mode & 0o777 == 0o660
        wal = station.home.database.with_name("houston.db-wal").stat()
        assert (wal.st_gid, wal.st_mode & 0o777) == (NOBODY, 0o640)
        guided, stopped, started = speak(station.home.socket("control"), worker.rollout)
        assert guided.startswith("RequestStored")
        assert "author='root', text='hello'" in guided  # the name they claimed,
        assert "verified=False" in guided  # and that it is only claimed
        assert stopped.startswith("Denied")
        assert started.startswith("Denied")
        (refused,) = speak(station.home.socket("ingest"), worker.rollout)
        assert "is not allowed to send messages here" in refused
    finally:
        station.stop()


def test_an_unknown_group_is_a_sentence(tmp_path: Path) -> None:
    from houston_shared.config_sections import DaemonSettings
    from houston_shared.errors import HoustonError

    station = Station(tmp_path / "home", daemon=DaemonSettings(group="no-such-group"))
    with pytest.raises(HoustonError, match="no-such-group"):
        station.start()
