"""ChatML with Hermes tool calls: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.

The thought is the text before the first call. Results come back as `<tool_response>` blocks in one
user message; clock and guidance follow the last block. Qwen 2.5 writes this form too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.dialects import calls as read
from houston_daemon.dialects.chatml_json import chatml, content, template
from houston_daemon.dialects.protocol import Action, Piece, ToolText
from houston_daemon.environments.protocol import ToolSpec
from houston_shared.records import Call

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Hermes:
    """ChatML with `<tool_call>` blocks."""

    name = "hermes"
    stop_tokens: tuple[str, ...] = ("<|im_end|>",)
    answer_tokens: tuple[str, ...] = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    form = '<tool_call>\n{"name": "tool", "arguments": {}}\n</tool_call>'

    opening = "<|im_start|>assistant\n"
    """What opens an answer; families that switch reasoning add to it."""

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[Piece]:
        """See `Dialect.head`."""
        listed = read.signatures(tools) if short else read.schemas(tools)
        return [
            template("<|im_start|>system\n"),
            content(f"{system}\n\n# Tools\n\nThe tools and their arguments:\n"),
            template("<tools>\n"),
            content(listed),
            template("\n</tools>\n\n"),
            content("Write a short thought, then each call as a JSON object in its own block:\n"),
            template(
                '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
                "</tool_call><|im_end|>\n<|im_start|>user\n"
            ),
            content(task),
            template(f"<|im_end|>\n{self.opening}"),
        ]

    def question(self, system: str, text: str) -> list[Piece]:
        """See `Dialect.question`."""
        return chatml(system, text, self.opening)

    def observation(
        self, results: Sequence[ToolText], tail: str, stop: str | None = None
    ) -> list[Piece]:
        """See `Dialect.observation`: blocks, then the tail, in one user message."""
        closing = "" if stop in (None, "<|im_end|>") else "<|im_end|>"
        pieces = [template(f"{closing}\n<|im_start|>user")]
        for one in results:
            pieces += [
                template("\n<tool_response>\n"),
                content(one.text),
                template("\n</tool_response>"),
            ]
        if tail:
            pieces += [template("\n"), content(tail)]
        return [*pieces, template(f"<|im_end|>\n{self.opening}")]

    def assistant(self, thought: str, calls: Sequence[Call]) -> list[Piece]:
        """See `Dialect.assistant`."""
        pieces = [content(thought)] if thought else []
        for call in calls:
            pieces += [
                template("\n<tool_call>\n" if pieces else "<tool_call>\n"),
                content(read.compact({"name": call.name, "arguments": call.arguments})),
                template("\n</tool_call>"),
            ]
        return [*pieces, template("<|im_end|>")]

    def parse(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> Action:
        """See `Dialect.parse`."""
        reasoning, answer = split_reasoning(text)
        try:
            calls = self._calls(answer, step, tools)
        except read.Unreadable as problem:
            return Action(thought=text, calls=(), malformed=str(problem))
        said = answer.split("<tool_call>", 1)[0].strip()
        return Action(thought="\n".join(filter(None, (reasoning, said))), calls=calls)

    def _calls(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> tuple[Call, ...]:
        blocks = tool_blocks(text)
        return read.limited([self._call(b, step, i, tools) for i, b in enumerate(blocks)])

    def _call(self, block: str, step: int, index: int, tools: Mapping[str, ToolSpec]) -> Call:
        one = read.read_json(block.strip())
        if not isinstance(one, dict):
            raise read.Unreadable("a <tool_call> holds no object")
        return read.make(one.get("name"), one.get("arguments", {}), step, index, tools)

    def grammar(
        self, tools: Sequence[ToolSpec], answer_tokens: int = 1024
    ) -> Mapping[str, Any] | None:
        """None: the form is no JSON, and models of these families know it by training."""
        return None


def tool_blocks(text: str) -> list[str]:
    """The insides of all `<tool_call>` blocks; raises Unreadable when one is not closed."""
    blocks: list[str] = _CALL.findall(text)
    if len(blocks) != text.count("<tool_call>"):
        raise read.Unreadable("a <tool_call> is not closed")
    return blocks


def split_reasoning(text: str) -> tuple[str, str]:
    """Reasoning inside `<think>…</think>` at the start, and the rest.

    A block that is not closed is all reasoning: the answer never began.
    """
    body = text.lstrip()
    if body.startswith("<think>"):
        inside, closed, rest = body.removeprefix("<think>").partition("</think>")
    elif "</think>" in text:  # the opening tag stood in the prompt
        inside, closed, rest = text.partition("</think>")
    else:
        return "", text
    return inside.strip(), rest.strip() if closed else ""
