"""How a tiny policy writes: words of a small vocabulary, and nothing else.

    <s> find coin <a> open red <e> <o> red open <a> read <e> <o> paper says 1 2 3 <a>

A head has only the task's words: no system prompt and no tools, which such a policy knows by
training. An answer is the tool's name and its arguments in order, ended by `<e>`. Houston's own
lines (clock, budgets, notes; in square brackets) are left out; messages from people come as
`<real_user> … </real_user>` after the observation. The tokenizer lowercases letters and drops signs
(`suites.word_tokenizer`), so text and ids say the same.
"""

import re
from collections.abc import Mapping, Sequence

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts import dialect_protocol as read
from houston_daemon.prompts.dialect_protocol import AgentAction, PromptPiece, PromptToolResult
from houston_shared.guidance_tag import CLOSING_TAG, OPENING_TAG
from houston_shared.records import ToolCall

BEGIN, ANSWER, END, OBSERVED, UNKNOWN, PADDING = "<s>", "<a>", "<e>", "<o>", "<unk>", "<pad>"
MARKUP = (PADDING, BEGIN, ANSWER, END, OBSERVED, UNKNOWN, OPENING_TAG, CLOSING_TAG)
"""Every special token of the dialect; none may stand in an answer before its end."""
_OWN_LINE = re.compile(r"^\[.*\]$", re.MULTILINE)
_BUDGETS = re.compile(r"\s*^\[You have .*\]\s*\Z", re.MULTILINE)
"""Behind a task (`system_prompt.task_message`)."""
_SAID = re.compile(f"{re.escape(OPENING_TAG)}(.*?){re.escape(CLOSING_TAG)}", re.DOTALL)
_WORD = re.compile(r"[a-z0-9]+")
_EXTRA = "words"
"""Argument for words that a tool does not take, so that none is lost."""


class WordsDialect(read.FamilyDialect):
    """See `dialect_protocol.Dialect`."""

    name = "words"
    stop_tokens: tuple[str, ...] = (END,)
    form = "open red"

    def head(
        self, system: str, tools: Sequence[ToolSpec], task: str, short: bool = False
    ) -> list[PromptPiece]:
        """See `Dialect.head`; only the task's words."""
        return self.question(system, task)

    def question(self, system: str, text: str) -> list[PromptPiece]:
        """See `Dialect.question`; only the message's words."""
        return [_mark(BEGIN), *_words(text), _mark(ANSWER)]

    def observation(
        self, results: Sequence[PromptToolResult], tail: str, stop: str | None = None
    ) -> list[PromptPiece]:
        """See `Dialect.observation`; of the tail only messages from people."""
        closing = "" if stop in (None, END) else f" {END}"
        pieces = [PromptPiece(f"{closing} {OBSERVED} ", True)]
        for result in results:
            pieces += _words(result.text)
        for text in find_guidance_texts(tail):
            pieces += [_mark(OPENING_TAG), *_words(text), _mark(CLOSING_TAG)]
        return [*pieces, _mark(ANSWER)]

    def assistant(self, thought: str, calls: Sequence[ToolCall]) -> list[PromptPiece]:
        """See `Dialect.assistant`: the first call; without calls the thought."""
        text = _format_call(calls[0]) if calls else thought
        return [*_words(text), PromptPiece(f" {END}", True)]

    def read_action(self, text: str, step: int, tools: Mapping[str, ToolSpec]) -> AgentAction:
        """See `FamilyDialect.read_action`: one call; a text that is not all words is none."""
        name, *rest = text.split() or [""]
        if not all(map(_WORD.fullmatch, (name, *rest))):
            raise read.UnreadableAnswer("it is no words")
        call = read.build_call(name, _arguments(rest, tools.get(name)), step, 0, tools)
        return AgentAction(thought="", calls=(call,))


def without_budgets(task: str) -> str:
    """A task without Houston's line of its budgets. Other lines in brackets are the task's: lists,
    rows of numbers."""
    return _BUDGETS.sub("", task).strip()


def find_guidance_texts(tail: str) -> list[str]:
    """The messages from people in the tail of an observation, in order."""
    return list(_SAID.findall(tail))


def _mark(token: str) -> PromptPiece:
    return PromptPiece(f" {token} ", True)


def _words(text: str) -> list[PromptPiece]:
    """A text's words, without lines that are Houston's own."""
    words = " ".join(_OWN_LINE.sub("", text).split())
    return [PromptPiece(words, False)] if words else []


def _arguments(words: Sequence[str], tool: ToolSpec | None) -> dict[str, str]:
    """Words as a tool's arguments in order; the last one takes all that are left."""
    keys = list(tool.parameters.get("properties", {})) if tool else []
    keys = (keys or [_EXTRA])[: len(words)]
    parts = [*words[: len(keys) - 1], " ".join(words[len(keys) - 1 :])] if keys else []
    return dict(zip(keys, parts, strict=True))


def _format_call(call: ToolCall) -> str:
    return " ".join((call.name, *(str(value) for value in call.arguments.values())))
