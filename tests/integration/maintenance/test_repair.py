"""`houston repair`: every kind of damage ends in a sound home, and every loss has a name."""

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_console.transcript.step_rendering import unfolded_lines
from houston_console.transcript.trajectory_reader import FoldedStepRow, RolloutSource
from houston_console.widgets.styled_text import line_text
from houston_daemon.maintenance import home_backup
from houston_daemon.maintenance import journal_repair as repairing
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.maintenance.journal_repair import RepairResult, repair_home
from houston_daemon.recorder.recorder_handle import RecorderFailed
from houston_shared import wire
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store.async_reader import AsyncReader
from tests.support import small_disk
from tests.support.full_home import change, fill, flip, lower_newest_number, train
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station, Worker, sample, until
from tests.support.tiers import sampled

STEPS = 5


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rollouts that go on (named by `ROLLOUTS`), stopped cleanly."""
    station = Station(tmp_path_factory.mktemp("sound") / "home").start()
    fill(station, schema=4)
    for _ in range(2):
        worker = station.working()
        for step in range(1, STEPS + 1):
            worker.step(step)
        worker.sample(STEPS + 1)
    train(station)
    station.stop()
    return station.home.path


@pytest.fixture
def home(sound: Path, tmp_path: Path) -> Home:
    """A copy to harm."""
    subprocess.run(["cp", "-a", str(sound), str(tmp_path / "home")], check=True)
    return Home(tmp_path / "home")


def ask(home: Home, sql: str, *parameters: object) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.close()


def rollouts(home: Home) -> list[str]:
    return [str(id) for (id,) in ask(home, "SELECT id FROM rollouts ORDER BY spec_seq")]


def event(home: Home, rollout: str, step: int, part: str) -> int:
    sql = "SELECT seq FROM events WHERE rollout = ? AND step = ? AND part = ?"
    ((seq,),) = ask(home, sql, rollout, step, part)
    assert isinstance(seq, int)
    return seq


def repaired(home: Home) -> RepairResult:
    """Repair, and check what must hold after every repair."""
    with contextlib.suppress(HoustonError):  # it does not even open
        assert not verify_home(home).sound
    before = home.database.read_bytes() if home.database.exists() else b""
    done = repair_home(home)
    assert done.changed
    assert verify_home(home).findings == ()
    copies = Path(done.copies)
    if before:
        assert (copies / "houston.db").read_bytes() == before, "the damaged file is kept"
    lines = (copies / "aside.jsonl").read_bytes().splitlines()
    kept = {msgspec.json.decode(line)["seq"] for line in lines}
    assert kept == {seq for loss in done.losses for seq in loss.seqs}, "nothing goes in silence"
    assert repair_home(home) == RepairResult(changed=False), "a second repair finds nothing"
    return done


def test_a_changed_body_rewinds_its_rollout_alone_and_it_goes_on(home: Home) -> None:
    one, two, three = rollouts(home)
    seq = event(home, two, 4, "call.0")
    change(home, "UPDATE events SET body = x'00' || body WHERE seq = ?", seq)
    done = repaired(home)
    assert done.paused == {two: 3}
    assert {loss.rollout for loss in done.losses} == {two}
    station = Station(home.path).start()
    states = dict(station.query("SELECT id, state FROM rollouts"))
    assert states == {one: "running", two: "paused", three: "running"}
    for other, step in ((one, 3), (three, STEPS + 1)):
        worker = station.worker(other)
        assert worker.welcome.next_step == step
    with pytest.raises(HoustonError, match="paused"):
        station.recorder.assign(two)
    assert isinstance(
        station.person().ask(wire.Steer(rollout=two, action="resume")), wire.RequestStored
    )
    worker = station.worker(two)
    assert worker.welcome.next_step == 4
    assert isinstance(worker.step(4), wire.Ack)
    assert isinstance(worker.step(5), wire.Ack)
    station.stop()
    assert verify_home(home).findings == ()


def test_guidance_whose_step_was_set_aside_is_delivered_again(home: Home) -> None:
    one = rollouts(home)[0]
    said = ask(home, "SELECT id, delivered_step FROM guidance WHERE delivered_step = 1")
    assert said
    change(home, "UPDATE events SET body = x'01' WHERE seq = ?", event(home, one, 1, "call.0"))
    repaired(home)
    for id, _ in said:
        assert ask(home, "SELECT state FROM guidance WHERE id = ?", id) == [("queued",)]


COLUMNS = {
    "at": "at = at + 1",
    "step": "step = step + 64",
    "kind": "kind = 'resulu'",
    "rollout": "rollout = 'x' || rollout",
    "body_hash": "body_hash = zeroblob(32)",
    "chain": "chain = zeroblob(32)",
    "erased": "erased = 1",
}
PUT_BACK = {"body_hash", "chain", "erased"}
"""Columns that follow from the others."""


@pytest.mark.parametrize("column", sampled(COLUMNS, 3))
def test_a_changed_column_is_put_back_or_set_aside(home: Home, column: str) -> None:
    two = rollouts(home)[1]
    seq = event(home, two, 3, "call.0")
    change(home, f"UPDATE events SET {COLUMNS[column]} WHERE seq = ?", seq)
    done = repaired(home)
    if column in PUT_BACK:
        assert done.losses == ()
        assert done.paused == {}
        assert f"Event {seq}" in done.mended[0]
    else:
        assert done.paused[two] == 2


def _derived(home: Home) -> None:
    change(home, "UPDATE steps SET tools = 'x'")
    change(home, "DELETE FROM samples")


def _index(home: Home) -> None:
    connection = sqlite3.connect(home.database)
    connection.execute("DROP INDEX events_key")
    connection.close()


def _head(home: Home) -> None:
    home.head_file.write_bytes(b"{")


def _header(home: Home) -> None:
    flip(home.database, 3, 2)


WITHOUT_LOSS: dict[str, Callable[[Home], None]] = {
    "derived rows": _derived,
    "an index": _index,
    "the head file": _head,
    "the header of the file": _header,
}


@pytest.mark.parametrize("name", WITHOUT_LOSS)
def test_what_follows_from_the_events_is_rebuilt_without_loss(home: Home, name: str) -> None:
    before = ask(home, "SELECT * FROM events ORDER BY seq")
    WITHOUT_LOSS[name](home)
    done = repaired(home)
    assert done.losses == ()
    assert ask(home, "SELECT * FROM events ORDER BY seq") == before


def test_lost_pages_cost_what_was_on_them(home: Home) -> None:
    """Whole pages are overwritten: what can be read around them stays."""
    data = bytearray(home.database.read_bytes())
    one, two, _ = rollouts(home)
    ((body,),) = ask(home, "SELECT body FROM events WHERE seq = ?", event(home, two, 2, "call.0"))
    assert isinstance(body, bytes)
    page = data.find(body) // 8192
    data[page * 8192 : (page + 1) * 8192] = random.Random(1).randbytes(8192)
    home.database.write_bytes(data)
    done = repaired(home)
    lost = {seq for loss in done.losses for seq in loss.seqs}
    assert event(home, one, 1, "sample") not in lost
    assert two in done.paused
    kept = len(ask(home, "SELECT 1 FROM events WHERE kind <> 'aside'"))
    assert kept > 20, (kept, len(lost))


SELECT_INDEXES = "SELECT * FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'events'"
MOVE = "UPDATE events SET seq = seq + ? WHERE seq = (SELECT max(seq) FROM events)"


def _alone(home: Home, move: int) -> None:
    """Move the newest event's number in its table, as if that had no indexes."""
    for begin in (True, False):
        connection = sqlite3.connect(home.database)
        with contextlib.closing(connection), connection:
            if not begin:
                connection.execute(MOVE, (move,))
            connection.execute("PRAGMA writable_schema = ON")
            if begin:
                indexes = connection.execute(SELECT_INDEXES).fetchall()
                connection.execute(SELECT_INDEXES.replace("SELECT *", "DELETE"))
            else:
                connection.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", indexes)


FAR_NUMBERS: dict[str, Callable[[Home], None]] = {
    "in the table": lambda home: _alone(home, 1 << 12),
    "in the indexes": lambda home: (change(home, MOVE, 1 << 12), _alone(home, -(1 << 12)))[0],
    "downwards": lower_newest_number,
}


@pytest.mark.parametrize("case", FAR_NUMBERS)
def test_a_changed_bit_of_a_number_makes_no_events_that_never_were(home: Home, case: str) -> None:
    ((newest,),) = ask(home, "SELECT max(seq) FROM events")
    assert isinstance(newest, int)
    FAR_NUMBERS[case](home)
    lost = {seq for loss in repaired(home).losses for seq in loss.seqs}
    assert lost <= set(range(newest + 1)), "no event has a higher number"


def test_a_cut_end_is_named_and_its_numbers_are_not_used_again(home: Home) -> None:
    ((last,),) = ask(home, "SELECT max(seq) FROM events")
    assert isinstance(last, int)
    change(home, "DELETE FROM events WHERE seq > ?", last - 4)
    done = repaired(home)
    assert tuple(range(last - 3, last + 1)) in {loss.seqs for loss in done.losses}
    assert done.seq > last
    assert set(done.paused) == set(rollouts(home)), "nobody knows whose they were"


def test_a_damaged_rollout_is_not_run_and_the_sentence_names_the_backup(home: Home) -> None:
    name = home_backup.make_backup(home).name
    one, two, _ = rollouts(home)
    seq = event(home, two, 2, "call.0")
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", seq)
    station = Station(home.path).start()
    with pytest.raises(HoustonError) as problem:
        station.recorder.assign(two)
    assert problem.value.code == ExitCode.DAMAGED
    sentence = f"CORRUPT rollout={two} first bad seq={seq}; backup {name} available"
    assert problem.value.cause == sentence
    rows = station.query("SELECT state, paused_by, reason FROM rollouts WHERE id = ?", two)
    assert rows == [("paused", "repair", sentence)]
    assert station.worker(one).welcome.next_step == 3, "the others go on"
    station.stop()
    assert seq in {finding.seq for finding in verify_home(home).findings}, "nothing hides it"


def test_all_that_a_backup_holds_is_put_back(home: Home) -> None:
    before = ask(home, "SELECT * FROM events ORDER BY seq")
    home_backup.make_backup(home)
    two = rollouts(home)[1]
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, two, 2, "call.0"))
    change(home, "DELETE FROM events WHERE seq = ?", event(home, two, 4, "call.0"))
    next(home.blobs.rglob("*.zst")).unlink()
    done = repaired(home)
    assert done.losses == ()
    assert len(done.mended) == 3
    assert ask(home, "SELECT * FROM events ORDER BY seq") == before


def test_any_random_damage_is_repaired(home: Home, tmp_path: Path) -> None:
    """Single bits and torn pages of the file, wherever they fall."""
    dice = random.Random(7)
    original = home.database.read_bytes()
    used = [offset for offset, byte in enumerate(original) if byte]
    hurt = 0
    for number in range(25):
        copy = Home(tmp_path / f"copy-{number}")
        shutil.copytree(home.path, copy.path)
        if number % 5:
            flip(copy.database, dice.choice(used), dice.randrange(8))
        else:
            at = dice.randrange(1, len(original) // 8192) * 8192
            with copy.database.open("r+b") as file:
                file.seek(at)
                file.write(dice.randbytes(8192))
        try:
            if verify_home(copy).sound:
                continue
        except HoustonError:
            pass
        try:
            repair_home(copy)
        except HoustonError as problem:  # a schema that cannot be read at all
            assert problem.code == ExitCode.DAMAGED
            assert "no backup" in problem.cause
            continue
        hurt += 1
        assert verify_home(copy).findings == ()
    assert hurt > 8


def test_the_command_names_losses_and_refuses_while_a_daemon_runs(home: Home) -> None:
    two = rollouts(home)[1]
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, two, 2, "call.0"))

    def said(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            houston_command(*words, "--home", str(home.path)),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    unsound = said("verify")
    assert unsound.returncode == 65
    assert f"CORRUPT rollout={two} first bad seq=" in unsound.stdout
    assert said("rollout", "list").returncode == 0, "every reading command goes on"
    assert said("steps", rollouts(home)[2]).returncode == 0
    done = said("repair")
    assert done.returncode == 0, done.stderr
    assert f"{two} is paused by repair; it continues after step 1." in done.stdout
    assert said("verify").returncode == 0
    assert said("repair").stdout.startswith("Sound")
    assert said("daemon", "start").returncode == 0
    try:
        refused = said("repair")
        assert refused.returncode == 75
        assert "houston daemon stop" in refused.stderr
    finally:
        said("daemon", "stop")


def test_a_cut_end_starts_no_daemon_and_hides_nothing(home: Home) -> None:
    ((last,),) = ask(home, "SELECT max(seq) FROM events")
    assert isinstance(last, int)
    change(home, "DELETE FROM events WHERE seq > ?", last - 2)
    before = home.database.read_bytes()
    done = subprocess.run(
        houston_command("daemon", "start", "--home", str(home.path)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 65
    assert f"CORRUPT rollout=- first bad seq={last - 1}; no backup available" in done.stderr
    assert "houston repair" in done.stderr
    assert home.database.read_bytes() == before
    assert ask(home, "SELECT count(*) FROM rollouts") == [(3,)], "it can still be read"


def test_a_page_that_breaks_while_the_daemon_runs_ends_it_with_the_sentence(home: Home) -> None:
    two = rollouts(home)[1]
    ((root,),) = ask(home, "SELECT rootpage FROM sqlite_master WHERE name = 'steps'")
    assert isinstance(root, int)
    with home.database.open("r+b") as file:
        file.seek((root - 1) * 8192)
        file.write(random.Random(1).randbytes(8192))
    station = Station(home.path).start()
    worker = Worker(station.home, two, station.recorder.assign(two).lease)
    # Nothing is waited for: whatever reads the page first ends it, be it work of its own.
    worker.send(worker.message(wire.Hello, pid=os.getpid()))
    worker.send(worker.message(wire.StoreSample, step=STEPS + 1, attempt=2, sample=sample(1)))
    assert until(lambda: station.heard)
    worker.close()
    (heard,) = station.heard
    assert isinstance(heard, RecorderFailed)
    assert heard.damaged
    assert heard.cause.startswith("CORRUPT rollout=- first bad seq=unknown; no backup available")
    station.stop()
    assert repaired(home).losses == (), "derived rows follow from the events"


def houston(home: Home, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        houston_command(*words, "--home", str(home.path)),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_the_audit_says_who_repaired_and_only_what_was_set_aside(home: Home) -> None:
    seq = event(home, rollouts(home)[1], 4, "call.0")
    change(home, "UPDATE events SET body = x'00' || body WHERE seq = ?", seq)
    houston(home, "repair")
    _derived(home)
    houston(home, "repair")
    assert verify_home(home).findings == ()
    said = houston(home, "log", "--audit", "--json").splitlines()
    (one,) = (msgspec.json.decode(line) for line in said if "events were set aside" in line)
    assert (one["uid"], one["role"]) == (os.geteuid(), "operator")
    assert one["pid"]
    ((vouched,),) = ask(home, "SELECT count(*) FROM events WHERE kind = 'repaired'")
    assert vouched == 1, "the second repair set nothing aside"


WHERE = {
    "head": ("none (chain.head only)", lambda home: home.head_file.write_bytes(b"{}")),
    "no head": ("none (chain.head only)", lambda home: home.head_file.unlink()),
    "rows": ("none (derived rows only)", lambda home: _derived(home)),
}


@pytest.mark.parametrize("case", sampled(WHERE, 2))
def test_verify_says_where_it_is_when_no_event_is_damaged(home: Home, case: str) -> None:
    said, harm = WHERE[case]
    harm(home)
    assert f"first bad seq={said};" in houston(home, "verify", code=65)


def test_what_was_not_done_is_what_was_asked_for(home: Home) -> None:
    lock = home.path / "daemon.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()
    for words, effect in (
        (("repair",), "It was not repaired."),
        (("rollout", "erase", "--text", "guidance number", "--yes"), "Nothing was erased."),
        (("daemon", "start"), "The daemon was not started."),
    ):
        said = houston(home, *words, code=1)
        assert effect in said
        assert f"Move {lock} away" in said


def ended(home: Home) -> str:
    """The second rollout, ended as a person would have ended it."""
    station = Station(home.path).start()
    two = rollouts(home)[1]
    station.person().ask(wire.Steer(rollout=two, action="cancel"))
    station.stop()
    return two


PARTS = {"a result": "call.0", "the sample": "sample", "the observation": "observation"}


@pytest.mark.parametrize("case", sampled(PARTS, 2))
def test_a_step_with_a_hole_says_so_everywhere(home: Home, case: str) -> None:
    two = ended(home)
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, two, 3, PARTS[case]))
    name = Path(repaired(home).copies).name
    words = f"1 event of this step was set aside by repair {name}"
    lines = shown_steps(home, two)
    assert [one["step"] for one in lines] == list(range(1, STEPS + 2)), "no step is passed over"
    marks = {one["step"]: one["set_aside"] for one in lines if "set_aside" in one}
    assert marks == {3: [{"events": 1, "repair": name, "earlier_run": False}]}
    shown = asyncio.run(_transcript(home, two))
    assert [row.step for row, _ in shown] == list(range(1, STEPS + 2))
    assert [row.step for row, text in shown if words in text] == [3]


def test_every_command_names_what_a_repair_set_aside(home: Home) -> None:
    two = ended(home)
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, two, 3, "sample"))
    name = Path(repaired(home).copies).name
    words = f"1 event of this step was set aside by repair {name}"
    text = houston(home, "steps", two)
    assert text.count(words) == 1
    assert text.index("step 3 ") < text.index(words) < text.index("step 4 ")
    assert f"{two}: 1 event of step 3 was set aside by repair {name}." in text
    assert "1 event of step 3 was set aside by" in houston(home, "rollout", "show", two)
    known = houston(home, "verify")
    assert "Sound" in known
    assert f"Known: {two}: 1 event of step 3 was set aside by repair {name}" in known


def shown_steps(home: Home, rollout: str) -> list[dict[str, Any]]:
    lines = houston(home, "steps", rollout, "--json").splitlines()
    return [msgspec.json.decode(line) for line in lines if line.startswith("{")]


async def _transcript(home: Home, rollout: str) -> list[tuple[FoldedStepRow, str]]:
    """Every step as the console has it: its folded row, and the text that unfolding shows."""
    reader = AsyncReader(home)
    source = RolloutSource(reader, rollout)
    try:
        found = []
        for row in await source.rows(1, 100):
            record = await source.record(row.step)
            assert record is not None
            text = " ".join(line_text(line).strip() for line in unfolded_lines(row, record, 200))
            found.append((row, text))
        return found
    finally:
        await reader.close()


def test_long_rollouts_are_shown_to_their_end_whatever_is_missing(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    worker = station.working()
    for step in range(1, 61):
        worker.step(step)
    assert isinstance(worker.say(wire.StoreState, state="finished"), wire.Ack)
    station.stop()
    home, one = station.home, worker.rollout
    for step in (1, 7, 50, 60):
        change(
            home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, one, step, "sample")
        )
    repaired(home)
    assert [each["step"] for each in shown_steps(home, one)] == list(range(1, 61))


def test_a_step_that_was_run_again_says_that_it_was_an_earlier_run(home: Home) -> None:
    two = rollouts(home)[1]
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, two, 4, "call.0"))
    name = Path(repaired(home).copies).name
    assert houston(home, "steps", two).count("of this step") == 0
    station = Station(home.path).start()
    station.person().ask(wire.Steer(rollout=two, action="resume"))
    worker = station.worker(two)
    for step in (4, 5, 6):
        worker.step(step)
    station.stop()
    text = houston(home, "steps", two)
    assert f"4 events of an earlier run of this step were set aside by repair {name}" in text
    assert "events of this step" not in text


def lose(home: Home, rollout: str, step: int, part: str = "call.0") -> None:
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", event(home, rollout, step, part))
    assert repaired(home).losses


def kinds(home: Home) -> list[tuple[object, ...]]:
    return ask(home, "SELECT seq, kind, rollout, step, part FROM events ORDER BY seq")


def test_what_an_earlier_repair_set_aside_comes_back_from_a_backup(
    home: Home, tmp_path: Path
) -> None:
    before = ask(home, "SELECT * FROM events ORDER BY seq")
    made = home_backup.make_backup(home, tmp_path / "elsewhere")
    two, three = rollouts(home)[1:]
    lose(home, two, 2)
    lose(home, three, 4, "sample")
    done = repair_home(home, tmp_path / "elsewhere" / made.name)
    assert done.changed
    assert set(done.returned) == {two, three}
    assert (done.losses, done.stays) == ((), ())
    assert done.paused == {two: STEPS, three: STEPS}
    assert ask(home, "SELECT * FROM events WHERE seq <= ? ORDER BY seq", len(before)) == before
    report = verify_home(home)
    assert (report.findings, report.aside, report.losses) == ((), 0, ())
    ((state, reason),) = ask(home, "SELECT state, reason FROM rollouts WHERE id = ?", two)
    assert (state, reason) == (
        "paused", "what a repair had set aside came back from a backup; it continues after step 5",
    )  # fmt: skip
    assert not repair_home(home, tmp_path / "elsewhere").changed, (
        "there is nothing more to bring back"
    )
    station = Station(home.path).start()
    station.person().ask(wire.Steer(rollout=two, action="resume"))
    assert station.worker(two).welcome.next_step == STEPS + 1
    station.stop()


def test_what_a_rollout_has_gone_on_without_stays_aside(home: Home, tmp_path: Path) -> None:
    home_backup.make_backup(home, tmp_path / "elsewhere")
    two = rollouts(home)[1]
    lose(home, two, 4)
    station = Station(home.path).start()
    station.person().ask(wire.Steer(rollout=two, action="resume"))
    station.worker(two).step(4)
    station.stop()
    before = kinds(home)
    done = repair_home(home, tmp_path / "elsewhere")
    assert not done.changed
    assert {one.rollout for one in done.stays} == {two}
    assert {one.why for one in done.stays} == {"its rollout has continued without it"}
    assert kinds(home) == before
    said = houston(home, "repair", "--from-backup", str(tmp_path / "elsewhere"))
    assert "remain set aside: its rollout has continued without it" in said
    assert len(list(home.damaged.iterdir())) == 1, "a repair that did nothing leaves nothing"


def test_what_was_erased_since_comes_back_from_no_backup(home: Home, tmp_path: Path) -> None:
    """Neither what was set aside, nor a remainder that is damaged later."""
    two = ended(home)
    home_backup.make_backup(home, tmp_path / "elsewhere")
    lose(home, two, 3)
    houston(home, "rollout", "erase", two, "--at", "2", "--yes")
    done = repair_home(home, tmp_path / "elsewhere")
    assert not done.changed
    assert {one.why for one in done.stays} == {"texts of its rollout were erased since"}
    seq = event(home, two, 2, "call.0")
    change(home, "UPDATE events SET body = x'00' WHERE seq = ?", seq)
    done = repair_home(home, tmp_path / "elsewhere")
    assert [loss.seqs for loss in done.losses] == [(seq,)]
    assert "output of 2" not in houston(home, "steps", two)
    assert verify_home(home).findings == ()


def test_a_backup_that_ends_in_the_middle_gives_back_what_it_has(
    home: Home, tmp_path: Path
) -> None:
    station = Station(home.path).start()
    made = home_backup.make_backup(home, tmp_path / "elsewhere")
    two = rollouts(home)[1]
    worker = station.worker(two)
    worker.intent(STEPS + 1)
    worker.result(STEPS + 1)
    worker.observation(STEPS + 1)
    worker.step(STEPS + 2)
    station.stop()
    lose(home, two, 3)
    done = repair_home(home, tmp_path / "elsewhere" / made.name)
    assert done.paused == {two: STEPS}
    assert done.returned[two]
    assert verify_home(home).findings == ()
    station = Station(home.path).start()
    station.person().ask(wire.Steer(rollout=two, action="resume"))
    assert station.worker(two).welcome.next_step == STEPS + 1
    station.stop()


class Killed(BaseException):
    """Stands for a kill: nothing behind it is done."""


def test_a_kill_while_the_new_database_takes_its_place_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the newest events are in the WAL alone; it has to go before the move."""
    station = Station(tmp_path / "running").start()
    worker = station.working()
    for step in range(1, STEPS + 1):
        worker.step(step)
    home = Home(tmp_path / "home")
    shutil.copytree(station.home.path, home.path, ignore=shutil.ignore_patterns("run", "*-shm"))
    station.stop()
    ((last,),) = ask(home, "SELECT max(seq) FROM events")
    assert home.database.with_name("houston.db-wal").stat().st_size > 0
    home.head_file.write_text("damaged")
    sync_to_disk = repairing.atomic_file.sync_to_disk

    def sync(path: Path) -> None:
        if path.name == home.database.name:
            raise Killed
        sync_to_disk(path)

    with monkeypatch.context() as later, pytest.raises(Killed):
        later.setattr(repairing.atomic_file, "sync_to_disk", sync)
        repair_home(home)
    assert not home.database.with_name("houston.db-wal").exists()
    done = repaired(home)
    assert done.losses == ()
    assert ask(home, "SELECT count(*) FROM steps") == [(STEPS,)]
    assert ask(home, "SELECT max(seq) >= ? FROM events", last) == [(1,)]


def test_no_room_for_the_copies_is_said_and_takes_no_room(home: Home, tmp_path: Path) -> None:
    flip(home.database, home.database.stat().st_size // 2, 3)
    small = tmp_path / "small"
    small.mkdir()
    with small_disk.mounted(small, 4):
        shutil.copytree(home.path, small / "home", ignore=shutil.ignore_patterns("ballast"))
        there = Home(small / "home")
        small_disk.fill(small)
        before = there.database.read_bytes()
        with pytest.raises(HoustonError) as said:
            repair_home(there)
        assert said.value.effect == "It was left as it is."
        assert there.database.read_bytes() == before
        assert not any(there.damaged.iterdir())
