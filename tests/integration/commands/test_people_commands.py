"""What people do to rollouts from a shell: judge, mark, claim, reorder, and catch up."""

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from houston_console.commands import daemon_requests
from houston_daemon.maintenance import erased_body
from houston_shared import wire
from houston_shared.command import main
from houston_shared.records import FileChange
from houston_shared.store import presence_queries
from tests.integration.commands.conftest import Desk
from tests.support.houston_command import houston_command
from tests.support.recorder_client import Worker


class Shell:
    """Runs `houston WORDS…` in this process, against a real recorder."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        self._capsys.readouterr()
        try:
            ended = main(words)
        except SystemExit as stop:
            ended = int(stop.code or 0)
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert ended == code, (words, captured)
        return captured.out

    def json(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*words, "--json").splitlines()]


@pytest.fixture
def houston(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(desk.folder)
    monkeypatch.setenv("HOUSTON_HOME", str(desk.station.home.path))
    return Shell(capsys)


def worked(desk: Desk, steps: int) -> Worker:
    worker = desk.station.working()
    for step in range(1, steps + 1):
        worker.step(step)
    return worker


def test_steps_are_judged_and_what_was_said_stays(desk: Desk, houston: Shell) -> None:
    rollout = worked(desk, 5).rollout
    assert "No step" in (houston("verdict", rollout), houston.err)[1]
    assert houston("verdict", rollout, "2-4", "mask", "--reason", "wrong turn") == (
        f"{rollout} steps 2 to 4: mask.\n"
    )
    houston("verdict", f"{rollout}@3", "keep", "--as", "ben")
    houston("verdict", rollout, "4", "clear")
    lines = houston.json("verdict", rollout)
    assert [(line["step"], line["verdict"], line["by"] == "ben") for line in lines] == [
        (2, "mask", False), (3, "keep", True), (4, None, False),
    ]  # fmt: skip
    assert [line["verdict"] for line in lines[1]["history"]] == ["mask", "keep"]
    assert lines[1]["history"][1]["verified"] is False
    shown = houston("verdict", rollout)
    assert "steps 2 to 4 mask: wrong turn" in shown
    assert shown.endswith("now 1 kept, 1 masked; 3 steps nobody judged\n")
    assert [line["verdict"] for line in houston.json("steps", f"{rollout}@2-3")] == ["mask", "keep"]
    audit = houston("log", "--audit")
    assert "verdict" in audit
    assert "mask steps 2 to 4: wrong turn" in audit


def test_why_a_step_is_masked_is_said_by_every_source_in_their_order(
    desk: Desk, houston: Shell
) -> None:
    rollout = worked(desk, 4).rollout
    person = desk.station.person()
    why = "error_observation@1: make: exit code 2; blind_edit@3: a.py was changed"
    rules = wire.JudgedSteps(first=2, last=2, verdict="mask", reason=why)
    judge = wire.JudgedSteps(first=2, last=2, verdict="keep", reason="it learned from it")
    for message in (
        wire.StoreVerdicts(request="1", rollout=rollout, source="rule", by="rules", steps=(rules,)),
        wire.StoreVerdicts(
            request="2", rollout=rollout, source="judge", by="judge:local", steps=(judge,)
        ),
    ):
        assert isinstance(person.ask(message), wire.RequestStored)
    shown = houston("verdict", f"{rollout}@2")
    assert "step 2 is masked: by rule\n  rule  mask by rules  " in shown, "an error, whoever keeps"
    assert "  judge keep by judge:local: it learned from it (does not count)" in shown
    assert "error_observation@1: make: exit code 2\n" in shown
    assert [source["verdict"] for source in houston.json("steps", f"{rollout}@2")] == ["mask"]
    houston("verdict", f"{rollout}@2", "mask", "--reason", "no")
    (line,) = houston.json("verdict", f"{rollout}@2")
    assert [(source["source"], source["verdict"]) for source in line["sources"]] == [
        ("human", "mask"), ("rule", "mask"), ("judge", "keep")
    ]  # fmt: skip
    assert line["sources"][1]["rules"] == [
        {"rule": "error_observation", "version": 1, "reason": "make: exit code 2"},
        {"rule": "blind_edit", "version": 3, "reason": "a.py was changed"},
    ]
    assert houston("verdict", f"{rollout}@4") == "step 4 is kept: it was not judged\n"
    assert "mask step 2 by rules: error_observation@1" in houston("log", "--audit")
    assert "mask step 2 by rules: error_observation@1" in houston("tail", rollout)
    assert "mask 1 step by rules" in houston("since", rollout)


REFUSED = {
    "no verdict": (("verdict", "R", "2", "maybe"), 2, "'maybe' is no verdict"),
    "a range backwards": (("verdict", "R", "4-2", "keep"), 2, "not a step such as 7"),
    "no step": (("verdict", "R", "keep"), 2, "Name steps and a verdict"),
    "a step twice": (("verdict", "R@2", "3", "keep"), 2, "'3' is no verdict"),
    "an open step": (("verdict", "R", "9", "keep"), 66, "step 9 cannot be judged"),
    "a word on a step to come": (("verdict", "R@9"), 66, "nothing is there of step 9"),
    "a bookmark of nothing": (("bookmark", "R", "--note", "x"), 2, "Name a step"),
    "a bookmark of a step to come": (("bookmark", "R@99"), 66, "has no step 99"),
    "a branch at a step to come": (("rollout", "branch", "R@99"), 66, "no closed step 99"),
    "a step to come": (("steps", "R@99"), 66, "nothing is there of step 99"),
    "a step to come to erase": (("rollout", "erase", "R@99"), 66, "has no step 99"),
    "two places": (("context", "R@2", "3"), 2, "Name one step, once"),
    "a range to read": (("context", "R@2-3"), 2, "Name one step, once"),
    "nothing to restore": (("rollout", "restore", "R", "--out", "d"), 2, "Name a step (R@STEP)"),
    "two to restore": (("rollout", "restore", "R@2", "--best", "--out", "d"), 2, "Name a step"),
    "a step without snapshot": (("rollout", "restore", "R@2", "--out", "d"), 1, "Step 2 of"),
    "no step to erase": (("rollout", "erase", "R"), 2, "Name a step (R@STEP)"),
    "to erase, but not at once": (("rollout", "erase", "R@2"), 2, "would be erased"),
    "a text to erase that was never set": (
        ("rollout", "erase", "R@2", "--text", "", "--yes"),
        2,
        "--text is empty",
    ),
    "a patience that is none": (
        ("host", "check", "f", "--seconds", "nan"),
        2,
        "is not a number of seconds",
    ),
    "a place that is none": (("steps", "R@x"), 2, "'x' is not a step"),
    "an order of what was said": (("guidance", "R", "--reorder", "nix"), 66, "no guidance"),
    "a hand-over without a note": (("hand-over", "R", "ben"), 2, "leave a note"),
    "a note without a rollout": (("hand-over", "--note", "x"), 2, "A note belongs to a rollout"),
    "a branch at no step": (("rollout", "branch", "R"), 2, "Name one step"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    case: str, desk: Desk, houston: Shell
) -> None:
    words, code, sentence = REFUSED[case]
    rollout = worked(desk, 4).rollout
    houston(*(word.replace("R", rollout) if word[:1] == "R" else word for word in words), code=code)
    assert sentence in houston.err


def test_a_bookmark_is_for_everybody(desk: Desk, houston: Shell) -> None:
    rollout = worked(desk, 2).rollout
    assert houston("bookmark", f"{rollout}@2", "--note", "look here") == f"{rollout}@2: marked.\n"
    houston("bookmark", rollout, "2", "--as", "ben", "--note", "me too")
    assert len(houston.json("bookmark", rollout)) == 2
    houston("bookmark", rollout, "2", "--remove")
    (bookmark,) = houston.json("bookmark", rollout)
    assert (bookmark["author"], bookmark["step"], bookmark["note"]) == ("ben", 2, "me too")
    assert f"{rollout}@2" in houston("bookmark", rollout)


def test_a_claim_is_seen_in_the_lists_and_handed_over(desk: Desk, houston: Shell) -> None:
    rollout = worked(desk, 1).rollout
    assert f"{rollout} is held by ada." in houston("claim", rollout, "--as", "ada")
    assert "ada holds it" in houston("rollout", "list")
    output = houston("claim", rollout, "--as", "ben", "--note", "data is wrong")
    assert f"{rollout} is held by ben.\nada held it since" in output
    (listed,) = houston.json("rollout", "list")
    (shown,) = houston.json("rollout", "show", rollout)
    assert listed["claim"] == shown["claim"]
    assert (listed["claim"]["holder"], listed["claim"]["note"]) == ("ben", "data is wrong")
    assert "Nobody holds it" not in houston("claim", rollout, "--release", "--as", "ben")
    (freed,) = houston.json("rollout", "show", rollout)
    assert (freed["claim"]["holder"], freed["claim"]["note_by"]) == (None, "ben")
    assert "note by ben: data is wrong" in houston("rollout", "show", rollout)


def test_a_rollout_is_handed_to_somebody_who_reads_the_note(desk: Desk, houston: Shell) -> None:
    rollout = worked(desk, 1).rollout
    houston("claim", rollout, "--as", "ben")
    answer = houston("hand-over", rollout, "ben", "--note", "the index is stale", "--as", "ada")
    assert answer == f"{rollout} is handed over to ben.\n"
    (waits,) = houston.json("hand-over", "--as", "ben")
    assert (waits["note_to"], waits["read_by"], waits["handed_over"]) == ("ben", None, True)
    assert "unread" in houston("hand-over", "--as", "ada")
    assert "unread; nobody has taken it" in houston("hand-over", rollout, "--as", "ada")
    (listed,) = houston.json("rollout", "list")
    assert [reason["kind"] for reason in listed["reasons"]] == [], "it is not for this login"
    output = houston("hand-over", rollout, "--as", "ben")
    assert "note by ada to ben" in output
    assert "the index is stale" in output
    assert "read by ben" in houston("hand-over", rollout, "--as", "ada")
    houston("claim", rollout, "--as", "ben")
    assert "No hand-over waits" in houston("hand-over", "--as", "ben") + houston.err
    audit = houston("log", "--audit")
    assert "handed over to ben: the index is stale" in audit
    assert "read the note" in audit


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["as text", "as JSON"])
def test_who_claims_a_rollout_has_read_its_note(
    form: tuple[str, ...], desk: Desk, houston: Shell
) -> None:
    rollout = worked(desk, 1).rollout
    houston("claim", rollout, "--as", "ben")
    houston("hand-over", rollout, "ben", "--note", "the index is stale", "--as", "ada")
    assert "the index is stale" in houston("claim", rollout, "--as", "ben", *form)
    assert "read by ben" in houston("hand-over", rollout, "--as", "ada")


def test_what_is_handed_to_me_stands_in_the_list(desk: Desk, houston: Shell) -> None:
    rollout = worked(desk, 1).rollout
    me = presence_queries.current_person().name
    houston("hand-over", rollout, me, "--note", "look at step 1", "--as", "ada")
    (listed,) = houston.json("rollout", "list")
    assert [(reason["kind"], reason["text"]) for reason in listed["reasons"]] == [
        ("handed", "handed to you by ada: look at step 1")
    ]


def test_a_name_that_may_be_a_slip_is_asked_about(desk: Desk, houston: Shell) -> None:
    rollout = worked(desk, 1).rollout
    houston("claim", rollout, "--as", "benjamin")
    words = ("hand-over", rollout, "benjamn", "--note", "x", "--as", "ada")
    houston(*words, code=2)
    assert "Nobody called 'benjamn' was here; 'benjamin' was." in houston.err
    assert houston.json("hand-over") == []
    assert "is handed over to benjamn" in houston(*words, "--yes")
    assert "is handed over to zoe" in houston("hand-over", rollout, "zoe", "--note", "y")
    assert "zoe was never here" in houston.err


ANSWERS = [
    pytest.param(("hand-over", "R", "benjamn", "--note", "x"), "y", 0, "handed over to benjamn",
                 id="a new name is meant"),
    pytest.param(("hand-over", "R", "benjamn", "--note", "x"), "n", 2, "Nothing was handed over",
                 id="it was a slip"),
    pytest.param(("console", "--as", "benjamn"), "", 2, "Nothing was opened",
                 id="whoever sits down under a slip"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "answer", "code", "sentence"), ANSWERS)
def test_at_a_terminal_a_slip_is_asked_about(
    words: tuple[str, ...], answer: str, code: int, sentence: str, desk: Desk, houston: Shell
) -> None:
    rollout = worked(desk, 1).rollout
    houston("claim", rollout, "--as", "benjamin")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        houston_command(*(rollout if word == "R" else word for word in words)),
        env=desk.environment, cwd=desk.folder, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    said = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        said += data
    os.close(ours)
    assert process.wait(60) == code, said
    assert "Nobody called benjamn was here, but benjamin was. Is it benjamn? [y/N]" in said.decode()
    assert sentence in said.decode()


def test_guidance_is_put_in_another_order(desk: Desk, houston: Shell) -> None:
    worker = worked(desk, 1)
    ids = [houston.json("guide", worker.rollout, word)[0]["id"] for word in ("one", "two", "three")]
    listed = houston.json("guidance", worker.rollout, "--reorder", ids[2], ids[0])
    assert [message["text"] for message in listed] == ["three", "one", "two"]
    assert [message.text for message in worker.step(2).guidance] == ["three", "one", "two"]
    houston("guidance", worker.rollout, "--reorder", ids[0], code=1)
    assert "is not queued" in houston.err


def test_an_order_of_what_was_heard_at_once_lists_nothing(
    desk: Desk, houston: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worked(desk, 1)
    (guided,) = houston.json("guide", worker.rollout, "one")
    send = daemon_requests.send_request

    def send_and_hear(*arguments: Any) -> Any:
        answer = send(*arguments)
        worker.step(2)
        return answer

    monkeypatch.setattr(daemon_requests, "send_request", send_and_hear)
    assert houston("guidance", worker.rollout, "--reorder", guided["id"]) == ""


def test_since_begins_where_this_person_was_last(
    desk: Desk, houston: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worked(desk, 2)
    rollout = worker.rollout
    (first,) = houston.json("since", rollout)
    assert (first["last_seen"], first["steps"]["count"]) == (None, 2)
    houston("guide", rollout, "Read the file first.", "--as", "ben")
    change = FileChange(path="a.py", kind="changed", added=3, removed=1)
    worker.sample(3)
    worker.intent(3)
    worker.result(3, success=False, text="no such file")
    worker.observation(3, files=(change,), attention=("error",), reasons={"error": "it failed"})
    worker.sample(4)
    worker.intent(4)
    worker.result(4, kind="eval", fields={"overall_score": 42.0, "state": "scored"})
    worker.observation(4)
    houston("verdict", f"{rollout}@4", "keep", "--as", "ben")
    monkeypatch.setattr(
        presence_queries, "SILENCE_US", -presence_queries.WRITTEN_US
    )  # the visit is over at once
    (new,) = houston.json("since", rollout, "--peek")
    assert new["last_seen"]["seq"] == first["seq"]
    assert new["steps"] == {"first": 3, "last": 4, "count": 2}
    assert (new["errors"], new["evaluations"][0]["score"]) == (1, 42.0)
    assert new["files"] == [{"path": "a.py", "times": 1, "added": 3, "removed": 1, "step": 3}]
    (heard,) = new["guidance"]
    assert (heard["text"], heard["step"]) == ("Read the file first.", 3)
    assert heard["followed"] == {"step": 4, "text": "run_command command=ls"}
    kinds = [(event["kind"], event["step"]) for event in new["events"]]
    assert kinds == [("error", 3), ("guidance", 3), ("evaluation", 4), ("verdict", 4)]
    assert houston.json("since", rollout, "--peek") == [new], "to peek is not to be here"
    shown = houston("since", rollout, "--peek")
    assert f"ben was heard at {rollout}@3: Read the file first." in shown
    (listed,) = houston.json("rollout", "list")
    assert listed["new_steps"] == 2
    other = houston.json("since", rollout, "--as", "eve", "--peek")
    assert other[0]["last_seen"] is None, "whoever else was here is somebody else"


def test_since_makes_one_stop_of_a_run_of_the_same_signal(desk: Desk, houston: Shell) -> None:
    worker = desk.station.working()
    signals = ["", "error_streak", "error_streak", "error_streak", "", "error_streak", "no_change"]
    for step, signal in enumerate(signals, 1):
        worker.sample(step)
        why = {signal: f"at {step}"} if signal else {}
        worker.observation(step, attention=tuple(why), reasons=why)
    (line,) = houston.json("since", worker.rollout, "--peek")
    assert [(event["step"], event["text"]) for event in line["events"] if event["step"]] == [
        (2, "error streak: at 4, to step 4"), (6, "error streak: at 6"), (7, "no change: at 7"),
    ]  # fmt: skip


def test_since_is_read_without_a_daemon_and_says_that_it_is_not_noted(
    desk: Desk, houston: Shell
) -> None:
    rollout = worked(desk, 1).rollout
    desk.station.stop()
    desk.let_go()
    (line,) = houston.json("since", rollout)
    assert line["steps"]["count"] == 1
    assert "Your visit was not recorded" in houston.err
    assert "  1 step (1 to 1) in " in houston("since", rollout)


def test_what_attention_cost_is_counted_and_compared(desk: Desk, houston: Shell) -> None:
    first, second = worked(desk, 2), worked(desk, 3)
    houston("guide", first.rollout, "先看看 data", "--as", "ben")
    person, began = desk.station.person(), time.monotonic()
    for step in (1, 2):
        visit = wire.ReportPresence(rollout=first.rollout, step=step, active=True, claimed="ben")
        person.ask(visit)
    person.ask(wire.ReportPresence(claimed="ben"))
    took = time.monotonic() - began
    (line,) = houston.json("rollout", "people", first.rollout)
    assert (line["name"], line["words"], line["messages"], line["visits"]) == ("ben", 4, 1, 1)
    assert 0 < line["active_seconds"] <= line["looked_seconds"] < took
    assert houston.json("rollout", "people") == [line], "nobody was at the other"
    ((seq,),) = desk.station.query("SELECT seq FROM events WHERE kind = 'guidance'")
    blank = erased_body.blank_body("guidance", desk.station.query(
        "SELECT body FROM events WHERE seq = ?", seq)[0][0])  # fmt: skip
    assert blank is not None
    assert msgspec.msgpack.decode(blank)["words"] == 4, "what an archive leaves still counts"
    assert "ben (unverified)" in houston("rollout", "people", first.rollout)
    for worker, score in ((first, 40.0), (second, 55.0)):
        step = 3 if worker is first else 4
        worker.active_us = 60_000_000 * step
        worker.sample(step)
        worker.intent(step)
        worker.result(step, kind="eval", fields={"overall_score": score, "state": "scored"})
        worker.observation(step)
    (both,) = houston.json("rollout", "compare", first.rollout, second.rollout)
    a, b = both["rollouts"]
    assert (a["words"], b["words"], b["minutes"]) == (4, 0, 0.0)
    assert a["scores"] == [{"step": 3, "active_seconds": 180.0, "score": 40.0}]
    table = houston("rollout", "compare", first.rollout, second.rollout)
    at_four = next(line for line in table.splitlines() if line.startswith("score at 0:04:00"))
    assert at_four.split()[-2:] == ["(40)", "55"]


def test_the_list_is_ordered_by_need_and_by_task(desk: Desk, houston: Shell) -> None:
    quiet, noisy = worked(desk, 1), worked(desk, 1)
    for step in (2, 3):
        noisy.sample(step)
        noisy.observation(step, attention=("error_streak",), reasons={"error_streak": "2 steps"})
    worked(desk, 1)
    listed = houston.json("rollout", "list")
    assert listed[0]["rollout"] == noisy.rollout
    assert listed[0]["reasons"][0] == {
        "kind": "error_streak", "text": "error streak: 2 steps", "weight": 60, "step": 3,
    }  # fmt: skip
    assert [line["need"] for line in listed[1:]] == [0.0, 0.0]
    assert listed[0]["last_action"]["step"] == 3
    assert listed[-1]["rollout"] == quiet.rollout, "then the newest"
    text = houston("rollout", "list", "--by-task")
    assert text.splitlines()[0] == "probe"


FILTERS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any], str, str], bool]]] = {
    "one of two rollouts": (("--rollout", "A"), lambda line, a, b: line["rollout"] == a),
    "both": (("A", "--rollout", "B"), lambda line, a, b: line["rollout"] in (a, b)),
    "a task": (("--task", "probe"), lambda line, a, b: True),
    "no such task": (("--task", "none"), lambda line, a, b: False),
    "kinds": (
        ("--kind", "sample", "--kind", "state"),
        lambda line, a, b: line["kind"] in ("sample", "state"),
    ),
    "errors": (("--errors",), lambda line, a, b: line["rollout"] == b and line["step"] == 2
               and line["kind"] in ("result", "observation")),
    "errors of one": (("A", "--errors"), lambda line, a, b: False),
}  # fmt: skip


def test_tail_shows_what_is_asked_for(desk: Desk, houston: Shell) -> None:
    a, b = worked(desk, 3), worked(desk, 1)
    b.sample(2)
    b.intent(2)
    b.result(2, success=False)
    b.observation(2, attention=("error",))
    everything = houston.json("tail", "-n", "999")
    assert [event["seq"] for event in everything] == sorted(event["seq"] for event in everything)
    for case, (words, wanted) in FILTERS.items():
        named = {"A": a.rollout, "B": b.rollout}
        lines = houston.json("tail", "-n", "999", *(named.get(word, word) for word in words))
        should = [event for event in everything if wanted(event, a.rollout, b.rollout)]
        assert lines == should, case
        assert bool(lines) == bool(should), case
        newest = houston.json("tail", "-n", "2", *(named.get(word, word) for word in words))
        assert newest == should[-2:], case
