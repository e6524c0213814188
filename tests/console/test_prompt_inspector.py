"""The prompt inspector: what differs from the step before, what is gone, where the cache ended."""

import json
from pathlib import Path
from typing import Any

import pytest

from houston_console.screens import prompt_rendering
from houston_console.screens.prompt_inspector import PromptInspector, lines_with_needle
from houston_console.screens.prompt_rendering import (
    CachedPrefix,
    InspectedRequest,
    MessageOffset,
    request_facts,
)
from houston_console.widgets.styled_text import TextLine, line_text
from houston_shared.command import main
from houston_shared.records import ContextHead, Message
from houston_shared.store import step_context
from houston_shared.store.step_context import ContextView
from houston_shared.store.store_reader import Reader
from tests.console.conftest import SMALL, Sit
from tests.console.home_builder import HomeBuilder

WIDTH = 60


def _messages(*texts: str) -> list[Message]:
    roles: Any = ("user", "assistant")
    return [Message(role=roles[at % 2], content=text) for at, text in enumerate(texts)]


CHANGES = {
    "a step is added": ("a b", "a b c d", 2, [], ["c", "d"]),
    "nothing changed": ("a b", "a b", 2, [], []),
    "a fork": ("a b c d e f", "a S e f g h", 3, ["b", "c", "d"], ["S", "g", "h"]),
    "the same words again": ("a x x", "a x x x", 3, [], ["x"]),
    "the first of all": ("", "a b", 0, [], ["a", "b"]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_two_requests_have_in_common(name: str) -> None:
    before, after, common, removed, new = CHANGES[name]
    change = step_context.compare_contexts(
        [Message(role="user", content=text) for text in before.split()],
        [Message(role="user", content=text) for text in after.split()],
    )
    assert change.kept == common
    assert [entry.message.content for entry in change.gone] == removed
    assert [entry.message.content for entry in change.new] == new
    assert all(after.split()[entry.number - 1] == entry.message.content for entry in change.new)


def test_texts_that_say_what_was_left_out_are_counted() -> None:
    cut = "start\n[… 4100 characters cut: the observation was too long …]\nend"
    messages = _messages(cut, cut, "[… is written by hand", "nothing")
    assert [
        (omission.number, omission.words[:8]) for omission in step_context.find_omissions(messages)
    ] == [(1, "[… 4100 ")]


PLACES = {
    "in the head": (3, MessageOffset(0, 3)),
    "at its end": (5, MessageOffset(1, 0)),
    "between": (8, MessageOffset(1, 0)),
    "in the second": (14, MessageOffset(1, 3)),
    "behind all": (99, MessageOffset(2, 0)),
}


@pytest.mark.parametrize("name", PLACES)
def test_the_end_of_the_cache_is_found_in_the_messages(name: str) -> None:
    characters, expected = PLACES[name]
    assert (
        prompt_rendering.locate_in_messages(
            "first<tags>second", _messages("first", "second"), characters
        )
        == expected
    )


def _texts(lines: list[TextLine]) -> list[str]:
    return [line_text(row) for row in lines]


def _request(view: ContextView, step: int, **fields: Any) -> InspectedRequest:
    values: dict[str, Any] = {
        "diff": None,
        "summarised": [],
        "omissions": [],
        "cached_prefix": None,
    }
    return InspectedRequest(step, step, view, **{**values, **fields})


def test_a_rule_stands_where_the_cache_ended(builder: HomeBuilder) -> None:
    with builder.bulk():
        builder.start("r")
        builder.whole("r", 1, "one\ntwo\nthree")
        builder.begin("r", 2)
    with Reader(builder.home) as reader:
        view = step_context.read_context(reader, "r", 2)
    upto = view.rendered.index("three") + 2
    request = _request(view, 2, cached_prefix=CachedPrefix(7, 9, upto))
    for make in (prompt_rendering.message_lines, prompt_rendering.rendered_prompt_lines):
        texts = _texts(make(request, WIDTH)[0])
        rule = next(at for at, text in enumerate(texts) if "7 of 9 tokens" in text)
        assert texts[rule - 1].endswith("two"), make
        assert texts[rule + 1].endswith("three"), make
    request = request._replace(cached_prefix=CachedPrefix(12, 24, None))
    ids = _texts(list(prompt_rendering.TokenIdLines(request, WIDTH)))
    assert [at for at, text in enumerate(ids) if "12 of 24" in text] == [2]  # six ids in a line


def _tokenizer(folder: Path) -> str:
    """One token a byte, and one for `ab`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: at for at, token in enumerate([*letters, "ab"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    file = folder / "tokenizer.json"
    tokenizer.save(str(file))
    return str(file)


CACHED = {
    "nothing": (0, 0),
    "some": (3, 4),
    "half of a character": (5, 4),
    "a whole one": (6, 5),
    "all": (99, 7),
}


@pytest.mark.parametrize("name", CACHED)
def test_cached_tokens_are_counted_in_characters(
    name: str, builder: HomeBuilder, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer

    file, text = _tokenizer(tmp_path), "abcd中ab"
    ids = tuple(Tokenizer.from_file(file).encode(text).ids)
    cached_tokens, expected = CACHED[name]
    builder.rollout("r")
    builder.head("r", ContextHead(system="", task="", tools=(), rendered="", token_ids=ids,
                           dialect="x", tokenizer=file))  # fmt: skip
    builder.begin("r", 1, new_prompt_ids=ids, cached_tokens=cached_tokens)
    with Reader(builder.home) as reader:
        request = reader.run(step_context.read_request("r", 1))
    assert step_context.decode_context(request).rendered == text
    assert step_context.count_cached_characters(request, text) == expected


def test_a_search_finds_words_that_go_on_in_the_next_line() -> None:
    lines = prompt_rendering.prose_lines("alpha beta\ngamma " + "x" * 70, 40)
    assert lines_with_needle(lines, "BETA gamma") == [0]
    assert lines_with_needle(lines, "gamma") == [1]
    assert lines_with_needle(lines, "nobody") == []


def _forked(builder: HomeBuilder) -> None:
    with builder.bulk():
        builder.start("r")
        for number in range(1, 5):
            builder.whole("r", number, f"thought {number}", texts=(f"output {number}",))
        builder.fork_before("r", 5, 2, "SUMMARY")
        builder.whole("r", 5, "thought 5", texts=("output 5",))
        builder.begin("r", 6, "thought 6")


async def test_from_step_to_step_without_leaving(builder: HomeBuilder, sit: Sit) -> None:
    _forked(builder)
    async with sit(builder.home, size=SMALL) as seat:
        await seat.press("v")
        await seat.until(lambda: "output 5" in seat.text("#inspector-text"), "step 6")
        assert "steps 1 to 2 are a summary since step 5" in seat.text("#inspector-facts")
        await seat.press("left_curly_bracket", "4")
        await seat.until(lambda: "new: 4" in seat.text("#inspector-text"), "the fork")
        inspector = seat.app.screen
        assert isinstance(inspector, PromptInspector)
        shown = [line_text(row) for row in inspector.text.lines]
        assert any("no longer there: 4" in text for text in shown)
        assert any("thought 1" in text for text in shown)
        assert any("SUMMARY" in text for text in shown)
        await seat.press("left_curly_bracket", "slash")
        await seat.write("thought 3")
        await seat.press("enter")
        await seat.until(lambda: inspector.text.hits, "found")
        assert "thought 3" in seat.text("#inspector-text")
        await seat.press("enter")
        await seat.until(
            lambda: seat.transcript.cursor == 4, "at the step that the inspector showed"
        )


async def test_the_whole_request_is_copied(builder: HomeBuilder, sit: Sit) -> None:
    _forked(builder)
    async with sit(builder.home) as seat:
        await seat.press("v", "2")
        inspector = seat.app.screen
        assert isinstance(inspector, PromptInspector)
        await seat.until(lambda: inspector.text.copy[1], "read")
        _, text = await inspector.text.text_to_copy()
        assert inspector.view
        assert text == inspector.view.rendered


def test_facts_say_what_was_left_out(builder: HomeBuilder) -> None:
    _forked(builder)
    with Reader(builder.home) as reader:
        view = step_context.read_context(reader, "r", 6)
        around = reader.run(step_context.read_context_surroundings("r", 6))
    cuts = step_context.find_omissions(_messages("[… 12 characters cut: x …]"))
    request = _request(view, 6, summarised=around.summarised, omissions=cuts,
                 diff=step_context.compare_contexts(
                     around.before or [], view.messages))  # fmt: skip
    facts = " ".join(_texts(request_facts(request, 100)))
    for part in (
        "since step 5 +2 messages",
        "steps 1 to 2",
        "1 text says",
        "message 1",
        "policy@1",
    ):
        assert part in facts


def test_the_command_says_the_same(builder: HomeBuilder, capsys) -> None:  # type: ignore[no-untyped-def]
    _forked(builder)
    command = ["--home", str(builder.home.path), "context", "r@5", "--diff"]
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["before"], report["kept"], len(report["gone"])) == (4, 4, 4)
    assert report["summarised"] == [
        {"first": 1, "last": 2, "before": 5, "mechanical": False, "by": ""}
    ]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "-   thought 1" in shown
    assert "+   SUMMARY" in shown
