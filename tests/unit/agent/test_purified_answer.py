"""How a failed answer and its correction become one: mode, similarity, token ids."""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from houston_daemon.agent.purification import is_purified_rollout
from houston_daemon.agent.purified_answer import (
    build_purified_sample,
    choose_replacement,
    graft_calls,
)
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import PromptPiece
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.suites.word_tokenizer import write_word_tokenizer
from houston_shared.records import SampleBody, ToolCall, ToolResult
from houston_shared.task import Task, purify_settings
from houston_shared.task_tables import PurifySettings
from tests.support.small_tokenizer import small_tokenizer
from tests.support.written_home import sample

TOOLS = {
    "python": ToolSpec(
        "python", "Run.", {"properties": {"code": {"type": "string"}}, "required": ["code"]}
    )
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> PromptTokenizer:
    return PromptTokenizer(small_tokenizer(tmp_path_factory.mktemp("tokens")))


def code(text: str, name: str = "python", **more: Any) -> ToolCall:
    return ToolCall(id="1.0", name=name, arguments={"code": text, **more})


def said(call: ToolCall, thought: str = "r", **fields: Any) -> SampleBody:
    return sample(thought, calls=(call,), **fields)


def failed(call: ToolCall) -> list[ToolResult]:
    return [ToolResult(call=call, kind="python", success=False, text="NameError")]


FIRST = "print(totl([1, 2, 3]))"
LIKE = "print(sum([1, 2, 3]))"
OTHER = "import numpy\nx = 7"


@pytest.mark.parametrize(
    ("second", "mode"), [(LIKE, "shallow"), (OTHER, "deep"), (FIRST, "shallow")]
)
def test_the_mode_is_that_of_difflib_on_the_code(second: str, mode: str) -> None:
    first = code(FIRST)
    found = choose_replacement(said(first), failed(first), said(code(second)), 0.5)
    assert found.similarity == round(difflib.SequenceMatcher(None, FIRST, second).ratio(), 4)
    assert found.mode == mode


def test_at_the_threshold_it_is_shallow() -> None:
    first, second = code("abcd"), code("abxy")  # 2 * 2 / 8
    found = choose_replacement(said(first), failed(first), said(second), 0.5)
    assert (found.similarity, found.mode) == (0.5, "shallow")
    assert choose_replacement(said(first), failed(first), said(second), 0.51).mode == "deep"


def test_the_call_that_failed_is_compared_not_the_one_before_it() -> None:
    good, bad = code("print(1)"), code("prnt(2)")
    first = sample("r", calls=(good, bad))
    second = sample("r'", calls=(code("a wholly other thing"), code("print(2)")))
    results = [
        ToolResult(call=good, kind="python", success=True, text="1"),
        ToolResult(call=bad, kind="python", success=False, text="NameError"),
    ]
    assert choose_replacement(first, results, second, 0.5).mode == "shallow"


def test_what_was_no_action_is_replaced_whole() -> None:
    text = '{"name": "python"'
    first = sample(text, malformed="it is no JSON")
    assert choose_replacement(first, [], said(code(text)), 0.0).mode == "deep"


THOUGHTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="<>{}"), max_size=40
).map(lambda text: " ".join(text.split()))
CODES = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="<>"),
    min_size=1,
    max_size=60,
)


def markup(text: str) -> PromptPiece:
    return PromptPiece(text, True)


def written(text: str) -> PromptPiece:
    return PromptPiece(text, False)


THINKS = [markup("<think>\n"), written("R reasons"), markup("\n</think>\n\n")]


@dataclass(frozen=True)
class Spelling:
    """How a model samples an answer."""

    dialect: str
    reasoning: bool = False
    thinks: bool = False
    """Whether it samples a block of reasoning, as some do where they are not asked to."""
    spaced: bool = True
    """Whether its JSON has spaces."""
    before: str = ""
    """White space that it begins with."""

    def pieces(self, thought: str, text: str) -> tuple[list[PromptPiece], list[PromptPiece]]:
        """What stands before the call, and the call."""
        spacing = (", ", ": ") if self.spaced else (",", ":")
        call = {"name": "python", "arguments": {"code": text}}
        if self.dialect == "chatml-json":
            whole = json.dumps({"thought": thought, "calls": [call]}, separators=spacing)
            at = len('{"thought":') + self.spaced + len(json.dumps(thought)) - 1
            return [written(self.before + whole[:at])], [written(whole[at:]), markup("<|im_end|>")]
        if self.dialect == "chatml-calls":
            said = f"```python\n{text}\n```" if self.spaced else f"python(code={text!r})"
            before = f"{self.before}{thought}\n"
            return [written(before)], [written(said), markup("<|im_end|>")]
        said = json.dumps(call, separators=spacing)
        called = [markup("<tool_call>\n"), written(said), markup("\n</tool_call><|im_end|>")]
        if self.dialect == "glm45":
            first, *rest = choose_dialect("glm45").assistant("", [code(text)])
            called = [markup(first.text.lstrip()), *rest]
        opened = THINKS if self.thinks else []
        return [written(self.before), *opened, written(thought), markup("\n")], called


SPELLINGS = {
    "hermes": Spelling("hermes"),
    "hermes, unspaced": Spelling("hermes", spaced=False),
    "hermes that thinks": Spelling("hermes", thinks=True),
    "hermes behind an empty line": Spelling("hermes", before="\n\n"),
    "qwen3": Spelling("qwen3"),
    "qwen3 that thinks": Spelling("qwen3", thinks=True),
    "qwen3 with reasoning": Spelling("qwen3", reasoning=True, thinks=True),
    "qwen3 with reasoning that does not think": Spelling("qwen3", reasoning=True),
    "glm45": Spelling("glm45"),
    "glm45 with reasoning": Spelling("glm45", reasoning=True, thinks=True),
    "chatml-json": Spelling("chatml-json"),
    "chatml-json, unspaced": Spelling("chatml-json", spaced=False),
    "chatml-json behind an empty line": Spelling("chatml-json", before="\n"),
    "chatml-calls": Spelling("chatml-calls"),
    "chatml-calls, a call": Spelling("chatml-calls", spaced=False),
}
JOINED = ("chatml-json", "chatml-calls")
"""Dialects whose calls begin within text, so that a token may hold the end of the thought, too."""


def sampled_answer(
    spelling: Spelling, thought: str, text: str, tokens: PromptTokenizer, lettered: bool
) -> tuple[SampleBody, str]:
    """An answer as it is stored, and what of it stands before its call."""
    before, called = spelling.pieces(thought, text)
    pieces = [*before, *called]
    if spelling.dialect in JOINED:
        pieces = [written(before[0].text + called[0].text), called[1]]
    if lettered:
        pieces = [
            part
            for piece in pieces
            for part in ([piece] if piece.template else map(written, piece.text))
        ]
    ids = tuple(tokens.encode(pieces))
    dialect = choose_dialect(spelling.dialect, spelling.reasoning)
    action = dialect.parse(tokens.decode(ids[:-1]), 1, TOOLS)
    body = sample(action.thought, calls=action.calls, malformed=action.malformed, token_ids=ids)
    return body, "".join(piece.text for piece in before)


@pytest.mark.parametrize("name", SPELLINGS)
@settings(max_examples=25, deadline=None)
@given(
    thoughts=st.tuples(THOUGHTS, THOUGHTS).filter(all),
    codes=st.tuples(CODES, CODES),
    lettered=st.booleans(),
    other=st.sampled_from([*SPELLINGS]),
)
def test_a_shallow_correction_is_what_was_sampled_up_to_the_call_and_then_the_call(
    tokens: PromptTokenizer,
    name: str,
    thoughts: tuple[str, str],
    codes: tuple[str, str],
    lettered: bool,
    other: str,
) -> None:
    """lettered: the first answer was sampled letter by letter, as no tokenizer would. other: how
    the correction was sampled, where that is the same dialect."""
    spelling, corrected = SPELLINGS[name], SPELLINGS[other]
    if corrected.dialect != spelling.dialect:
        corrected = spelling
    first, before = sampled_answer(spelling, thoughts[0], codes[0], tokens, lettered)
    second, _ = sampled_answer(corrected, thoughts[1], codes[1], tokens, False)
    assume(first.calls and second.calls and thoughts[0] in first.thought)
    assume(second.calls[0].arguments == {"code": codes[1]})
    renderer = PromptRenderer(choose_dialect(spelling.dialect, spelling.reasoning), tokens, "keep")
    grafted = graft_calls(first, second, renderer, tokens, TOOLS)
    if grafted is None:
        assert spelling.dialect in JOINED, "its calls begin with a token of their own"
        return
    ids, count = grafted
    kept = len(ids) - count
    assert first.token_ids and second.token_ids
    assert ids[:kept] == first.token_ids[:kept], "as it was sampled"
    assert ids[kept:] == second.token_ids[-count:], "as it was sampled"
    thought = tokens.decode(ids[:kept])
    assert thought.startswith(before), "all of it"
    rest = "".join(thought.removeprefix(before).split())
    assert rest in ("", '"', '",', '","', *('","calls":[{"name":"'[:n] for n in range(20))), (
        "and nothing of the call"
    )
    read = renderer.dialect.parse(tokens.decode(ids[:-1]), 1, TOOLS)
    assert (read.thought, read.calls) == (first.thought, second.calls)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_call_is_found_behind_a_thought_that_names_its_tool(
    tokens: PromptTokenizer, name: str
) -> None:
    spelling, thought = SPELLINGS[name], "I run python, in pythonic code. " * 20 + "Now"
    first, before = sampled_answer(spelling, thought, FIRST, tokens, False)
    second, _ = sampled_answer(spelling, thought, LIKE, tokens, False)
    renderer = PromptRenderer(choose_dialect(spelling.dialect, spelling.reasoning), tokens, "keep")
    grafted = graft_calls(first, second, renderer, tokens, TOOLS)
    assert grafted is not None and tokens.decode(grafted[0]).startswith(before)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_like_call_is_exchanged_in_every_spelling(tokens: PromptTokenizer, name: str) -> None:
    spelling = SPELLINGS[name]
    first, before = sampled_answer(spelling, "I sum them", FIRST, tokens, False)
    second, _ = sampled_answer(spelling, "The name was wrong", LIKE, tokens, False)
    renderer = PromptRenderer(choose_dialect(spelling.dialect, spelling.reasoning), tokens, "keep")
    how = choose_replacement(first, failed(first.calls[0]), second, 0.5)
    made = build_purified_sample(first, second, how, {}, renderer, TOOLS)
    story = made.parameters["purification"]
    assert (made.thought, made.calls, story["mode"]) == (first.thought, second.calls, "shallow")
    assert made.token_ids and tokens.decode(made.token_ids).startswith(before)
    count = story["corrected_tokens"]
    assert second.token_ids and made.token_ids[-count:] == second.token_ids[-count:]
    assert LIKE in tokens.decode(made.token_ids[-count:]).replace("\\n", "\n")


def test_words_are_exchanged_whole(tmp_path: Path) -> None:
    write_word_tokenizer(tmp_path, ["say", "red", "blue"])
    words = PromptTokenizer(str(tmp_path / "tokenizer.json"))
    tools = {"say": ToolSpec("say", "Say.", {"properties": {"text": {"type": "string"}}})}
    renderer = PromptRenderer(choose_dialect("words"), words, "keep")
    first, second = (
        sample(
            "",
            calls=(ToolCall(id="1.0", name="say", arguments={"text": text}),),
            token_ids=tuple(words.encode([written(f"say {text}"), markup(" <e>")])),
        )
        for text in ("red", "blue")
    )
    assert graft_calls(first, second, renderer, words, tools) == (second.token_ids, 3)


def test_the_purified_sample_stands_in_the_first_prompt(tokens: PromptTokenizer) -> None:
    renderer = PromptRenderer(choose_dialect("hermes"), tokens, "keep")
    ids = tuple(tokens.encode(renderer.dialect.assistant("r", [code(FIRST)])))
    after = tuple(tokens.encode(renderer.dialect.assistant("aux", [code(OTHER)])))
    first = said(code(FIRST), "r", token_ids=ids, new_prompt_ids=(1, 2), kept=5, parent_seq=3)
    second = said(
        code(OTHER), "aux", token_ids=after, new_prompt_ids=(9,), kept=70, parent_seq=8,
        role="lookahead", logprobs=(-1.0,) * len(after), logprob_kind="policy",
        parameters={"temperature": 1, "lookahead": {"number": 1, "tail": "…"}},
    )  # fmt: skip
    how = choose_replacement(first, failed(code(FIRST)), second, 0.5)
    told = {"attempts": 2, "from_attempt": 2}
    made = build_purified_sample(first, second, how, told, renderer, TOOLS)
    assert (made.parent_seq, made.kept, made.new_prompt_ids) == (3, 5, (1, 2))
    assert (made.role, made.logprobs, made.logprob_kind) == ("policy", None, "none")
    assert made.token_ids == after and made.thought == "aux", "deep: as it was sampled"
    assert made.parameters == {
        "temperature": 1,
        "purification": {
            "mode": "deep",
            "similarity": how.similarity,
            **told,
            "corrected_tokens": len(after),
        },
    }


def lost(tokens: PromptTokenizer) -> SampleBody:
    """The engine lost the first answer's ids."""
    first, _ = sampled_answer(Spelling("hermes"), "r", FIRST, tokens, False)
    return replace(first, token_ids=None)


def turned(tokens: PromptTokenizer) -> SampleBody:
    """The first answer names its calls before it thinks."""
    call = {"name": "python", "arguments": {"code": FIRST}}
    text = json.dumps({"calls": [call], "thought": "r"})
    ids = tuple(tokens.encode([written(text), markup("<|im_end|>")]))
    return said(code(FIRST), token_ids=ids)


@pytest.mark.parametrize(("dialect", "answers"), [("hermes", lost), ("chatml-json", turned)])
def test_what_cannot_be_cut_at_its_call_is_replaced_whole(
    tokens: PromptTokenizer, dialect: str, answers: Any
) -> None:
    first = answers(tokens)
    second, _ = sampled_answer(SPELLINGS[dialect], "aux", LIKE, tokens, False)
    renderer = PromptRenderer(choose_dialect(dialect), tokens, "keep")
    how = choose_replacement(first, failed(first.calls[0]), second, 0.5)
    made = build_purified_sample(first, second, how, {}, renderer, TOOLS)
    assert how.mode == "shallow"
    assert made.parameters["purification"]["mode"] == "deep"
    assert (made.thought, made.token_ids) == ("aux", second.token_ids)


def test_the_draw_is_by_seed_and_near_its_share() -> None:
    drawn = PurifySettings(enabled=True, share=0.7)
    found = [is_purified_rollout(drawn, seed) for seed in range(2_000)]
    assert 0.66 < sum(found) / len(found) < 0.74
    assert found == [is_purified_rollout(drawn, seed) for seed in range(2_000)]
    assert not any(is_purified_rollout(PurifySettings(share=1.0), seed) for seed in range(50))
    assert all(is_purified_rollout(PurifySettings(enabled=True, share=1.0), s) for s in range(50))


def test_a_start_sets_only_keys_that_there_are(tmp_path: Path) -> None:
    task = Task(name="t", purify=PurifySettings(enabled=True, retries=2))
    assert purify_settings(task, {"share": 1}).retries == 2
    for changed in ({"retry": 1}, {"retries": 0}, {"similarity": 1.5}, {"enabled": "yes"}):
        with pytest.raises(Exception, match="purify"):
            purify_settings(task, changed)
