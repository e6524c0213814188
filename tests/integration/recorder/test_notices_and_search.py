"""What reaches consoles without asking: notices of commits, and text that can be found."""

import contextlib
import os
import signal
import sqlite3
from pathlib import Path

import zmq

from houston_shared import records, wire
from tests.support.recorder_client import Station, call, sample, until


def find(station: Station, match: str) -> list[int]:
    path = station.home.search_database
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY rowid", (match,)
        )
        return [row[0] for row in rows]
    finally:
        connection.close()


def indexed(station: Station) -> int:
    address = f"file:{station.home.search_database}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            row = connection.execute("SELECT seq FROM indexed").fetchone()
    except sqlite3.DatabaseError:  # it is not there yet, or being made anew
        return 0
    return int(row[0]) if row else 0


def caught_up(station: Station) -> bool:
    ((newest,),) = station.query("SELECT max(seq) FROM events")
    return until(lambda: indexed(station) == newest)


def test_every_commit_has_a_notice(station: Station) -> None:
    context = zmq.Context()
    live = context.socket(zmq.SUB)
    live.subscribe(b"")
    live.connect(station.home.socket("live"))
    person, worker = station.person(), station.working()
    assert until(lambda: person.ask(wire.AskStatus()).consoles == 1)
    ack = worker.step(1)
    kinds: dict[str, wire.Notice] = {}
    while "observation" not in kinds:
        assert live.poll(20_000)
        notice = wire.notice_decoder.decode(live.recv())
        assert notice.epoch == station.recorder.epoch
        assert notice.rollout in (worker.rollout, "")
        kinds[notice.kind] = notice
    assert kinds["observation"].seq == ack.seq
    assert {"sample", "intent", "result"} <= kinds.keys()
    context.destroy(linger=0)
    assert until(lambda: person.ask(wire.AskStatus()).consoles == 0)


def test_text_is_found_by_word_phrase_and_rollout(station: Station) -> None:
    person = station.person()
    one, two = (station.worker(rollout) for rollout in person.start(2))
    for worker, word in ((one, "zebra"), (two, "quagga")):
        spoken = records.ToolCall(
            id="1.0", name="run_command", arguments={"command": f"cat {word}.txt"}
        )
        worker.sample(1, thought=f"I will look for the {word} carefully", calls=(spoken,))
        worker.intent(1)
        worker.result(1, text=f"here is the {word}")
        person.guide(worker.rollout, f"do not feed the {word}")
        worker.observation(1, tail=f"[step 1, {word} budget]")
    assert caught_up(station)
    assert len(find(station, "zebra")) == 4  # sample with its call, result, guidance, observation
    assert len(find(station, '"look for the"')) == 2
    tag = "r" + one.rollout.replace("-", "")
    assert len(find(station, f"tag:{tag} AND look")) == 1
    assert find(station, f"tag:{tag} AND quagga") == []
    kinds = station.query("SELECT kind FROM events WHERE seq = ?", find(station, "feed")[0])
    assert kinds == [("guidance",)]


def test_the_index_is_made_anew_when_it_is_missing_damaged_or_ahead(station: Station) -> None:
    worker = station.working()
    worker.sample(1, thought="the okapi sleeps")
    worker.sample(1, attempt=2, thought="large okapi " * 20_000)
    assert caught_up(station)
    assert len(find(station, "okapi")) == 2
    for harm in ("missing", "damaged", "ahead"):
        station.stop()
        path = station.home.search_database
        if harm == "missing":
            path.unlink()
        elif harm == "damaged":
            path.write_bytes(b"not a database at all" * 1_000)
        else:
            connection = sqlite3.connect(path)
            connection.execute("UPDATE indexed SET seq = 1000000")
            connection.commit()
            connection.close()
        station.restart()
        assert caught_up(station), harm
        assert len(find(station, "okapi")) == 2, harm


def test_arguments_of_any_shape_are_indexed(station: Station) -> None:
    worker = station.working()
    deep = {"a": [1, {"b": "gnu"}], "c": None, "d": b"\xff", "e": 2.5}
    odd = records.ToolCall(id="1.0", name="edit_file", arguments=deep)
    worker.sample(1, calls=(odd, call(1, 1)), thought=sample(1).thought)
    assert caught_up(station)
    assert len(find(station, "gnu")) == 1


def indexer(station: Station) -> int | None:
    """The process that keeps search.db of this station."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if (
                b"houston_daemon.recorder.search_indexer" in words
                and str(station.home.path).encode() in words
            ):
                return int(folder.name)
    return None


def test_the_indexer_is_started_again_when_it_dies_and_ends_with_the_recorder(
    station: Station,
) -> None:
    person, worker = station.person(), station.working()
    worker.sample(1, thought="the first aardvark")
    assert caught_up(station)
    killed = indexer(station)
    assert killed
    os.kill(killed, signal.SIGKILL)
    worker.sample(1, attempt=2, thought="the second aardvark")
    assert until(lambda: person.ask(wire.AskStatus()).last_error)
    assert caught_up(station)
    assert len(find(station, "aardvark")) == 2
    assert until(lambda: person.ask(wire.AskStatus()).search_lag == 0)
    assert not person.ask(wire.AskStatus()).last_error
    assert indexer(station) not in (None, killed)
    station.stop()
    assert indexer(station) is None
