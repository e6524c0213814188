"""The text of a decision that a process reward model scores."""

from dataclasses import dataclass

import msgspec
import pytest

from houston_daemon.prompts.decision_text import (
    EARLIER_DECISIONS,
    RESULT_CHARACTERS,
    Decision,
    decision_of,
    decision_of_action,
    decision_text,
)
from houston_daemon.prompts.dialect_protocol import AgentAction
from houston_shared.records import ToolCall
from tests.support.judged_rollouts import step

SECRET = "what came of it"


def call(name: str = "open", error: str = "", **arguments: object) -> ToolCall:
    return ToolCall(id="1.0", name=name, arguments=arguments, error=error)


def test_a_decision_is_told_without_what_came_of_it() -> None:
    earlier = decision_of(step(1, "a.txt b.txt", thought="look first", command="ls"))
    now = decision_of(step(2, SECRET, thought="read it", command="cat a.txt", guidance=SECRET))
    assert decision_text("Count the words.", [earlier], now).splitlines() == [
        "Task:",
        "Count the words.",
        "Step 1:",
        "look first",
        "run_command ls",
        "Result:",
        "a.txt b.txt",
        "Step 2, the decision:",
        "read it",
        "run_command cat a.txt",
    ]


def test_the_result_of_a_decision_changes_nothing_of_its_text() -> None:
    """So labels, training, reward and live scores read the same, whenever they ask."""
    before = Decision("", "look", "")
    open_now = Decision("", "open", "red")
    closed = open_now._replace(result=SECRET)
    assert decision_text("t", [before], open_now) == decision_text("t", [before], closed)


def test_what_a_person_said_is_known_to_later_decisions() -> None:
    heard = decision_of(step(1, "done", guidance="No, the other one."))
    assert "person: No, the other one." in decision_text("t", [heard], Decision("", "look", ""))


@dataclass(frozen=True)
class Answer:
    action: AgentAction
    sound: bool
    told: str


ANSWERS = {
    "one argument is told as it is": Answer(
        AgentAction("", (call(box="red"),)), True, "open red"
    ),
    "several by their names": Answer(
        AgentAction("", (call("write", path="a", lines=[1, 2]),)),
        True,
        "write path: a\nlines: [1, 2]",
    ),
    "none": Answer(AgentAction("", (call("read"),)), True, "read"),
    "several calls are all told": Answer(
        AgentAction("", (call(box="red"), call("read"))), True, "open red\nread"
    ),
    "malformed": Answer(AgentAction("open the", (), "no JSON"), False, "open the\n(no action)"),
    "no call": Answer(AgentAction("I wait", ()), False, "I wait\n(no action)"),
    "an unknown action": Answer(
        AgentAction("", (call("fly", error="There is no tool fly."),)), False, "fly"
    ),
    "one of two calls is unknown": Answer(
        AgentAction("", (call(box="red"), call("fly", error="none"))), False, "open red\nfly"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_an_answer_is_as_a_decision(name: str) -> None:
    wanted = ANSWERS[name]
    decision = decision_of_action(wanted.action)
    assert decision.sound is wanted.sound
    assert decision_text("t", [], decision).partition("the decision:\n")[2] == wanted.told


def test_a_recorded_answer_is_the_same_decision_as_the_fresh_one() -> None:
    record = step(1, command="ls -l", thought="look")
    fresh = decision_of_action(AgentAction(record.sample.thought, record.sample.calls))
    assert decision_of(record)._replace(result="") == fresh
    broken = msgspec.structs.replace(record.sample, calls=(), malformed="no JSON")
    assert not decision_of(msgspec.structs.replace(record, sample=broken)).sound


def test_long_rollouts_and_results_are_cut_and_say_so() -> None:
    long = Decision("", "look", "", result="x" * 5 * RESULT_CHARACTERS)
    text = decision_text("t", [long] * (EARLIER_DECISIONS + 3), Decision("", "read", ""))
    assert "(3 earlier steps are left out)" in text
    assert "Step 3:" not in text and "Step 4:" in text
    assert f"Step {EARLIER_DECISIONS + 4}, the decision:" in text
    assert len(text) < EARLIER_DECISIONS * (RESULT_CHARACTERS + 100)
    assert "x …" in text
