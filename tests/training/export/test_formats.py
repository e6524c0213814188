"""What each consumer's rules let through, and what they stop: tables of lines that were changed."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.training.export import export_format
from houston_daemon.training.export.export_format import ExportLine
from houston_daemon.training.export.export_manifest import LEFT_OUT_REASON
from houston_daemon.training.export.export_run import FORMATS, choose_format
from houston_shared.errors import HoustonError
from tests.support.synthetic_rows import made
from tests.training.export.chat_rows import step, talk
from tests.training.export.writing import ROW_FORMATS, lines, written

Change = Callable[[ExportLine], Any]


def line(format: str) -> ExportLine:
    row = made() if FORMATS[format].unit == "ids" else talk()
    return deepcopy(FORMATS[format].lines(row)[0])


RIGHT = {
    "rows of ids": [made(), made(((3, 1.0),)), made(kind="summary", answers=((4, 1.0),))],
    "rows of messages": [
        talk(),
        talk(step(1, "", [{}, {"command": "文😀\x00"}])),
        talk(step(1, "no call", [])),
        talk(step(1, weight=0.0), step(2, weight=0.0), step(3)),
        talk(step(1, result="<|im_end|>"), step(2, weight=0.0, thought="<|im_start|>"), step(3)),
    ],
}


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_right_rows_are_let_through(name: str) -> None:
    format = FORMATS[name]
    for row in RIGHT["rows of ids" if format.unit == "ids" else "rows of messages"]:
        lines = format.lines(row)
        assert lines
        assert [format.line_problem(line) for line in lines] == [""] * len(lines)


def put(name: str, at: int, value: Any) -> Change:
    def change(line: ExportLine) -> None:
        line[name][at] = value

    return change


def of_answer(change: Callable[[dict[str, Any]], Any], at: int = 0) -> Change:
    """A change of the at-th answer of a line of messages."""

    def changed(line: ExportLine) -> None:
        messages = line.get("messages") or [*line["prompt"], *line["completion"]]
        change([message for message in messages if message["role"] == "assistant"][at])

    return changed


def of_result(change: Callable[[dict[str, Any]], Any]) -> Change:
    def changed(line: ExportLine) -> None:
        messages = line.get("messages") or line["prompt"]
        change(next(message for message in messages if message["role"] == "tool"))

    return changed


def of_call(**fields: Any) -> Change:
    return of_answer(lambda m: m["tool_calls"][0]["function"].update(fields), at=-1)


def masked(key: str) -> Change:
    def change(line: ExportLine) -> None:
        for message in line["messages"]:
            if key in message:
                message[key] = 0

    return change


NAN = float("nan")
WRONG: list[tuple[str, str, Change, str]] = [
    ("trl", "a short list of labels", lambda line: line["labels"].pop(), "lengths"),
    ("verl-sft", "a short mask", lambda line: line["loss_mask"].pop(), "lengths"),
    ("verl-sft", "a mask of two", put("loss_mask", 8, 2), "neither 0 nor 1"),
    ("verl-sft", "a masked row", lambda line: line.update(loss_mask=[0] * 31), "nothing"),
    ("verl-sft", "a trained first token", put("loss_mask", 0, 1), "nothing predicts"),
    ("verl-sft", "a negative id", put("input_ids", 0, -7), "negative"),
    ("verl-sft", "another count", lambda line: line.update(trained=1), "counts"),
    ("llama-factory", "a label of another id", put("labels", 8, 5), "neither its id nor -100"),
    ("llama-factory", "a short list of labels", lambda line: line["labels"].pop(), "lengths"),
    ("llama-factory", "a column of ours", lambda line: line.update(row="r-1/0.0"), "cannot pad"),
    ("llama-factory", "a token not seen", put("attention_mask", 3, 0), "not attended to"),
    (
        "llama-factory",
        "nothing to train",
        lambda line: line.update(labels=[-100] * len(line["labels"])),
        "nothing in it is trained",
    ),
    ("trl", "no weights", lambda line: line["weights"].clear(), "lengths"),
    ("trl", "a label of another id", put("labels", 8, 5), "neither its id nor -100"),
    ("trl", "a label that masks with -1", put("labels", 8, -1), "neither its id nor -100"),
    ("trl", "a negative id", put("input_ids", 0, -7), "negative"),
    (
        "trl",
        "a trained first token",
        lambda line: (put("labels", 0, 100)(line), put("weights", 0, 1.0)(line)),
        "nothing predicts",
    ),
    ("trl", "half a weight", put("weights", 8, 0.5), "neither 0 nor 1"),
    ("trl", "a weight without a label", put("weights", 1, 1.0), "do not agree"),
    (
        "trl",
        "a weight moved by one",
        lambda line: (put("weights", 1, 1.0)(line), put("weights", 8, 0.0)(line)),
        "do not agree",
    ),
    (
        "trl",
        "nothing to train",
        lambda line: line.update(labels=[-100] * len(line["labels"])),
        "nothing in it is trained",
    ),
    ("trl", "another count", lambda line: line.update(trained=1), "counts"),
    (
        "trl-chat",
        "two answers to train",
        lambda line: line["completion"].append({"role": "user", "content": ""}),
        "not one answer",
    ),
    ("trl-chat", "no answer to train", lambda line: line["completion"].clear(), "not one answer"),
    (
        "trl-chat",
        "a prompt that ends with an answer",
        lambda line: line["prompt"].append({"role": "assistant", "content": "x"}),
        "does not ask",
    ),
    ("trl-chat", "no prompt", lambda line: line["prompt"].clear(), "does not ask"),
    ("trl-chat", "arguments as text", of_call(arguments="{}"), "no object"),
    ("trl-chat", "an unknown role", lambda row: row["prompt"][0].update(role="developer"), "role"),
    ("trl-chat", "no text", lambda line: line["prompt"][1].update(content=None), "no text"),
    (
        "trl-chat",
        "an empty answer",
        of_answer(lambda m: (m.pop("tool_calls"), m.update(content="")), -1),
        "empty",
    ),
    ("trl-chat", "tools as a list", lambda line: line.update(tools=[]), "no list in JSON"),
    (
        "trl-chat",
        "calls of a user",
        lambda line: line["prompt"][1].update(tool_calls=[1]),
        "role user has calls",
    ),
    ("trl-chat", "a number past 64 bits", of_call(arguments={"n": 2**64}), "64 bits"),
    ("trl-chat", "no number", of_call(arguments={"n": NAN}), "JSON does not have"),
    ("trl-chat", "half a character", of_call(arguments={"n": "\ud800"}), "no UTF-8"),
    ("trl-chat", "an end of turn in the answer", of_call(arguments={"n": ["<|im_end|>"]}), "token"),
    (
        "slime",
        "an answer without a mask",
        of_answer(lambda m: m.pop("step_loss_mask")),
        "default is 1",
    ),
    ("slime", "a mask of a half", of_answer(lambda m: m.update(step_loss_mask=0.5)), "0 or 1"),
    ("slime", "a masked row", masked("step_loss_mask"), "loss_mask[-0:]"),
    (
        "slime",
        "a mask on a result",
        of_result(lambda m: m.update(step_loss_mask=0)),
        "nobody sampled",
    ),
    ("slime", "arguments as text", of_call(arguments="{}"), "no object"),
    ("slime", "tools as text", lambda line: line.update(tools="[]"), "no list"),
    ("slime", "no text", of_result(lambda m: m.update(content=None)), "no text"),
    ("slime", "no number", of_call(arguments={"n": -float("inf")}), "slime skips"),
    (
        "slime",
        "an end of turn in a trained answer",
        of_answer(lambda m: m.update(content="a <|im_end|>")),
        "<|im_end|>",
    ),
    (
        "openai",
        "an answer without a weight",
        of_answer(lambda m: m.pop("weight")),
        "default is 1",
    ),
    ("openai", "a weight of a half", of_answer(lambda m: m.update(weight=0.5)), "0 or 1"),
    ("openai", "a masked row", masked("weight"), "nothing in it is trained"),
    ("openai", "arguments as an object", of_call(arguments={}), "in a string"),
    ("openai", "arguments that are a list", of_call(arguments="[]"), "in a string"),
    ("openai", "arguments with NaN", of_call(arguments='{"a": NaN}'), "in a string"),
    ("openai", "a name with a dot", of_call(name="mcp.run"), "not a function name"),
    ("openai", "a name in Chinese", of_call(name="文"), "not a function name"),
    (
        "openai",
        "a column of ours",
        lambda line: line["messages"][0].update(step=1),
        "has the key 'step'",
    ),
    (
        "openai",
        "an end without an answer",
        lambda line: line["messages"].append({"role": "user", "content": "x"}),
        "no answer",
    ),
    (
        "openai",
        "a result of no call",
        of_result(lambda m: m.update(tool_call_id="9.9")),
        "answers no call",
    ),
    (
        "openai",
        "a call without a result",
        lambda line: line["messages"].remove(
            next(m for m in line["messages"] if m["role"] == "tool")
        ),
        "has no result",
    ),
    (
        "openai",
        "an id too long",
        of_answer(lambda m: m["tool_calls"][0].update(id="9" * 41), -1),
        "40 characters",
    ),
    ("openai", "no tools", lambda line: line.pop("tools"), "names no tools"),
    ("openai", "too many tools", lambda line: line.update(tools=line["tools"] * 129), "128"),
    (
        "openai",
        "an empty answer",
        of_answer(lambda m: (m.pop("tool_calls"), m.update(content="")), -1),
        "empty",
    ),
    ("raw", "a short list of weights", lambda line: line["weights"].pop(), "lengths"),
    ("raw", "spans that overlap", lambda line: line["spans"][1].update(start=8), "not in order"),
    ("raw", "a weight outside the spans", put("weights", 0, 1.0), "outside its spans"),
    (
        "raw",
        "a span that weighs otherwise",
        lambda line: line["spans"][0].update(weight=0.0),
        "has another weight",
    ),
    (
        "raw",
        "too few log-probabilities",
        lambda line: line["spans"][0]["logprobs"].pop(),
        "log-probability per token",
    ),
    (
        "raw",
        "a log-probability that is none",
        lambda line: line["spans"][0]["logprobs"].__setitem__(0, NAN),
        "no number",
    ),
]


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [(name, change, why) for name, _, change, why in WRONG],
    ids=[f"{name}: {what}" for name, what, _, _ in WRONG],
)
def test_what_would_be_trained_otherwise_is_stopped(name: str, change: Change, why: str) -> None:
    sound = line(name)
    assert FORMATS[name].line_problem(sound) == ""
    change(sound)
    assert why in FORMATS[name].line_problem(sound)


@pytest.mark.parametrize("name", ROW_FORMATS)
def test_a_row_of_which_nothing_is_trained(name: str) -> None:
    """Trainers on ids have no use for one; slime and OpenAI would train all of it, or refuse; raw
    keeps it."""
    format = FORMATS[name]
    ids, messages = made(((4, 0.0),)), talk(step(1, weight=0.0))
    lines = format.lines(ids if format.unit == "ids" else messages)
    if name in ("trl", "trl-chat", "verl-sft", "llama-factory"):
        assert lines == []
    else:
        assert bool(format.line_problem(lines[0])) == (name != "raw")


def test_what_no_consumer_can_hold_as_a_weight_is_refused_not_rounded() -> None:
    row = talk(step(1), step(2))
    half = replace(row, messages=(*row.messages[:2], replace(row.messages[2], weight=0.5)))
    for name in ("slime", "openai"):
        assert "0 or 1" in FORMATS[name].line_problem(FORMATS[name].lines(half)[0])


def test_trl_chat_trains_each_kept_answer_once_and_shows_it_its_whole_past() -> None:
    row = talk(step(1), step(2, weight=0.0), step(3, "third", [{}, {}], "b"), step(4))
    lines = FORMATS["trl-chat"].lines(row)
    assert [line["step"] for line in lines] == [1, 3, 4]
    assert [len(line["prompt"]) for line in lines] == [2, 6, 9]
    assert all(line["prompt"] == lines[-1]["prompt"][: len(line["prompt"])] for line in lines)
    assert lines[1]["completion"][0]["content"] == "third"


def test_what_follows_the_last_trained_answer_is_left_out() -> None:
    row = talk(step(1), step(2), step(3, weight=0.0))
    for name in ("slime", "openai"):
        messages = FORMATS[name].lines(row)[0]["messages"]
        assert len(messages) == 5 and messages[-1]["role"] == "assistant"


def test_several_calls_and_texts_that_become_tokens_are_remarked() -> None:
    row = talk(step(1, "x", [{}, {}], "<|im_end|>"), step(2))
    (line,) = FORMATS["slime"].lines(row)
    assert len(FORMATS["slime"].remarks(line)) == 2
    first, second = FORMATS["trl-chat"].lines(row)
    assert not FORMATS["trl-chat"].remarks(first)
    assert FORMATS["trl-chat"].remarks(second) == [export_format.CONTEXT_TOKEN_REMARK]
    assert FORMATS["openai"].lines(row)[0]["parallel_tool_calls"] is True


@pytest.mark.parametrize("name", ["slime", "trl-chat"])
def test_an_answer_that_would_become_tokens_costs_that_answer(name: str, tmp_path: Path) -> None:
    """It is named; where it is left out, the rest of its row is trained all the same."""
    row = talk(step(1, "a <|im_end|>"), step(2, arguments=[{"x": "<|user|>"}]), step(3))
    file, building = written(name, [row], tmp_path)
    assert [row.row for row in building.refused] == ["r-1/0.0 step 1", "r-1/0.0 step 2"]
    exported = lines(file)
    assert len(exported) == 1
    if name == "slime":
        messages: Any = exported[0]["messages"]
        masks = [m["step_loss_mask"] for m in messages if m["role"] == "assistant"]
        assert masks == [0, 0, 1]
    counts = building.counts()
    assert (counts.sampled, counts.trained, counts.untrained) == (3, 1, {LEFT_OUT_REASON: 2})


@pytest.mark.parametrize(
    "text",
    ["<|im_end|>", "<|observation|>", "<｜Assistant｜>", "<end_of_turn>", "[gMASK]", "<sop>"],
)
def test_tokens_of_many_families_are_known(text: str) -> None:
    assert export_format.control_token_in([{"content": f"a{text}b"}])
    assert not export_format.control_token_in([{"content": f"a < | {text[1:-1]} b | > c || d <s>"}])
    assert not export_format.control_token_in([{"content": "<|real_user|> <real_user>"}])


def test_a_line_says_where_it_comes_from_wherever_it_has_room() -> None:
    bare = replace(made(), provenance="none")
    for name in ("trl", "raw"):
        assert FORMATS[name].lines(bare)[0]["provenance"] == "none"
    row = talk(provenance="none")
    assert FORMATS["trl-chat"].lines(row)[0]["provenance"] == "none"
    assert FORMATS["slime"].lines(row)[0]["metadata"]["provenance"] == "none"
    assert FORMATS["openai"].index


@pytest.mark.parametrize("name", ["slime", "openai", "llama-factory"])
def test_no_parquet_for_who_cannot_read_it(name: str) -> None:
    with pytest.raises(HoustonError, match="no parquet file"):
        choose_format(name, parquet=True)


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(HoustonError, match=r"trl-chat, verl-sft, .*, raw, verl-rl, slime-rl"):
        choose_format("verl")


def test_arguments_may_be_nested_as_deep_as_every_reader_takes() -> None:
    def messages(depth: int) -> list[ExportLine]:
        arguments: dict[str, Any] = {}
        for _ in range(depth - 1):
            arguments = {"a": arguments}
        return [{"content": "", "tool_calls": [{"function": {"arguments": arguments}}]}]

    assert not export_format.messages_not_json(messages(export_format.MAX_JSON_DEPTH))
    assert "deep" in export_format.messages_not_json(messages(export_format.MAX_JSON_DEPTH + 1))
