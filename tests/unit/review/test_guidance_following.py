"""Which guidance is not followed, in what words: a table of messages and of what was done after."""

from typing import Any

import msgspec
import pytest

from houston_daemon.review.guidance_following import GuidanceFollowing
from houston_shared.guidance_asked_words import asked_words, can_be_checked
from houston_shared.records import DeliveredGuidance
from houston_shared.task import AttentionSettings, Task
from tests.unit.review.test_attention_signals import call, job, look, run, sleep, step

TASK = Task(name="t", instructions="Do.", attention=AttentionSettings(guidance_steps=3))
OTHER = [run("ls"), run("df"), run("ps")]
WAITS = [sleep(600, [])] * 3
READ = [look("README.md"), *OTHER]
CASES = [
    pytest.param("Read README.md.", OTHER, {4: "3 steps since name nothing of it (readme.md)"},
                 id="a file that no step names"),
    pytest.param("Read README.md.", READ, {}, id="a file that is looked at"),
    pytest.param("Read README.md.", [run("ls"), run("cat notes/README.md"), run("x")], {},
                 id="a file that a command names"),
    pytest.param("Read README.md.", [*WAITS, *OTHER], {7: "name nothing"},
                 id="sleeping is no step in which it could be followed"),
    pytest.param("Read README.md.", [*OTHER[:2]], {}, id="there is still time"),
    pytest.param("Use `--lr 1e-4`.", OTHER, {4: "(--lr, 1e-4)"}, id="quoted words"),
    pytest.param("Use `--lr 1e-4`.", [run("train --lr 3e-4"), *OTHER], {},
                 id="one of the words is enough"),
    pytest.param("Please submit now.", OTHER, {4: "(eval)"}, id="a submission that does not come"),
    pytest.param("Submit what you have.", [run("ls"), call("eval"), run("x")], {},
                 id="a submission that comes"),
    pytest.param("Do not use train.py.", [run("ls"), run("python train.py"), run("x")],
                 {3: "after a person said in step 1"}, id="what was forbidden is done"),
    pytest.param("Do not use train.py.", OTHER, {}, id="what was forbidden is not done"),
    pytest.param("Use lite.py instead of train.py.", [run("python train.py")],
                 {2: "run_command with train.py"}, id="the one and not the other"),
    pytest.param("Stop sleeping.", [sleep(600, [])], {2: "sleep, after"}, id="it sleeps on"),
    pytest.param("If it fails, read README.md.", OTHER, {}, id="a condition"),
    pytest.param("Why did you delete data.csv?", OTHER, {}, id="a question"),
    pytest.param("Your learning rate is too high.", OTHER, {}, id="nothing that can be looked for"),
    pytest.param("It has 3.5 GB, 10/20 done.", OTHER, {}, id="numbers"),
]  # fmt: skip


def followed(
    messages: dict[int, str], actions: list[dict[str, Any]], thought: str = ""
) -> dict[int, str]:
    """By step, which guidance was not followed. messages: by the step that heard them."""
    following, found = GuidanceFollowing(TASK), {}
    for number, action in enumerate(actions, 1):
        record = step(number, action, changed=False)
        sampled = msgspec.structs.replace(record.sample, thought=thought)
        if reason := following.take(msgspec.structs.replace(record, sample=sampled)):
            found[number] = reason
        if text := messages.get(number):
            following.hear((DeliveredGuidance(id="g", author="ada", text=text),))
    return found


@pytest.mark.parametrize(("message", "after", "expected"), CASES)
def test_guidance_that_is_not_followed(
    message: str, after: list[dict[str, Any]], expected: dict[int, str]
) -> None:
    found = followed({1: message}, [run("make"), *after])
    assert found.keys() == expected.keys(), found
    assert all(expected[number] in reason for number, reason in found.items()), found


def test_what_is_only_thought_of_was_heard() -> None:
    assert followed({1: "Read README.md."}, [run("make"), *OTHER], "README.md can wait") == {}


def test_newer_guidance_takes_the_place_of_older() -> None:
    found = followed({1: "Read README.md.", 2: "Use `make`."}, [run("x"), *OTHER, *OTHER])
    assert list(found) == [5]
    assert "heard in step 2" in found[5]


def test_each_message_is_told_once() -> None:
    actions = [run("make"), run("python train.py"), run("python train.py"), *OTHER]
    assert list(followed({1: "Do not use train.py."}, actions)) == [2]


def test_a_job_of_before_is_known() -> None:
    """Sleeping while a job runs is right, whatever a person says of sleeping."""
    assert (
        followed({2: "Stop sleeping."}, [job(session="gpu"), run("make"), sleep(600, ["gpu"])])
        == {}
    )


def test_a_successor_goes_on_from_the_journal() -> None:
    heard = (DeliveredGuidance(id="g", author="ada", text="Read README.md."),)
    records = [step(n, action) for n, action in enumerate([run("make"), *OTHER], 1)]
    records[0] = msgspec.structs.replace(records[0], guidance=heard)
    following = GuidanceFollowing(TASK)
    for record in records[:3]:
        following.replay(record)
    assert "heard in step 1, and 3 steps since" in following.take(records[3])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Look at src/net/model.py and set batch_size.", ("src/net/model.py", "batch_size")),
        ('Run "python eval.py --fast".', ("python", "eval.py", "--fast")),
        ("Do not touch data.csv; fix load.py.", ("load.py",)),
        ("Good. Go on.", ()),
    ],
)
def test_what_a_message_names(text: str, words: tuple[str, ...]) -> None:
    assert asked_words(text) == words


@pytest.mark.parametrize(
    ("text", "checked"),
    [
        ("Read README.md.", True),
        ("Please submit now.", True),
        ("Stop sleeping.", True),
        ("Read NOTES first.", True),
        ("Your learning rate is too high.", False),
        ("Be more careful.", False),
        ("Why did you delete data.csv?", False),
        ("", False),
    ],
)
def test_what_names_nothing_cannot_be_checked(text: str, checked: bool) -> None:
    assert can_be_checked(text) is checked
