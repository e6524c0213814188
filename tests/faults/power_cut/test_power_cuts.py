"""The power goes at any moment: nothing acked is lost, nothing is corrupt, the recorder goes on.

A real recorder works, is killed, stopped and started again while a tracer notes every change and
every sync of its files; then the power is cut at many places of that trace. The long form is
`bench/durability`. That these checks can fail is shown by disks that lie about their syncs.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.recorder.disk.writer_connection import check_journal_end
from houston_shared.home import Home
from houston_shared.store import schema
from tests.faults.power_cut import cuts, trace, traced_recorder
from tests.faults.power_cut.disk import Cut
from tests.faults.power_cut.replay import Replay, differences
from tests.faults.power_cut.trace import Record
from tests.support.tiers import sampled

CUTS = [pytest.param(30, id="30"), pytest.param(120, id="120", marks=pytest.mark.slow)]
SEED = 20261
Traced = tuple[list[Record], Path]


@pytest.fixture(scope="module")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trace.compiled(tmp_path_factory.mktemp("tracer"))


@pytest.fixture(scope="module")
def traced(tracer: Path, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder = tmp_path_factory.mktemp("cut")
    traced_recorder.lead(folder / "disk", folder / "trace", tracer)
    return trace.read(folder / "trace"), folder / "disk"


@pytest.mark.parametrize("count", CUTS)
def test_nothing_acked_is_lost(traced: Traced, tmp_path: Path, count: int) -> None:
    found = cuts.cut_many(*traced, count, SEED, scratch=tmp_path)
    assert (found.cuts, found.lost, found.corrupt) == (count, 0, 0), found.examples
    assert found.checked > 100 * count


def test_the_trace_is_whole(traced: Traced) -> None:
    """Followed to its end, the model holds what the real disk holds, byte for byte."""
    records, root = traced
    replay = Replay(root)
    for record in records:
        replay.feed(record)
    assert differences(replay.root, root) == []
    kinds = {record.op for record in records}
    assert set("owtasSrumk") <= kinds, "checkpoints, blobs, heads and the ballast are in it"


LIES: dict[str, Callable[[str], bool]] = {
    "the WAL": lambda path: path.endswith("houston.db-wal"),
    "the database": lambda path: path.endswith("houston.db"),
    "large bodies": lambda path: "/blobs/" in path and path.endswith(".new"),
    "names of large bodies": lambda path: "/blobs/" in path and path[-3:-2] == "/",
    "names in the home": lambda path: path.endswith("/home"),
    "the name of the home": lambda path: path.endswith("/disk"),
    "the head file": lambda path: path.endswith("chain.head.new"),
}


@pytest.mark.parametrize("lie", sampled(LIES, 2))
def test_a_disk_that_lies_is_noticed(traced: Traced, tmp_path: Path, lie: str) -> None:
    def noticed(seed: int) -> bool:
        found = cuts.cut_many(*traced, 8, seed, lambda path: not LIES[lie](path), tmp_path)
        return bool(found.lost or found.corrupt)

    assert any(noticed(SEED + more) for more in range(8))


def two_lives(tracer: Path, folder: Path, program: str) -> tuple[Path, list[Record]]:
    """The disk and the trace of a program that is killed on a home, then comes to its end there."""
    disk, file = folder / "disk", folder / "trace"
    disk.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(tracer)}
    environment |= {"POWER_CUT_ROOT": str(disk), "POWER_CUT_TRACE": str(file)}
    environment |= {"POWER_CUT_KILL": str(folder / "kill")}
    for how, code in (("killed", 9), ("whole", 0)):
        command = [sys.executable, "-c", program, str(disk / "home"), how]
        assert subprocess.run(command, env=environment, check=False).returncode == code
    return disk, trace.read(file)


KILLED = """
import os, sys
from pathlib import Path
from houston_daemon.recorder import journal_writer
from houston_shared.home import Home
home = Home(Path(sys.argv[1]))
if sys.argv[2] == "killed":
    home.blobs.mkdir(parents=True)
    for folder in (home.blobs.parent, home.path.parent):
        os.fsync(os.open(folder, os.O_RDONLY))
    journal_writer.atomic_file.sync_to_disk = lambda folder: os._exit(9)
journal_writer.write_blob(home, b"large " * 20_000)
"""


def test_a_large_body_that_a_killed_recorder_left_is_synced_when_it_is_found(
    tracer: Path, tmp_path: Path
) -> None:
    """Killed between the rename and the sync of the folder: the name is there, not durable."""
    disk, records = two_lives(tracer, tmp_path, KILLED)
    replay = Replay(disk)
    for record in records:
        replay.feed(record)
    for seed in range(10):
        place = tmp_path / f"after {seed}"
        Cut(random.Random(seed)).write_out(replay.root, place)
        (blob,) = (disk / "home" / "blobs").rglob("*.zst")
        assert (place / blob.relative_to(disk)).read_bytes() == blob.read_bytes()


UNSYNCED = """
import os, sys
from pathlib import Path
from houston_daemon.recorder.disk.writer_connection import open_writer
from houston_shared import atomic_file
from houston_shared.home import Home
home = Home(Path(sys.argv[1]))
home.path.mkdir(exist_ok=True)
connection = open_writer(home)
for folder in (home.path, home.path.parent):
    atomic_file.sync_to_disk(folder)
connection.execute(f"PRAGMA synchronous = {'OFF' if sys.argv[2] == 'killed' else 'FULL'}")
connection.execute("INSERT INTO meta VALUES (?, 'there')", (sys.argv[2],))
os._exit(9 if sys.argv[2] == "killed" else 0)
"""


def test_a_commit_that_a_killed_recorder_left_unsynced_is_no_damage_after_a_power_cut(
    tracer: Path, tmp_path: Path
) -> None:
    """Killed between writing a commit and its sync; the power goes in the sync of the next one."""
    disk, records = two_lives(tracer, tmp_path, UNSYNCED)
    begun = max(number for number, record in enumerate(records) if record.op == "w") + 1
    assert records[begun].op == "s", "the sync of the next commit has begun"
    replay = Replay(disk)
    for record in records[: begun + 1]:
        replay.feed(record)
    for seed in range(40):
        place = tmp_path / f"after {seed}"
        Cut(random.Random(seed)).write_out(replay.root, place)
        assert check_journal_end(Home(place / "home")) == schema.SCHEMA_VERSION
