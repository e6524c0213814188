"""Following shows every step once, in order, whatever the daemon does meanwhile."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from houston_daemon.maintenance.journal_repair import repair_home
from houston_shared import wire
from tests.integration.commands.conftest import Command, Desk
from tests.support.full_home import change
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Station


def said_at_its_end(command: Command) -> str:
    assert command.ends() == 0
    assert command.process.stderr is not None
    return command.process.stderr.read().decode()


def test_a_tail_of_one_rollout_ends_with_it(desk: Desk) -> None:
    worker = desk.station.working()
    worker.step(1)
    tail = desk.begin("tail", worker.rollout, "-f", "--json")
    tail.until(1)
    worker.step(2, finished=True)
    worker.say(wire.StoreState, state="finished", reason="finish")
    assert said_at_its_end(tail) == f"{worker.rollout} has ended.\n"
    last = json.loads(tail.lines()[-1])
    assert (last["kind"], last["text"]) == ("state", "finished by worker (finish)")


def numbers(command: Command) -> list[int]:
    return [json.loads(line)["step"] for line in command.lines()]


def test_steps_are_followed_as_they_close_until_the_rollout_ends(desk: Desk) -> None:
    worker = desk.station.working()
    worker.step(1)
    follower = desk.begin("steps", worker.rollout, "-f", "--json")
    follower.until(1)
    for step in range(2, 6):
        worker.step(step)
    follower.until(5)
    worker.sample(6)
    worker.intent(6)
    assert numbers(follower) == [1, 2, 3, 4, 5], "an open step is none yet"
    worker.result(6)
    worker.observation(6, finished=True)
    worker.say(wire.StoreState, state="finished")
    assert follower.ends() == 0
    assert numbers(follower) == [1, 2, 3, 4, 5, 6]


def test_following_survives_a_daemon_that_stops_and_comes_back(desk: Desk) -> None:
    worker = desk.station.working()
    worker.step(1)
    rollout = worker.rollout
    steps = desk.begin("steps", rollout, "-f", "--json")
    tail = desk.begin("tail", rollout, "-f", "--json", "--kind", "observation")
    steps.until(1)
    tail.until(1)
    desk.station.restart()
    worker = desk.station.worker(rollout)
    for step in range(2, 5):
        worker.step(step)
    steps.until(4)
    tail.until(4)
    assert numbers(steps) == numbers(tail) == [1, 2, 3, 4]


def test_following_goes_on_in_the_file_that_a_repair_made(desk: Desk) -> None:
    worker = desk.station.working()
    worker.step(1)
    worker.step(2)
    rollout = worker.rollout
    tail = desk.begin("tail", rollout, "-f", "--json", "--kind", "observation")
    tail.until(2)
    desk.station.stop()
    home = desk.station.home
    change(home, "UPDATE events SET body = x'00' WHERE kind = 'head' OR kind = 'daemon'")
    assert repair_home(home).changed
    desk.station.restart()
    person = desk.station.person()
    assert isinstance(person.ask(wire.Steer(rollout=rollout, action="resume")), wire.RequestStored)
    worker = desk.station.worker(rollout)
    for step in range(worker.welcome.next_step, 5):  # type: ignore[attr-defined]
        worker.step(step)
    seqs = desk.station.query("SELECT seq FROM events WHERE kind = 'observation' ORDER BY seq")
    desk.until(lambda: json.loads(tail.lines()[-1])["seq"] == seqs[-1][0])
    assert {json.loads(line)["seq"] for line in tail.lines()} >= {seq for (seq,) in seqs}


def test_many_events_between_two_reads_are_all_shown(desk: Desk) -> None:
    worker = desk.station.working()
    tail = desk.begin("tail", "-f", "-n", "9999", "--json", "--kind", "sample")
    worker.step(1)
    tail.until(1)
    for step in range(2, 301):
        worker.step(step)
    tail.until(300)
    assert numbers(tail) == list(range(1, 301))


def test_without_a_live_socket_changes_are_found_by_the_version_of_the_file(desk: Desk) -> None:
    """As on a home whose sockets a group reader may not reach."""
    worker = desk.station.working()
    worker.step(1)
    desk.environment["HOUSTON_HOME"] = str(desk.folder / "link")
    (desk.folder / "link").mkdir()
    for name in ("houston.db", "houston.db-wal", "houston.db-shm"):
        os.link(desk.station.home.path / name, desk.folder / "link" / name)
    follower = desk.begin("steps", worker.rollout, "-f", "--json")
    follower.until(1)
    worker.step(2)
    follower.until(2)
    assert numbers(follower) == [1, 2]


def test_ctrl_c_ends_a_tail_without_a_traceback(desk: Desk) -> None:
    worker = desk.station.working()
    worker.step(1)
    tail = desk.begin("tail", "-f")
    tail.until(1)
    tail.process.send_signal(signal.SIGINT)
    assert tail.ends() == 130
    assert tail.process.stderr is not None
    assert tail.process.stderr.read() == b""


@pytest.mark.parametrize("words", ["tail -n 1", "steps {}", "daemon logs -n 1"])
def test_following_ends_with_its_reader_though_nothing_comes(desk: Desk, words: str) -> None:
    worker = desk.station.working()
    worker.step(1)
    desk.station.home.logs.mkdir(exist_ok=True)
    (desk.station.home.logs / "daemon.log").write_text("ready\n")
    houston = f"{sys.executable} -m houston_shared.command {words.format(worker.rollout)} -f"
    result = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {houston} | head -n 1"],
        env=desk.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_following_ends_with_its_reader_while_others_are_at_work(desk: Desk) -> None:
    worker, other = desk.station.working(), desk.station.working()
    worker.step(1)
    houston = f"{sys.executable} -m houston_shared.command"
    tail = subprocess.Popen(
        ["/bin/bash", "-c", f"{houston} tail -n 1 --rollout {worker.rollout} -f | head -n 1"],
        env=desk.environment,
        stdout=subprocess.DEVNULL,
    )
    step, end = 1, time.monotonic() + 60
    while tail.poll() is None and time.monotonic() < end:
        other.step(step)
        step += 1
        time.sleep(0.2)
    tail.kill()
    assert tail.wait() == 0


def test_a_reader_that_goes_away_is_no_error(desk: Desk) -> None:
    worker = desk.station.working()
    for step in range(1, 60):
        worker.step(step)
    result = subprocess.run(
        f"{sys.executable} -m houston_shared.command log -n 9999 | head -n 1",
        shell=True,
        env=desk.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == ""


HOSTILE = "\x1b[2J\x9b31m\u202egnp.exe red"


def hostile_step(station: Station) -> str:
    worker = station.working()
    worker.sample(1, thought=HOSTILE)
    worker.intent(1)
    worker.result(1, text=HOSTILE)
    worker.observation(1)
    return worker.rollout


def test_piped_output_has_no_escapes(desk: Desk) -> None:
    rollout = hostile_step(desk.station)
    desk.environment |= {"TERM": "xterm-256color", "FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"}
    for words in (("steps", rollout), ("tail",), ("context", rollout, "1"), ("rollout", "list")):
        output = desk.run(*words).stdout
        assert output
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", output)


def test_on_a_terminal_only_our_own_colours_are_written(desk: Desk) -> None:
    rollout = hostile_step(desk.station)
    environment = {**desk.environment, "TERM": "xterm-256color", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    output = in_a_terminal(["steps", rollout], environment)
    assert "\x1b[1m" in output, "the step's title is bold"
    plain = re.sub("\x1b\\[[0-9;]*m", "", output).replace("\r\n", "\n")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", plain)
    plain = in_a_terminal(["steps", rollout], {**environment, "NO_COLOR": "1"})
    assert "\x1b" not in plain


def test_a_list_fits_its_terminal_and_says_that_the_daemon_is_down(desk: Desk) -> None:
    worker = desk.station.working()
    worker.say(wire.StoreState, state="failed", reason="no " * 100)
    environment = {**desk.environment, "TERM": "dumb", "COLUMNS": "120"}
    up = in_a_terminal(["rollout", "list"], environment)
    assert max(map(len, up.splitlines())) <= 120
    assert "No daemon runs" not in up
    desk.let_go()
    down = in_a_terminal(["rollout", "list"], environment)
    assert down.endswith("; next: houston daemon start\r\n")
    assert "\r\nNo daemon runs: this is the state of " in down
    for words in (["rollout", "list"], ["rollout", "show", worker.rollout]):
        (event,) = desk.json("tail", "-n", "1")
        result = desk.run(*words)
        assert result.stderr.startswith("No daemon runs: this is the state of "), words
        (line,) = desk.json(*words)
        assert line["as_of"] >= event["at"], "the newest event, whatever its kind"
        desk.hold()
        assert desk.json(*words)[0]["as_of"] is None, words
        assert desk.run(*words).stderr == ""
        desk.let_go()
    assert json.loads(desk.run("daemon", "status", "--json").stdout)["as_of"] == line["as_of"]
    assert "state of the rollouts as of " in desk.run("daemon", "status").stderr


def test_a_narrow_terminal_keeps_who_needs_somebody_and_why(desk: Desk) -> None:
    worker = desk.station.working()
    worker.say(wire.StoreState, state="failed", reason="no " * 100)
    environment = {**desk.environment, "TERM": "dumb"}
    noisy = desk.station.working()
    noisy.sample(1)
    why = {"error_streak": "something " * 9}
    noisy.observation(1, attention=("error_streak",), reasons=why)
    for width in (72, 80, 100):
        narrow = in_a_terminal(["rollout", "list"], {**environment, "COLUMNS": str(width)})
        lines = [line for line in narrow.splitlines() if "probe-" in line]
        assert max(map(len, lines)) <= width
        assert any("error streak: " in line for line in lines), "what matters stays"


def in_a_terminal(words: list[str], environment: dict[str, str]) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        houston_command(*words),
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        output += data
    os.close(ours)
    assert process.wait(30) == 0
    return output.decode()
