"""ChatML with one call a line, for small models in short contexts: `read("notes.txt")`.

A head is one line for each tool and the task: no system prompt, no schemas, about 100 tokens where
`chatml-json` takes 700. An answer is one call in Python syntax, perhaps after a thought; a block of
Python in backticks is a call of the tool `python`. Houston's own lines (budgets after the task,
clock and notes after an observation) are left out; messages from people are kept.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as read
from houston_daemon.prompts.dialect_protocol import AgentAction, PromptPiece, PromptToolResult
from houston_daemon.prompts.model_dialects import chatml_prompt
from houston_daemon.prompts.words_dialect import find_guidance_texts, without_budgets
from houston_shared.guidance_tag import CLOSING_TAG, OPENING_TAG
from houston_shared.records import ToolCall

_STOP = "<|im_end|>"
_OPENING = "<|im_start|>assistant\n"
_RULES = "Answer with one call and nothing else. Do what a person says in real_user tags. Calls:\n"
NO_CALL = "Error: that is no call."
"""Stands for the observation of an answer from which no call could be read."""
_CODE = re.compile(r"```(?:python|py)?\n(.*?)\n?```", re.DOTALL)
_CODE_TOOL = "python"


class CallsDialect(read.FamilyDialect):
    """See `dialect_protocol.Dialect`."""

    name = "chatml-calls"
    stop_tokens: tuple[str, ...] = (_STOP,)
    form = 'name("argument")'

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`; without the system prompt and the budgets after the task."""
        return self.question(_RULES + read.tool_signatures(tools), without_budgets(task))

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`."""
        return chatml_prompt(system, text, _OPENING)

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`; of the tail only messages from people."""
        lines = [result.text.strip() for result in results] or [NO_CALL]
        lines += [f"{OPENING_TAG}{text}{CLOSING_TAG}" for text in find_guidance_texts(tail)]
        closing = "" if stop in (None, _STOP) else _STOP
        return [
            PromptPiece(f"{closing}\n<|im_start|>user\n", True),
            PromptPiece("\n".join(lines), False),
            PromptPiece(f"{_STOP}\n{_OPENING}", True),
        ]

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`: the first call."""
        lines = [thought, *map(written_call, calls[:1])]
        return [PromptPiece("\n".join(filter(None, lines)), False), PromptPiece(_STOP, True)]

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`; the call starts a line, and nothing follows it."""
        thought, name, arguments = _split_answer(text, tools)
        call = read.build_call(name, arguments, step, 0, tools)
        return AgentAction(thought=thought, calls=(call,))


def written_call(call: ToolCall) -> str:
    """A call in Python syntax; code as a separate block."""
    if call.name == _CODE_TOOL and list(call.arguments) == ["code"]:
        return f"```python\n{call.arguments['code']}\n```"
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def _split_answer(text: str, tools: Mapping[str, ToolSpec]) -> tuple[str, str, dict[str, Any]]:
    """Thought, name and arguments. Raises UnreadableAnswer."""
    if _CODE_TOOL in tools and (block := _CODE.search(text)):
        return text[: block.start()].strip(), _CODE_TOOL, {"code": block[1]}
    begins = [match.start() for match in re.finditer(r"^ *\w+\(", text, re.MULTILINE)]
    for begin in begins:
        try:
            parsed = ast.parse(text[begin:].strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if isinstance(parsed, ast.Call) and isinstance(parsed.func, ast.Name):
            return text[:begin].strip(), parsed.func.id, _arguments(parsed, tools)
    raise read.UnreadableAnswer("it is no call")


def _arguments(call: ast.Call, tools: Mapping[str, ToolSpec]) -> dict[str, Any]:
    """Arguments by name; those without one take the tool's names in order."""
    assert isinstance(call.func, ast.Name)
    tool = tools.get(call.func.id)
    names = list(tool.parameters.get("properties", {})) if tool else []
    names += [f"argument{number}" for number in range(len(names), len(call.args))]
    pairs = [*zip(names, call.args, strict=False)]
    pairs += [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    try:
        arguments = {name: ast.literal_eval(value) for name, value in pairs}
        read.compact_json(arguments)  # bytes, sets and complex numbers are none that a tool takes
        return arguments
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise read.UnreadableAnswer("an argument is no plain value") from None
