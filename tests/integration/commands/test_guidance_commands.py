"""What a person says from the command line reaches the recorder, once, and its fate is shown."""

import json
import time

import zmq

from houston_shared import wire
from tests.integration.commands.conftest import Desk


def test_guidance_is_queued_heard_and_shown(desk: Desk) -> None:
    worker = desk.station.working()
    (queued,) = desk.json("guide", worker.rollout, "Mind the gap.")
    assert set(queued) == {
        "id", "rollout", "author", "text", "mode", "state", "step", "queued_at", "delivered_at",
    }  # fmt: skip
    assert (queued["state"], queued["step"], queued["mode"]) == ("queued", None, "next")
    ack = worker.step(1)
    assert [message.text for message in ack.guidance] == ["Mind the gap."]
    (now,) = desk.json("guidance", worker.rollout)
    assert (now["id"], now["state"], now["step"]) == (queued["id"], "delivered", 1)
    (step,) = desk.json("steps", worker.rollout)
    assert step["observation"].endswith("<real_user>Mind the gap.</real_user>")
    assert step["guidance"] == [{"id": now["id"], "author": now["author"], "text": now["text"]}]


def test_a_daemon_that_ends_at_that_moment_may_have_queued_it(desk: Desk) -> None:
    rollout = desk.station.working().rollout
    desk.station.stop()
    words = {
        ("guide", rollout, "x"): f"houston guidance {rollout}",
        ("rollout", "pause", rollout): f"houston rollout show {rollout}",
    }
    for command, look in words.items():
        desk.hold()
        with zmq.Context() as context, context.socket(zmq.ROUTER) as listening:
            listening.bind(desk.station.home.socket("control"))
            speaking = desk.begin(*command)
            assert listening.poll(20_000)  # it was sent, and is never answered
        desk.let_go()
        assert speaking.ends() == 69
        assert speaking.process.stderr
        error = speaking.process.stderr.read().decode()
        assert "ended before it answered" in error
        assert " may have been " in error
        assert f"next: {look}\n" in error


def test_status_counts_others_and_names_engines_that_workers_wait_for(desk: Desk) -> None:
    worker = desk.station.working()
    worker.say(wire.Heartbeat, activity="waiting for the engine: it answered 503.")
    assert desk.station.person().ask(wire.AskStatus()).queue == 0
    output = desk.run("daemon", "status").stdout
    assert "script:x: 1 rollout is waiting for the engine: it answered 503." in output
    assert "store     0 messages wait" in output
    checks = {line["check"]: line for line in desk.json("doctor")}
    assert checks["engine script:x"]["state"] == "warn"
    assert "503" in checks["engine script:x"]["found"]


def test_modes_words_and_standard_input(desk: Desk) -> None:
    rollout = desk.station.working().rollout
    desk.json("guide", rollout, "several", "words", "--wake")
    desk.json("guide", rollout, "-", "--interrupt", stdin="two\nlines 先看\n")
    messages = desk.json("guidance", rollout)
    assert [(message["mode"], message["text"]) for message in messages] == [
        ("wake", "several words"),
        ("interrupt", "two\nlines 先看"),
    ]
    assert desk.run("guide", rollout, "x", "--wake", "--interrupt").returncode == 2


def test_a_person_is_told_when_it_will_be_heard(desk: Desk) -> None:
    (queued,) = desk.station.person().start()
    assert "with its first observation" in desk.run("guide", queued, "x").stdout
    worker = desk.station.working()
    worker.step(1)
    assert "at the end of step 2" in desk.run("guide", worker.rollout, "x").stdout
    assert "cut short" in desk.run("guide", worker.rollout, "x", "--interrupt").stdout
    desk.run("rollout", "pause", worker.rollout)
    assert "at the end of step 2" in desk.run("guide", worker.rollout, "x").stdout
    worker.say(wire.Heartbeat, activity="paused")
    assert "is paused" in desk.run("guide", worker.rollout, "x").stdout


def test_a_pause_is_said_to_stand_only_when_the_worker_does(desk: Desk) -> None:
    worker = desk.station.working()
    worker.say(wire.Heartbeat, activity="sleep")
    result = desk.run("rollout", "pause", worker.rollout)
    assert result.returncode == 0
    assert "pause was requested; it stops after its current step" in result.stdout
    assert "is paused" not in result.stdout
    worker.say(wire.Heartbeat, activity="sleep")
    assert "still in its step" in desk.run("rollout", "list").stdout
    early = desk.run("rollout", "pause", worker.rollout, "--wait", "0.3")
    assert (early.returncode, "still working" in early.stderr) == (75, True)
    waiting = desk.begin("rollout", "pause", worker.rollout, "--wait")
    worker.step(1)
    worker.say(wire.Heartbeat, activity="paused")
    assert waiting.ends() == 0
    assert waiting.lines() == [f"{worker.rollout} is paused."]


def test_a_pause_stands_at_once_where_no_worker_runs(desk: Desk) -> None:
    (queued,) = desk.station.person().start()
    assert desk.run("rollout", "pause", queued).stdout == f"{queued} is paused.\n"


def test_a_pause_stands_when_its_worker_has_gone(desk: Desk) -> None:
    worker = desk.station.working()
    worker.say(wire.Heartbeat, activity="sleep")
    desk.run("rollout", "pause", worker.rollout)
    worker.say(wire.Heartbeat, activity="sleep")
    desk.station.recorder.worker_ended(worker.rollout, worker.lease, "")
    assert "is paused." in desk.run("rollout", "pause", worker.rollout, "--wait", "10").stdout


def test_a_pause_stands_when_the_daemon_has_started_again(desk: Desk) -> None:
    worker = desk.station.working()
    desk.run("rollout", "pause", worker.rollout)
    worker.say(wire.Heartbeat, activity="sleep")
    desk.station.restart()
    assert "is paused." in desk.run("rollout", "pause", worker.rollout).stdout


def test_a_claimed_name_is_kept_and_marked(desk: Desk) -> None:
    rollout = desk.station.working().rollout
    (message,) = desk.json("guide", rollout, "x", "--as", "grace")
    assert (message["author"], message["verified"]) == ("grace", False)
    assert "grace (unverified)" in desk.run("guidance", rollout).stdout


def test_guidance_is_taken_back_and_changed_until_it_is_heard(desk: Desk) -> None:
    worker = desk.station.working()
    first, second, third = (desk.json("guide", worker.rollout, text)[0] for text in "abc")
    (withdrawn,) = desk.json("guidance", worker.rollout, "--withdraw", first["id"])
    assert withdrawn["state"] == "withdrawn"
    (edited,) = desk.json("guidance", worker.rollout, "--edit", second["id"], "better")
    assert (edited["text"], edited["revision"]) == ("better", 2)
    assert [message.text for message in worker.step(1).guidance] == ["better", "c"]
    for words in (("--withdraw", third["id"]), ("--edit", third["id"], "too late")):
        late = desk.run("guidance", worker.rollout, *words)
        assert late.returncode == 1
        assert "already delivered at step 1" in late.stderr
    audit = desk.json("log", "--audit", "--rollout", worker.rollout)
    assert [entry["did"] for entry in audit if entry["did"] != "spec"] == [
        "guidance", "guidance", "guidance", "withdraw", "edit",
    ]  # fmt: skip


def test_a_rollout_is_paused_resumed_and_cancelled(desk: Desk) -> None:
    (rollout,) = desk.station.person().start()
    for action, state in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        (now,) = desk.json("rollout", action, rollout, "--wait", "10", "--reason", f"for {action}")
        assert now["state"] == state
        assert now["reason"].endswith(f"for {action}")
    assert now["reason"].startswith("cancelled by person:")
    ended = desk.run("rollout", "pause", rollout)
    assert ended.returncode == 1
    assert "has ended (cancelled)" in ended.stderr
    heard = desk.run("guide", rollout, "x")
    assert (heard.returncode, "nobody would hear it" in heard.stderr) == (1, True)


def test_several_rollouts_are_cancelled_at_once(desk: Desk) -> None:
    def ids(*words: str) -> set[str]:
        return {line["rollout"] for line in desk.json("rollout", "cancel", *words, "--wait", "10")}

    person, run = desk.station.person(), "dapo-20261130-1"
    (desk.station.home.path / "training" / run).mkdir(parents=True)
    person.ask(wire.StartTraining(request=run, run=run, kind="dapo"))
    of_run = person.start(2, request=f"{run}/0.0-train-3")
    first, second, *others = person.start(4)
    other_run = person.start(1, request=f"{run}0/0.0-train-3")
    said = desk.run("train", "cancel", "dapo-2026")
    assert (said.returncode, said.stdout) == (0, f"{run} is cancelled.\n")
    assert f"2 so far: --resume {run} picks them up." in said.stderr
    assert f"next: houston rollout cancel --run {run}\n" in said.stderr
    assert ids("--run", "130-1") == set(of_run)
    assert ids(first, second, first) == {first, second}
    paused = desk.run("rollout", "pause", first, others[0], "--wait", "10")
    assert (paused.returncode, paused.stdout) == (1, f"{others[0]} is paused.\n")
    assert f"{first} has ended (cancelled)" in paused.stderr
    (task,) = {rollout["task"] for rollout in desk.json("rollout", "list")}
    assert ids("--task", task) == {*others, *other_run}
    assert "There is nothing to cancel." in desk.run("rollout", "cancel", "--task", task).stderr
    assert desk.run("rollout", "cancel", first, "--task", task).returncode == 2
    assert "no training run 'dapo-3'" in desk.run("rollout", "cancel", "--run", "dapo-3").stderr
    (desk.station.home.path / "training" / f"{run}1").mkdir()
    several = desk.run("train", "show", "dapo-2026")
    assert (several.returncode, f"{run}, {run}1" in several.stderr) == (2, True)


def test_waiting_for_a_worker_that_does_not_come_to_a_safe_point(desk: Desk) -> None:
    worker = desk.station.working()
    result = desk.run("rollout", "cancel", worker.rollout)
    assert result.returncode == 0
    assert "at its next safe point" in result.stdout
    assert "being cancelled by person:" in desk.run("rollout", "list").stdout
    waited = desk.run("rollout", "cancel", worker.rollout, "--wait", "0.3")
    assert waited.returncode == 75
    assert f"houston rollout show {worker.rollout}" in waited.stderr
    (queued,) = desk.station.person().start()
    both = desk.run("rollout", "cancel", worker.rollout, queued, "--wait", "0.3")
    assert (both.returncode, both.stdout) == (75, f"{queued} is cancelled.\n")
    assert f"{worker.rollout} is still running after 0.3 s." in both.stderr
    waiting = desk.begin("rollout", "cancel", worker.rollout, "--wait", "--json")
    time.sleep(0.5)
    worker.say(wire.StoreState, state="cancelled")
    assert waiting.ends() == 0
    assert json.loads(waiting.lines()[0])["state"] == "cancelled"


def test_search_through_the_recorders_own_index(desk: Desk) -> None:
    worker = desk.station.working()
    worker.sample(1, thought="Where is the needle?")
    worker.intent(1)
    worker.result(1, text="in the haystack")
    worker.observation(1)
    newest = desk.station.query("SELECT max(seq) FROM events")[0][0]

    def indexed() -> bool:
        import sqlite3

        path = desk.station.home.search_database
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return bool(connection.execute("SELECT seq FROM indexed").fetchone()[0] >= newest)
        except sqlite3.OperationalError:  # a process of its own has yet to make the tables
            return False
        finally:
            connection.close()

    desk.until(indexed)
    (hit,) = desk.json("search", "needle")
    assert (hit["rollout"], hit["step"], hit["kind"]) == (worker.rollout, 1, "sample")
    result = desk.run("search", "haystack", "--rollout", worker.rollout)
    assert "in the haystack" in result.stdout
    assert result.stderr == ""


def test_commands_import_nothing_that_they_do_not_need(desk: Desk) -> None:
    """No Textual ever; rich, ZeroMQ and the rest only where they are used (start under 60 ms)."""
    worker = desk.station.working()
    worker.step(1)
    heavy = ("textual", "rich", "zmq", "aiosqlite", "tokenizers", "zstandard", "asyncio")
    probe = (
        "import sys; from houston_shared.command import main; code = main(sys.argv[1:]);"
        f" print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    needs = {
        ("rollout", "list"): [],
        ("rollout", "show", worker.rollout): [],
        ("steps", worker.rollout, "--json"): [],
        ("tail",): [],
        ("log", "--audit"): [],
        ("search", "x"): [],
        ("guidance", worker.rollout): [],
        ("task", "list"): [],
        ("guide", worker.rollout, "a word"): ["zmq"],
    }
    import subprocess
    import sys

    for words, loaded in needs.items():
        result = subprocess.run(
            [sys.executable, "-c", probe, *words],
            env=desk.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert result.stderr.splitlines()[-1] == str(loaded), words
