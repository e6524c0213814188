"""An older home is kept and then migrated, or left as it is; newer ones are refused."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from houston_daemon.maintenance import home_backup
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.journal_repair import repair_home
from houston_daemon.recorder.handlers import rollout_handlers
from houston_shared import wire
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import annotation_queries, schema
from houston_shared.store import attention_ranking as afar
from houston_shared.store.store_reader import Reader
from tests.support.full_home import fill
from tests.support.recorder_client import Station, spec

ADDED = "ALTER TABLE rollouts ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that the schema before wrote."""
    station = Station(tmp_path / "home").start()
    fill(station, schema=3)
    station.stop()
    return station.home


def newer(monkeypatch: pytest.MonkeyPatch, *added: str) -> None:
    """From here on this Houston knows more migrations."""
    known, pending = schema.SCHEMA_VERSION, schema.pending_migrations

    def more(connection: sqlite3.Connection) -> list[tuple[int, str]]:
        found = schema.read_schema_version(connection)
        steps = [(known + number, sql) for number, sql in enumerate(added, 1)]
        return pending(connection) + [step for step in steps if step[0] > found]

    monkeypatch.setattr(schema, "pending_migrations", more)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", known + len(added))


def kept(home: Home) -> list[Path]:
    return sorted(home.backups.glob("before-schema-*.db")) if home.backups.exists() else []


def test_an_older_home_is_kept_and_then_migrated(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = schema.SCHEMA_VERSION
    (events,) = _one(home.database, "SELECT count(*) FROM events")
    newer(monkeypatch, ADDED, "CREATE TABLE extra (id INTEGER PRIMARY KEY);")
    caplog.set_level("INFO", "houston.recorder")
    station = Station(home.path).start()
    assert station.query("SELECT DISTINCT colour FROM rollouts") == [("blue",)]
    worker = station.worker(station.query("SELECT id FROM rollouts")[0][0])
    assert worker.welcome.next_step == 3
    station.stop()
    (copy,) = kept(home)
    assert str(copy) in caplog.text, "the log names it"
    assert _one(copy, "PRAGMA user_version") == (known,)
    assert _one(copy, "SELECT count(*) FROM events") == (events,)
    assert verify_home(home).findings == ()
    Station(home.path).start().stop()
    assert kept(home) == [copy], "only once"


def _made(schema_version: int, *names: str) -> str:
    """The statements with which that schema made these tables and indexes."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        schema.migrate_schema(empty, schema_version)
        rows = dict(empty.execute("SELECT name, sql FROM sqlite_master").fetchall())
    return "".join(f"{rows[name]};\n" for name in names)


FOURTEENTH = """
ALTER TABLE claims DROP COLUMN note_to;
ALTER TABLE claims DROP COLUMN read_by;
ALTER TABLE claims DROP COLUMN read_at;
PRAGMA user_version = 14;
"""
"""Makes a home what the fourteenth schema would have made of it; the others do, too."""


THIRTEENTH = f"""{FOURTEENTH}
DROP TABLE jobs;
PRAGMA user_version = 13;
"""


TWELFTH = f"""{THIRTEENTH}
DROP TABLE review_costs;
DROP INDEX samples_cost;
ALTER TABLE samples DROP COLUMN cost;
PRAGMA user_version = 12;
"""


ELEVENTH = f"""{TWELFTH}
DROP TABLE critic_drafts;
PRAGMA user_version = 11;
"""


TENTH = f"""{ELEVENTH}
DROP TABLE refinements;
PRAGMA user_version = 10;
"""


NINTH = f"""{TENTH}
DROP TABLE policies;
{_made(9, "policies")}
PRAGMA user_version = 9;
"""


EIGHTH = f"""{NINTH}
DROP TABLE process_rewards;
PRAGMA user_version = 8;
"""


SEVENTH = f"""{EIGHTH}
ALTER TABLE rollouts DROP COLUMN role_engines;
PRAGMA user_version = 7;
"""


SIXTH = f"""{SEVENTH}
DROP INDEX rollouts_request;
PRAGMA user_version = 6;
"""


FIFTH = f"""{SIXTH}
ALTER TABLE samples DROP COLUMN completion_tokens;
ALTER TABLE samples DROP COLUMN reasoning_tokens;
PRAGMA user_version = 5;
"""


FOURTH = f"""{FIFTH}
DROP TABLE policies;
DROP TABLE training_runs;
DROP TABLE activations;
{_made(4, "policies", "training_runs")}
PRAGMA user_version = 4;
"""


THIRD = f"""{FOURTH}
DROP TABLE claims;
DROP TABLE looks;
ALTER TABLE guidance DROP COLUMN place;
PRAGMA user_version = 3;
"""
SECOND = f"""{THIRD}
DROP INDEX events_blob;
PRAGMA user_version = 2;
"""


FIRST = f"""{SECOND}
DROP INDEX events_aside;
CREATE INDEX events_rollout ON events (rollout, seq);
CREATE INDEX samples_rollout ON samples (rollout, step);
UPDATE steps SET last_seq = (SELECT max(seq) FROM events WHERE rollout = steps.rollout
    AND events.step = steps.step AND events.attempt = steps.attempt AND part IS NOT NULL)
    WHERE observation_seq IS NULL;
PRAGMA user_version = 1;
"""


@pytest.mark.parametrize(
    "script",
    [
        *(FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH),
        *(NINTH, TENTH, ELEVENTH, TWELFTH, THIRTEENTH, FOURTEENTH),
    ],
)
def test_an_older_home_is_sound_before_it_is_migrated(
    home: Home, tmp_path: Path, script: str
) -> None:
    """Who installs first and looks then must not be told to repair; and damage is still found."""
    station = Station(home.path).start()
    rollout = station.query("SELECT id FROM rollouts WHERE state = 'running'")[0][0]
    worker = station.worker(rollout)
    worker.sample(worker.welcome.next_step)
    worker.intent(worker.welcome.next_step)
    station.stop()
    _script(home, script)
    assert verify_home(home).findings == ()
    assert repair_home(home).changed is False
    (version,) = _one(home.database, "PRAGMA user_version")
    made = home_backup.make_backup(home)
    assert made.schema == version
    again = Home(tmp_path / "again")
    home_backup.restore_backup(home.backups / made.name, again)
    assert verify_home(again).findings == ()
    _script(home, "UPDATE rollouts SET steps = steps + 1; DROP INDEX events_key;")
    found = " ".join(one.text for one in verify_home(home).findings)
    assert "rollouts" in found
    assert "events_key" in found


def test_a_home_of_the_first_schema_goes_on(home: Home) -> None:
    station = Station(home.path).start()
    rollout = station.query("SELECT id FROM rollouts WHERE state = 'running'")[0][0]
    worker = station.worker(rollout)
    step = worker.welcome.next_step
    worker.sample(step)
    worker.intent(step)
    station.stop()
    _script(home, FIRST)
    station = Station(home.path).start()
    worker = station.worker(rollout)
    assert worker.welcome.next_step == step
    assert isinstance(worker.result(step), wire.Ack)
    assert isinstance(worker.observation(step), wire.Ack)
    station.stop()
    assert verify_home(home).findings == ()
    assert len(kept(home)) == 1


def test_a_start_is_found_by_its_key_in_a_home_of_before(home: Home) -> None:
    """And so without a look at every rollout."""
    _script(home, SIXTH)
    station = Station(home.path).start()
    again = wire.StartRollouts(request="key", specs=(spec(),))
    assert station.person().ask(again) == station.person().ask(again)
    plan = station.query(f"EXPLAIN QUERY PLAN {rollout_handlers.SELECT_REQUESTED}", "key")
    assert "SEARCH rollouts USING INDEX rollouts_request" in plan[0][3]
    station.stop()
    assert verify_home(home).findings == ()


def test_an_older_home_is_read_before_it_is_migrated_and_after(home: Home) -> None:
    _script(home, THIRD)
    with Reader(home) as reader:
        rollouts = [one.rollout.id for one in reader.run(afar.read_rollout_overviews())]
        said = {one: reader.run(annotation_queries.list_guidance(one)) for one in rollouts}
        (rollout,) = (one for one, guidance in said.items() if guidance)
        assert [one.id for one in said[rollout]] == ["g0", "g1", "g2", "g3"]
        station = Station(home.path).start()
        station.person().guide(rollout, "one more", id="g4")
        guidance = reader.run(annotation_queries.list_guidance(rollout))
        assert [one.id for one in guidance if one.state == "queued"] == ["g3", "g4"]
        station.stop()


def test_a_migration_that_fails_leaves_the_home_as_it_was(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _dump(home)
    with monkeypatch.context() as later:
        newer(later, ADDED, "ALTER TABLE nowhere ADD COLUMN x;")
        with pytest.raises(HoustonError, match="left as it was"):
            Station(home.path).start()
    assert _dump(home) == before
    assert len(kept(home)) == 1
    Station(home.path).start().stop()
    assert verify_home(home).findings == ()


def test_a_newer_home_is_refused_with_a_sentence(home: Home) -> None:
    connection = sqlite3.connect(home.database)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for act in (lambda: Station(home.path).start(), lambda: verify_home(home)):
        with pytest.raises(HoustonError, match="knows up to") as problem:
            act()
        assert problem.value.code == ExitCode.CONFIGURATION
    assert kept(home) == []


def test_a_worker_of_another_protocol_ends_and_a_right_one_takes_over(station: Station) -> None:
    (rollout,) = station.person().start()
    lease = station.recorder.assign(rollout).lease
    script = (  # the worker of another version: the same but for its number
        "import sys\n"
        "from houston_shared import wire\n"
        "class Hello(wire.Hello, frozen=True, kw_only=True, tag='Hello', omit_defaults=False):\n"
        "    protocol: int = 99\n"
        "wire.Hello = Hello\n"
        "from houston_daemon.agent import rollout_worker\n"
        "sys.exit(rollout_worker.main(sys.argv[1:]))\n"
    )
    words = ["--endpoint", station.home.socket("ingest"), "--rollout", rollout]
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "--lease", str(lease)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "speaks protocol 99" in done.stderr
    assert station.query("SELECT state FROM rollouts") == [("running",)], "it has done nothing"
    station.recorder.worker_ended(rollout, lease, "")
    worker = station.worker(rollout)
    assert worker.lease > lease
    assert isinstance(worker.step(1), wire.Ack)


def _one(path: Path, sql: str) -> tuple[object, ...]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        found: tuple[object, ...] = connection.execute(sql).fetchone()
        return found
    finally:
        connection.close()


def _dump(home: Home) -> list[str]:
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def _script(home: Home, script: str) -> None:
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        connection.executescript(script)
