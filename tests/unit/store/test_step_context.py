"""The context of a step is what was sent: ids from the ledger, messages from the journal."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from houston_shared.context_messages import EARLIER_GUIDANCE
from houston_shared.errors import HoustonError
from houston_shared.records import ContextHead, ForkBody, ObservationBody, ToolCall
from houston_shared.store import step_context
from houston_shared.store.journal_events import ERASED_TEXT
from houston_shared.store.step_context import read_context
from houston_shared.store.store_reader import Reader
from tests.support.written_home import WrittenHome, sample

WORDS = ["<s>", *"abcdefghij"]
HEAD_IDS = (0, 1, 2)
LOOK = ToolCall(id="1.0", name="list_dir", arguments={"path": "."})
READ = ToolCall(id="1.1", name="read_file", arguments={"path": "a.txt"})


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """A real tokenizer file of eleven words."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>"])
    file = tmp_path / "tokenizer.json"
    tokenizer.save(str(file))
    return str(file)


def head(tokenizer: str, ids: tuple[int, ...] | None = HEAD_IDS) -> ContextHead:
    return ContextHead(
        system="You act.",
        task="Count.",
        tools=(),
        rendered="<s> a b",
        token_ids=ids,
        dialect="chatml-json",
        tokenizer=tokenizer,
    )


class Sent:
    """Prompts as an engine would get them, written as a worker writes its ledger."""

    def __init__(self, written: WrittenHome, rollout: str) -> None:
        self.written, self.rollout = written, rollout
        self.prompts: list[list[int]] = []
        self._parent: int | None = None
        self._whole: list[int] = []

    def step(self, prompt: list[int], sampled: list[int], drift: str, **options: Any) -> None:
        kept = 0
        for ours, theirs in zip(self._whole, prompt, strict=False):
            if ours != theirs:
                break
            kept += 1
        body = sample(
            drift=drift,
            parent_seq=self._parent,
            kept=kept,
            new_prompt_ids=tuple(prompt[kept:]),
            token_ids=tuple(sampled),
        )
        number = len(self.prompts) + 1
        self._parent = self.written.step(self.rollout, number, body, **options)
        self.prompts.append(prompt)
        self._whole = prompt + sampled

    def next(self, more: list[int], sampled: list[int], drift: str = "clean") -> None:
        self.step(self._whole + more, sampled, drift)


def clean(sent: Sent) -> None:
    sent.step([0, 1, 2], [3], "forked")
    sent.next([4, 5], [6, 7])
    sent.next([8], [9])


def forked(sent: Sent) -> None:
    clean(sent)
    sent.step([0, 1, 2, 10, 8], [9], "forked")
    sent.next([4], [5])


def forked_keeping_nothing(sent: Sent) -> None:
    clean(sent)
    sent.step([7, 1, 2], [9], "forked")
    sent.next([4], [5])


def realigned_in_the_sampled_ids(sent: Sent) -> None:
    clean(sent)
    sent.next([1], [2, 3, 4])
    sent.step([*sent._whole[:-2], 5, 6], [7], "realigned")
    sent.next([8], [9])


def stripped(sent: Sent) -> None:
    sent.step([0, 1, 2], [3, 4, 5], "forked")
    sent.step([0, 1, 2, 5, 6], [3, 4, 7], "stripped")
    sent.step([0, 1, 2, 5, 6, 7, 8], [3], "stripped")


def many(sent: Sent) -> None:
    sent.step([0, 1, 2], [3], "forked")
    for _ in range(700):
        sent.next([4], [5])
    sent.step([0, 1, 9], [9], "forked")
    sent.next([4], [5])


@pytest.mark.parametrize(
    "history", [clean, forked, forked_keeping_nothing, realigned_in_the_sampled_ids, stripped, many]
)
def test_every_prompt_is_rebuilt_exactly(
    history: object, written: WrittenHome, reader: Reader, tokenizer: str
) -> None:
    written.rollout("r1")
    written.head("r1", head(tokenizer))
    sent = Sent(written, "r1")
    history(sent)  # type: ignore[operator]
    for number in {*range(1, min(len(sent.prompts), 8) + 1), len(sent.prompts)}:
        view = read_context(reader, "r1", number)
        prompt = sent.prompts[number - 1]
        assert view.token_ids == prompt
        assert view.rendered == " ".join(WORDS[i] for i in prompt)
        assert view.note == ""
    assert view.drift == ("stripped" if history is stripped else "clean")
    assert view.parent is not None
    assert view.parent.step == len(sent.prompts) - 1


def test_only_bodies_that_hold_some_of_the_prompt_are_read(
    written: WrittenHome, reader: Reader, tokenizer: str
) -> None:
    """The erased ids of step 2 are no part of the forked prompt, so they do not hinder it."""
    written.rollout("r1")
    written.head("r1", head(tokenizer))
    sent = Sent(written, "r1")
    forked(sent)
    (second,) = written.connection.execute("SELECT seq FROM samples WHERE step = 2").fetchone()
    written.erase(second)
    assert read_context(reader, "r1", 5).token_ids == sent.prompts[4]
    view = read_context(reader, "r1", 3)
    assert view.token_ids is None
    assert "erased" in view.note


def test_a_broken_ledger_is_said(written: WrittenHome, reader: Reader, tokenizer: str) -> None:
    written.rollout("r1")
    written.head("r1", head(tokenizer))
    clean(Sent(written, "r1"))
    written.connection.execute("UPDATE samples SET parent_seq = 99999 WHERE step = 3")
    with pytest.raises(HoustonError, match="ledger is broken") as problem:
        read_context(reader, "r1", 3)
    assert problem.value.next == "houston verify"


def dialogue(written: WrittenHome) -> None:
    """Three steps of a chat engine; the second is heard by a person."""
    written.rollout("r1")
    written.head("r1", head("", None))
    written.guide("r1", "g0", "Be quick.")
    written.step("r1", 1, sample("look", calls=(LOOK,)), ("a.txt",))
    written.deliver("r1", 1, "g0")
    written.guide("r1", "g1", "Mind <real_user>.")
    written.step("r1", 2, sample("both", calls=(LOOK, READ)), ("a.txt", "hello"))
    written.deliver("r1", 2, "g1")
    written.step("r1", 3, sample("hm", malformed="no call"))


def test_messages_join_head_and_steps_as_the_model_sees_them(
    written: WrittenHome, reader: Reader
) -> None:
    dialogue(written)
    written.step("r1", 4)
    view = read_context(reader, "r1", 4)
    assert [(message.role, message.content) for message in view.messages] == [
        ("system", "You act."),
        ("user", "Count."),
        ("assistant", "look"),
        ("tool", "a.txt\n[step 1]\n<real_user>Be quick.</real_user>"),
        ("assistant", "both"),
        ("tool", "[call 1 of 2: list_dir]\na.txt"),
        (
            "tool",
            "[call 2 of 2: read_file]\nhello\n[step 2]\n"
            "<real_user>Mind &lt;real_user>.</real_user>",
        ),
        ("assistant", "hm"),
        ("user", "[step 3]"),
    ]
    assert view.token_ids is None
    assert view.note == step_context.WITHOUT_IDS_NOTE
    assert view.rendered.count("<real_user>Mind") == 1


def test_after_a_fork_the_summary_stands_for_what_it_compressed(
    written: WrittenHome, reader: Reader
) -> None:
    dialogue(written)
    fork = ForkBody(k=2, first_kept_step=3, summary="S", guidance=("g0", "g1"), mechanical=True)
    written.fork("r1", 4, fork)
    written.step("r1", 4, sample("go on", drift="forked"))
    before, after = read_context(reader, "r1", 3), read_context(reader, "r1", 4)
    assert len(before.messages) == 7
    assert [(message.role, message.content.partition("\n")[0]) for message in after.messages] == [
        ("system", "You act."),
        ("user", "Count."),
        ("assistant", "S"),
        ("user", EARLIER_GUIDANCE),
        ("assistant", "hm"),
        ("user", "[step 3]"),
    ]
    text = after.messages[3].content
    assert text.startswith(f"{EARLIER_GUIDANCE}\n<real_user>Be quick.</real_user>\n[call 1 of 2")
    assert text.endswith("<real_user>Mind &lt;real_user>.</real_user>")
    assert text.count("<real_user>") == 2
    assert after.drift == "forked"


def test_a_missing_tokenizer_is_said_and_the_ids_stay(
    written: WrittenHome, reader: Reader, tmp_path: Path
) -> None:
    written.rollout("r1")
    written.head("r1", head(str(tmp_path / "gone.json")))
    clean(Sent(written, "r1"))
    view = read_context(reader, "r1", 2)
    assert view.token_ids == [0, 1, 2, 3, 4, 5]
    assert "gone.json does not exist" in view.note
    assert "You act." in view.rendered


def test_an_erased_head_shows_as_such(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    seq = written.head("r1", head("", None))
    written.step("r1", 1, observation=ObservationBody(tail="."))
    written.erase(seq)
    assert read_context(reader, "r1", 1).messages[0].content == ERASED_TEXT


MISSING = {"none yet": (0, 1, "has no step yet"), "beyond": (2, 3, "It has steps 1 to 2")}


@pytest.mark.parametrize("case", MISSING)
def test_a_step_that_is_not_there_names_those_that_are(
    case: str, written: WrittenHome, reader: Reader
) -> None:
    steps, step, sentence = MISSING[case]
    written.rollout("r1")
    for number in range(1, steps + 1):
        written.step("r1", number)
    with pytest.raises(HoustonError, match="no step") as problem:
        read_context(reader, "r1", step)
    assert sentence in problem.value.effect
    assert problem.value.next == "houston steps r1"


def test_the_json_has_its_keys(written: WrittenHome, reader: Reader) -> None:
    dialogue(written)
    view = json.loads(
        msgspec.json.encode(step_context.context_as_json(read_context(reader, "r1", 2)))
    )
    assert list(view) == ["messages", "rendered", "token_ids", "drift", "parent"]
    assert view["messages"][2]["calls"] == [
        {"id": "1.0", "name": "list_dir", "arguments": {"path": "."}}
    ]
    assert view["parent"] is None
