"""Archived rollouts and erased texts: the bytes are gone, the chain holds, the rest goes on."""

import hashlib
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from houston_daemon.maintenance import (
    archive_file,
    durable_copy,
    erased_body,
    event_erasure,
    home_backup,
    projection_replay,
)
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.handlers import erase_handlers
from houston_daemon.review.notify.need_notifications import Notification
from houston_daemon.review.notify.sent_notifications import SentNotifications
from houston_shared import command, wire
from houston_shared.home import Home
from houston_shared.policy_and_run_files import training_folder
from houston_shared.records import Refinement, TaskRecord, ToolCall
from houston_shared.store import event_bodies
from houston_shared.store.event_bodies import StoredSample
from houston_shared.store.training_event_bodies import TRAINING_BODY_TYPES
from tests.support.full_home import change, fill
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station, Worker, sample, until

SECRET = "sk-live-4242&secret"
"""Escaped differently in observations."""


def houston(home: Home, *words: str, code: int = 0, given: str = "") -> str:
    done = subprocess.run(
        houston_command(*words, "--home", str(home.path)),
        capture_output=True, text=True, timeout=60, check=False, input=given,
    )  # fmt: skip
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def ended(station: Station, worker: Worker) -> str:
    assert isinstance(worker.say(wire.StoreState, state="finished"), wire.Ack)
    return worker.rollout


def leaky(station: Station) -> tuple[str, str]:
    """A rollout that has ended, with the secret everywhere it can be; and one without it."""
    person, worker = station.person(), station.working()
    person.guide(worker.rollout, f"use {SECRET} to log in")
    assert isinstance(worker.step(1), wire.Ack)
    worker.sample(2, thought=f"The key is {SECRET}", new_prompt_ids=(7, 8, 9))
    worker.intent(2)
    worker.result(2, text=("log " * 20_000) + SECRET.replace("&", "&amp;"))
    worker.intent(2, 1)
    worker.result(2, 1, kind="search", fields={"query": SECRET, "total_results": 3})
    worker.observation(2)
    worker.step(3)
    why = wire.JudgedSteps(first=1, last=2, verdict="mask", reason=f"it wrote {SECRET}")
    person.ask(wire.GiveVerdicts(request="v", rollout=worker.rollout, steps=(why,)))
    person.ask(wire.ClaimRollout(request="c", rollout=worker.rollout, note=f"it has {SECRET}"))
    other = station.working()
    other.step(1)
    other.sample(2)
    return ended(station, worker), other.rollout


def traces(home: Home) -> list[Path]:
    """Files of the home that hold the secret, as it is."""
    return [path for path in home.path.rglob("*") if SECRET.encode() in _content(path)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:  # a daemon that runs has put another in its place
        return b""


def bodies(station: Station, rollout: str) -> list[Any]:
    return station.query("SELECT seq, body_hash, chain FROM events WHERE rollout = ?", rollout)


@pytest.mark.parametrize("running", [True, False], ids=["daemon runs", "offline"])
def test_a_leaked_secret_leaves_every_file(tmp_path: Path, running: bool) -> None:
    houston_home = Home(tmp_path / "home")
    if running:
        houston(houston_home, "daemon", "start")
        houston(houston_home, "daemon", "stop")
    station = Station(houston_home.path).start()
    leaky_one, other = leaky(station)
    until(lambda: SECRET.split("-")[1].encode() in _index(houston_home))
    before = bodies(station, leaky_one)
    station.stop()
    assert traces(houston_home)
    assert "--yes" in houston(houston_home, "rollout", "erase", "--text", SECRET, code=2)
    if running:
        houston(houston_home, "daemon", "start")
    try:
        words = ("rollout", "erase", "--text", "-", "--yes", "--reason", "leaked")
        said = houston(houston_home, *words, given=SECRET)
        assert "events were erased" in said
        assert traces(houston_home) == []
        assert not list(houston_home.blobs.rglob("*.zst")), "the blob that held it is gone"
    finally:
        if running:
            houston(houston_home, "daemon", "stop")
    assert traces(houston_home) == []
    report = verify_home(houston_home)
    assert report.findings == ()
    assert report.erased >= 5
    steps = [json.loads(line) for line in houston(
        houston_home, "steps", leaky_one, "--json").splitlines()]  # fmt: skip
    assert steps[1]["thought"] == "The key is [erased]", "the rest of a text stays"
    audit = houston(houston_home, "log", "--audit", "--json")
    assert "leaked" in audit
    station = Station(houston_home.path).start()
    after = {row[0]: row for row in bodies(station, leaky_one)}
    assert all(after[row[0]] == row for row in before), "hashes and chain stay"
    if not running:  # a real daemon has meanwhile tried to run it, without a script
        assert station.worker(other).welcome.next_step == 2, "the others go on"
    station.stop()
    assert verify_home(houston_home).sound


def _index(home: Home) -> bytes:
    wal = home.search_database.with_name("search.db-wal")
    return b"".join(path.read_bytes() for path in (home.search_database, wal) if path.exists())


def test_a_step_is_erased_and_nothing_else(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    houston(station.home, "rollout", "erase", rollout, "--at", "2", "--yes")
    assert verify_home(station.home).findings == ()
    said = houston(station.home, "steps", rollout, "--json").splitlines()
    first, second, third = (json.loads(line) for line in said)
    assert "I think about step 1" in first["thought"]
    assert second["thought"] == "[erased from the journal]"
    assert "I think about step 3" in third["thought"]


def said_before(station: Station) -> Worker:
    """A running rollout with guidance that was edited twice, drafted by a critic, and delivered."""
    person, worker = station.person(), station.working()
    worker.step(1)
    drafted = wire.StoreDraft(
        id="d", rollout=worker.rollout, step=1, critic="policy@2", text="DRAFTED", reason="QUOTED"
    )
    assert isinstance(person.ask(drafted), wire.RequestStored)
    said = wire.Guide(id="g", rollout=worker.rollout, text="QUEUED FIRST", mode="next", draft="d")
    assert not isinstance(person.ask(said), wire.Denied)
    for revision, text in ((1, "EDITED ONCE"), (2, "EDITED AGAIN")):
        edit = wire.EditGuidance(id="g", revision=revision, text=text)
        assert not isinstance(person.ask(edit), wire.Denied)
    worker.step(2)
    worker.step(3)
    return worker


SAID = (b"DRAFTED", b"QUOTED", b"QUEUED FIRST", b"EDITED ONCE", b"EDITED AGAIN")


@pytest.mark.parametrize("words", [("erase", "--at", "2"), ("archive",)], ids=["step", "archive"])
def test_nothing_that_was_said_to_an_erased_step_is_left(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    station = Station(tmp_path / "home").start()
    rollout = ended(station, said_before(station))
    ((delivered,),) = station.query("SELECT delivered_step FROM guidance")
    assert delivered == 2
    station.stop()
    houston(station.home, "rollout", words[0], rollout, *words[1:], "--yes")
    database = station.home.database.read_bytes()
    assert [text for text in SAID if text in database] == []
    assert verify_home(station.home).findings == ()


KINDS_WITHOUT_TEXTS = {
    "daemon", "task", "assigned", "state", "cancel", "clock", "jumped", "delivery", "withdraw",
    "reorder", "process-reward", "draft-decision", "review-cost", "note-read", "stop", "refused",
    "hosts", "erased", "repaired", "cleaned", *TRAINING_BODY_TYPES,
}  # fmt: skip
"""What `houston rollout archive` says stays in the home: names, reasons of states, numbers."""


def erased_after_first(
    monkeypatch: pytest.MonkeyPatch, home: Home, rollout: str, owner: Any, name: str
) -> None:
    """Archive the rollout right after the first call of a function has returned."""
    function, calls = getattr(owner, name), []

    def called(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        calls.append(name)
        if len(calls) == 1:
            houston(home, "rollout", "archive", rollout, "--yes")
        return answer

    monkeypatch.setattr(owner, name, called)


def test_what_is_erased_while_a_home_is_verified_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    assert _blobs(station.home) != []
    erased_after_first(monkeypatch, station.home, rollout, projection_replay, "fetch_events")
    report = verify_home(station.home)
    assert _blobs(station.home) == []
    assert report.findings == ()


def test_a_backup_begins_again_where_bodies_are_erased_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    erased_after_first(monkeypatch, station.home, rollout, durable_copy, "copy_database")
    made = home_backup.make_backup(station.home)
    backup = Home(station.home.backups / made.name)
    assert verify_home(backup).findings == ()
    assert _blobs(backup) == [] and SECRET.encode() not in backup.database.read_bytes()


def test_every_kind_of_event_has_a_word_on_its_texts() -> None:
    assert set(event_bodies.BODY_TYPES) == set(erased_body.BLANK_RULES) | KINDS_WITHOUT_TEXTS
    assert not set(erased_body.BLANK_RULES) & KINDS_WITHOUT_TEXTS


def test_what_a_critic_said_of_another_attempt_is_archived() -> None:
    refines = Refinement(rollout="r", text=SECRET, critic="policy@2")
    task = TaskRecord(name="t", folder="/t", definition="", instructions="Count.")
    spec = event_bodies.StoredSpec(rollout="s", task=task, engine="e", engine_settings={})
    assert erased_body.blank_body("spec", wire.encode_message(spec)) is None
    spec = msgspec.structs.replace(spec, refines=refines)
    left = erased_body.blank_body("spec", wire.encode_message(spec))
    assert left is not None and SECRET.encode() not in left
    kept = msgspec.msgpack.decode(left, type=event_bodies.StoredSpec)
    assert kept.refines is not None and kept.refines.critic == "policy@2"


SPELLINGS = {
    "two lines in an answer that was cut": ("-----BEGIN\nMIIE-----", json.dumps),
    "letters that JSON writes as numbers": ("schlüssel-42", json.dumps),
    "quotation marks": ('say "friend"', lambda text: json.dumps(text, ensure_ascii=False)),
    "JSON in an observation": (
        'a<b>"c',
        lambda text: json.dumps(text).replace("<", "&lt;").replace(">", "&gt;"),
    ),
}


@pytest.mark.parametrize("case", SPELLINGS)
def test_a_text_goes_as_json_writes_it_too(case: str) -> None:
    text, write = SPELLINGS[case]
    written = f'{{"calls": [{{"arguments": {{"command": {write(text)}'
    body = event_bodies.StoredSample(**msgspec.structs.asdict(sample(1, thought=written)))
    data = wire.encode_message(body)
    assert erased_body.has_text(data, text)
    left = msgspec.msgpack.decode(
        erased_body.redact_text("sample", data, text), type=event_bodies.StoredSample
    )
    assert left.thought == '{"calls": [{"arguments": {"command": "[erased]"'


def test_what_is_said_while_an_archive_is_packed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    check = archive_file.check_archive

    def said_meanwhile(path: Path) -> archive_file.ArchiveManifest:
        again = Station(station.home.path).start()
        note = wire.ClaimRollout(request="later", rollout=rollout, note="the newest note")
        assert isinstance(again.person().ask(note), wire.RequestStored)
        again.stop()
        return check(path)

    monkeypatch.setattr(archive_file, "check_archive", said_meanwhile)
    words = ["rollout", "archive", rollout, "--yes", "--home", str(station.home.path)]
    assert command.main(words) == 0
    assert "the newest note" in houston(station.home, "rollout", "show", rollout)


def test_the_archive_of_a_newer_houston_is_whole(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    path, manifest = archive_file.write_archive(station.home, rollout)
    lines = zstandard.decompress(path.read_bytes(), 2**24).splitlines()[:-1]
    newer = {**json.loads(lines[0]), "schema": manifest.schema + 1, "host": "unheard of"}
    lines[0] = json.dumps(newer).encode()
    end = json.dumps({"sha256": hashlib.sha256(b"".join(lines)).hexdigest()}).encode()
    path.write_bytes(zstandard.compress(b"\n".join([*lines, end, b""])))
    said = houston(station.home, "rollout", "archive", "--read", str(path), code=78)
    assert f"has schema {manifest.schema + 1}" in said


def test_an_archived_rollout_is_in_its_file_and_only_there(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    fill(station)
    rollout, other = leaky(station)
    (task,) = station.query("SELECT name FROM tasks")
    station.stop()
    home = station.home
    assert "has not ended" in houston(home, "rollout", "archive", other, "--yes", code=1)
    assert "--yes" in houston(home, "rollout", "archive", rollout, code=2)
    (done,) = (
        json.loads(line)
        for line in houston(home, "rollout", "archive", rollout, "--yes", "--json").splitlines()
        if line.startswith("{")
    )
    path = Path(done["archive"])
    assert archive_file.check_archive(path).rollout == rollout
    assert archive_file.check_archive(path).events == done["events"]
    assert traces(home) == []
    report = verify_home(home)
    assert report.findings == ()
    assert report.erased > 5
    for words in (("steps", rollout), ("context", rollout, "2")):
        assert f"{rollout} was archived: its texts are in {path}." in houston(home, *words)
    assert "was archived before" in houston(home, "rollout", "archive", rollout, "--yes", code=1)
    assert task[0] in houston(home, "task", "list")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(Exception, match="cannot be read back"):
        archive_file.check_archive(path)


def test_rows_that_were_trained_on_are_named(tmp_path: Path) -> None:
    """What a run of training was given holds texts as they were; nothing else says so."""
    home = Home(tmp_path / "home")
    assert event_erasure.list_possible_copies(home) == []
    run = training_folder(home) / "sft-20260101-000000-0000"
    (run / "data").mkdir(parents=True)
    assert event_erasure.list_possible_copies(home) == [run]


def test_messages_that_wait_with_a_text_are_named(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    waiting = Notification("r", "asks", 'send "s3cret\n" to me', "task", "running", 1, 7)
    SentNotifications(home.sent_notifications, {"x"}).take([waiting])
    assert event_erasure.list_possible_copies(home, '"s3cret\n"') == [home.sent_notifications]
    assert event_erasure.list_possible_copies(home, "nowhere") == []


def test_what_is_left_of_an_erased_body_is_verified_too(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    houston(station.home, "rollout", "archive", rollout, "--yes")
    ((seq, body),) = _rows(station.home, rollout)
    flipped = bytes([body[0]]) + bytes([body[1] ^ 1]) + body[2:]
    change(station.home, "UPDATE events SET body = ? WHERE seq = ?", flipped, seq)
    assert seq in {finding.seq for finding in verify_home(station.home).findings}


def _rows(home: Home, rollout: str) -> list[Any]:
    import sqlite3

    connection = sqlite3.connect(home.database)
    rows = connection.execute(
        "SELECT seq, body FROM events WHERE rollout = ? AND kind = 'sample' AND step = 2",
        (rollout,),
    ).fetchall()
    connection.close()
    return rows


def test_a_rollout_that_goes_on_is_never_erased(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    ((seq,),) = station.query("SELECT min(seq) FROM events WHERE kind = 'sample'")
    asked = wire.EraseBodies(rollout=worker.rollout, seqs=(seq,))
    reply = station.person().ask(asked)
    assert isinstance(reply, wire.Denied)
    assert "has not ended" in reply.cause


GONE: dict[str, tuple[tuple[str, ...], str]] = {
    "archived": (("archive",), " was archived: its texts are in "),
    "a step": (("erase", "--at", "2"), "Step 2 of rollout "),
    "a text": (("erase", "--text", SECRET), "Step 2 of rollout "),
}


@pytest.mark.parametrize("case", GONE)
def test_a_failed_rollout_that_was_erased_is_refused_as_that_and_is_no_damage(
    tmp_path: Path, case: str
) -> None:
    (verb, *options), why = GONE[case]
    station = Station(tmp_path / "home").start()
    worker = station.working()
    worker.step(1)
    worker.sample(2, thought=f"The key is {SECRET}")
    worker.observation(2)
    assert isinstance(worker.say(wire.StoreState, state="failed"), wire.Ack)
    station.stop()
    houston(station.home, "rollout", verb, worker.rollout, *options, "--yes")
    station.restart()
    refused = station.person().ask(wire.Steer(rollout=worker.rollout, action="resume"))
    assert isinstance(refused, wire.Denied)
    assert why in refused.cause and "CORRUPT" not in refused.cause
    assert "again" in refused.next and "verify" not in refused.next
    assert refused.effect == f"{worker.rollout} stays failed."
    station.stop()


def test_ids_are_replaced_by_zeros_so_that_counts_stay() -> None:
    one = StoredSample(**msgspec.structs.asdict(sample(1)))
    data = wire.encode_message(one)
    for left in (
        erased_body.blank_body("sample", data),
        erased_body.remove_token_ids("sample", data),
        erased_body.redact_text("sample", data, "think"),
    ):
        assert left is not None
        kept = msgspec.msgpack.decode(left, type=StoredSample)
        assert kept.token_ids == (0, 0)
        assert kept.new_prompt_ids == (0, 0, 0)
        assert kept.logprobs is None
    with pytest.raises(Exception, match="word that Houston writes itself"):
        erased_body.redact_text("sample", data, "policy")


def test_a_text_goes_however_deep_it_is_nested() -> None:
    deep: Any = {SECRET: SECRET}
    for _ in range(800):
        deep = [deep]
    call = ToolCall(id="1.0", name="send", arguments={"files": [{"body": deep}, {"body": 1}]})
    one = StoredSample(**msgspec.structs.asdict(sample(1, calls=(call,))))
    left = erased_body.redact_text("sample", wire.encode_message(one), SECRET)
    assert not erased_body.has_text(left, SECRET)
    (kept,) = msgspec.msgpack.decode(left, type=StoredSample).calls
    first, second = kept.arguments["files"]
    assert second == {"body": 1}, "files of an agent's call are not those of an observation"
    inner = first["body"]
    while isinstance(inner, list):
        (inner,) = inner
    assert inner == {"[erased]": "[erased]"}


CUT = """
import os, signal, sys
from houston_daemon.maintenance import event_erasure
from houston_daemon.recorder.handlers import erase_handlers
from houston_shared.command import main

erase_handlers.ERASE_LIMIT, commit, left = 4, event_erasure._erase_in_transaction, [2]

def cut(store, message):
    commit(store, message)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

event_erasure._erase_in_transaction = cut
main()
"""


def test_an_archive_that_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    home = station.home
    words = ("rollout", "archive", rollout, "--yes", "--json")
    done = subprocess.run(
        [sys.executable, "-c", CUT, *words, "--home", str(home.path)],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr
    (path,) = home.archives.iterdir()
    assert 0 < verify_home(home).erased <= 8, "some are gone"
    assert "was archived" not in houston(home, "steps", rollout), "and it is no archive yet"
    assert str(path) in houston(home, *words)
    assert list(home.archives.iterdir()) == [path], "the file was whole before"
    assert traces(home) == []
    assert f"texts are in {path}" in houston(home, "steps", rollout)
    assert verify_home(home).findings == ()
    assert "was archived before" in houston(home, *words, code=1)


UNFINISHED = """
import os, signal
from houston_daemon.recorder.handlers import erase_handlers
from houston_shared.command import main

erase_handlers._unlink_unused_blobs = lambda store, files: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def test_a_kill_before_the_files_go_leaves_none_behind_the_next_start(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    station.stop()
    words = ("rollout", "archive", rollout, "--yes", "--home", str(station.home.path))
    done = subprocess.run(
        [sys.executable, "-c", UNFINISHED, *words], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -9, done.stderr
    assert station.query("SELECT blob FROM events WHERE blob IS NOT NULL") == []
    assert _blobs(station.home) != []
    Station(station.home.path).start().stop()
    assert _blobs(station.home) == []
    assert verify_home(station.home).findings == ()


def test_a_damaged_word_of_an_erasure_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    rollout, _ = leaky(station)
    houston(station.home, "rollout", "archive", rollout, "--yes")
    station.stop()
    for damage in ("substr(body, 2) || x'00'", "x'c1c1'", "NULL"):
        with closing(sqlite3.connect(station.home.database)) as connection:
            connection.execute(f"UPDATE events SET body = {damage} WHERE kind = 'erased'")
            connection.commit()
        station = Station(station.home.path).start()
        station.working().step(1)
        station.stop()
    assert not verify_home(station.home).sound


def _blobs(home: Home) -> list[Path]:
    return [path for path in home.blobs.rglob("*") if path.is_file()]


def test_no_event_is_read_to_see_whether_a_file_is_named(station: Station) -> None:
    ((*_, plan),) = station.query(f"EXPLAIN QUERY PLAN {erase_handlers.SELECT_BLOB_USER}", "0" * 64)
    assert "events_blob" in plan


def test_an_erasure_says_who_else_has_the_text(tmp_path: Path) -> None:
    station = Station(tmp_path / "home").start()
    one, _ = leaky(station)
    two, _ = leaky(station)
    station.stop()
    home = station.home
    words = ("rollout", "erase", "--yes", "--text", SECRET)
    said = houston(home, *words, "--reason", f"leaked {SECRET}", code=2)
    assert "The reason contains the text" in said
    said = houston(home, *words, one, code=1)
    assert f"{two} contains it, too" in said
    assert "Old pages" not in said
    assert traces(home) != []
    assert "events were erased" in houston(home, *words)
    assert traces(home) == []
    said = houston(home, "rollout", "erase", one, "--at", "99", "--yes", code=66)
    assert f"{one} has no step 99." in said
