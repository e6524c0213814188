"""`houston verify` finds every changed bit and every cut end, and nothing where all is sound."""

import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.commands import maintenance_commands as command
from houston_daemon.maintenance import (
    home_backup,
    home_verification,
    journal_repair,
    projection_replay,
)
from houston_daemon.maintenance.home_verification import VerificationReport, verify_home
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.event_projections import PROJECTED_TABLES, UNPROJECTED_COLUMNS
from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.event_bodies import StoredState
from tests.support.full_home import change, fill, flip, lower_newest_number, other
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station
from tests.support.tiers import sampled
from tests.support.written_home import WrittenHome


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home after a clean stop."""
    station = Station(tmp_path_factory.mktemp("sound") / "home").start()
    fill(station)
    station.stop()
    return station.home.path


@pytest.fixture
def home(sound: Path, tmp_path: Path) -> Home:
    """A copy to harm."""
    copy = tmp_path / "home"
    subprocess.run(["cp", "-a", str(sound), str(copy)], check=True)
    return Home(copy)


def texts(report: VerificationReport) -> str:
    return "\n".join(finding.text for finding in report.findings)


def test_a_sound_home_is_sound_to_its_last_event(home: Home) -> None:
    report = verify_home(home)
    assert report.findings == ()
    assert report.sound
    assert report.vouched == report.events > 20


SMALL_PROCESS = """#!{python}
import runpy, sqlite3, sys
connect = sqlite3.connect
def small(place, **options):
    connection = connect(place, **options)
    if not place:
        connection.execute("PRAGMA max_page_count = 1").fetchall()
    return connection
sqlite3.connect = small
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""An interpreter in which SQLite has no room for its temporary files."""
CHECKS: dict[str, Callable[[Home], object]] = {
    "verify": verify_home,
    "repair": journal_repair.repair_home,
    "backup": home_backup.make_backup,
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("place", ["here", "a process of its own"])
def test_no_room_for_temporary_files_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, check: str
) -> None:
    written = WrittenHome(tmp_path / "home")
    written.rollout("r")
    paused = StoredState(state="paused", by="worker", reason="long " * 20_000)
    written.event(EventKey("r"), "state", paused)
    home_files.write_chain_head(written.home, written.journal.seq, written.journal.chain)
    written.close()
    open_tables = projection_replay.open_replay_database

    def small(home: Home) -> sqlite3.Connection:
        connection = open_tables(home)
        (pages,) = connection.execute("PRAGMA main.page_count").fetchone()
        connection.execute(f"PRAGMA main.max_page_count = {pages}").fetchall()
        return connection

    if place == "here":
        monkeypatch.setattr(projection_replay, "open_replay_database", small)
    else:
        interpreter = tmp_path / "python"
        interpreter.write_text(SMALL_PROCESS.format(python=sys.executable))
        interpreter.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(interpreter))
        monkeypatch.setattr(home_verification, "SEPARATE_REPLAY_BYTES", 0)
    with pytest.raises(HoustonError, match="no room for SQLite's temporary files") as said:
        CHECKS[check](written.home)
    assert said.value.effect == "It is not known whether the home is sound."
    assert "SQLITE_TMPDIR" in said.value.next and "houston" not in said.value.next
    assert not written.home.damaged.exists(), "nothing is repaired"


def test_a_live_home_is_sound(station: Station) -> None:
    fill(station)
    assert verify_home(station.home).findings == ()


COLUMNS = (
    "rollout", "step", "attempt", "part", "kind", "at", "body", "erased", "body_hash", "chain"
)  # fmt: skip


@pytest.mark.parametrize("column", sampled(COLUMNS, 4))
def test_every_column_of_every_event_is_covered(home: Home, column: str) -> None:
    connection = sqlite3.connect(home.database)
    rows = connection.execute(f"SELECT seq, {column} FROM events WHERE {column} IS NOT NULL")
    values = rows.fetchall()
    connection.close()
    for seq, value in values[::3]:
        copy = Home(home.path.with_name(f"{home.path.name}-{seq}"))
        subprocess.run(["cp", "-a", str(home.path), str(copy.path)], check=True)
        change(copy, f"UPDATE events SET {column} = ? WHERE seq = ?", other(value), seq)
        found = [one.seq for one in verify_home(copy).findings if one.what in ("chain", "body")]
        assert seq in found, (column, seq)


@pytest.mark.slow
def test_every_column_of_every_derived_table_is_covered(home: Home, tmp_path: Path) -> None:
    connection = sqlite3.connect(home.database)
    filled = []
    for table in PROJECTED_TABLES:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
        if rows:
            filled.append((table, names, rows[0]))
    checks = {"state", "role", "mode", "kind", "source"}  # a CHECK allows few other values
    connection.close()
    assert len(filled) == 23, [table for table, _, _ in filled]
    for table, names, row in filled:
        for name, value in zip(names, row, strict=True):
            if name in UNPROJECTED_COLUMNS.get(table, ()) or name in checks:
                continue
            copy = Home(tmp_path / f"{table}-{name}")
            subprocess.run(["cp", "-a", str(home.path), str(copy.path)], check=True)
            changed = 1 if value is None else other(value)
            key = PROJECTED_TABLES[table].split(", ")[0]
            change(
                copy,
                f"UPDATE {table} SET {name} = ? WHERE rowid_of = 1".replace(
                    "rowid_of = 1", f"{key} = (SELECT {key} FROM {table} LIMIT 1) AND {name} IS ?"
                ),
                changed,
                value,
            )
            found = {finding.table for finding in verify_home(copy).findings}
            assert table in found, (table, name, value, changed)


def _delete_event(home: Home) -> None:
    change(home, "DELETE FROM events WHERE seq = 7")


def _cut_events(home: Home) -> None:
    change(home, "DELETE FROM events WHERE seq > (SELECT max(seq) - 3 FROM events)")


def _extra_row(home: Home) -> None:
    change(home, "INSERT INTO bookmarks VALUES ('x', 1, 'nobody', 3, 3)")


def _missing_row(home: Home) -> None:
    change(home, "DELETE FROM samples WHERE seq = (SELECT min(seq) FROM samples)")


def _drop_index(home: Home) -> None:
    connection = sqlite3.connect(home.database)
    connection.execute("DROP INDEX events_key")
    connection.close()


def _remove_head(home: Home) -> None:
    home.head_file.unlink()


def _other_head(home: Home) -> None:
    head = msgspec.json.decode(home.head_file.read_bytes())
    head["chain"] = "0" * 64
    home.head_file.write_bytes(msgspec.json.encode(head) + b"\n")


def _remove_blob(home: Home) -> None:
    next(home.blobs.rglob("*.zst")).unlink()


HARMS: dict[str, tuple[Callable[[Home], None], str]] = {
    "an event deleted": (_delete_event, "Events 7 to 7 are missing."),
    "the last events deleted": (_cut_events, "The end was cut"),
    "a row added": (_extra_row, "should not exist"),
    "a row removed": (_missing_row, "is missing"),
    "an index dropped": (_drop_index, "events_key"),
    "no head file": (_remove_head, "is missing: it cannot be told whether the end was cut off"),
    "another head": (_other_head, "is not the one in the head file"),
    "a blob removed": (_remove_blob, "names a blob that cannot be read"),
}


@pytest.mark.parametrize("name", sampled(HARMS, 4))
def test_harm_is_found_and_named(home: Home, name: str) -> None:
    harm, sentence = HARMS[name]
    harm(home)
    report = verify_home(home)
    assert not report.sound
    assert sentence in texts(report)


@pytest.mark.parametrize("page_events", [1, 1_000])
def test_a_number_that_leads_back_ends_the_reading(
    home: Home, page_events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower_newest_number(home)
    for module, name in (
        (home_verification, "VERIFY_PAGE_EVENTS"),
        (projection_replay, "REPLAY_PAGE_EVENTS"),
    ):
        monkeypatch.setattr(module, name, page_events)
    report = verify_home(home)
    assert "does not fit the chain" in texts(report)
    assert report.events in (report.vouched, report.vouched + 1), "none was read without end"


@pytest.mark.slow
def test_every_bit_of_blobs_and_head_is_covered(home: Home) -> None:
    dice = random.Random(3)
    for path in (next(home.blobs.rglob("*.zst")), home.head_file):
        original = path.read_bytes()
        everywhere = range(len(original) * 8)
        for place in everywhere if len(original) < 120 else dice.sample(everywhere, 120):
            flip(path, place // 8, place % 8)
            assert not verify_home(home).sound, (path.name, place)
            path.write_bytes(original)
    assert verify_home(home).sound


def test_bits_of_bodies_in_the_database_file_are_covered(home: Home) -> None:
    """Flips where SQLite's own check sees nothing: inside the bodies."""
    connection = sqlite3.connect(home.database)
    bodies = connection.execute(
        "SELECT seq, body FROM events WHERE length(body) > 60 AND part IS NOT NULL"
    ).fetchall()
    connection.close()
    original = home.database.read_bytes()
    dice = random.Random(4)
    tried = 0
    for seq, body in bodies:
        start = original.find(body)
        assert start > 0
        for _ in range(6):
            flip(home.database, start + dice.randrange(len(body)), dice.randrange(8))
            assert seq in {finding.seq for finding in verify_home(home).findings}
            home.database.write_bytes(original)
            tried += 1
    assert tried > 50


def test_random_bits_of_used_pages_are_covered_or_harmless(home: Home) -> None:
    """Any flip in the file is found, or the home holds exactly what it held."""
    original = home.database.read_bytes()
    used = [offset for offset, byte in enumerate(original) if byte and offset >= 100]
    before = _content(home)
    dice = random.Random(5)
    found = 0
    for _ in range(150):
        flip(home.database, dice.choice(used), dice.randrange(8))
        try:
            report = verify_home(home)
            sound = report.sound
        except HoustonError:  # it does not even open: said in a sentence
            sound = False
        if sound:
            assert _content(home) == before
        else:
            found += 1
        home.database.write_bytes(original)
    assert found > 20


def _content(home: Home) -> list[Any]:
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    names = [*PROJECTED_TABLES, "events"]
    rows = [connection.execute(f"SELECT * FROM {name}").fetchall() for name in names]
    connection.close()
    return rows


@pytest.mark.parametrize("harm", sampled(["a bit", "cut", "deleted"], 1))
def test_a_harmed_wal_is_a_cut_end(tmp_path: Path, harm: str) -> None:
    """SQLite takes a damaged WAL for a shorter one and calls it ok; the head file knows better."""
    script = (
        "import sys, time, os\n"
        "from pathlib import Path\n"
        "from tests.support.recorder_client import Station\n"
        "station = Station(Path(sys.argv[1])).start()\n"
        "worker = station.working()\n"
        "for step in range(1, 40):\n"
        "    worker.step(step)\n"
        "time.sleep(1.6)\n"  # the head file is written within a second
        "os.kill(os.getpid(), 9)\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "home")],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
        timeout=60,
    )
    home = Home(tmp_path / "home")
    wal = home.database.with_name("houston.db-wal")
    size = wal.stat().st_size
    assert size > 100_000
    if harm == "a bit":
        flip(wal, size // 2, 3)
    elif harm == "cut":
        os.truncate(wal, size // 2)
    else:
        wal.unlink()
        home.database.with_name("houston.db-shm").unlink(missing_ok=True)
    assert "The end was cut" in texts(verify_home(home))
    # Writing behind the cut would hide it: the recorder refuses, too.
    with pytest.raises(HoustonError) as problem:
        Station(home.path).start()
    assert "houston verify" in problem.value.next


def test_the_command_says_each_finding_and_exits_65(home: Home) -> None:
    def said(*flags: str) -> subprocess.CompletedProcess[str]:
        words = ["verify", "--home", str(home.path), *flags]
        return subprocess.run(
            houston_command(*words),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    sound = said()
    assert sound.returncode == 0
    assert sound.stdout.startswith("Sound: ")
    assert "; nothing is missing" in sound.stdout
    assert msgspec.json.decode(said("--json").stdout)["sound"] is True
    _extra_row(home)
    change(home, "UPDATE events SET at = at + 1 WHERE seq = 5")
    unsound = said()
    assert unsound.returncode == 65
    (rollout,) = {
        one["rollout"]
        for one in msgspec.json.decode(said("--json").stdout)["findings"]
        if one.get("seq") == 5
    }
    assert f"CORRUPT rollout={rollout} first bad seq=5; no backup available" in unsound.stdout
    assert len(unsound.stdout.splitlines()) >= 2
    assert "Event 5 does not fit the chain." in unsound.stdout
    assert "houston repair" in unsound.stderr
    assert "houston verify" not in unsound.stderr, "it was just run"
    found = msgspec.json.decode(said("--json").stdout)["findings"]
    assert {"chain", "table"} == {finding["what"] for finding in found}
    home.database.write_bytes(b"no database at all" * 400)
    hopeless = said()
    assert hopeless.returncode == 65
    assert "houston repair" in hopeless.stderr
    assert "houston verify" not in hopeless.stderr


@pytest.mark.parametrize(("vouched", "says"), [(9, "nothing is missing."), (7, "once a second")])
def test_what_the_end_of_a_live_home_means_is_said_in_words(
    vouched: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = VerificationReport(
        sound=True, events=9, bytes=1, vouched=vouched, erased=0, seconds=0.1, findings=()
    )
    command.show_verification(report, Home(Path("nowhere")))
    assert says in capsys.readouterr().out
