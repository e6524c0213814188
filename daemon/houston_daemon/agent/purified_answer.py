"""What a purified step says: a failed answer and its correction put together as one.

CLEANER §4.2: where the corrected call is like the failed one (difflib's ratio at or above γ), the
first thought is kept and the call exchanged (shallow); else thought and call are the correction's
(deep). Token ids are what the policy would have said in the purified context. Pure functions: it
samples, runs and stores nothing.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect, PromptPiece, compact_json
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_shared.records import (
    LOOKAHEAD_KEY,
    PURIFICATION_KEY,
    PURIFIED_ENGINE,
    SampleBody,
    ToolCall,
    ToolResult,
)

ReplacementMode = Literal["shallow", "deep"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """How a failed answer gives way to its correction."""

    mode: ReplacementMode
    similarity: float
    """difflib's ratio of the failed call and the corrected one, 0 to 1."""


def choose_replacement(
    failed: SampleBody, results: Sequence[ToolResult], corrected: SampleBody, threshold: float
) -> Replacement:
    """Shallow from `threshold` on, else deep. An answer that was no action has no thought that
    could be kept: deep in any case.

    failed: the first attempt, whatever failed after it. results: of its calls.
    """
    first, second = _compared_texts(failed, results, corrected)
    ratio = round(difflib.SequenceMatcher(None, first, second).ratio(), 4)
    shallow = ratio >= threshold and not failed.malformed
    return Replacement("shallow" if shallow else "deep", ratio)


def _compared_texts(
    failed: SampleBody, results: Sequence[ToolResult], corrected: SampleBody
) -> tuple[str, str]:
    """The first call that failed, and what stands in its place in the correction."""
    if failed.malformed or not failed.calls:
        return failed.thought, "\n".join(map(_call_text, corrected.calls))
    index = next((at for at, result in enumerate(results) if not result.success), 0)
    first = failed.calls[min(index, len(failed.calls) - 1)]
    second = corrected.calls[min(index, len(corrected.calls) - 1)]
    if first.name == second.name and (codes := (_only_text(first), _only_text(second))) != ("", ""):
        return codes
    return _call_text(first), _call_text(second)


def _only_text(call: ToolCall) -> str:
    """The code of a code tool: the text of a call that has one argument and nothing else."""
    values = list(call.arguments.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else ""


def _call_text(call: ToolCall) -> str:
    return f"{call.name} {_only_text(call) or compact_json(call.arguments)}"


def build_purified_sample(
    failed: SampleBody,
    corrected: SampleBody,
    replacement: Replacement,
    provenance: Mapping[str, int],
    renderer: PromptRenderer,
    tools: Mapping[str, ToolSpec],
) -> SampleBody | None:
    """The sample of the purified step; None where its ids would not be read back as what they say.

    provenance: `attempts` and `from_attempt`. The prompt is that of the first
    attempt. It has no log-probabilities: nobody sampled it there, and who trains it recomputes them
    in the purified context (CLEANER §4.3).
    """
    shallow = replacement.mode == "shallow"
    thought = failed.thought if shallow else corrected.thought
    ids = corrected.token_ids
    if shallow and renderer.tokens is not None:
        ids = graft_calls(failed, corrected.calls, renderer, renderer.tokens, tools)
        if ids is None:
            return None
    drawn = {key: value for key, value in corrected.parameters.items() if key != LOOKAHEAD_KEY}
    story = {"mode": replacement.mode, "similarity": replacement.similarity, **provenance}
    return replace(
        failed,
        token_ids=ids,
        logprobs=None,
        logprob_kind="none",
        finish_reason=corrected.finish_reason,
        engine=PURIFIED_ENGINE,
        parameters={**drawn, PURIFICATION_KEY: story},
        thought=thought,
        calls=corrected.calls,
        malformed="",
        prompt_tokens=None,
        cached_tokens=None,
        completion_tokens=None,
        cost=None,
        reasoning_tokens=None,
        seconds=0.0,
    )


def graft_calls(
    failed: SampleBody,
    calls: Sequence[ToolCall],
    renderer: PromptRenderer,
    tokens: PromptTokenizer,
    tools: Mapping[str, ToolSpec],
) -> tuple[int, ...] | None:
    """Ids of the failed answer's thought as they were sampled, then `calls` as the dialect writes
    them; None where the dialect does not read thought and calls back from them."""
    dialect = renderer.dialect
    pieces = dialect.assistant(failed.thought, calls)
    text = "".join(piece.text for piece in pieces)
    until = _length_before_calls(dialect, failed.thought)
    kept, written = _longest_prefix(failed.token_ids or (), text[:until], tokens)
    ids = (*kept, *tokens.encode(_pieces_after(pieces, written)))
    ended = bool(ids) and ids[-1] in renderer.stops
    read = dialect.parse(tokens.decode(ids[: len(ids) - ended]), 0, tools)
    same = read.thought == failed.thought and not read.malformed
    return ids if same and list(map(_said, read.calls)) == list(map(_said, calls)) else None


def _said(call: ToolCall) -> tuple[str, str]:
    return call.name, compact_json(call.arguments)


def _length_before_calls(dialect: Dialect, thought: str) -> int:
    """Characters of an answer up to the name of its first call: where two answers with the same
    thought may begin to differ."""
    first, second = (
        "".join(piece.text for piece in dialect.assistant(thought, [_empty_call(name)]))
        for name in ("a", "b")
    )
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), len(first))


def _empty_call(name: str) -> ToolCall:
    return ToolCall(id="", name=name, arguments={})


def _longest_prefix(
    ids: Sequence[int], text: str, tokens: PromptTokenizer
) -> tuple[Sequence[int], int]:
    """The most of `ids` that spells a beginning of `text`, and its length in characters."""
    count = length = 0
    for end in range(1, len(ids) + 1):
        spelled = tokens.decode(ids[:end])
        if len(spelled) > len(text):
            break
        if text.startswith(spelled):  # an id may end within a letter, which the next one completes
            count, length = end, len(spelled)
    return ids[:count], length


def _pieces_after(pieces: Sequence[PromptPiece], start: int) -> list[PromptPiece]:
    """`pieces` without their first `start` characters."""
    rest = []
    for piece in pieces:
        if len(piece.text) > start:
            rest.append(PromptPiece(piece.text[start:], piece.template))
        start = max(0, start - len(piece.text))
    return rest
