"""Finds answers that no verdict makes trainable: forged turns, and renderings that do not parse
back.

A forged turn is an answer that contains a special token other than its stop token: the model wrote
a user's or a tool's turn. A rendered answer is sound when the dialect's own parser reads back the
thought and calls that it was made of. `row_weights` decides the weights.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect, compact_json
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_shared.records import ContextHead, SampleBody, ToolCall

FORGED_TURN = "forged turn"
NOT_READ_BACK = "not read back as it was said"
"""How the two reasons begin."""
_TOOL_RESULT_TOKENS = ("<tool_response>", "</tool_response>")
"""Plain tokens with which families open and close a tool's result: no answer has them either."""


class ReservedTokens:
    """Tokens of one tokenizer that no answer in a dialect may hold before its end."""

    def __init__(self, tokens: PromptTokenizer, dialect: Dialect) -> None:
        written = (*_TOOL_RESULT_TOKENS, *dialect.markup)
        plain = {tokens.id_of(token): token for token in written}
        reserved = tokens.special | {id: token for id, token in plain.items() if id is not None}
        self.ids = {
            id: token for id, token in reserved.items() if token not in dialect.answer_tokens
        }
        self._stops = {id for id, token in self.ids.items() if token in dialect.stop_tokens}
        longest_first = sorted(self.ids.values(), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def forged_reason(self, ids: Sequence[int], finish_reason: str) -> str:
        """Why sampled ids are a forged turn; empty when they are none.

        The token that ended the answer is none of it, also where it is no stop token of the
        dialect: that is another reason (`AnswerFacts.missing_stop_reason`).
        """
        ended = ids and (finish_reason == "stop" or ids[-1] in self._stops)
        inside = ids[:-1] if ended else ids
        if self.ids.keys().isdisjoint(inside):
            return ""
        forged = next(token_id for token_id in inside if token_id in self.ids)
        return f"{FORGED_TURN}: it holds the token {self.ids[forged]}"

    def forged_text_reason(self, thought: str, calls: Sequence[ToolCall]) -> str:
        """As `forged_reason`, for an answer of which only the text is known: a token in it cannot
        be told from the same letters."""
        texts = (thought, *(part for call in calls for part in (call.name, _call_json(call))))
        matches = (match[0] for text in texts if (match := self._pattern.search(text)))
        token = next(matches, "")
        return f"{FORGED_TURN}: its text has {token}" if token else ""


def _call_json(call: ToolCall) -> str:
    return json.dumps(call.arguments, ensure_ascii=False, default=str)


@lru_cache(maxsize=8)
def _reserved_ids(tokenizer: str, dialect: str) -> ReservedTokens:
    return ReservedTokens(PromptTokenizer(tokenizer), choose_dialect(dialect))


def reserved_of_head(head: ContextHead | None) -> ReservedTokens | None:
    """For the ids of a rollout; None where it has none, or its tokenizer's file is gone: then no
    row of its ids can leave the home either (`export.export_line_builder`)."""
    if head is None or head.token_ids is None or not Path(head.tokenizer).is_file():
        return None
    return _reserved_ids(head.tokenizer, head.dialect)


def forged_turn_reason(reserved: ReservedTokens | None, sample: SampleBody) -> str | None:
    """Why a sample of the ledger is a forged turn; empty when it is none, None without its ids."""
    if reserved is None or sample.token_ids is None:
        return None
    return reserved.forged_reason(sample.token_ids, sample.finish_reason)


def not_read_back_reason(
    dialect: Dialect,
    text: str,
    thought: str,
    calls: Sequence[ToolCall],
    tools: Mapping[str, ToolSpec],
) -> str:
    """Why a rendered answer is not what it was made of; empty where parse(render(x)) is x.

    text: of its ids, without the stop token. Ids of calls are Houston's and no part of an answer.
    """
    action = dialect.parse(text, 0, tools)
    if not calls:  # a text that is no action: it must stay one, word for word
        same = action.malformed and action.thought.strip() == thought.strip()
        return "" if same else f"{NOT_READ_BACK}: another text in this dialect, or an action"
    if action.malformed:
        return f"{NOT_READ_BACK}: no action in this dialect"
    if [*map(_comparable_call, action.calls)] != [*map(_comparable_call, calls)]:
        return f"{NOT_READ_BACK}: other calls in this dialect"
    return "" if action.thought == thought else f"{NOT_READ_BACK}: another thought in this dialect"


def _comparable_call(call: ToolCall) -> tuple[str, str, str]:
    """Name, arguments with their types, and what was wrong with it."""
    return call.name, compact_json(call.arguments), call.error
