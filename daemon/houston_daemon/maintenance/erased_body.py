"""What remains of an erased body: everything but text, so replay and counts still work.

`blank_body` removes every text of an agent, its world or a person, as an archive does;
`redact_text` removes one string wherever it occurs. Both give a body of the same kind with a mark
in place of removed text and zeros for token ids. Writes nothing.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from houston_shared import verdict_precedence
from houston_shared.errors import HoustonError
from houston_shared.records import (
    CallIntent,
    ContextHead,
    ForkBody,
    JobReport,
    Record,
    ToolCall,
    ToolResult,
)
from houston_shared.store import event_bodies, training_event_bodies
from houston_shared.store.journal_events import ERASED_TEXT
from houston_shared.wire import encode_message

_NUMERIC_FIELDS = frozenset({"overall_score", "state", "seconds", "counted", "total_results"})
"""Fields of a result that derived rows are made from."""
_IDENTIFYING_FIELDS = (
    "name",
    "kind",
    "base",
    "hash",
    "folder",
    "parent",
    "run",
    "engine",
    "policy",
    "state",
)
"""Fields by which runs, policies and activations are told apart."""
_TOKEN_ID_FIELDS = ("token_ids", "new_prompt_ids")
_FREE_KEY_FIELDS = frozenset(
    {
        "arguments",
        "fields",
        "parameters",
        "tools",
        "shortened",
        "engine_settings",
        "tool_settings",
        "recipe",
        "metrics",
    }
)
"""Members whose keys are anybody's words."""


def blank_body(kind: str, data: bytes) -> bytes | None:
    """The body without its texts; None where it holds none. Raises msgspec.MsgspecError."""
    rule = BLANK_RULES.get(kind)
    if rule is None:
        return None
    body = msgspec.msgpack.decode(data, type=event_bodies.BODY_TYPES[kind])
    remainder = rule(body)
    return None if remainder is body else encode_message(remainder)


def remove_token_ids(kind: str, data: bytes) -> bytes:
    """The body without token ids and their log-probabilities."""
    return encode_message(
        msgspec.msgpack.decode(
            encode_message(_remove_text(msgspec.msgpack.decode(data), "")),
            type=event_bodies.BODY_TYPES[kind],
        )
    )


def redact_text(kind: str, data: bytes, text: str) -> bytes:
    """The body without `text`, and without any token ids, which may spell it.

    Raises HoustonError where the text cannot be told from words of Houston's own.
    """
    remainder = encode_message(_remove_text(msgspec.msgpack.decode(data), text))
    try:
        after = msgspec.msgpack.decode(remainder, type=event_bodies.BODY_TYPES[kind])
        is_gone = not has_text(remainder, text) and _has_same_identity(kind, data, after)
    except msgspec.MsgspecError:
        is_gone = False
    if not is_gone:
        raise HoustonError(
            f"{text[:40]!r} is also a word that Houston writes itself: it cannot be erased alone.",
            "Nothing was erased.",
            "Erase the whole step: houston rollout erase R --at STEP",
        )
    return remainder


def _has_same_identity(kind: str, data: bytes, after: Record) -> bool:
    """Whether a training run, a policy or an activation is still called what it was."""
    if kind not in training_event_bodies.TRAINING_BODY_TYPES:
        return True
    before = msgspec.msgpack.decode(data, type=event_bodies.BODY_TYPES[kind])
    return all(
        getattr(before, name, None) == getattr(after, name, None) for name in _IDENTIFYING_FIELDS
    )


def has_text(data: bytes, text: str) -> bool:
    """Whether a body holds a text, in any of its spellings."""
    return has_any(data, encoded_spellings(text))


def has_any(data: bytes, needles: Sequence[bytes]) -> bool:
    """Whether one of them is in it; for a text that is looked for in many bodies."""
    return any(needle in data for needle in needles)


def encoded_spellings(text: str) -> list[bytes]:
    """Those of `list_spellings`, as bodies and files hold them."""
    return [spelling.encode() for spelling in list_spellings(text)]


def list_spellings(text: str) -> tuple[str, ...]:
    """The text as it is and as JSON writes it (an answer that could not be read is kept whole),
    each also as it looks where angle brackets and ampersands were escaped."""
    spellings: list[str] = []
    for spelling in (text, *(json.dumps(text, ensure_ascii=only)[1:-1] for only in (False, True))):
        for form in (spelling, spelling.replace("&", "&amp;")):
            spellings += (form, form.replace("<", "&lt;").replace(">", "&gt;"))
    return tuple(dict.fromkeys(spellings))


def _remove_text(body: dict[Any, Any], text: str) -> dict[Any, Any]:
    """`body`, changed in place. Without recursion: arguments may be nested very deep."""
    spellings = list_spellings(text) if text else ()
    waiting: list[tuple[Any, bool]] = [(body, False)]
    while waiting:
        value, words = waiting.pop()  # words: whether keys are somebody's, not names of members
        if isinstance(value, list):
            value[:] = [_replace_spellings(member, spellings) for member in value]
            waiting += [(member, words) for member in value if isinstance(member, list | dict)]
        elif isinstance(value, dict):
            members = dict(value)
            value.clear()
            for key, member in members.items():
                if words:
                    key = _replace_spellings(key, spellings)
                elif key in _TOKEN_ID_FIELDS and member is not None:
                    member = [0] * len(member)
                elif key == "logprobs":
                    member = None
                value[key] = _replace_spellings(member, spellings)
                waiting.append((value[key], words or key in _FREE_KEY_FIELDS))
    return _drop_duplicate_files(body)


def _replace_spellings(value: Any, spellings: tuple[str, ...]) -> Any:
    """A string without them; anything else as it is."""
    if isinstance(value, str):
        for spelling in spellings:
            value = value.replace(spelling, "[erased]")
    return value


def _drop_duplicate_files(body: dict[Any, Any]) -> dict[Any, Any]:
    """Files whose paths have become the same are one row: the first stays."""
    files = body.get("files")
    if isinstance(files, list) and all(isinstance(file, dict) for file in files):
        body["files"] = list({file.get("path"): file for file in reversed(files)}.values())[::-1]
    return body


def _zero_token_ids(ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if ids is None else (0,) * len(ids)


def _blank_call(call: ToolCall) -> ToolCall:
    return ToolCall(
        id=call.id, name=call.name, arguments={}, error=ERASED_TEXT if call.error else ""
    )


def _blank_spec(spec: event_bodies.StoredSpec) -> Record:
    if spec.refines is None:
        return spec
    refines = msgspec.structs.replace(spec.refines, text=ERASED_TEXT)
    return msgspec.structs.replace(spec, refines=refines)


def _blank_draft(draft: event_bodies.DraftWritten) -> Record:
    return msgspec.structs.replace(
        draft, text=ERASED_TEXT, reason=ERASED_TEXT if draft.reason else ""
    )


def _blank_head(head: ContextHead) -> Record:
    return msgspec.structs.replace(
        head,
        system=ERASED_TEXT,
        task=ERASED_TEXT,
        tools=(),
        rendered="",
        token_ids=_zero_token_ids(head.token_ids),
    )


def _blank_sample(sample: event_bodies.StoredSample) -> Record:
    grammar = sample.parameters.get("grammar")
    return msgspec.structs.replace(
        sample,
        new_prompt_ids=_zero_token_ids(sample.new_prompt_ids),
        token_ids=_zero_token_ids(sample.token_ids),
        logprobs=None,
        parameters={"grammar": ERASED_TEXT} if grammar else {},
        thought=ERASED_TEXT,
        calls=tuple(map(_blank_call, sample.calls)),
        malformed=ERASED_TEXT if sample.malformed else "",
    )


def _blank_intent(intent: CallIntent) -> Record:
    return msgspec.structs.replace(intent, call=_blank_call(intent.call))


def _blank_result(result: ToolResult) -> Record:
    fields = {name: value for name, value in result.fields.items() if name in _NUMERIC_FIELDS}
    return msgspec.structs.replace(
        result, call=_blank_call(result.call), text=ERASED_TEXT, fields=fields
    )


def _blank_observation(observation: event_bodies.StoredObservation) -> Record:
    files = tuple(
        msgspec.structs.replace(file, diff="", note=ERASED_TEXT) for file in observation.files
    )
    reasons = dict.fromkeys(observation.reasons, ERASED_TEXT)
    return msgspec.structs.replace(observation, tail=ERASED_TEXT, files=files, reasons=reasons)


def _blank_fork(fork: ForkBody) -> Record:
    return msgspec.structs.replace(fork, summary=ERASED_TEXT)


def _blank_guidance(guidance: Any) -> Any:
    return msgspec.structs.replace(guidance, text=ERASED_TEXT)


def _blank_note(body: event_bodies.StepBookmarked | event_bodies.RolloutClaimed) -> Record:
    return msgspec.structs.replace(body, note=ERASED_TEXT if body.note else "")


def _blank_job(job: JobReport) -> Record:
    return msgspec.structs.replace(
        job,
        command=ERASED_TEXT,
        end=ERASED_TEXT if job.end else "",
        output=ERASED_TEXT if job.output else "",
        last_line=ERASED_TEXT if job.last_line else "",
    )


def _blank_verdict(verdict: event_bodies.VerdictGiven) -> Record:
    # That a rule masks an error decides which verdict counts, and its name is nobody's words.
    named = (
        verdict_precedence.split_rule_reasons(verdict.reason) if verdict.source == "rule" else []
    )
    errors = [
        rule._replace(reason=ERASED_TEXT)
        for rule in named
        if rule.rule == verdict_precedence.ERROR_RULE
    ]
    reason = verdict_precedence.join_rule_reasons(errors[:1]) or (
        ERASED_TEXT if verdict.reason else ""
    )
    return msgspec.structs.replace(verdict, reason=reason)


BLANK_RULES: dict[str, Callable[[Any], Any]] = {
    "spec": _blank_spec,
    "draft": _blank_draft,
    "head": _blank_head,
    "sample": _blank_sample,
    "intent": _blank_intent,
    "result": _blank_result,
    "observation": _blank_observation,
    "fork": _blank_fork,
    "guidance": _blank_guidance,
    "edit": _blank_guidance,
    "bookmark": _blank_note,
    "claim": _blank_note,
    "job": _blank_job,
    "verdict": _blank_verdict,
}
"""Kind of an event → what is left of its body; kinds that are not there hold no such text."""
