"""How a failed answer and its correction become one: mode, similarity, token ids."""

import difflib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from houston_daemon.agent.purification import is_purified_rollout
from houston_daemon.agent.purified_answer import (
    build_purified_sample,
    choose_replacement,
    graft_calls,
)
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_shared.records import SampleBody, ToolCall, ToolResult
from houston_shared.task import Task, purify_settings
from houston_shared.task_tables import PurifySettings
from tests.support.small_tokenizer import DIALECT_NAMES, small_tokenizer
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


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(
        [one for one in DIALECT_NAMES if one in ("chatml-json", "hermes", "qwen3", "glm45")]
    ),
    thought=THOUGHTS,
    first=CODES,
    second=CODES,
    lettered=st.booleans(),
)
def test_grafted_ids_are_read_back_and_keep_the_thought(
    tokens: PromptTokenizer, name: str, thought: str, first: str, second: str, lettered: bool
) -> None:
    """lettered: the first answer was sampled letter by letter, as no tokenizer would."""
    renderer = PromptRenderer(choose_dialect(name), tokens, "keep")
    pieces = renderer.dialect.assistant(thought, [code(first)])
    ids = tokens.encode(pieces)
    if lettered:
        letters = [type(p)(c, False) for p in pieces if not p.template for c in p.text]
        ids = tokens.encode(letters)
    body = said(code(first), thought, token_ids=tuple(ids))
    grafted = graft_calls(body, [code(second)], renderer, tokens, TOOLS)
    if grafted is None:
        read = renderer.dialect.parse(
            "".join(p.text for p in renderer.dialect.assistant(thought, [code(second)])[:-1]),
            0,
            TOOLS,
        )
        assert (read.thought, [c.arguments for c in read.calls]) != (thought, [{"code": second}])
        return
    read = renderer.dialect.parse(tokens.decode(grafted[:-1]), 0, TOOLS)
    assert (read.thought, [c.arguments for c in read.calls]) == (thought, [{"code": second}])
    assert grafted[-1] in renderer.stops
    if not lettered and thought:
        start = tokens.encode(renderer.dialect.assistant(thought, ())[:1])
        if name == "hermes":
            assert list(grafted[: len(start)]) == ids[: len(start)], "the thought's own ids"


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
    assert made is not None
    assert (made.parent_seq, made.kept, made.new_prompt_ids) == (3, 5, (1, 2))
    assert (made.role, made.logprobs, made.logprob_kind) == ("policy", None, "none")
    assert made.token_ids == after and made.thought == "aux", "deep: as it was sampled"
    assert made.parameters == {
        "temperature": 1,
        "purification": {"mode": "deep", "similarity": how.similarity, **told},
    }


def test_what_cannot_be_written_back_is_not_replaced(tokens: PromptTokenizer) -> None:
    renderer = PromptRenderer(choose_dialect("hermes"), tokens, "keep")
    first = said(code(FIRST), " white space around ", token_ids=(5,))
    assert graft_calls(first, [code(LIKE)], renderer, tokens, TOOLS) is None


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
