"""What a dialect writes it reads again; what it cannot read it names; nothing raises."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect, PromptToolResult
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from tests.support.small_tokenizer import DIALECT_NAMES

TOOLS = {
    "run_command": ToolSpec(
        "run_command",
        "Run a shell command. It may take long.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "maxLength": 8000},
                "wait": {"type": "boolean"},
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    ),
    "finish": ToolSpec("finish", "End.", {"type": "object", "properties": {}, "required": []}),
}
HERMES = '<tool_call>{"name":"finish"}</tool_call>'
GLM = "<tool_call>run_command\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>"


def dialects() -> list[Dialect]:
    return [choose_dialect(name) for name in DIALECT_NAMES] + [
        choose_dialect("qwen3", reasoning=True)
    ]


def written(dialect: Dialect, thought: str, calls: list[ToolCall]) -> str:
    """An answer as the dialect writes it, without its stop token."""
    text = "".join(piece.text for piece in dialect.assistant(thought, calls))
    for stop in dialect.stop_tokens:
        text = text.removesuffix(stop)
    return text


plain = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="<>`"), max_size=40
).map(str.strip)


@given(
    thought=plain,
    commands=st.lists(
        st.tuples(plain.filter(bool), st.booleans(), st.integers(1, 9)), min_size=1, max_size=4
    ),
)
def test_an_answer_is_read_as_it_was_written(
    thought: str, commands: list[tuple[str, bool, int]]
) -> None:
    calls = [
        ToolCall(
            id=f"7.{index}",
            name="run_command",
            arguments={"command": command, "wait": wait, "count": count},
        )
        for index, (command, wait, count) in enumerate(commands)
    ]
    for dialect in dialects():
        if dialect.name in ("words", "chatml-calls"):  # one call an answer; see their own tests
            continue
        action = dialect.parse(written(dialect, thought, calls), 7, TOOLS)
        assert action.malformed == "", dialect.name
        assert list(action.calls) == calls, dialect.name
        assert action.thought == thought, dialect.name


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("chatml-json", "", "no JSON"),
        ("chatml-json", "I will think.", "no JSON"),
        ("chatml-json", '{"thought": "x"}', "calls"),
        ("chatml-json", '{"thought": "x", "calls": []}', "no call"),
        ("chatml-json", '{"thought": 3, "calls": [{"name": "finish"}]}', "thought"),
        ("chatml-json", '{"calls": ["finish"]}', "no object"),
        ("chatml-json", '{"calls": [{"arguments": {}}]}', "name"),
        ("chatml-json", '{"calls": [{"name": "finish", "arguments": [1]}]}', "arguments"),
        ("chatml-json", '{"calls": [{"name": "finish"}]} and so on', "no JSON"),
        ("chatml-json", json.dumps({"calls": [{"name": "finish"}] * 9}), "9 calls"),
        ("chatml-json", "[" * 5000, "no JSON"),
        (
            "chatml-json",
            '{"calls": [{"name": "finish", "arguments": {"n": %s}}]}' % ("9" * 30),
            "stored",
        ),
        ("chatml-json", r'{"calls": [{"name": "finish", "arguments": {"n": "\ud800"}}]}', "stored"),
        (
            "chatml-json",
            '{"calls": [{"name": "finish", "arguments": {"n": %s}}]}' % ("[" * 100 + "]" * 100),
            "nested more than 100 levels",
        ),
        ("hermes", "Just text.", "no call"),
        ("hermes", '<tool_call>{"name": "finish"}', "not closed"),
        ("hermes", "<tool_call>finish</tool_call>", "no JSON"),
        ("hermes", "<tool_call>[1]</tool_call>", "no object"),
        ("qwen3", "<think>I never stop", "no call"),
        ("glm45", "Just text.", "no call"),
        ("glm45", "<tool_call>finish", "not closed"),
    ],
)
def test_what_is_no_action_is_named(name: str, text: str, says: str) -> None:
    action = choose_dialect(name).parse(text, 1, TOOLS)
    assert action.calls == ()
    assert says in action.malformed
    assert action.thought == text


@given(st.text(max_size=200))
def test_no_text_makes_a_parser_raise(text: str) -> None:
    for dialect in dialects():
        for around in (text, f"<tool_call>{text}</tool_call>", '{"calls": [' + text + "]}"):
            action = dialect.parse(around, 1, TOOLS)
            assert bool(action.calls) != bool(action.malformed)


@pytest.mark.parametrize(
    ("name", "text", "calls"),
    [
        ("chatml-json", '```json\n{"calls": [{"name": "finish", "arguments": {}}]}\n```', 1),
        ("chatml-json", '{"calls": [{"name": "finish", "arguments": "{}"}]}', 1),
        ("hermes", f"a\n{HERMES}\n{HERMES}", 2),
        ("qwen3", '<think>hm</think>\n\nok\n<tool_call>{"name":"finish"}</tool_call>', 1),
        ("glm45", f"\n<think>hm</think>\nok\n{GLM}", 1),
    ],
)
def test_usual_variants_are_read(name: str, text: str, calls: int) -> None:
    action = choose_dialect(name).parse(text, 2, TOOLS)
    assert action.malformed == ""
    assert [call.id for call in action.calls] == [f"2.{i}" for i in range(calls)]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"name": "rm", "arguments": {}}, "no tool 'rm'"),
        ({"name": "run_command", "arguments": {}}, "needs the argument 'command'"),
        ({"name": "finish", "arguments": {"x": 1}}, "no argument 'x'"),
    ],
)
def test_a_wrong_call_carries_its_error(call: dict[str, Any], says: str) -> None:
    action = choose_dialect("chatml-json").parse(json.dumps({"calls": [call]}), 1, TOOLS)
    assert action.malformed == ""
    assert says in action.calls[0].error


def test_reasoning_is_part_of_the_thought_and_its_switch_is_in_the_opening() -> None:
    text = '<think>deep</think>\n\nshort\n<tool_call>{"name":"finish"}</tool_call>'
    assert choose_dialect("qwen3").parse(text, 1, TOOLS).thought == "deep\nshort"
    for name in ("qwen3", "glm45"):
        heads = [
            "".join(p.text for p in choose_dialect(name, reasoning=on).head("s", (), "t"))
            for on in (True, False)
        ]
        assert "</think>" not in heads[0]
        assert heads[1].rstrip().endswith("</think>")


@pytest.mark.parametrize(
    ("name", "stop", "begins"),
    [
        ("chatml-json", "<|im_end|>", "\n<|im_start|>user"),
        ("chatml-json", "", "<|im_end|>\n<|im_start|>user"),
        ("hermes", "", "<|im_end|>\n<|im_start|>user"),
        ("qwen3", "<|endoftext|>", "<|im_end|>\n<|im_start|>user"),
        ("glm45", "<|observation|>", "\n<tool_response>"),
        ("glm45", "<|endoftext|>", "<|observation|>\n<tool_response>"),
        ("glm45", "", "<|observation|>\n<tool_response>"),
    ],
)
def test_a_turn_is_closed_exactly_once(name: str, stop: str, begins: str) -> None:
    pieces = choose_dialect(name).observation(
        [PromptToolResult("1.0", "finish", "ok")], "[tail]", stop
    )
    text = "".join(piece.text for piece in pieces)
    assert text.startswith(begins)
    assert text.index("ok") < text.index("[tail]")


def test_an_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="llama"):
        choose_dialect("llama")
