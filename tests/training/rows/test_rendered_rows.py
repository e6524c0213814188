"""Rows that a dialect renders: equal to the ledger's where nothing drifted, and thought-free."""

import re
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.prompts import prompt_tokenizer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.training.rows.training_row import ChatRow, RowOptions, TokenRow
from tests.training.rows.played_rollouts import Family, Played, Stage, Turn, copied
from tests.training.rows.test_trained_answers import MARKS, pieces, turn

TURNS = [turn(n, calls=1 + n % 2, guidance=n % 3 == 0) for n in range(1, 11)]
LONG, SHORT = 100_000, 1_300


def same(row: TokenRow, other: TokenRow) -> None:
    """The same tokens, and the same of them trained."""
    assert row.id == other.id
    assert row.token_ids == other.token_ids
    assert row.weights() == other.weights()
    assert row.labels() == other.labels()
    spans = [(s.start, s.end, s.step, s.weight, s.why) for s in row.spans]
    assert spans == [(s.start, s.end, s.step, s.weight, s.why) for s in other.spans]


@pytest.mark.parametrize("context", [LONG, SHORT], ids=["one context", "forks"])
@pytest.mark.parametrize("name", ["chatml", "hermes", "glm45"])
def test_rendered_rows_are_the_ledgers_where_nothing_drifted(
    stage: Stage, family: dict[str, Family], tmp_path: Path, name: str, context: int
) -> None:
    mine = Family("hermes", family["chatml"].tokenizer) if name == "hermes" else family[name]
    played = stage.play(mine, TURNS, context=context)
    stage.judge(played.id, 4, "mask", "judge")
    copy = copied(mine.tokenizer, tmp_path)
    exact = stage.rows(played)
    anew = stage.rows(played, RowOptions(tokenizer=copy))
    assert {row.source for row in exact} == {"ledger"}
    assert {row.source for row in anew} == {"rendered"}
    assert len(exact) == len(anew) > (4 if context == SHORT else 0)
    for row, other in zip(exact, anew, strict=True):
        same(row, other)
        assert not other.logprobs, "nobody sampled a rendered token"
        assert {span.logprob_kind for span in other.spans} == {"none"}
    paper = stage.rows(played, RowOptions(overlap="paper"))
    for row, other in zip(
        paper, stage.rows(played, RowOptions(overlap="paper", tokenizer=copy)), strict=True
    ):
        same(row, other)
    chats = stage.chats(played, RowOptions(overlap="paper"))
    trained = [[s.step for s in row.spans if s.weight] for row in paper]
    assert [
        [message.step for message in row.messages if message.weight] for row in chats
    ] == trained


def test_rendering_many_rollouts_reads_their_tokenizer_once(
    stage: Stage, family: dict[str, Family], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 2 MB takes 0.3 s to read, a rollout some milliseconds to render."""
    played = [stage.play(family["chatml"], TURNS[:2]) for _ in range(3)]
    copy = copied(family["chatml"].tokenizer, tmp_path)
    read: list[str] = []
    reading = prompt_tokenizer.PromptTokenizer.__init__

    def counted(self: PromptTokenizer, path: str) -> None:
        read.append(path)
        reading(self, path)

    monkeypatch.setattr(prompt_tokenizer.PromptTokenizer, "__init__", counted)
    for each in played:
        assert stage.rows(each, RowOptions(tokenizer=copy))
    assert read.count(copy) == 1


def test_reasoning_that_the_rollout_did_not_have_is_rendered(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["glm45"], TURNS[:2])
    (row,) = stage.rows(played, RowOptions(reasoning=True))
    assert row.source == "rendered"
    text = PromptTokenizer(row.tokenizer).decode(row.token_ids)
    assert "<think></think>" not in text, "answers open for reasoning"
    (same_as_it_ran,) = stage.rows(played, RowOptions(reasoning=False))
    assert same_as_it_ran.source == "ledger"


@pytest.mark.parametrize(
    ("dialect", "opened", "closed"),
    [("qwen3", "<think>\n", "\n</think>\n\n"), ("glm45", "<think>", "</think>")],
)
def test_a_thought_stands_in_the_familys_block_where_its_answers_reason(
    stage: Stage, family: dict[str, Family], dialect: str, opened: str, closed: str
) -> None:
    played = stage.play(family["chatml"], TURNS[:2])
    tokens = PromptTokenizer(family["chatml"].tokenizer)
    for reasoning in (True, False):
        (row,) = stage.rows(played, RowOptions(dialect=dialect, reasoning=reasoning))
        first, *_ = pieces(tokens, row, trained=True)
        assert (f"{opened}{TURNS[0].thought}{closed}" in first) == reasoning
        assert ("</think>" in first) == reasoning


def test_the_same_tokenizer_by_another_path_is_no_reason_to_render(
    stage: Stage, family: dict[str, Family], tmp_path: Path
) -> None:
    played = stage.play(family["chatml"], TURNS[:2])
    (tmp_path / "tokenizer.json").write_text(Path(family["chatml"].tokenizer).read_text())
    options = RowOptions(tokenizer=str(tmp_path), dialect="chatml-json")
    assert {row.source for row in stage.rows(played, options)} == {"ledger"}


@pytest.mark.parametrize(
    ("dialect", "stop"),
    [("glm45", "<|observation|>"), ("chatml-json", "<|im_end|>"), ("qwen3", "<|im_end|>")],
)
def test_another_family_trains_its_own_form_and_stop_token(
    stage: Stage, family: dict[str, Family], dialect: str, stop: str
) -> None:
    """A policy that was sampled by one family, for a student of another."""
    teacher = family["glm45" if dialect != "glm45" else "chatml"]
    played = stage.play(teacher, TURNS, context=SHORT)
    (mask, *_) = [4]
    stage.judge(played.id, mask, "mask")
    rows = stage.rows(played, RowOptions(dialect=dialect))
    tokens = PromptTokenizer(teacher.tokenizer)
    texts = [text for row in rows if row.kind == "react" for text in pieces(tokens, row, True)]
    assert all(text.endswith(stop) for text in texts)
    assert all(text.count(stop) == 1 for text in texts)
    marks = [mark for text in texts for mark in MARKS.findall(text)]
    expected = [m for n, t in enumerate(TURNS, 1) if n != mask for m in (f"T{n}t", *named(t))]
    assert sorted(marks) == sorted(expected), "thought and calls, each once, and nothing else"
    assert {row.dialect for row in rows} == {dialect}


def named(step: Turn) -> list[str]:
    return [mark for text in step.calls for mark in MARKS.findall(text)]


@pytest.mark.parametrize("context", [LONG, SHORT], ids=["one context", "forks"])
@pytest.mark.parametrize("name", ["chatml", "qwen3", "glm45"])
def test_a_rollout_without_thoughts_trains_its_actions(
    stage: Stage, family: dict[str, Family], name: str, context: int
) -> None:
    turns = [*TURNS[:5], turn(6, "malformed"), *TURNS[6:]]
    played = stage.play(family[name], turns, context=context, strip=True)
    rows = stage.rows(played)
    tokens = PromptTokenizer(family[name].tokenizer)
    react = [row for row in rows if row.kind == "react"]
    for row in react:
        text = tokens.decode(row.token_ids)
        assert set(re.findall(r"[TR]\d+t", text)) <= {"T6t", "R6t"}, "thoughts are left out"
        for answer in pieces(tokens, row, True):
            assert {mark[0] for mark in MARKS.findall(answer)} <= {"A"}
    trained = [s.step for row in react for s in row.spans if s.weight]
    assert sorted(trained) == [n for n in range(1, 12) if n != 6]
    sent(played, rows)


def sent(played: Played, rows: list[TokenRow]) -> None:
    """What stands before an answer is what the engine was sent, where it was sampled there."""
    context = {row.context: row for row in rows if row.kind == "react"}
    for row in context.values():
        for span in row.spans:
            answer = played.engine.answers[("policy", span.step)]
            if " in row " not in span.why:
                assert list(row.token_ids[: span.start]) == answer.prompt
    for row in rows:
        if row.kind == "summary":
            assert row.source == "ledger"
            last = row.spans[-1]
            answer = played.engine.answers[("summary", last.step)]
            assert list(row.token_ids) == answer.prompt + answer.ids


def test_thoughts_can_be_left_out_of_a_rollout_that_kept_them(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["qwen3"], TURNS, context=SHORT)
    rows = stage.rows(played, RowOptions(thoughts="strip"))
    tokens = PromptTokenizer(family["qwen3"].tokenizer)
    for row in rows:
        if row.kind == "react":
            assert not re.findall(r"[TR]\d+t", tokens.decode(row.token_ids))
    trained = [s.step for row in rows for s in row.spans if s.weight and s.role == "policy"]
    assert sorted(trained) == list(range(1, 12))
    heads = {tuple(row.token_ids[: row.spans[0].start][:200]) for row in rows}
    assert len(heads) == 1, "the head is that of the rollout"


def test_a_changed_dialect_never_trains_what_it_cannot_place(
    stage: Stage, family: dict[str, Family], monkeypatch: pytest.MonkeyPatch
) -> None:
    from houston_daemon.prompts import model_dialects

    played = stage.play(family["glm45"], TURNS[:4], strip=True)
    before = model_dialects.Glm45Dialect.assistant

    def otherwise(self: Any, thought: str, calls: Any) -> Any:
        return [model_dialects.template_piece("\n"), *before(self, thought, calls)]

    monkeypatch.setattr(model_dialects.Glm45Dialect, "assistant", otherwise)
    (row,) = stage.rows(played)
    *earlier, last = row.spans
    assert {span.weight for span in earlier} == {0.0}
    assert all("other ids" in span.why for span in earlier)
    assert last.weight == 1, "nobody was sent the last answer: it is written as it is now"


@pytest.mark.parametrize("context", [LONG, SHORT], ids=["one context", "forks"])
@pytest.mark.parametrize("strip", [False, True], ids=["thoughts", "stripped"])
def test_chat_rows_are_the_same_rows(
    stage: Stage, family: dict[str, Family], strip: bool, context: int
) -> None:
    turns = [*TURNS[:3], turn(4, "interrupt"), turn(5, "malformed"), turn(6, "cut"), *TURNS[6:]]
    played = stage.play(family["glm45"], turns, context=context, strip=strip)
    stage.judge(played.id, 2, "mask", "rule")
    rows, chats = stage.rows(played), stage.chats(played)
    assert [row.id for row in chats] == [row.id for row in rows]
    for row, chat in zip(rows, chats, strict=True):
        answers = [
            message
            for message in chat.messages
            if message.message.role == "assistant" and message.step
        ]
        spans = [(s.step, s.weight, s.why, s.by) for s in row.spans]
        if row.kind == "react" or not strip:
            assert [(a.step, a.weight, a.why, a.by) for a in answers] == spans
        read(chat, strip)
        assert chat.messages[-1].message.role == "assistant", "it ends with an answer"


def read(chat: ChatRow, strip: bool) -> None:
    """What a chat row says, and where."""
    assert [message.message.role for message in chat.messages[:2]] == ["system", "user"]
    assert [tool["function"]["name"] for tool in chat.tools] == ["noop", "finish"]
    open_calls: list[str] = []
    for entry in chat.messages[2:]:
        message = entry.message
        if message.role == "assistant":
            assert not open_calls, "every call has its result before the next answer"
            open_calls = [call.id for call in message.calls]
            assert all(isinstance(call.arguments, dict) for call in message.calls)
            assert "<real_user>" not in message.content
            if strip and message.calls:
                assert not message.content
        elif message.role == "tool":
            assert message.call_id == open_calls.pop(0)
        for mark in re.findall(r"<real_user>(.*?)</real_user>", message.content):
            assert message.role in ("tool", "user")
            assert re.match(r"G", mark), "guidance stays inside the observation"


def test_another_familys_empty_answer_is_not_trained(
    stage: Stage, family: dict[str, Family]
) -> None:
    played = stage.play(family["glm45"], [turn(1), Turn("", (), "malformed"), turn(3)])
    stage.judge(played.id, 2, "keep")
    (row,) = stage.rows(played)
    assert [s.step for s in row.spans if s.weight] == [1, 2, 3, 4], "its stop token was sampled"
    (chat,) = stage.chats(played)
    (empty,) = [
        message
        for message in chat.messages
        if message.step == 2 and message.message.role == "assistant"
    ]
    assert (empty.weight, empty.why) == (0.0, "the answer is empty")


def test_a_head_shows_tools_as_rollouts_in_the_same_window_do(
    stage: Stage, family: dict[str, Family], tmp_path: Path
) -> None:
    played = stage.play(family["chatml"], TURNS[:2])
    tokenizer = copied(family["chatml"].tokenizer, tmp_path)
    (long,) = stage.rows(played, RowOptions(tokenizer=tokenizer, window=1_000_000))
    (short,) = stage.rows(played, RowOptions(tokenizer=tokenizer, window=64))
    assert len(short.token_ids) < len(long.token_ids)
    assert list(short.spans)[-1].end - len(short.token_ids) == (
        list(long.spans)[-1].end - len(long.token_ids)
    )


OPEN = [*TURNS[:2], turn(3, "open"), *TURNS[3:5], turn(6, "full"), *TURNS[6:]]
"""Steps 3 and 6 did not stop."""


@pytest.mark.parametrize("options", [{"thoughts": "strip"}, {"dialect": "glm45"}], ids=str)
def test_what_did_not_stop_teaches_no_stopping_however_it_is_rendered(
    stage: Stage, family: dict[str, Family], options: dict[str, Any]
) -> None:
    """Who renders an answer closes it: its stop token is not the model's, and the row says so."""
    played = stage.play(family["qwen3"], OPEN, context=SHORT, open_summaries=True)
    rows, chats = stage.rows(played, RowOptions(**options)), stage.chats(played)
    assert {row.source for row in rows} == {"rendered"}
    assert {row.kind for row in rows} == {"react", "summary"}
    last = [row.spans[-1] for row in rows if row.kind == "summary"]
    assert {(span.weight, span.why.split(":")[0]) for span in last} == {
        (0.0, "ended without a stop token of its dialect")
    }
    ends = [row.messages[-1] for row in chats if row.kind == "summary"]
    assert {(message.weight, message.why) for message in ends} == {(last[0].weight, last[0].why)}
    own = [s for row in rows for s in row.spans if s.step in (3, 6) and " in row " not in s.why]
    assert {(s.step, s.why.split(" ")[0]) for s in own if s.role == "policy"} == {
        (3, "ended"),
        (6, "cut"),
    }


@pytest.mark.parametrize("options", [{"thoughts": "strip"}, {"dialect": "glm45"}], ids=str)
def test_what_did_not_stop_is_trained_on_request_without_the_token_that_was_never_sampled(
    stage: Stage, family: dict[str, Family], options: dict[str, Any]
) -> None:
    played = stage.play(family["qwen3"], OPEN, context=SHORT, open_summaries=True)
    tokens = PromptTokenizer(family["qwen3"].tokenizer)
    stops = ("<|im_end|>", "<|observation|>", "<|user|>")
    ended = {True: 0, False: 0}
    for row in stage.rows(played, RowOptions(cut="keep", **options)):
        for span in row.spans:
            if span.weight:
                text = tokens.decode(row.token_ids[span.start : span.end])
                stopped = span.role == "policy" and span.step not in (3, 6)
                assert text.endswith(stops) == stopped
                ended[stopped] += 1
    assert ended[False] > 2
    chats = stage.chats(played, RowOptions(cut="keep"))
    trained = {message.step for row in chats for message in row.messages if message.weight}
    assert trained == set(range(1, 12)) - {3, 6}, "a consumer's template closes every message"
