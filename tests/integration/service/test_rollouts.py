"""Rollouts under the supervisor: real daemon, real workers, script engine, sandbox none."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.hosts.terminals.tmux_server import find_tmux_socket
from houston_daemon.maintenance.host_cleanup import has_leftovers
from tests.support.station import Station, alive


def thinking(steps: int, delay: float = 0.0) -> list[dict[str, Any]]:
    return [
        {
            "thought": f"line {i}",
            "calls": [{"name": "think", "arguments": {"thought": f"that was {i}"}}],
            "delay": delay,
        }
        for i in range(1, steps + 1)
    ]


def task(station: Station, **options: Any) -> Path:
    return station.task(**{"sandbox": "none", **options})


def over(station: Station, rollout: str, seconds: float = 90) -> str:
    """Wait until a rollout has ended; how."""
    ended = ("finished", "failed", "cancelled")
    station.until(lambda: station.state(rollout) in ended, seconds, f"{rollout} ends")
    return station.state(rollout)


def numbers(station: Station, rollout: str) -> list[int]:
    rows = station.query(
        "SELECT step FROM events WHERE rollout = ? AND kind = 'observation' ORDER BY seq", rollout
    )
    return [row[0] for row in rows]


def worker(station: Station, rollout: str) -> int:
    return station.process("houston_daemon.agent.rollout_worker", f"--rollout {rollout} ")


def test_rollouts_run_and_are_named_in_json(station: Station) -> None:
    station.start()
    words = ["rollout", "start", str(task(station)), "--engine", station.script(thinking(3))]
    rows = station.json(*words, "-n", "3", "--seed", "7")
    assert [set(row) for row in rows] == [{"rollout", "task", "state"}] * 3
    assert {row["task"] for row in rows} == {"probe"}
    ids = [row["rollout"] for row in rows]
    assert [over(station, rollout) for rollout in ids] == ["finished"] * 3
    assert [numbers(station, rollout) for rollout in ids] == [[1, 2, 3, 4]] * 3
    groups = station.query("SELECT DISTINCT group_id FROM rollouts")
    assert len(groups) == 1
    assert groups[0][0]
    (status,) = station.json("daemon", "status")
    assert status["rollouts"]["finished"] == 3
    station.until(lambda: station.json("daemon", "status")[0]["workers"] == 0)
    with (station.home / "logs/workers" / f"{ids[1]}.log").open("a") as log:
        log.write("what its worker said\n")
    shown = station.run("daemon", "logs", "--rollout", ids[1][-4:]).stdout
    assert shown.endswith("what its worker said\n")


@pytest.mark.slow
def test_a_script_is_meant_from_the_folder_where_it_was_named(station: Station) -> None:
    """The daemon was started elsewhere."""
    station.start()
    station.script(thinking(1), "played")
    beside = station.folder / "beside"
    beside.mkdir()
    (station.folder / "played.jsonl").rename(beside / "played.jsonl")
    words = ["rollout", "start", str(task(station)), "--engine", "script:played.jsonl"]
    home, station.folder = station.folder, beside
    (row,) = station.json(*words)
    station.folder = home
    assert over(station, row["rollout"]) == "finished"
    assert numbers(station, row["rollout"]) == [1, 2]


@pytest.mark.slow
def test_more_rollouts_than_workers_wait_in_queued(station: Station) -> None:
    station.environment["HOUSTON__DAEMON__MAX_ROLLOUTS"] = "2"
    station.start()
    ids = station.rollout(task(station), station.script(thinking(4, 0.5)), 4)
    station.until(lambda: [station.state(r) for r in ids].count("running") == 2)
    station.until(lambda: any(station.closed(r) for r in ids))
    assert [station.state(r) for r in ids].count("queued") == 2
    assert [over(station, r) for r in ids] == ["finished"] * 4


def test_who_waits_for_a_worker_that_a_paused_rollout_holds_is_told_so(station: Station) -> None:
    station.home.mkdir()
    (station.home / "houston.toml").write_text("[daemon]\nmax_rollouts = 1\n")
    station.start()
    (first,) = station.rollout(task(station), station.script(thinking(3, delay=1.0)))
    station.until(lambda: station.closed(first), why="a step of the first")
    (second,) = station.rollout(task(station), station.script(thinking(1), "short"))

    def reason() -> str:
        (row,) = (row for row in station.json("rollout", "list") if row["rollout"] == second)
        return str(row["reason"])

    assert reason() == "", "a queue that moves is no reason"
    station.run("rollout", "pause", first)
    why = "waits for a worker: paused rollouts hold 1 of 1 (`max_rollouts`)"
    station.until(lambda: reason() == why, why="the reason is listed")
    station.until(lambda: why in station.run("daemon", "status").stdout, why="and in the status")
    station.run("rollout", "cancel", first)
    assert over(station, second) == "finished"
    station.until(lambda: why not in station.run("daemon", "status").stdout, why="it is over")
    (third,) = station.rollout(task(station), station.script(thinking(1), "third"))
    assert over(station, third) == "finished"


def test_who_waits_for_an_engine_that_starts_is_told_which(station: Station) -> None:
    station.home.mkdir()
    command = '["/bin/sh", "-c", "sleep 600", "{port}"]'
    (station.home / "houston.toml").write_text(
        f'[engines.slow]\nkind = "vllm"\ncommand = {command}\n'
    )
    station.start()
    (rollout,) = station.rollout(task(station), "slow")

    def reason() -> str:
        (row,) = station.json("rollout", "list")
        return str(row["reason"])

    station.until(lambda: reason() == "waits for engine slow: starting", why="the engine is named")
    station.run("rollout", "cancel", rollout, "--wait")


def test_a_killed_worker_is_started_again_and_goes_on(station: Station) -> None:
    station.start()
    (rollout,) = station.rollout(task(station), station.script(thinking(12, 0.2)))
    station.until(lambda: station.closed(rollout) >= 2)
    first = worker(station, rollout)
    os.kill(first, signal.SIGKILL)
    station.until(lambda: not alive(first))
    assert over(station, rollout) == "finished"
    assert numbers(station, rollout) == list(range(1, 14))
    lease = station.query("SELECT lease FROM rollouts WHERE id = ?", rollout)
    assert lease == [(2,)]


@pytest.mark.slow
def test_a_rollout_whose_worker_always_dies_fails_with_the_last_line_of_its_log(
    station: Station,
) -> None:
    """Killed five times before its first step is closed."""
    station.start()
    (rollout,) = station.rollout(task(station), station.script(thinking(2, 60)))
    for death in range(5):
        station.until(lambda: running(station, rollout), 60, f"worker {death + 1} runs")
        os.kill(worker(station, rollout), signal.SIGKILL)
        station.until(lambda: not running(station, rollout))
    assert over(station, rollout) == "failed"
    (reason,) = station.query("SELECT reason FROM rollouts WHERE id = ?", rollout)[0]
    assert "5 times" in reason and f"houston daemon logs --rollout {rollout}" in reason


NAP = f"sleep 6{os.getpid()}"


@pytest.mark.slow
def test_terminals_end_with_their_rollout_even_without_a_worker(station: Station) -> None:
    """Its worker and tmux server were killed, and it is cancelled before the next one starts."""
    command = {"command": f"{NAP} & echo there", "session_id": "main"}
    steps = [{"thought": "", "calls": [{"name": "run_command", "arguments": command}]}]
    station.start()
    (rollout,) = station.rollout(
        task(station, sandbox="bubblewrap"), station.script([*steps, *thinking(1, 600)])
    )
    station.until(lambda: station.closed(rollout) >= 1)
    station.until(naps, why="the shell's child has become the program")
    assert has_leftovers(station.host_root, rollout)
    place = find_tmux_socket(station.host_root / "rollouts" / rollout / "terminals")
    server = subprocess.check_output(["tmux", "-S", place, "display-message", "-p", "#{pid}"])
    os.kill(int(server), signal.SIGKILL)
    assert naps(), "its sandbox outlives the server"
    for _ in range(4):  # from the third death on there is time enough before the next worker
        station.until(lambda: running(station, rollout), 60)
        os.kill(worker(station, rollout), signal.SIGKILL)
        station.until(lambda: not running(station, rollout))
    station.run("rollout", "cancel", rollout)
    assert over(station, rollout) == "cancelled"
    station.until(
        lambda: not has_leftovers(station.host_root, rollout), 60, "nothing of it is left"
    )
    station.until(lambda: not naps(), why="its sandbox has ended")


def naps() -> list[str]:
    """What sleeps as long as this test's command does."""
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if naps_in(path)]


def naps_in(path: Path) -> bool:
    try:
        return NAP.encode() in path.read_bytes().replace(b"\0", b" ")
    except OSError:
        return False


def running(station: Station, rollout: str) -> bool:
    try:
        return alive(worker(station, rollout))
    except AssertionError:
        return False


@pytest.mark.slow
def test_a_stop_leaves_rollouts_running_and_a_start_goes_on(station: Station) -> None:
    station.start()
    ids = station.rollout(task(station), station.script(thinking(8, 0.3)), 2)
    station.until(lambda: all(station.closed(r) >= 2 for r in ids))
    workers = [worker(station, r) for r in ids]
    station.stop()
    station.until(lambda: not any(alive(pid) for pid in workers))
    assert [station.state(r) for r in ids] == ["running"] * 2
    station.start()
    assert [over(station, r) for r in ids] == ["finished"] * 2
    assert [numbers(station, r) for r in ids] == [list(range(1, 10))] * 2


@pytest.mark.slow
def test_a_killed_daemon_takes_its_workers_along_and_the_next_goes_on(station: Station) -> None:
    station.start()
    ids = station.rollout(task(station), station.script(thinking(8, 0.3)), 2)
    station.until(lambda: all(station.closed(r) >= 2 for r in ids))
    workers = [worker(station, r) for r in ids]
    station.kill_daemon()
    station.until(lambda: not any(alive(pid) for pid in workers), 60, "no orphans")
    station.start()
    assert [over(station, r) for r in ids] == ["finished"] * 2
    assert [numbers(station, r) for r in ids] == [list(range(1, 10))] * 2


@pytest.mark.slow
def test_a_second_signal_ends_it_at_once_and_nothing_is_lost(station: Station) -> None:
    station.environment["HOUSTON__DAEMON__DRAIN_SECONDS"] = "60"
    station.start()
    (rollout,) = station.rollout(task(station), station.script(thinking(6, 0.3)))
    station.until(lambda: station.closed(rollout) >= 2)
    pid, runs = station.pid, worker(station, rollout)
    os.kill(runs, signal.SIGSTOP)  # it cannot drain
    os.kill(pid, signal.SIGTERM)
    station.until(lambda: "draining" in station.log())
    time.sleep(0.3)
    assert alive(pid), "the first signal waits for the worker"
    os.kill(pid, signal.SIGTERM)
    station.until(lambda: not alive(pid) and not alive(runs))
    station.start()
    assert over(station, rollout) == "finished"
    assert numbers(station, rollout) == list(range(1, 8))


@pytest.mark.slow
def test_a_worker_that_does_not_drain_is_ended(station: Station) -> None:
    station.environment["HOUSTON__DAEMON__DRAIN_SECONDS"] = "0.5"
    station.start()
    (rollout,) = station.rollout(task(station), station.script(thinking(6, 0.3)))
    station.until(lambda: station.closed(rollout) >= 2)
    runs = worker(station, rollout)
    os.kill(runs, signal.SIGSTOP)
    # On a crowded machine the daemon itself may not come to its end in that time.
    said = station.run("daemon", "stop").stdout
    assert "stopped" in said or "nothing that was stored is lost" in said
    station.until(lambda: not alive(runs))
    station.start()
    assert over(station, rollout) == "finished"
    assert numbers(station, rollout) == list(range(1, 8))


@pytest.mark.slow
def test_a_failing_writer_ends_the_daemon_with_its_cause(station: Station) -> None:
    """The recorder meets a database that another program has broken."""
    station.start()
    pid = station.pid
    (rollout,) = station.rollout(task(station), station.script(thinking(20, 0.2)))
    station.until(lambda: station.closed(rollout) >= 2)
    runs = worker(station, rollout)
    foreign = sqlite3.connect(station.home / "houston.db", timeout=10)
    foreign.execute("DROP TABLE steps")
    foreign.commit()
    foreign.close()
    station.until(lambda: not alive(pid) and not alive(runs), 60, "both end")
    log = (station.home / "logs" / "daemon.log").read_text()
    assert "writer failed: " in log
    assert "ended with exit code 70" in log
    station.run("daemon", "status", code=69)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A station with engines that cannot sample."""
    made = Station(tmp_path_factory.mktemp("odd"))
    made.home.mkdir()
    (made.folder / "broken.jsonl").write_text('{"thought": "a"}\n{"thoughts": "b"}\n')
    (made.folder / "empty.jsonl").touch()
    (made.home / "houston.toml").write_text(
        '[engines.far]\nkind = "token"\nurl = "http://127.0.0.1:9/v1"\n'
        '[engines.bare]\nkind = "chat"\n'
        '[engines.odd]\nkind = "token"\nurl = "node:8000"\n'
    )
    made.start()
    yield made
    made.clear()


@pytest.mark.parametrize(
    ("engine", "code", "names"),
    [
        ("script:nowhere.jsonl", 66, "nowhere.jsonl"),
        ("script:broken.jsonl", 78, "Line 2 of the script"),
        ("script:empty.jsonl", 78, "has no step. No rollout was started."),
        ("gpt", 66, "embedded"),
        ("far", 1, "127.0.0.1:9"),
        ("bare", 78, "engines.bare.url"),
        ("odd", 78, "node:8000"),
    ],
)
def test_engines_that_cannot_sample(odd: Station, engine: str, code: int, names: str) -> None:
    done = odd.run("rollout", "start", str(task(odd)), "--engine", engine, code=code)
    assert names in done.stderr
    assert done.stderr.startswith("houston: ")
    assert not odd.query("SELECT 1 FROM rollouts")


@pytest.mark.parametrize("words", [["-n", "0"], ["-n", "many"], []])
def test_a_wrong_use_is_exit_code_two(station: Station, words: list[str]) -> None:
    station.run("rollout", "start", *(["x.toml", *words] if words else []), code=2)


def test_without_a_daemon_no_rollout_starts(station: Station) -> None:
    engine = station.script(thinking(1))
    done = station.run("rollout", "start", str(task(station)), "--engine", engine, code=69)
    assert "houston daemon start" in done.stderr
