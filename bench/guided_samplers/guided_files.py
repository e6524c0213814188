"""`small-workstation` as a person guides it: the sampler writes something wrong so often, which no
error shows, reads back what it wrote, and does what it is told. The person speaks after a wrong
text was written, at no other time, and masks that step.
"""

from bench.guided_samplers.guided_sampling import (
    SPLIT,
    GuidedSuite,
    PlayedCall,
    done_calls,
    drawn,
)

from houston_daemon.experiments.scripted_endpoint import ChatHistory, ScriptedTurn
from houston_daemon.suites.file_tasks import FileTask, file_task
from houston_daemon.suites.imperfect_agents import (
    FINISH,
    AgentHabits,
    Call,
    Calls,
    call,
    failing_calls,
    wrong_writes,
)
from houston_daemon.suites.suite_catalog import find_suite

SUITE = "small-workstation"


def next_turn(chat: ChatHistory, task: FileTask, key: str, habits: AgentHabits) -> ScriptedTurn:
    """What the sampler does next. key: what its draws follow from."""
    calls, failed = done_calls(chat)
    plan, spare = _plan(task, key, habits)
    if chat.all_guidance and not any(_is_right_write(task, done) for done in calls):
        return _turn(_right_write(task))
    source = drawn(key, chat.step)
    if failed < spare and source.random() < habits.errors:
        return _turn(source.choice(failing_calls(task)))
    return _turn(plan[len(calls)] if len(calls) < len(plan) else FINISH)


def _plan(task: FileTask, key: str, habits: AgentHabits) -> tuple[Calls, int]:
    """Calls up to the one that reads back what was written, and how many more may fail, so that a
    person's words and the end of the task are left room."""
    source = drawn(key, "plan")
    is_wrong = source.random() < habits.wrong
    written = source.choice(wrong_writes(task)) if is_wrong else _right_write(task)
    back = call("read", path=written["arguments"]["path"])
    plan = [*task.solution[:-2], written, back]
    return plan, find_suite(SUITE).steps - len(plan) - (2 if is_wrong else 1)


def _right_write(task: FileTask) -> Call:
    return task.solution[-2]


def _turn(made: Call) -> ScriptedTurn:
    return ScriptedTurn("", made["name"], made["arguments"])


def _is_right_write(task: FileTask, made: PlayedCall) -> bool:
    right = _right_write(task)
    return made.name == "write" and made.arguments == right["arguments"]


def next_message(chat: ChatHistory, task: FileTask) -> str:
    """What the person says now, or "": the newest call wrote something wrong, and nothing was said
    before."""
    calls, _ = done_calls(chat)
    if chat.all_guidance or not calls or not writes_wrong_text(task, calls[-1]):
        return ""
    right = _right_write(task)["arguments"]
    return f"No, {right['path']} must say: {right['text']}"


def writes_wrong_text(task: FileTask, made: PlayedCall) -> bool:
    """Whether it writes anything but what the task wants."""
    return made.name == "write" and not _is_right_write(task, made)


GUIDED_FILES = GuidedSuite(
    name=SUITE,
    task=lambda index: file_task(SPLIT, index),
    turn=next_turn,
    message=next_message,
    condemns=writes_wrong_text,
    reason="something wrong was written",
)
