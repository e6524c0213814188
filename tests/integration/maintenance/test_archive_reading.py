"""An archived rollout reads as it did: listed as archived, and its steps byte for byte."""

import json
import subprocess
import tempfile
from pathlib import Path

import pytest

from houston_daemon.maintenance import archive_file
from houston_daemon.recorder.hash_chain import EVENT_COLUMNS
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared import wire
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import BranchPoint, TaskRecord
from houston_shared.store.event_bodies import StoredSpec
from tests.support import small_disk
from tests.support.full_home import fill
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station
from tests.support.written_home import WrittenHome

WAYS = {
    "as text": (),
    "whole": ("--full",),
    "as JSON": ("--json",),
    "the newest": ("--from", "2", "-n", "1"),
}


def houston(home: Home, *words: str, code: int = 0) -> bytes:
    done = subprocess.run(
        houston_command(*words, "--home", str(home.path)),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def events(home: Home, rollout: str) -> list[tuple[object, ...]]:
    import sqlite3

    columns = EVENT_COLUMNS.replace("body, blob", "blob")
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    try:
        sql = f"SELECT {columns} FROM events WHERE rollout = ? AND kind <> 'erased' ORDER BY seq"
        return connection.execute(sql, (rollout,)).fetchall()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, str]:
    """A rollout with something of everything, its large result in a blob; it has ended."""
    station = Station(tmp_path_factory.mktemp("archives") / "home").start()
    fill(station)
    ((rollout,),) = station.query("SELECT id FROM rollouts")
    person = station.person()
    person.ask(wire.BookmarkStep(rollout=rollout, step=2, note="later"))
    station.stop()
    station = Station(station.home.path).start()
    station.person().ask(wire.Steer(rollout=rollout, action="cancel"))
    station.stop()
    return station.home, rollout


def test_the_archive_of_a_branch_says_whose_its_first_steps_are(tmp_path: Path) -> None:
    written = WrittenHome(tmp_path / "home")
    written.rollout("root")
    for step in (1, 2):
        sampled = written.step("root", step)
    task = TaskRecord(
        name="t", folder="/t", definition='name = "t"\ninstructions = "x"', instructions="x"
    )
    spec = StoredSpec(
        rollout="limb", task=task, engine="script:x", engine_settings={}, parent="root",
        parent_step=2, origin=BranchPoint(seq=sampled, head_seq=0),
    )  # fmt: skip
    written.event(EventKey("limb"), "spec", spec)
    written.step("limb", 3)
    written.close()
    path, _ = archive_file.write_archive(written.home, "limb", tmp_path)
    words = ("rollout", "archive", "--read", str(path), "--home", str(written.home.path))
    done = subprocess.run(houston_command(*words), capture_output=True, timeout=60, check=True)
    assert b"limb is a branch: steps 1 to 2 are those of root" in done.stderr


def test_a_full_disk_for_what_is_unpacked_is_said(
    ended: tuple[Home, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, rollout = ended
    path, _ = archive_file.write_archive(home, rollout, tmp_path)
    small = tmp_path / "small"
    small.mkdir()
    with small_disk.mounted(small, 1):
        filler = small_disk.fill(small)
        monkeypatch.setattr(tempfile, "tempdir", str(small))
        home_of = archive_file.unpack_archive(path)
        with pytest.raises(HoustonError, match="unpacked for reading: database") as said, home_of:
            pytest.fail("there was room")
        assert f"Make room in {small}" in said.value.next
        assert list(small.iterdir()) == [filler]


def test_its_steps_are_the_same_byte_for_byte(ended: tuple[Home, str]) -> None:
    home, rollout = ended
    before = {way: houston(home, "steps", rollout, *words) for way, words in WAYS.items()}
    rows = events(home, rollout)
    assert b"a large result" in before["whole"]
    assert b"guidance number 0" in before["as text"]
    assert all(before.values())
    (line,) = houston(home, "rollout", "archive", rollout, "--yes", "--json").splitlines()
    file = json.loads(line)["archive"]
    assert b"a large result" not in houston(home, "steps", rollout, "--full")

    read = ("rollout", "archive", "--read", file)
    after = {way: houston(home, *read, *words) for way, words in WAYS.items()}
    assert after == before
    with archive_file.unpack_archive(Path(file)) as (copy, manifest):
        assert manifest.rollout == rollout
        strip = [row[:7] + row[9:] for row in rows]
        assert [row[:7] + row[9:] for row in events(copy, rollout)] == strip, "hashes and chain"
        place = copy.path
    assert not place.exists(), "texts of an archive are left nowhere"

    assert b"[archived]" in houston(home, "rollout", "list")
    assert b"[archived]" in houston(home, "rollout", "show", rollout)
    (listed,) = houston(home, "rollout", "list", "--json").splitlines()
    (shown,) = houston(home, "rollout", "show", rollout, "--json").splitlines()
    assert json.loads(listed)["archive"] == json.loads(shown)["archive"] == file
    assert b"reading writes no file" in houston(home, *read, "--out", str(home.path), code=2)
    missing = houston(home, "rollout", "archive", "--read", f"{file}.old", code=66)
    assert b"cannot be read by this user: No such file" in missing
    data = bytearray(Path(file).read_bytes())
    data[len(data) // 2] ^= 1
    Path(file).write_bytes(data)
    assert b"cannot be read" in houston(home, *read, code=65)
    assert b"Name a rollout, or an archive" in houston(home, "rollout", "archive", code=2)
