"""The answer of a purified step: a failed answer and its correction, put together as one.

CLEANER §4.2: where the corrected call is similar to the failed one (difflib's ratio at or above γ),
the first thought is kept and the call replaced (shallow); otherwise thought and call are the
correction's (deep). Token ids are those that the policy would have sampled in the purified context.
Pure functions: they sample, run and store nothing.
"""

import difflib
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from typing import Literal

from msgspec.structs import replace

from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import Dialect, compact_json
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
_MAX_CALL_PLACES = 8
"""Places of one answer at which a call is looked for, of more the first and the last ones: markup
has the call first, while a name without markup may stand in the thought before."""
_ANY_NAME = "\ue000"
"""Stands for the name of a tool, where how a call is written is asked: no markup holds it."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """How a correction replaces a failed answer."""

    mode: ReplacementMode
    similarity: float
    """difflib's ratio of the failed call and the corrected one, 0 to 1."""


def choose_replacement(
    failed: SampleBody, results: Sequence[ToolResult], corrected: SampleBody, threshold: float
) -> Replacement:
    """Shallow from `threshold` on, otherwise deep. An answer that was not an action has no thought
    to keep, so it is always replaced deep.

    failed: the first attempt, even if a later one failed too. results: those of its calls.
    """
    first, second = _compared_texts(failed, results, corrected)
    ratio = round(difflib.SequenceMatcher(None, first, second).ratio(), 4)
    shallow = ratio >= threshold and bool(failed.calls) and not failed.malformed
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
) -> SampleBody:
    """The sample of the purified step; replaced deep where its ids cannot be put together.

    provenance: `attempts` and `from_attempt`. The prompt is that of the first attempt. The sample
    has no log-probabilities, because it was not sampled in that context; a trainer recomputes them
    in the purified context (CLEANER §4.3).
    """
    shallow, ids = replacement.mode == "shallow", corrected.token_ids
    count = len(ids or ())
    if shallow and renderer.tokens is not None:
        grafted = graft_calls(failed, corrected, renderer, renderer.tokens, tools)
        shallow = grafted is not None
        ids, count = grafted or (ids, count)
    counts = {"corrected_tokens": count} if count else {}
    drawn = {key: value for key, value in corrected.parameters.items() if key != LOOKAHEAD_KEY}
    mode = "shallow" if shallow else "deep"
    story = {"mode": mode, "similarity": replacement.similarity, **provenance, **counts}
    return replace(
        failed,
        token_ids=ids,
        logprobs=None,
        logprob_kind="none",
        finish_reason=corrected.finish_reason,
        engine=PURIFIED_ENGINE,
        parameters={**drawn, PURIFICATION_KEY: story},
        thought=failed.thought if shallow else corrected.thought,
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
    corrected: SampleBody,
    renderer: PromptRenderer,
    tokens: PromptTokenizer,
    tools: Mapping[str, ToolSpec],
) -> tuple[tuple[int, ...], int] | None:
    """The failed answer's ids before its calls, then the correction's ids from its calls on; and
    how many ids come from the correction.

    None where one of them cannot be cut there between two tokens, or where the dialect does not
    read the first thought and the corrected calls back.
    """
    expected_parts = (failed.thought, *map(_call_content, corrected.calls))
    first, second = failed.token_ids or (), corrected.token_ids or ()
    places = (_call_beginnings(sample, renderer.dialect, tokens) for sample in (failed, corrected))
    for counts in product(*places):
        cuts = zip(*counts, strict=False)
        kept_count, dropped_count = next((cut for cut in cuts if None not in cut), (None, None))
        if kept_count is None:
            continue
        ids = (*first[:kept_count], *second[dropped_count:])
        ended = bool(ids) and ids[-1] in renderer.stops
        read = renderer.dialect.parse(tokens.decode(ids[: len(ids) - ended]), 0, tools)
        if not read.malformed and (read.thought, *map(_call_content, read.calls)) == expected_parts:
            return ids, len(ids) - kept_count
    return None


def _call_content(call: ToolCall) -> tuple[str, str]:
    return call.name, compact_json(call.arguments)


def _call_beginnings(
    sample: SampleBody, dialect: Dialect, tokens: PromptTokenizer
) -> list[list[int | None]]:
    """Where the first call of an answer may begin: for each such place, how many ids stand before
    each sign of what begins a call; None where it begins within one."""
    ids = sample.token_ids or ()
    text = tokens.decode(ids)
    places = list(_call_pattern(dialect, sample.calls[0]).finditer(text))
    if len(places) > _MAX_CALL_PLACES:
        places = [*places[: _MAX_CALL_PLACES // 2], *places[-_MAX_CALL_PLACES // 2 :]]
    return [
        [
            _count_ids_up_to(text[: place.start(sign)], ids, tokens)
            for sign in range(1, len(place.groups()) + 1)
        ]
        for place in places
    ]


def _call_pattern(dialect: Dialect, call: ToolCall) -> re.Pattern[str]:
    """What begins a call, whatever the thought before it: the dialect's markup up to the name, with
    any white space between its signs; without markup, its first word or signs, or its name."""
    ending = _common_suffix(dialect, replace(call, name=_ANY_NAME))
    signs = "".join(ending.partition(_ANY_NAME)[0].split())
    if not signs:
        leads = re.findall(r"\w+|[^\w\s]+", _common_suffix(dialect, call))[:1]
        return re.compile(f"({'|'.join(map(_as_whole_word, (*leads, call.name)))})")
    return re.compile(r"\s*".join(f"({re.escape(sign)})" for sign in signs))


def _as_whole_word(text: str) -> str:
    """A pattern of it; of a word not within a longer one, as `read` is in "already"."""
    pattern = re.escape(text)
    return rf"(?<!\w){pattern}(?!\w)" if re.match(r"\w", text) else pattern


def _common_suffix(dialect: Dialect, call: ToolCall) -> str:
    """How the dialect ends an answer with this call alike after every thought."""
    answer, other = (
        "".join(piece.text for piece in dialect.assistant(thought, [call])) for thought in ("", "x")
    )
    pairs = zip(reversed(answer), reversed(other), strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return answer[len(answer) - length :]


def _count_ids_up_to(text: str, ids: Sequence[int], tokens: PromptTokenizer) -> int | None:
    """How many of `ids` spell this beginning of their text; None where it ends within one."""
    count = bisect_left(
        range(len(ids)), len(text), key=lambda length: len(tokens.decode(ids[:length]))
    )
    return count if tokens.decode(ids[:count]) == text else None
