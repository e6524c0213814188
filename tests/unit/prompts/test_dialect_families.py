"""Every dialect of every model family: its prompts are its template's, token for token; what it
writes it reads; content stays content; and one that cannot hold this is refused with the reason.
"""

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from houston_daemon.agent.rollout_setup import make_dialect_and_tokenizer
from houston_daemon.engines.local_model import model_path
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect, PromptPiece, PromptToolResult
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.prompts.renderer_dialect import RendererFamily
from houston_daemon.prompts.renderer_families import RENDERER_FAMILIES
from houston_shared import plugins
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from tests.support.family_templates import TEMPLATES
from tests.support.family_tokenizers import FAMILY_DIALECTS, REFUSED, family_tokenizer
from tests.support.small_tokenizer import DIALECT_NAMES
from tests.support.tiers import sampled

EVERY_NAME = [*FAMILY_DIALECTS, *DIALECT_NAMES]
NAMES = sampled(EVERY_NAME, 10)
SWITCHED = [
    (family, reasoning)
    for family in RENDERER_FAMILIES
    if family.name not in REFUSED
    for reasoning in ((False, True) if family.reasoning else (False,))
]
TOOLS = [
    ToolSpec(
        "read_file",
        "Read a file <b>whole</b>.",
        {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Where it is."}},
            "required": ["path"],
        },
    ),
    ToolSpec(
        "count",
        "Count é.",
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    ),
]
BY_NAME = {tool.name: tool for tool in TOOLS}
SYSTEM, TASK = "You help.\n\nBe  brief: é 日本 🛰.", "Read the file\n  and\tcount 12345 words"
CALLS = [
    ToolCall(id="1.0", name="read_file", arguments={"path": "notes é/the file.txt"}),
    ToolCall(id="2.0", name="count", arguments={"n": 7}),
]
RESULTS = [
    PromptToolResult("1.0", "read_file", "two words\n\n  indented é"),
    PromptToolResult("2.0", "count", '{"n": 7}'),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def message(call: ToolCall, id: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    called = [{"type": "function", "id": id, "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": called}


def conversation(dialect: Dialect) -> tuple[list[list[dict[str, Any]]], list[list[PromptPiece]]]:
    """Prompts of a rollout as messages, and the pieces that each adds to the one before."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": TASK},
    ]
    prompts, added = [messages], [dialect.head(SYSTEM, TOOLS, TASK)]
    for call, result, id in zip(CALLS, RESULTS, ("000001000", "000002000"), strict=True):
        said = {"role": "tool", "name": call.name, "content": result.text, "tool_call_id": id}
        messages = [*messages, message(call, id), said]
        prompts.append(messages)
        added.append([*dialect.assistant("", [call]), *dialect.observation([result], "")])
    return prompts, added


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_are_those_of_the_chat_template(name: str, folder: Path) -> None:
    prove_prompts(name, family_tokenizer(name, folder))


@pytest.mark.model
@pytest.mark.parametrize("name", TEMPLATES)
def test_and_so_they_are_with_a_vocabulary_of_the_world(name: str, tmp_path: Path) -> None:
    model = model_path()
    assert model, "make test fetches the model"
    file = family_tokenizer(name, tmp_path, vocabulary=model / "tokenizer.json")
    assert len(json.loads(Path(file).read_text())["model"]["vocab"]) > 40_000
    prove_prompts(name, file)


def prove_prompts(name: str, file: str) -> None:
    """That a rollout's prompts are, id for id, what its family's chat template says."""
    template, first, last = TEMPLATES[name]
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=file, bos_token=first, eos_token=last, chat_template=template
    )
    ours, dialect = PromptTokenizer(file), choose_dialect(name)
    listed = [tool.openai() for tool in TOOLS] if "tools" in template else None
    ids: list[int] = []
    for messages, pieces in zip(*conversation(dialect), strict=True):
        if name == "deepseek-v3":  # which has no place for tools: ours stand in its system prompt
            head = ours.decode(ours.encode(dialect.head(SYSTEM, TOOLS, TASK)))
            system = head.removeprefix(first).partition("<｜User｜>")[0]
            messages = [{"role": "system", "content": system}, *messages[1:]]
        ids += ours.encode(pieces)
        assert ids == theirs.apply_chat_template(
            messages, tools=listed, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    assert ids[0] == ours.id_of(first)
    assert ours.decode(ids).count(first) == 1


@pytest.mark.parametrize(
    "switched", sampled(SWITCHED, 8), ids=lambda case: f"{case[0].name}-{case[1]}"
)
def test_heads_are_those_of_the_package(
    switched: tuple[RendererFamily, bool], folder: Path
) -> None:
    family, reasoning = switched
    file = family_tokenizer(family.name, folder)
    theirs = PreTrainedTokenizerFast(tokenizer_file=file)
    theirs.name_or_path = family.model
    dialect, ours = choose_dialect(family.name, reasoning), PromptTokenizer(file)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    tools = [tool.openai() for tool in TOOLS]
    head = ours.encode(dialect.head(SYSTEM, TOOLS, TASK))
    if family.name == "deepseek-v3":  # see above
        messages[0]["content"] = ours.decode(head)[len("<｜begin▁of▁sentence｜>") :].partition(
            "<｜User｜>"
        )[0]
    rendered = family.make_renderer(theirs, reasoning).render_ids(
        messages, tools=tools, add_generation_prompt=True
    )
    assert head == rendered


@pytest.mark.parametrize("name", NAMES)
def test_a_tokenizer_of_the_family_fits_and_another_is_refused(name: str, folder: Path) -> None:
    settings = {"dialect": name, "tokenizer": family_tokenizer(name, folder)}
    dialect, tokens = make_dialect_and_tokenizer(settings, False, True)
    assert dialect.name == name
    assert tokens is not None
    other = "llama-3" if not name.startswith("llama") else "mistral-v3"
    with pytest.raises(ConfigurationError, match=f"has no token .*, which the dialect {name}"):
        make_dialect_and_tokenizer(
            {**settings, "tokenizer": family_tokenizer(other, folder)}, False, True
        )


@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_breaks_an_invariant_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}' is refused: .*{REFUSED[name]}"):
        choose_dialect(name)


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "renderers" else found(name)
    )
    with pytest.raises(ConfigurationError, match="needs the package `renderers`") as problem:
        choose_dialect("llama-3")
    assert problem.value.next == "pip install 'houston-agents[dialects]'"


@pytest.mark.parametrize("name", sampled(FAMILY_DIALECTS, 8))
def test_no_content_becomes_markup(name: str, folder: Path) -> None:
    dialect, tokens = choose_dialect(name), PromptTokenizer(family_tokenizer(name, folder))
    known = json.loads(Path(tokens.path).read_text())["added_tokens"]
    markup = {token["id"]: token["content"] for token in known}
    hostile = "".join(markup.values())

    def marks(text: str) -> list[list[str]]:
        tool = ToolSpec("read_file", text, TOOLS[0].parameters)
        call = ToolCall(id="1.0", name="read_file", arguments={"path": text})
        result = PromptToolResult("1.0", "read_file", text)
        turns = [
            dialect.head(text, [tool], text),
            dialect.head(text, [tool], text, short=True),
            dialect.question(text, text),
            dialect.assistant(text, [call]),
            dialect.assistant(text, []),
            *(dialect.observation(results, text, stop) for results in ([result], [])
              for stop in (*dialect.stop_tokens, "", None)),
        ]  # fmt: skip
        return [[markup[id] for id in tokens.encode(turn) if id in markup] for turn in turns]

    assert marks(hostile) == marks("x")


few = settings(max_examples=10, deadline=None)
plain = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp"), blacklist_characters="<>`[]"),
    min_size=1,
    max_size=30,
).map(str.strip)


@pytest.mark.parametrize("name", sampled(FAMILY_DIALECTS, 8))
@few
@given(path=plain.filter(bool), number=st.integers(-9, 2**40), thought=plain)
def test_an_answer_is_read_as_it_was_written(
    name: str, path: str, number: int, thought: str
) -> None:
    for reasoning in (False, True):
        dialect = choose_dialect(name, reasoning)
        calls = [
            ToolCall(id="7.0", name="read_file", arguments={"path": path}),
            ToolCall(id="7.1", name="count", arguments={"n": number}),
        ]
        pieces = dialect.assistant(thought, calls)
        assert pieces[-1].text in dialect.stop_tokens
        action = dialect.parse("".join(piece.text for piece in pieces[:-1]), 7, BY_NAME)
        assert action.malformed == ""
        assert list(action.calls) == calls[: 1 if name == "llama-3" else None]
        assert action.thought == ("" if name in THOUGHTLESS else thought)


def test_every_registered_dialect_is_among_the_cases() -> None:
    """docs/families.md tells of these."""
    registered = plugins.plugin_names(plugins.DIALECT_GROUP)
    assert sorted(registered) == sorted((*EVERY_NAME, *REFUSED))


def test_a_package_registers_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "houston_acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: houston-acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[houston.dialects]\nacme = houston_acme:Acme\n")
    (tmp_path / "houston_acme.py").write_text(
        "from houston_daemon.prompts.mistral_dialect import MistralV13Dialect\n"
        "class Acme(MistralV13Dialect):\n    name = 'acme'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert choose_dialect("acme", reasoning=True).name == "acme"
    with pytest.raises(ConfigurationError, match=r"There is no dialect 'acne'; there are: .*acme"):
        choose_dialect("acne")


@pytest.mark.parametrize("name", sampled(FAMILY_DIALECTS, 8))
def test_a_call_of_no_tool_is_a_call_with_its_error(name: str) -> None:
    dialect = choose_dialect(name)
    call = ToolCall(id="1.0", name="fly", arguments={"to": "the moon"})
    text = "".join(piece.text for piece in dialect.assistant("", [call])[:-1])
    (read,) = dialect.parse(text, 1, BY_NAME).calls
    assert read.arguments == call.arguments
    assert "no tool 'fly'" in read.error


THOUGHTLESS = ("llama-3", "mistral-v3")
"""Families whose answers are a thought or a call, never both."""


@pytest.mark.parametrize("name", NAMES)
@few
@given(text=st.text(max_size=60))
def test_no_text_makes_a_parser_raise(name: str, text: str) -> None:
    dialect = choose_dialect(name)
    marks = [*dialect.answer_tokens, *dialect.stop_tokens, dialect.form]
    for around in (text, text.join(marks), f"{dialect.form}{text}", f"{text}{dialect.form}"):
        action = dialect.parse(around, 1, BY_NAME)
        assert bool(action.calls) != bool(action.malformed)
