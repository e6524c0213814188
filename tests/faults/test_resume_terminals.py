"""What a worker finds again: terminals that ran on, and calls whose outcome nobody knows."""

import re
import signal
from pathlib import Path
from typing import Any

import msgspec

from tests.faults import workloads
from tests.faults.daemon_under_test import Ground
from tests.faults.final_checks import until_over, wrong

TASK = (
    "[workspace]\nsource = 'workspace'\n[budget]\ncommand_seconds = 30\nevaluations = 2\n"
    "[evaluate]\ncommand = 'echo {\\\"overall_score\\\": 50}'\nseconds = 8\n"
)
TICKS = 40


def place(ground: Ground, rollout: str) -> Path:
    return ground.folder / "host" / "rollouts" / rollout


def logged(ground: Ground, rollout: str) -> str:
    files = sorted((place(ground, rollout) / "terminals").rglob("log.*"))
    return "".join(file.read_text(errors="replace") for file in files)


def results(ground: Ground) -> list[dict[str, Any]]:
    rows = ground.query("SELECT body FROM events WHERE kind = 'result' ORDER BY step, part")
    return [msgspec.msgpack.decode(body) for (body,) in rows]


def ticks(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"tick (\d+)", text)]


def test_what_a_command_prints_while_the_daemon_is_dead_is_seen_and_kept(ground: Ground) -> None:
    command = f"for i in $(seq {TICKS}); do echo tick $i; sleep 0.1; done; echo over"
    script = [
        {"thought": "long", "calls": [workloads.call("run_command", command=command)]},
        {"thought": "wait", "calls": [workloads.call("sleep", sleep_time=3)]},
        {"thought": "look", "calls": [workloads.call("get_session_output")]},
    ]
    ground.started()
    (rollout,) = ground.rollouts(ground.task("ticks", TASK, script))
    ground.until(lambda: "tick 5" in logged(ground, rollout), 60, "it prints")
    ground.signal(signal.SIGKILL)
    ground.ended()
    dead = max(ticks(logged(ground, rollout)))
    ground.until(lambda: max(ticks(logged(ground, rollout))) >= dead + 12, 60, "it goes on")
    ground.started()
    until_over(ground)
    first, _, last, *_ = results(ground)
    assert first["kind"] == "interrupted" and "unknown" in first["text"]
    assert max(ticks(first["text"])) >= dead + 12, "what it printed while nobody looked"
    assert "over" in last["text"].split(), "and it ran to its end"
    seen = ticks(first["text"]) + ticks(last["text"])
    assert set(seen) == set(range(1, TICKS + 1)), "the agent has seen every line"
    assert ticks(logged(ground, rollout)) == list(range(1, TICKS + 1)), "the log has each once"
    assert wrong(ground) == []


ASK = "read answer; echo heard $answer >> heard.txt"
FAMILIES: list[tuple[dict[str, Any], str, str]] = [
    (workloads.call("run_command", command="echo A >> log.txt; echo said"), "interrupted", "said"),
    (
        workloads.call("create_file", filename="new.txt", content="one\ntwo\n"),
        "interrupted",
        "2 lines",
    ),
    (
        workloads.call("edit_file", path="new.txt", start=1, end=1, content="uno\n"),
        "interrupted",
        "new.txt has",
    ),
    (workloads.call("eval"), "interrupted", "No submission"),
    (workloads.call("sleep", sleep_time=1), "sleep", "daemon was away"),
    (
        workloads.call("run_command", command=ASK, wait_for_completion=False),
        "interrupted",
        "unknown",
    ),
    (workloads.call("input_in_session", input_text="hello"), "interrupted", "unknown"),
]
"""A call that was carried out and not answered for; the kind of its result, and what it says."""


def test_a_call_whose_outcome_is_unknown_is_said_to_be_and_never_run_twice(
    ground: Ground,
) -> None:
    ground.started()
    script = [{"thought": "x", "calls": [call], "delay": 0.1} for call, *_ in FAMILIES]
    for number in range(1, len(FAMILIES) + 1):
        ground.order("worker.call.after", "kill")
        if number == 1:
            (rollout,) = ground.rollouts(ground.task("families", TASK, script))
        ground.until(lambda n=number: len(ground.fired()) == n, 60, f"a death in step {number}")
    until_over(ground)
    found = results(ground)
    for (call, kind, said), result in zip(FAMILIES, found, strict=False):
        assert (result["call"]["name"], result["kind"]) == (call["name"], kind)
        assert said in result["text"], result["text"]
    there = place(ground, rollout) / "workspace"
    assert (there / "log.txt").read_text() == "A\n"
    assert (there / "new.txt").read_text() == "uno\ntwo\n"
    assert (there / "heard.txt").read_text() == "heard hello\n"
    assert ground.query("SELECT evaluations FROM rollouts") == [(1,)], "the last one, by the loop"
    assert wrong(ground) == []
