"""How a planner writes in each family: what is read back, what is no action, what is allowed."""

import json

import pytest

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.environments.questions.research_environment import RESEARCH_ACTIONS
from houston_daemon.environments.small_workstation import WriteText
from houston_daemon.environments.tool_arguments import tool
from houston_daemon.prompts.dialect_protocol import PromptToolResult
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.planner_dialect import planner_dialect

TOOLS = {action.name: tool(action) for action in RESEARCH_ACTIONS}
FAMILIES = ("chatml-json", "hermes", "qwen3", "glm45")


def decision(**fields: object) -> str:
    return json.dumps({"thought": "t", "action": "search", "action_input": "heron", **fields})


@pytest.mark.parametrize("family", FAMILIES)
def test_what_it_writes_is_read_back(family: str) -> None:
    dialect = choose_dialect(f"planner-{family}")
    assert dialect.name == f"planner-{family}"
    read = dialect.parse(decision(), 3, TOOLS)
    assert (read.thought, read.malformed) == ("t", "")
    (call,) = read.calls
    assert (call.id, call.name, call.arguments) == ("3.0", "search", {"query": "heron"})
    text = "".join(piece.text for piece in dialect.assistant(read.thought, read.calls))
    stop = next(stop for stop in dialect.stop_tokens if text.endswith(stop))
    assert dialect.parse(text.removesuffix(stop).strip(), 3, TOOLS) == read


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_names_every_action_and_no_schema(family: str) -> None:
    head = choose_dialect(f"planner-{family}").head("Plan.", list(TOOLS.values()), "Where?")
    text = "".join(piece.text for piece in head)
    assert all(f"- {name}: " in text for name in TOOLS)
    assert '"action_input"' in text and '"parameters"' not in text and "Where?" in text


def test_an_observation_is_one_plain_message() -> None:
    results = [PromptToolResult("1.0", "search", "found")]
    pieces = choose_dialect("planner-hermes").observation(results, "[tail]")
    text = "".join(piece.text for piece in pieces)
    assert "found\n[tail]" in text and "tool_response" not in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I will search.", "it is no JSON"),
        ('{"thought": "t", "action": "search", "action_inp', "it is no JSON"),
        ("[1]", "it is no object"),
        (decision(action="dance"), "`action` is none of think, search, code, answer"),
        (decision(action=None), "`action` is none of"),
        (decision(thought=3), "`thought` is no text"),
        (decision(action_input={"query": "x"}), "`action_input` is no text"),
        (decision(action_input=True), "`action_input` is no text"),
        (decision(action_input="\ud800"), "cannot be stored"),
    ],
)
def test_what_is_no_action_says_why(text: str, reason: str) -> None:
    read = choose_dialect("planner-chatml-json").parse(text, 1, TOOLS)
    assert reason in read.malformed
    assert read.thought == text and not read.calls


@pytest.mark.parametrize(
    ("text", "thought", "value"),
    [
        (f"```json\n{decision()}\n```", "t", "heron"),
        (f"<think>\nhm\n</think>\n\n{decision()}", "hm\nt", "heron"),
        (f"hm</think>{decision()}", "hm\nt", "heron"),
        (decision(action_input=42), "t", "42"),
        ('{"action": "search", "action_input": "heron"}', "", "heron"),
    ],
)
def test_what_models_add_is_read(text: str, thought: str, value: str) -> None:
    read = choose_dialect("planner-qwen3").parse(text, 1, TOOLS)
    assert (read.thought, read.calls[0].arguments, read.malformed) == (
        thought,
        {"query": value},
        "",
    )


def test_a_schema_has_the_actions_that_are_allowed() -> None:
    dialect = choose_dialect("planner-chatml-json")
    schema = dialect.grammar([TOOLS["answer"]], 128)
    assert schema is not None
    assert schema["properties"]["action"] == {"enum": ["answer"]}
    assert list(schema["properties"]) == ["thought", "action", "action_input"]
    assert schema["required"] == ["thought", "action", "action_input"]


def test_a_tool_of_several_arguments_takes_an_object_written_as_text() -> None:
    write = tool(WriteText)
    dialect = choose_dialect("planner-chatml-json")
    head = "".join(piece.text for piece in dialect.head("Plan.", [write], "Where?"))
    assert "Input: a JSON object with path, text." in head
    arguments = json.dumps({"path": "a.txt", "text": "hello"})
    read = dialect.parse(decision(action="write", action_input=arguments), 1, {"write": write})
    assert read.calls[0].arguments == {"path": "a.txt", "text": "hello"}
    text = "".join(piece.text for piece in dialect.assistant(read.thought, read.calls))
    assert dialect.parse(text.removesuffix("<|im_end|>"), 1, {"write": write}) == read
    for value in ("a.txt", "[1]"):
        refused = dialect.parse(decision(action="write", action_input=value), 1, {"write": write})
        assert refused.malformed


def one_tool(required: tuple[str, ...] = (), **properties: object) -> dict[str, ToolSpec]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"tool": ToolSpec("tool", "It does something.", schema)}


TEXT = {"type": "string", "description": "What to look for."}
LIMIT = {"type": "integer", "description": "How many."}
MAYBE = {"anyOf": [{"type": "number"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("name", "tools", "value", "arguments"),
    [
        ("a number written as text", one_tool(seconds=LIMIT), "5", {"seconds": 5}),
        ("a number", one_tool(seconds=LIMIT), 5, {"seconds": 5}),
        ("a number or nothing", one_tool(seconds=MAYBE), "0.5", {"seconds": 0.5}),
        ("yes or no", one_tool(all={"type": "boolean"}), "true", {"all": True}),
        ("a list", one_tool(names={"type": "array"}), '["a"]', {"names": ["a"]}),
        ("no number", one_tool(seconds=LIMIT), "soon", {"seconds": "soon"}),
        ("text that reads as a number", one_tool(query=TEXT), "42", {"query": "42"}),
        ("text or nothing", one_tool(query={"anyOf": [TEXT, {"type": "null"}]}), "42",
         {"query": "42"}),
        ("any value", one_tool(query={}), "42", {"query": "42"}),
        ("nothing for a number that may be left out", one_tool(limit=LIMIT), "", {}),
        ("nothing for a text that may be left out", one_tool(query=TEXT), "", {"query": ""}),
        ("nothing for a number that is required", one_tool(("limit",), limit=LIMIT), "",
         {"limit": ""}),
        ("the one that is required", one_tool(("query",), limit=LIMIT, query=TEXT), "cats",
         {"query": "cats"}),
    ],
)  # fmt: skip
def test_the_input_is_the_argument_that_a_tool_wants(
    name: str, tools: dict[str, ToolSpec], value: object, arguments: dict[str, object]
) -> None:
    dialect = choose_dialect("planner-chatml-json")
    read = dialect.parse(decision(action="tool", action_input=value), 1, tools)
    assert (read.calls[0].arguments, read.calls[0].error) == (arguments, ""), name
    text = "".join(piece.text for piece in dialect.assistant(read.thought, read.calls))
    assert dialect.parse(text.removesuffix("<|im_end|>"), 1, tools) == read, name


def test_an_action_is_told_with_the_argument_that_its_input_is() -> None:
    tools = one_tool(("query",), limit=LIMIT, query=TEXT)
    head = choose_dialect("planner-hermes").head("Plan.", list(tools.values()), "Where?")
    text = "".join(piece.text for piece in head)
    assert "- tool: It does something. Input: What to look for." in text


@pytest.mark.parametrize("family", ["words", "chatml-calls"])
def test_families_of_one_short_call_stay_as_they_are(family: str) -> None:
    dialect = planner_dialect(choose_dialect(family))
    assert dialect.name == family
