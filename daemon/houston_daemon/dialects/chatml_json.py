"""ChatML with one JSON object an answer: `{"thought": …, "calls": [{"name", "arguments"}]}`.

For models that know ChatML and no tool form of their own (SmolLM2), and for guided decoding: the
whole answer is one JSON schema. Results, clock and guidance come back in one user message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.dialects import calls as read
from houston_daemon.dialects.grammar import answer_schema
from houston_daemon.dialects.protocol import Action, Piece, ToolText
from houston_daemon.environments.protocol import ToolSpec
from houston_shared.records import Call

_OPEN = "<|im_start|>assistant\n"


def template(text: str) -> Piece:
    """The dialect's own markup."""
    return Piece(text, True)


def content(text: str) -> Piece:
    """Text in which special tokens are ordinary letters."""
    return Piece(text, False)


def chatml(system: str, text: str, opening: str) -> list[Piece]:
    """A system prompt and one message of a person, up to `opening` of the answer."""
    return [
        template("<|im_start|>system\n"),
        content(system),
        template("<|im_end|>\n<|im_start|>user\n"),
        content(text),
        template(f"<|im_end|>\n{opening}"),
    ]


class ChatmlJson:
    """ChatML, calls as JSON. `reasoning` has no form of its own here."""

    name = "chatml-json"
    stop_tokens: tuple[str, ...] = ("<|im_end|>",)
    answer_tokens: tuple[str, ...] = ()
    form = '{"thought": "…", "calls": [{"name": "…", "arguments": {…}}]}'

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[Piece]:
        """See `Dialect.head`."""
        listed = read.signatures(tools) if short else read.schemas(tools)
        told = (
            f"{system}\n\n# Tools\n{listed}\n\n# Answer\n"
            f"Each answer is one JSON object and nothing else:\n{self.form}"
        )
        return chatml(told, task, _OPEN)

    def question(self, system: str, text: str) -> list[Piece]:
        """See `Dialect.question`."""
        return chatml(system, text, _OPEN)

    def observation(
        self, results: Sequence[ToolText], tail: str, stop: str | None = None
    ) -> list[Piece]:
        """See `Dialect.observation`: one user message."""
        text = "\n".join(part for part in (*(one.text for one in results), tail) if part)
        closing = "" if stop in (None, "<|im_end|>") else "<|im_end|>"
        return [
            template(f"{closing}\n<|im_start|>user\n"),
            content(text),
            template(f"<|im_end|>\n{_OPEN}"),
        ]

    def assistant(self, thought: str, calls: Sequence[Call]) -> list[Piece]:
        """See `Dialect.assistant`; without calls the thought stands as plain text."""
        return [content(self._written(thought, calls)), template("<|im_end|>")]

    def _written(self, thought: str, calls: Sequence[Call]) -> str:
        if not calls:
            return thought
        listed = [{"name": call.name, "arguments": call.arguments} for call in calls]
        return read.compact({"thought": thought, "calls": listed})

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> Action:
        """See `Dialect.parse`."""
        try:
            return self._parse(text, step, tools)
        except read.Unreadable as problem:
            return Action(thought=text, calls=(), malformed=str(problem))

    def _parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> Action:
        answer = read.read_json(_unfenced(text))
        if not isinstance(answer, dict) or not isinstance(answer.get("calls"), list):
            raise read.Unreadable("it is no object with a list `calls`")
        thought = answer.get("thought", "")
        if not isinstance(thought, str):
            raise read.Unreadable("`thought` is no text")
        made = [_call(one, step, index, tools) for index, one in enumerate(answer["calls"])]
        return Action(thought=thought, calls=read.limited(made))

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """See `Dialect.grammar`."""
        return answer_schema(tools, answer_tokens)


def _call(one: Any, step: int, index: int, tools: Mapping[str, ToolSpec]) -> Call:
    if not isinstance(one, dict):
        raise read.Unreadable("a call is no object")
    return read.make(one.get("name"), one.get("arguments", {}), step, index, tools)


def _unfenced(text: str) -> str:
    """The text without a Markdown fence around it, which chat models like to add."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        return text.split("\n", 1)[1].removesuffix("```")
    return text
