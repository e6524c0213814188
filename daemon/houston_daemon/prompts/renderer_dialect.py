"""A dialect made from a renderer of the package `renderers`; each serves one model family.

The package renders messages to token ids. Here it gets a tokenizer whose ids are characters and the
family's markup, so that its output can be split into pieces: markup of the family's template, and
text. The model's own tokenizer then encodes the pieces, as for any dialect. Markup in content is
broken by a mark before the package sees it, so it stays ordinary letters in the package's output. A
family that breaks an invariant is refused when its dialect is made. `renderer_families` lists the
families and their switches.
"""

import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as read
from houston_daemon.prompts.dialect_protocol import (
    AgentAction,
    Dialect,
    PromptPiece,
    PromptToolResult,
)
from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall

_MARK = "\ufdd1"
"""Breaks markup in content; a noncharacter of Unicode. Two of them stand for one in a text."""
_FIRST_MARKUP = 0x110000
"""Ids below are characters."""
_NO_REASONING = "\ufdd0"
"""Stands for reasoning where there is none, and is taken out again: where the opening of an answer
begins reasoning, an answer without any has to end it."""
_THINK = re.compile("</?think[:>]")
_WHOLE_TOKEN = re.compile(r"<[^<>\s]+>")
_Ids = list[int]
_Messages = list[dict[str, Any]]


class CharacterTokenizer:
    """A tokenizer whose ids are characters or the family's markup tokens.

    It satisfies `renderers.OffsetTokenizer`. Markup is what a renderer looks up by name, or encodes
    alone, while it is made, and `markup`.
    """

    unk_token_id = None
    eos_token_id = None

    def __init__(self, model: str, markup: Iterable[str]) -> None:
        self.name_or_path = model
        self._ids: dict[str, int] = {}
        self._is_open = True
        for token in markup:
            self.convert_tokens_to_ids(token)

    def close(self) -> None:
        """From now on no further token becomes markup."""
        self._is_open = False

    @property
    def markup(self) -> tuple[str, ...]:
        """The family's markup tokens."""
        return tuple(self._ids)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """See `renderers.Tokenizer`: the id of a markup token, None for any other."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(token) for token in tokens]
        if self._is_open and tokens not in self._ids:
            self._ids[tokens] = _FIRST_MARKUP + len(self._ids)
        return self._ids.get(tokens)

    def encode(self, text: str, *_: Any, **__: Any) -> _Ids:
        """See `renderers.Tokenizer`."""
        if self._is_open and _WHOLE_TOKEN.fullmatch(text):
            self.convert_tokens_to_ids(text)
        return [number for number, _, _ in self._tokens(text)]

    def decode(self, token_ids: Any, *_: Any, **__: Any) -> str:
        """See `renderers.Tokenizer`."""
        ids = [token_ids] if isinstance(token_ids, int) else token_ids
        return "".join(map(self.token_text, ids))

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        """See `renderers.OffsetTokenizer`."""
        tokens = self._tokens(text)
        return {
            "input_ids": [number for number, _, _ in tokens],
            "offset_mapping": [(start, end) for _, start, end in tokens],
        }

    def token_text(self, number: int) -> str:
        """What an id stands for."""
        return chr(number) if number < _FIRST_MARKUP else self.markup[number - _FIRST_MARKUP]

    def broken(self, content: Any) -> Any:
        """Content, also inside lists and objects, in which no markup can be read."""
        if isinstance(content, str):
            doubled = content.replace(_MARK, 2 * _MARK)
            return self._pattern().sub(lambda found: f"{found[0][0]}{_MARK}{found[0][1:]}", doubled)
        if isinstance(content, Mapping):
            return {self.broken(key): self.broken(value) for key, value in content.items()}
        if isinstance(content, list | tuple):
            return [self.broken(value) for value in content]
        return content

    def pieces(self, ids: Sequence[int]) -> list[PromptPiece]:
        """Rendered ids as pieces: each markup token, and the text between them."""
        pieces, text = [], ""
        for number in ids:
            if number < _FIRST_MARKUP:
                text += chr(number)
                continue
            pieces += [PromptPiece(unescape_markup(text), False)] if text else []
            pieces.append(PromptPiece(self.token_text(number), True))
            text = ""
        return [*pieces, PromptPiece(unescape_markup(text), False)] if text else pieces

    def _pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self._ids, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def _tokens(self, text: str) -> list[tuple[int, int, int]]:
        """Ids with the ends of their text."""
        tokens: list[tuple[int, int, int]] = []
        end = 0
        for match in self._pattern().finditer(text):
            tokens += [(ord(text[at]), at, at + 1) for at in range(end, match.start())]
            tokens.append((self._ids[match[0]], *match.span()))
            end = match.end()
        return tokens + [(ord(text[at]), at, at + 1) for at in range(end, len(text))]


def unescape_markup(content: Any) -> Any:
    """Content, also inside lists and objects, as it was before its markup was broken."""
    if isinstance(content, str):
        return _MARK.join(part.replace(_MARK, "") for part in content.split(2 * _MARK))
    if isinstance(content, Mapping):
        return {unescape_markup(key): unescape_markup(value) for key, value in content.items()}
    return [unescape_markup(value) for value in content] if isinstance(content, list) else content


@dataclass(frozen=True, eq=False)
class RendererFamily:
    """A family that the package renders: an entry point of the group `houston.dialects`."""

    name: str
    renderer: str
    """`module:Class` within `renderers`; its configuration is `ClassConfig` of its `configs`. Empty
    for a family that is refused and that the package has not."""
    models: str
    """Which models it is for, for people."""
    reasoning: Mapping[bool, Mapping[str, Any]] = field(default_factory=dict)
    """The configuration without and with reasoning; empty where there is no switch."""
    model: str = ""
    """The model whose template is meant, where the renderer asks."""
    markup: tuple[str, ...] = ()
    """Markup that the renderer writes as text, or asks for later than when it is made."""
    call_id: str = "{id}"
    """How the family names a call; of `id`, `name` and `index` within its answer."""
    refused: str = ""
    """Why it cannot be used, where that is not seen in what it renders."""

    def __call__(self, reasoning: bool = False) -> Dialect:
        """The family's dialect.

        Raises ConfigurationError where the package is not installed, and where the family breaks
        an invariant.
        """
        if self.refused:
            raise self.refusal(self.refused)
        if importlib.util.find_spec("renderers") is None:
            raise ConfigurationError(
                f"The dialect {self.name!r} needs the package `renderers`, which is not installed.",
                "No engine can use it.",
                "pip install 'houston-agents[dialects]'",
            )
        return _make_dialect(self, reasoning)

    def make_renderer(self, tokenizer: Any, reasoning: bool) -> Any:
        """Its `renderers.Renderer` over a `renderers.Tokenizer`.

        Thoughts of earlier answers stay, since a prompt begins with the prompt before it.
        """
        module, _, name = self.renderer.partition(":")
        renderer = getattr(importlib.import_module(f"renderers.{module}"), name)
        config = getattr(importlib.import_module("renderers.configs"), f"{name}Config")
        switched = self.reasoning.get(reasoning, {})
        return renderer(tokenizer, config(thinking_retention="all", **switched))

    def refusal(self, reason: str) -> ConfigurationError:
        """That the family cannot be used, because of an invariant."""
        return ConfigurationError(
            f"The dialect {self.name!r} is refused: {reason}.",
            "No engine can use it.",
            "Name another dialect of the model's family: docs/families.md.",
        )


@lru_cache(maxsize=64)
def _make_dialect(family: RendererFamily, reasoning: bool) -> Dialect:
    return RendererDialect(family, reasoning)


_TOOL = ToolSpec(
    "list_files",
    "List files.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
_CALL = ToolCall(id="1.0", name="list_files", arguments={"path": "notes"})
_FORM_CALL = ToolCall(id="1.0", name="tool", arguments={"argument": "value"})
_RESULT = PromptToolResult("1.0", "list_files", "a.txt")
_ASKED = {"role": "user", "content": "x"}
_PARSER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class RendererDialect(read.FamilyDialect):
    """See `dialect_protocol.Dialect`."""

    def __init__(self, family: RendererFamily, reasoning: bool) -> None:
        """Raises ConfigurationError that names the invariant which the family breaks."""
        self.name = family.name
        self._family, self._reasoning = family, reasoning
        self._tokenizer = CharacterTokenizer(family.model, family.markup)
        self._renderer = family.make_renderer(self._tokenizer, reasoning)
        self._tokenizer.close()
        self._repeated: _Ids = []
        self._learn_answers()
        self.shows_tools = True
        """Whether the template has a place for tools."""
        head_text = self._tokenizer.decode(self._head("s", [_TOOL], "t"))
        self.shows_tools = _TOOL.name in head_text
        self._require_invariants()

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`; where the template has no place for tools, or with `short`, they
        stand in the system prompt."""
        return self._tokenizer.pieces(self._head(system, tools, task, short))

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return self._tokenizer.pieces(self._head(system, (), text))

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`: messages of the role tool, the tail in the last of them;
        where the family takes none at this place, one message of a person."""
        return self._tokenizer.pieces(self._observation(results, tail, stop))

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`; the first call where the family writes one an answer."""
        return self._tokenizer.pieces(self._answer(thought, calls[: self._max_calls]))

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`."""
        reasoning, content, calls = self._parse(text, step, tools)
        return AgentAction(thought="\n".join(filter(None, (reasoning, content))), calls=calls)

    def _parse(
        self, text: str, step: int, tools: Mapping[str, ToolSpec], prompt: _Ids | None = None
    ) -> tuple[str, str, tuple[ToolCall, ...]]:
        """Reasoning, text and calls. Raises UnreadableAnswer."""
        ids = self._tokenizer.encode(text.replace(_MARK, 2 * _MARK))
        listed = [tool.openai() for tool in tools.values()] or None
        try:
            answer = self._renderer.parse_response(
                ids, tools=listed, prompt_ids=self._generation_prompt if prompt is None else prompt
            )
        except _PARSER_ERRORS as problem:
            raise read.UnreadableAnswer(f"it cannot be read ({problem})") from problem
        for attempt in answer.tool_calls:  # what is wrong with names and values its call says
            if attempt.status not in ("ok", "unknown_tool", "invalid_json"):
                raise read.UnreadableAnswer(f"a call cannot be read ({attempt.status})")
        calls = [
            read.build_call(
                unescape_markup(call.name), unescape_markup(call.arguments), step, index, tools
            )
            for index, call in enumerate(answer.tool_calls)
        ]
        texts = [
            unescape_markup(text or "").strip()
            for text in (answer.reasoning_content, answer.content)
        ]
        return texts[0], texts[1], read.require_call_count(calls)

    def _head(self, system: str, tools: Sequence[ToolSpec], text: str, short: bool = False) -> _Ids:
        system_text = self._tokenizer.broken(system)
        if tools and (short or not self.shows_tools):
            listed = read.tool_signatures(tools) if short else read.tool_schemas(tools)
            system_text += (
                f"\n\n# Tools\n{self._tokenizer.broken(listed)}\n\n# Answer\n"
                f"Write each call in this form:\n{self.form}"
            )
            tools = ()
        messages = [
            {"role": "system", "content": system_text},
            {"role": "user", "content": self._tokenizer.broken(text)},
        ]
        return self._render(messages, tools)

    def _render(self, messages: _Messages, tools: Sequence[ToolSpec] = ()) -> _Ids:
        """A prompt, up to the opening of the answer."""
        listed = [self._tokenizer.broken(tool.openai()) for tool in tools] or None
        ids: _Ids = self._renderer.render_ids(messages, tools=listed, add_generation_prompt=True)
        return ids

    def _answer(self, thought: str, calls: Sequence[ToolCall]) -> _Ids:
        """What a model samples when it says this, with the stop token."""
        texts = {"content": "", "reasoning_content": _NO_REASONING if self._is_open else ""}
        place = self._thought_place if calls else "content"
        texts |= {place: self._tokenizer.broken(thought)} if thought and place else {}
        message: dict[str, Any] = {
            "role": "assistant",
            **texts,
            "tool_calls": [
                {
                    "type": "function",
                    "id": self._call_id(call.id, call.name),
                    "function": {
                        "name": self._tokenizer.broken(call.name),
                        "arguments": self._tokenizer.broken(call.arguments),
                    },
                }
                for call in calls
            ],
        }
        follows = self._tool_messages([_RESULT] * len(calls), "") or [_ASKED]
        rendered = self._renderer.render([_ASKED, message, *follows])
        ids = self._sampled_ids(rendered)
        if texts["reasoning_content"] == _NO_REASONING and ord(_NO_REASONING) in ids:
            ids.remove(ord(_NO_REASONING))
        repeated = len(self._repeated)
        return ids[repeated:] if ids[:repeated] == self._repeated else ids

    def _sampled_ids(self, rendered: Any) -> _Ids:
        """Of a rendered conversation, what the model samples of the second message. Raises what
        `refusal` makes where the renderer does not say, or no token of its own ends it."""
        owners, sampled = rendered.message_indices, rendered.sampled_mask
        if len(sampled) != len(rendered.token_ids):
            raise self._family.refusal(
                "masks must be exact (invariant 7), and its renderer does not say which tokens a"
                " model samples"
            )
        ids = [
            number
            for number, owner, is_sampled in zip(rendered.token_ids, owners, sampled, strict=True)
            if owner == 1 and is_sampled
        ]
        if not ids or ids[-1] < _FIRST_MARKUP:
            raise self._family.refusal(
                "an answer must end with a token of its own (docs/rows.md), and in its renderer's"
                " hands it does not"
            )
        return ids

    def _call_id(self, id: str, name: str) -> str:
        index = id.rpartition(".")[2]
        return self._family.call_id.format(id=id, name=self._tokenizer.broken(name), index=index)

    def _observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None
    ) -> _Ids:
        usual = self._call_answer[-1] if results else self._text_answer[-1]
        sampled = self._tokenizer.convert_tokens_to_ids(stop) if stop else usual
        if stop != "" and (ids := self._next_turn(sampled, results, tail)) is not None:
            return ids
        for closing in (
            usual,
            self._text_answer[-1],
        ):  # no stop, or none that ends a turn by itself
            if (ids := self._next_turn(closing, results, tail)) is not None:
                return [closing, *ids]
        raise self._family.refusal(
            "a prompt must begin with the prompt before it (invariant 6), and after "
            f"{self._tokenizer.token_text(sampled)} its renderer writes earlier turns anew"
        )

    def _next_turn(self, end: int, results: Sequence[PromptToolResult], tail: str) -> _Ids | None:
        """What follows an answer that ended with the token `end`; None where the renderer would
        render the answer anew."""
        answer = [
            *(self._call_answer if end == self._call_answer[-1] else self._text_answer)[:-1],
            end,
        ]
        before = [*self._generation_prompt, *answer]
        text = "\n".join(part for part in (*(result.text for result in results), tail) if part)
        unnamed = [PromptToolResult("0.0", "unknown", "")]
        for messages in (
            self._tool_messages(results, tail),
            [{"role": "user", "content": self._tokenizer.broken(text)}],
            self._tool_messages(unnamed, text),
        ):
            rendered = messages and self._renderer.bridge_to_next_turn(
                self._generation_prompt, answer, messages
            )
            if rendered and rendered.token_ids[: len(before)] == before:
                ids: _Ids = rendered.token_ids[len(before) :]
                return ids
        return None

    def _tool_messages(self, results: Sequence[PromptToolResult], tail: str) -> _Messages:
        texts = [result.text for result in results]
        texts[-1:] = ["\n".join(filter(None, (text, tail))) for text in texts[-1:]]
        return [
            {
                "role": "tool",
                "name": self._tokenizer.broken(result.name),
                "tool_call_id": self._call_id(result.call_id, result.name),
                "content": self._tokenizer.broken(text),
            }
            for result, text in zip(results, texts, strict=True)
        ]

    def _learn_answers(self) -> None:
        """How the family's answers look, from answers that it is asked to write."""
        self._generation_prompt = self._render([_ASKED])
        text = self._renderer.parse_response([*map(ord, "x")], prompt_ids=self._generation_prompt)
        self._is_open = text.reasoning_complete is False
        self._thought_place, self._max_calls = "content", None
        self._repeated = self._opening_of(self._answer("ok", []))
        self._call_answer, self._text_answer = self._answer("", [_CALL]), self._answer("ok", [])
        places = ["content", "reasoning_content"]
        for place in (*(reversed(places) if self._is_open or self._reasoning else places), ""):
            self._thought_place = place
            if not self._not_read_back("why", [_CALL], self._generation_prompt):
                break
        try:
            several = self._answer("why", [_CALL, _CALL])
        except ValueError:  # a template that has no place for two
            several, self._max_calls = self._call_answer, 1
        self.form = self._tokenizer.decode(self._answer("", [_FORM_CALL])[:-1]).strip()
        ends = [self._call_answer[-1], self._text_answer[-1], *self._renderer.get_stop_token_ids()]
        self.stop_tokens = tuple(dict.fromkeys(map(self._tokenizer.token_text, ends)))
        names = self._names([*several, *self._call_answer])
        names |= {token for token in self._tokenizer.markup if _THINK.match(token)}
        self.answer_tokens = tuple(sorted(names.difference(self.stop_tokens)))

    def _opening_of(self, answer: _Ids) -> _Ids:
        """The markup that stands at the end of a prompt and again at the beginning of an answer."""
        lengths = range(min(len(answer), len(self._generation_prompt)), 0, -1)
        repeats = (
            answer[:length]
            for length in lengths
            if answer[:length] == self._generation_prompt[-length:]
        )
        return next((repeat for repeat in repeats if self._names(repeat)), [])

    def _names(self, ids: Iterable[int]) -> set[str]:
        """The markup in rendered ids."""
        return {self._tokenizer.token_text(id) for id in ids if id >= _FIRST_MARKUP}

    def _require_invariants(self) -> None:
        """Raise ConfigurationError that names the first one which the family breaks."""
        self._require_read_back([self._generation_prompt])
        prompts = [self._generation_prompt] + [
            [*self._generation_prompt, *answer, *self._observation(results, "tail", stop)]
            for results, answer in (([_RESULT], self._call_answer), ((), self._text_answer))
            for stop in (*self.stop_tokens, "", None)
        ]
        self._require_read_back(prompts)
        if self._markup_of_a_turn("x") != self._markup_of_a_turn("".join(self._tokenizer.markup)):
            raise self._family.refusal(
                "no content may become a special token, and in its renderer's hands it does"
            )
        used = [*(id for prompt in prompts for id in prompt), *self._head("s", [_TOOL], "t")]
        self.markup = tuple(sorted({*self._names(used), *self.answer_tokens}))

    def _require_read_back(self, prompts: Sequence[_Ids]) -> None:
        for thought in ("", "why" if self._thought_place else ""):
            for prompt in prompts:
                calls = [_CALL, _CALL][: self._max_calls]
                if reason := self._not_read_back(thought, calls, prompt):
                    raise self._family.refusal(
                        "an answer that is written anew must be read back as it was said "
                        f"(docs/rows.md), and its renderer reads another: {reason}"
                    )

    def _not_read_back(self, thought: str, calls: Sequence[ToolCall], prompt: _Ids) -> str:
        """Why an answer is not what it was made of; empty when it is."""
        text = self._tokenizer.decode(self._answer(thought, calls)[:-1])
        try:
            *parsed_texts, parsed_calls = self._parse(text, 1, {_TOOL.name: _TOOL}, prompt)
        except read.UnreadableAnswer as problem:
            return str(problem)
        if [call.arguments for call in parsed_calls] != [call.arguments for call in calls]:
            return "other calls"
        return "" if "".join(parsed_texts) == thought else f"the thought {''.join(parsed_texts)!r}"

    def _markup_of_a_turn(self, text: str) -> _Ids:
        """All markup of a head, an answer and what follows, with `text` in every place."""
        tool = ToolSpec(_TOOL.name, text, _TOOL.parameters)
        call = ToolCall(id="1.0", name=_TOOL.name, arguments={"path": text})
        result = PromptToolResult("1.0", _TOOL.name, text)
        ids = [*self._head(text, [tool], text), *self._answer(text, [call])]
        ids += [*self._answer(text, []), *self._observation([result], text, None)]
        ids += self._observation([], text, None)
        return [number for number in ids if number >= _FIRST_MARKUP]
